"""`distmon pull`: all that an agent's journal holds, at full rate, into a recording; ends when it has caught up."""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from importlib.metadata import version
from pathlib import Path

from distmon.core.errors import DistmonError
from distmon.core.events import AnyEvent, SessionStarted
from distmon.replay.recorder import Recorder
from distmon.replay.resume import last_position
from distmon.tui.cli.record import known_agents
from distmon.tui.job import new_session_id
from distmon.tui.live import LiveSession
from distmon.wire.clock import SteadyClock
from distmon.wire.subscription import Subscription

EPILOG = """\
  distmon pull node1 -o node1.jsonl                 an agent that `distmon keys list` names
  distmon pull tcp://node1:7070 -o n.jsonl --last 3600
  distmon pull ipc:///run/distmon/agent.sock -o n.jsonl

With a file that is there it fetches what came since.
"""
NOTHING_OLD_FOR_S = 2.0
FIRST_WORD_S = 15.0
_LOOK_EVERY_S = 0.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("agent", nargs="+", help="an agent's address or name")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="the recording, .jsonl or .jsonl.zst")
    parser.add_argument("--last", type=float, metavar="SECONDS", help="only what was published in the last seconds")


def run(arguments: argparse.Namespace) -> int:
    addresses, keys = known_agents(arguments.agent)
    path: Path = arguments.output
    goes_on = os.path.lexists(path) and path.stat().st_size > 0
    resume = last_position(path) if goes_on else {}
    clock = SteadyClock()
    begun = clock.now()
    started = SessionStarted(at=begun, session_id=new_session_id(), distmon_version=version("distmon"))
    with Recorder(path, append=goes_on) as recorder:
        subscription = Subscription(
            addresses, since_start=goes_on, keys=keys, resume=resume, history_s=arguments.last, clock=clock.now
        )
        progress = _Progress(begun)
        session = LiveSession(None if goes_on else started, subscription, list, clock, recorder, progress.see)
        session.start()
        silent = progress.wait(session, recorder)
        session.close()
    if recorder.failed:
        raise DistmonError(recorder.failed)
    if silent:
        raise DistmonError(f"nothing was heard from {', '.join(sorted(silent))} within {FIRST_WORD_S:g} s; is its agent running?")
    sys.stderr.write(f"distmon: {progress.events} events of agents in {path}\n")
    return 0


class _Progress:
    """How far the pull is: done when nothing from before its beginning has come for a while."""

    def __init__(self, begun: float) -> None:
        self.events = 0
        self._begun = begun
        self._old_came = time.monotonic()
        self._lock = threading.Lock()

    def see(self, event: AnyEvent) -> None:
        """In the collecting thread."""
        if event.stream:
            with self._lock:
                self.events += 1
                if event.at < self._begun:
                    self._old_came = time.monotonic()

    def wait(self, session: LiveSession, recorder: Recorder) -> frozenset[str]:
        """Until it is done. Gives the agents that were never heard."""
        limit = time.monotonic() + FIRST_WORD_S
        while not recorder.failed:
            time.sleep(_LOOK_EVERY_S)
            for _ in session.poll():
                pass
            now = time.monotonic()
            with self._lock:
                done = self.events > 0 and now - self._old_came > NOTHING_OLD_FOR_S
            if (done and not session.unheard) or (now > limit and session.unheard):
                return session.unheard
        return frozenset()
