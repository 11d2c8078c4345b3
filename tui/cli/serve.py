"""`distmon serve`: the same screens in a browser, read-only unless asked, for this machine alone unless asked."""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from distmon.core.errors import DistmonError, UsageError
from distmon.launcher.driver.processes import die_with_parent
from distmon.replay.paths import new_recording
from distmon.replay.session_file import open_session
from distmon.tui.cli import replay
from distmon.tui.cli.main import Parser
from distmon.tui.cli.run import script_of
from distmon.tui.cli.run import split_words as split_run
from distmon.tui.cli.sessions import resolve
from distmon.tui.job import new_session_id
from distmon.tui.rights import READ_ONLY, SERVED

DISTMON = [sys.executable, "-m", "distmon.tui.cli.main"]
WHAT = ("replay", "run")
POLL_S = 0.1
PORT = 8000
EPILOG = """\
  distmon serve                                     this machine, as distmon alone shows it
  distmon serve replay run1.jsonl
  distmon serve run -np 2 -- python train.py        starts the job, and shows it until Ctrl-C, which also ends it

Open the address that is printed; the token in it is the key. From another machine: ssh -L 8000:127.0.0.1:8000 HOST.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "distmon serve [--port PORT] [--allow-actions] [replay SESSION | run ... -- COMMAND ...]"
    parser.epilog = EPILOG
    parser.add_argument("--port", type=int, default=PORT, help="0 for any that is free (default: %(default)d)")
    parser.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="where to listen (default: %(default)s)")
    parser.add_argument("--expose", action="store_true", help="let --host be an address that other machines reach")
    parser.add_argument("--allow-actions", action="store_true", help="let the browser stop, restart and signal the job")


def split_words(words: list[str]) -> tuple[list[str], list[str]]:
    """Serve's own flags, and what is to be shown."""
    at = next((at for at, word in enumerate(words) if word in WHAT), len(words))
    return words[:at], words[at:]


def run(arguments: argparse.Namespace) -> int:
    if importlib.util.find_spec("textual_serve") is None:
        raise DistmonError("serve needs distmon's extra [serve]: pip install 'distmon[serve]'")
    from distmon.tui.served import ServedView, is_loopback, listening, serve_until_signal

    exposed = not is_loopback(arguments.host)
    if exposed and not arguments.expose:
        text = "other machines would reach the screens, unencrypted; use ssh -L instead, or say so with --expose"
        raise UsageError(f"--host {arguments.host}: {text}")
    if exposed:
        sys.stderr.write("distmon: warning: what is served travels unencrypted; whoever sees the address has the key\n")
    if not 0 <= arguments.port < 65536:
        raise UsageError(f"--port takes a number from 0 to 65535, not {arguments.port}")
    with listening(arguments.host, arguments.port) as listener:
        job, words = _what(arguments.words)
        try:
            os.environ[SERVED] = "1"
            os.environ[READ_ONLY] = "" if arguments.allow_actions else "1"
            view = ServedView([*DISTMON, *words], exposed=exposed)
            number = asyncio.run(serve_until_signal(view, listener, _tell))
        finally:
            code = _ended(job)
    return 128 + number if code is None else code


def _tell(address: str) -> None:
    sys.stdout.write(f"{address}\n")
    sys.stdout.flush()


def _what(words: Sequence[str]) -> tuple[subprocess.Popen[bytes] | None, list[str]]:
    """The job that was started, if one was asked for, and the words of distmon for each page. Raises DistmonError."""
    if not words:
        return None, []
    if words[0] == "run":
        job, recording = _started(list(words[1:]))
        return job, ["replay", str(recording), "--from", "end"]
    parser = Parser(prog="distmon serve replay", allow_abbrev=False)
    replay.add_arguments(parser)
    asked = parser.parse_args(words[1:])
    open_session(resolve(asked.session, demo=asked.demo or asked.session is None))
    return None, list(words)


def _started(words: list[str]) -> tuple[subprocess.Popen[bytes], Path]:
    """A job without a screen of its own, once its recording is there to be followed."""
    own, rest = split_run(words)
    if "--record" in own:
        raise UsageError("give no --record here: the pages follow a recording of their own")
    command = rest[rest.index("--") + 1 :]
    if not command:
        raise UsageError("there is no command to run; write it after --, as in: distmon serve run -np 2 -- python train.py")
    recording = new_recording(script_of(command), new_session_id())
    headless = ["--headless", "--record", str(recording)]
    job = subprocess.Popen(
        [*DISTMON, "run", *headless, *words],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=partial(die_with_parent, signal.SIGTERM),
    )
    while not _can_be_read(recording):
        if job.poll() is not None:
            raise DistmonError("the job did not start")
        time.sleep(POLL_S)
    return job, recording


def _can_be_read(recording: Path) -> bool:
    try:
        open_session(recording)
    except DistmonError:
        return False
    return True


def _ended(job: subprocess.Popen[bytes] | None) -> int | None:
    """Ends the job politely, if it still runs; its exit code."""
    if job is None:
        return None
    if job.poll() is None:
        job.terminate()
    return job.wait()

