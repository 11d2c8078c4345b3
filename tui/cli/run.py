"""`distmon run`: launch a job, watch it, record it, and exit with its code."""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

from distmon.core.errors import DistmonError, UsageError
from distmon.core.events import OutputWritten
from distmon.core.fold import apply
from distmon.core.printable import clean
from distmon.core.state import SessionState
from distmon.launcher.cycle import Cycle, parse_cycle
from distmon.launcher.flags import OWN_FLAGS, PRESET_FLAGS, job_spec, own_flags, split_arguments
from distmon.launcher.form import BACKENDS, form_of, wrong_fields
from distmon.launcher.horovod import plan_job
from distmon.launcher.host_file import FILE_NAME
from distmon.launcher.plan import Plan
from distmon.launcher.presets import delete_preset, save_preset
from distmon.launcher.reports import table
from distmon.launcher.rundir import job_directory
from distmon.launcher.settings import FILE_NAME as SETTINGS_NAME
from distmon.launcher.settings import AlertSettings, completed, load_settings, preset_words
from distmon.launcher.spec import LOST_AFTER_S, JobSpec
from distmon.replay.paths import label, new_recording, remove_recording
from distmon.tui.alerts import PlainAlerts
from distmon.tui.cli.doctor import show_check
from distmon.tui.cli.onward import Left, go_on, left
from distmon.tui.cli.record import SUMMARIES_HELP
from distmon.tui.cli.replay import opening
from distmon.tui.cli.sessions import resolve
from distmon.tui.job import LaunchedJob, new_session_id
from distmon.tui.plain import PlainView, summary_lines
from distmon.tui.terminal import can_show_app, run_app

if TYPE_CHECKING:
    from distmon.tui.app import DistmonApp

POLL_S = 0.1
EPILOG = """\
All flags of horovodrun may be given before the command: -np, -H, --hostfile, --network-interface, --gloo-timeout-seconds ...

  distmon run -np 2 -- python train.py --epochs 3
  distmon run -np 2 --headless --record run1.jsonl -- python train.py | tee log
  distmon run -np 4 -H node1:2,node2:2 --check -- python train.py

distmon.toml in this folder may hold hosts, flags and presets of flags.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "distmon run -np N [flags of distmon or horovodrun] -- COMMAND ..."
    parser.epilog = EPILOG
    parser.add_argument("--headless", action="store_true", help="no screen: output, progress lines and a closing summary")
    parser.add_argument("--record", type=Path, metavar="FILE", help="record to this .jsonl or .jsonl.zst file")
    parser.add_argument(
        "--timeline",
        nargs="?",
        const="",
        metavar="FILE.json",
        help="have Horovod write its timeline, of which the report then tells; it costs rank 0 a core",
    )
    parser.add_argument("--check", action="store_true", help="only check the hosts, and say which rank would run where")
    parser.add_argument("--no-check", action="store_true", help="start on the hosts as they are")
    parser.add_argument("--preset", metavar="NAME", help="flags that distmon.toml has under this name")
    presets = parser.add_mutually_exclusive_group()
    presets.add_argument("--save-preset", metavar="NAME", help="keep flags and command under this name; starts nothing")
    presets.add_argument("--delete-preset", metavar="NAME", help="take this name out of distmon.toml; starts nothing")
    parser.add_argument("--against", metavar="SESSION", help="begin with A/B: that recording beside the job")
    parser.add_argument("--backend", choices=BACKENDS, default=BACKENDS[0], help="what starts the ranks")
    parser.add_argument(
        "--samples-per-step",
        type=int,
        metavar="N",
        help="samples that one rank trains in a step, where distmon cannot see it from the data loader",
    )
    parser.add_argument("--summaries", action="store_true", help=SUMMARIES_HELP)
    parser.add_argument(
        "--cycle", metavar="FIXED:ELASTIC@PERIOD", help="hosts that come and go while the job runs, as in 4:4@10m; needs --min-np"
    )
    parser.add_argument(
        "--lost-after",
        type=float,
        default=LOST_AFTER_S,
        metavar="SECONDS",
        help="give up a host that says nothing for so long, 0 for never (default: %(default)g)",
    )


def split_words(words: list[str]) -> tuple[list[str], list[str]]:
    """distmon's own flags, and all the rest, which the launcher understands; those of distmon.toml come before the user's.

    Of words that are to be kept as a preset all are the rest, and nothing is added.
    """
    settings, known = load_settings(Path.cwd()), {**OWN_FLAGS, **PRESET_FLAGS}
    given = split_arguments(words, known)
    flags = own_flags(given.own, known)
    if any(flag.name in PRESET_FLAGS for flag in flags):
        kept = [*(flag for flag in flags if flag.name in OWN_FLAGS), *given.horovod]
        return given.own, preset_words([*(word for flag in kept for word in flag.words), "--", *given.command], settings)
    split = completed(words, settings)
    return split.own, [*(word for flag in split.horovod for word in flag.words), "--", *split.command]


def run(arguments: argparse.Namespace) -> int:
    if arguments.save_preset is not None:
        return _save_preset(arguments.save_preset, arguments.words)
    if arguments.delete_preset is not None:
        return _delete_preset(arguments.delete_preset, arguments.words)
    return go_on(_launched(_spec(arguments), arguments))


def _save_preset(name: str, words: list[str]) -> int:
    """As the launch form keeps its fields. What no job could be made of is not kept; a preset may leave the command open."""
    wrong = wrong_fields(form_of(words))
    if "--" not in words:
        wrong.pop("command", None)
    if wrong:
        raise UsageError("; ".join(f"{field.replace('_', ' ')}: {text}" for field, text in wrong.items()))
    save_preset(Path.cwd(), name, words)
    sys.stdout.write(f"kept in {SETTINGS_NAME}: distmon run --preset {name}\n")
    return 0


def _delete_preset(name: str, words: list[str]) -> int:
    if words:
        raise UsageError("--delete-preset takes a name and nothing else")
    delete_preset(Path.cwd(), name)
    sys.stdout.write(f"deleted from {SETTINGS_NAME}: {name}\n")
    return 0


def _spec(arguments: argparse.Namespace) -> JobSpec:
    """Raises UsageError."""
    environment = dict(os.environ)
    if arguments.samples_per_step is not None:
        if arguments.samples_per_step < 1:
            raise UsageError(f"--samples-per-step takes a number from 1 up, not {arguments.samples_per_step}")
        environment["DISTMON_SAMPLES_PER_STEP"] = str(arguments.samples_per_step)
    if arguments.lost_after != 0 and not arguments.lost_after >= 10:
        raise UsageError(f"--lost-after takes 0 for never, or at least 10 seconds, not {arguments.lost_after:g}")
    if arguments.against is not None and arguments.headless:
        raise UsageError("--against puts a recording beside the job on the screen; --headless shows none")
    if arguments.timeline is not None and arguments.backend != BACKENDS[0]:
        raise UsageError(f"--timeline is Horovod's, and --backend {arguments.backend} runs without it")
    words = split_arguments(arguments.words, {})
    return job_spec(
        words,
        backend=arguments.backend,
        cwd=str(Path.cwd()),
        environment=environment,
        lost_after_s=arguments.lost_after,
    )


def launched(words: list[str]) -> Left:
    """The job of these words of `distmon run`, to its end."""
    from distmon.tui.cli.main import Parser

    parser = Parser(prog="distmon run", allow_abbrev=False)
    parser.add_argument("--debug", action="store_true")
    add_arguments(parser)
    own, others = split_words(words)
    arguments = parser.parse_args(own, argparse.Namespace(words=others))
    return _launched(_spec(arguments), arguments)


def _launched(spec: JobSpec, arguments: argparse.Namespace) -> Left:
    ran = _run_once(spec, arguments)
    while ran.again:
        again = arguments.record and numbered(arguments.record)
        timeline = arguments.timeline and str(numbered(Path(arguments.timeline)))
        sys.stderr.write(f"distmon: starting the job again{f', recorded in {again}' if again else ''}\n")
        ran = _run_once(spec, argparse.Namespace(**{**vars(arguments), "record": again, "timeline": timeline}))
    return ran.left


class Ran(NamedTuple):
    """A job that has ended, and how its screen was left; `again` says that the user wants it restarted."""

    left: Left
    again: bool = False


def numbered(path: Path) -> Path:
    """The first of NAME-2, NAME-3 ... that is not there yet."""
    name = label(path).removesuffix(".json")
    free = (path.with_name(f"{name}-{number}{path.name.removeprefix(name)}") for number in itertools.count(2))
    return next(candidate for candidate in free if not candidate.exists())


def _run_once(spec: JobSpec, arguments: argparse.Namespace) -> Ran:
    session_id = new_session_id()
    if arguments.timeline is not None:
        spec = spec.writing_timeline(str(Path.cwd() / (arguments.timeline or f"timeline-{session_id}.json")))
    with job_directory() as folder:
        plan, state = plan_job(spec, folder), SessionState()
        settings = load_settings(Path.cwd())
        first = opening(resolve(arguments.against, demo=False)) if arguments.against else None
        cycle = _cycle(arguments.cycle, plan, folder) if arguments.cycle else None
        if arguments.check:
            return Ran(Left(show_check(plan, settings.agent, as_json=False)))
        with _recording(arguments.record, script_of(spec.command), session_id, state) as recording:
            check = not arguments.no_check
            job = LaunchedJob(
                plan,
                folder,
                recording,
                session_id,
                check=check,
                agent=settings.agent,
                cycle=cycle,
                summaries=arguments.summaries,
                debug=arguments.debug,
            )
            show_app = not arguments.headless and can_show_app()
            if show_app:
                ran = _with_screen(job, state, first, settings.alerts)
            else:
                ran = Ran(Left(_without_screen(job, state, settings.alerts)), job.restarting)
        if job.recording_failed:
            sys.stderr.write(f"distmon: {job.recording_failed}\n")
        elif recording.exists():
            sys.stderr.write(f"distmon: recorded in {recording}\n")
        if arguments.timeline is not None and Path(spec.timeline).exists():
            sys.stderr.write(f"distmon: Horovod's timeline is in {spec.timeline}\n")
    return ran


def _cycle(text: str, plan: Plan, folder: Path) -> Cycle:
    """Hosts that come and go. Raises UsageError."""
    spec = parse_cycle(text)
    if not plan.own_hosts:
        raise UsageError("--cycle needs an elastic job whose hosts distmon keeps: give --min-np, and no discovery script")
    return Cycle(spec, folder / FILE_NAME)


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


def _with_screen(job: LaunchedJob, state: SessionState, first: tuple[str, object] | None, alerts: AlertSettings) -> Ran:
    from distmon.tui.app import DistmonApp
    from distmon.tui.rewind import Rewind

    job.start()
    rewind = Rewind(job, state, job.recorder)
    app = DistmonApp(rewind, rewind, job, state=state, opening=first)
    try:
        left_by = _shown(app, job, state, alerts)
    finally:
        rewind.close()
        if job.running:
            sys.stderr.write("distmon: the job is ending; Ctrl-C ends it at once\n")
        code = end(job, state)
    for line in table(job.findings):  # the screen that showed them has gone
        sys.stderr.write(f"distmon: {clean(line)}\n")
    _print_summary(state)
    return Ran(Left(left_by)) if left_by > 128 else Ran(left(app, code), job.restarting)


def _shown(app: DistmonApp, job: LaunchedJob, state: SessionState, alerts: AlertSettings) -> int:
    """How the screen was left. A screen that fails does not take the job along: it is followed in lines to its end."""
    try:
        return run_app(app)
    except DistmonError as error:
        if not job.running or job.stopping:
            raise
        sys.stderr.write(f"distmon: {error}\ndistmon: the job goes on without the screen; Ctrl-C ends it\n")
        with _signals_stop(job):
            _follow(job, state, alerts)
        return 0


def _without_screen(job: LaunchedJob, state: SessionState, alerts: AlertSettings) -> int:
    """Ranks' output to our own, progress to standard error, the summary to standard output."""
    with _signals_stop(job):
        job.start()
        try:
            _follow(job, state, alerts)
        finally:
            code = end(job, state)
    _print_summary(state)
    return code


def _follow(job: LaunchedJob, state: SessionState, alerts: AlertSettings) -> None:
    view, calls, alive = PlainView(), PlainAlerts(alerts), True
    while alive:
        alive = job.running
        _drain(job, state)
        for line in (*view.lines(state), *calls.lines(state)):
            sys.stderr.write(f"distmon: {line}\n")
        if alive:
            time.sleep(POLL_S)


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
