"""`distmon run`: launch a job, watch it, record it, and exit with its code."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from distmon.core.errors import UsageError
from distmon.core.events import OutputWritten
from distmon.core.fold import apply
from distmon.core.state import SessionState
from distmon.launcher.flags import job_spec, split_arguments
from distmon.launcher.horovod import plan_job
from distmon.launcher.rundir import job_directory
from distmon.launcher.spec import LOST_AFTER_S
from distmon.replay.paths import new_recording, remove_recording
from distmon.tui.format import clean
from distmon.tui.job import LaunchedJob, new_session_id
from distmon.tui.plain import PlainView, summary_lines
from distmon.tui.terminal import can_show_app, run_app

OWN_FLAGS = dict.fromkeys(("--headless", "--debug", "--help", "-h"), 0)
OWN_FLAGS |= dict.fromkeys(("--record", "--backend", "--lost-after", "--samples-per-step"), 1)
BACKENDS = ("horovod",)
POLL_S = 0.1
EPILOG = """\
All flags of horovodrun may be given before the command: -np, -H, --hostfile, --network-interface, --gloo-timeout-seconds ...

  distmon run -np 2 -- python train.py --epochs 3
  distmon run -np 2 --headless --record run1.jsonl -- python train.py | tee log
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "distmon run -np N [flags of distmon or horovodrun] -- COMMAND ..."
    parser.epilog = EPILOG
    parser.add_argument("--headless", action="store_true", help="no screen: output, progress lines and a closing summary")
    parser.add_argument("--record", type=Path, metavar="FILE", help="record to this .jsonl or .jsonl.zst file")
    parser.add_argument("--backend", choices=BACKENDS, default="horovod", help="what starts the ranks")
    parser.add_argument(
        "--samples-per-step",
        type=int,
        metavar="N",
        help="samples that one rank trains in a step, where distmon cannot see it from the data loader",
    )
    parser.add_argument(
        "--lost-after",
        type=float,
        default=LOST_AFTER_S,
        metavar="SECONDS",
        help="give up a host that says nothing for so long, 0 for never (default: %(default)g)",
    )


def split_words(words: list[str]) -> tuple[list[str], list[str]]:
    """distmon's own flags, and all the rest, which the launcher understands."""
    split = split_arguments(words, OWN_FLAGS)
    rest = [word for flag in split.horovod for word in flag.words]
    return split.own, [*rest, "--", *split.command]


def run(arguments: argparse.Namespace) -> int:
    environment = dict(os.environ)
    if arguments.samples_per_step is not None:
        if arguments.samples_per_step < 1:
            raise UsageError(f"--samples-per-step takes a number from 1 up, not {arguments.samples_per_step}")
        environment["DISTMON_SAMPLES_PER_STEP"] = str(arguments.samples_per_step)
    if arguments.lost_after != 0 and not arguments.lost_after >= 10:
        raise UsageError(f"--lost-after takes 0 for never, or at least 10 seconds, not {arguments.lost_after:g}")
    words = split_arguments(arguments.words, {})
    spec = job_spec(
        words,
        backend=arguments.backend,
        cwd=str(Path.cwd()),
        environment=environment,
        lost_after_s=arguments.lost_after,
    )
    show_app = not arguments.headless and can_show_app()
    session_id = new_session_id()
    with job_directory() as folder:
        plan, state = plan_job(spec, folder), SessionState()
        with _recording(arguments.record, script_of(spec.command), session_id, state) as recording:
            job = LaunchedJob(plan, folder, recording, session_id, debug=arguments.debug)
            code = _with_screen(job, state) if show_app else _without_screen(job, state)
        if job.recording_failed:
            sys.stderr.write(f"distmon: {job.recording_failed}\n")
        elif recording.exists():
            sys.stderr.write(f"distmon: recorded in {recording}\n")
    return code


@contextmanager
def _recording(named: Path | None, script: str, session_id: str, state: SessionState) -> Iterator[Path]:
    """Where to record: the file that the user names, or an automatic one, which is removed again where no rank ever ran."""
    path = named or new_recording(script, session_id)
    try:
        yield path
    finally:
        if named is None and not may_have_run(state):
            remove_recording(path)


def may_have_run(state: SessionState) -> bool:
    """Whether ranks were given out, or started by something that does not tell."""
    return bool(state.ranks) or state.job.stage == "first_step"


def script_of(command: list[str]) -> str:
    """What a command runs, for the name of its recording."""
    return next((word for word in command if word.endswith(".py")), command[0])


def _with_screen(job: LaunchedJob, state: SessionState) -> int:
    from distmon.tui.app import DistmonApp

    job.start()
    try:
        left_by = run_app(DistmonApp(job, job=job, state=state))
    finally:
        if job.running:
            sys.stderr.write("distmon: the job is ending; Ctrl-C ends it at once\n")
        code = end(job, state)
    _print_summary(state)
    return left_by if left_by > 128 else code


def _without_screen(job: LaunchedJob, state: SessionState) -> int:
    """Ranks' output to our own, progress to standard error, the summary to standard output."""
    view = PlainView()
    with _signals_stop(job):
        job.start()
        try:
            alive = True
            while alive:
                alive = job.running
                _drain(job, state)
                for line in view.lines(state):
                    sys.stderr.write(f"distmon: {line}\n")
                if alive:
                    time.sleep(POLL_S)
        finally:
            code = end(job, state)
    _print_summary(state)
    return code


def end(job: LaunchedJob, state: SessionState) -> int:
    """Waits for the end of the job, which is told to end if it was not yet; a signal meanwhile ends it at once."""
    with _signals_stop(job):
        if job.running and not job.stopping:
            job.stop()
        code = job.wait()
    for event in job.poll():
        apply(state, event)
    return code


def _drain(job: LaunchedJob, state: SessionState) -> None:
    for event in job.poll():
        apply(state, event)
        if isinstance(event, OutputWritten):
            stream = sys.stdout if event.output == "stdout" else sys.stderr
            for line in event.lines:
                stream.write(f"[{event.rank}] {clean(line)}\n")
    sys.stdout.flush()


def _print_summary(state: SessionState) -> None:
    for line in summary_lines(state):
        sys.stdout.write(line + "\n")
    sys.stdout.flush()


@contextmanager
def _signals_stop(job: LaunchedJob) -> Iterator[None]:
    """Ctrl-C, SIGTERM and a hang-up end the job; a second one ends it at once."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        job.stop(number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
