"""`distmon record`: follow agents and record all that they have, without a screen; goes on with a file that is there."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from importlib.metadata import version
from pathlib import Path
from types import FrameType

from distmon.core.errors import DistmonError, UsageError
from distmon.core.events import SessionStarted
from distmon.replay.recorder import Recorder
from distmon.replay.resume import last_position
from distmon.tui.job import new_session_id
from distmon.tui.live import LiveSession
from distmon.wire.addresses import default_address
from distmon.wire.clock import SteadyClock
from distmon.wire.keys import ViewerKeys, keys_folder, viewer_keys
from distmon.wire.subscription import Subscription

EPILOG = """\
  distmon record node.jsonl                                   this machine's agent
  distmon record lab.jsonl --connect node1 --connect node2    agents that `distmon keys list` names, or tcp://HOST:PORT

Ends with Ctrl-C. Started again with the same file it goes on where it was: what the agents' journals hold of the time between
is recorded too, once. What they no longer hold is recorded as a gap with its length.
"""
SUMMARIES_HELP = "of each second of a rank the sums, in place of each step: for a link or a machine that cannot take them all"
_LOOK_EVERY_S = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("file", type=Path, metavar="FILE", help="the recording, .jsonl or .jsonl.zst")
    parser.add_argument("--connect", metavar="ADDRESS", action="append", help="an agent's address or name; may be given again")
    parser.add_argument("--summaries", action="store_true", help=SUMMARIES_HELP)
    parser.add_argument("--for", type=float, metavar="SECONDS", dest="seconds", help="end after this time")


def run(arguments: argparse.Namespace) -> int:
    addresses, keys = known_agents(arguments.connect or [default_address()])
    path: Path = arguments.file
    goes_on = os.path.lexists(path) and path.stat().st_size > 0
    resume = last_position(path) if goes_on else {}
    clock = SteadyClock()
    started = SessionStarted(at=clock.now(), session_id=new_session_id(), distmon_version=version("distmon"))
    recorder = Recorder(path, append=goes_on)
    try:
        subscription = Subscription(
            addresses, since_start=goes_on, keys=keys, resume=resume, summed=arguments.summaries, clock=clock.now
        )
    except DistmonError:
        recorder.close()
        raise
    session = LiveSession(None if goes_on else started, subscription, list, clock, recorder)
    count = _follow(session, recorder, arguments.seconds)
    if recorder.failed:
        raise DistmonError(recorder.failed)
    sys.stderr.write(f"distmon: {count} events recorded in {path}\n")
    return 0


def known_agents(named: list[str]) -> tuple[list[str], ViewerKeys | None]:
    """The addresses of agents given by address or name, and the keys for those on the network. Raises DistmonError."""
    if all(name.startswith("ipc://") for name in named):
        return named, None
    keys = viewer_keys(keys_folder())
    addresses = [keys.names.get(name, name) for name in named]
    for address in addresses:
        if address.startswith("tcp://") and address not in keys.agents:
            raise DistmonError(f"the key of the agent at {address} is not known; distmon keys add NAME KEY --agent {address}")
        if "://" not in address:
            raise UsageError(f"there is no agent {address} here; to see the known ones: distmon keys list")
    return addresses, keys


def _follow(session: LiveSession, recorder: Recorder, seconds: float | None) -> int:
    """Until a signal, the end of the time, or a recording that fails. Gives the number of events recorded."""
    ending = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        ending.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_signal)
    deadline = None if seconds is None else time.monotonic() + seconds
    shown = 0.0
    session.start()
    while not ending.wait(_LOOK_EVERY_S) and not recorder.failed:
        for _ in session.poll():
            pass
        if deadline is not None and time.monotonic() >= deadline:
            break
        if sys.stderr.isatty() and time.monotonic() - shown >= 1:
            shown = time.monotonic()
            silent = len(session.unheard)
            waiting = f", waiting for {silent} agent{'s' * (silent != 1)}" if silent else ""
            sys.stderr.write(f"\r\x1b[K{recorder.events} events recorded{waiting}; Ctrl-C ends")
            sys.stderr.flush()
    if shown:
        sys.stderr.write("\r\x1b[K")
    session.close()
    return recorder.events
