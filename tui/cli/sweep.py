"""`distmon sweep`: the same job with several numbers of ranks, a recording of each run, and the scaling report of all."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from distmon.core.errors import DistmonError, UsageError
from distmon.launcher.facts import hosts_of, is_local
from distmon.launcher.flags import OWN_FLAGS as RUN_FLAGS
from distmon.launcher.flags import job_spec, own_flags, split_arguments
from distmon.launcher.settings import completed, load_settings
from distmon.launcher.sweep import Sweep, parse_sizes, runs, sharing
from distmon.tui.cli.plotted import require_plots
from distmon.tui.cli.report import add_kind, publish
from distmon.tui.cli.sweep_folder import SweepFolder
from distmon.tui.cli.sweep_runs import SweepRuns, say

_SIZES = ("-np", "--num-proc")
OWN_FLAGS = {
    **dict.fromkeys((*_SIZES, "--repeat", "--folder", "--resume", "--html"), 1),
    **dict.fromkeys(("--strong", "--weak", "--json", "--markdown", "--headless", "--debug", "--help", "-h"), 0),
}
_NOT_FOR_RUNS = ("--record", "--check", "--headless", "--debug", "--help", "-h")
EPILOG = """\
Every size is run once before any comes again, so that drift of the machine does not look like scaling. Three repeats or more
tell how runs differ. The folder holds a recording of each run; after a break, --resume FOLDER runs what is missing.

  distmon sweep -np 1,2,4 --repeat 3 -- python train.py --epochs 3
  distmon sweep --resume sweep-2026-05-09T18-42-06
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "distmon sweep -np N,N,... [--repeat K] [flags of distmon run] -- COMMAND ..."
    parser.epilog = EPILOG
    parser.add_argument("-np", "--num-proc", dest="sizes", metavar="N,N,...", help="numbers of ranks, as in 1,2,4")
    parser.add_argument("--repeat", type=int, metavar="K", help="runs of each size (default 1)")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--folder", type=Path, metavar="DIR", help="a new folder for the recordings (default: sweep-DATE)")
    where.add_argument("--resume", type=Path, metavar="DIR", help="go on with the sweep in this folder")
    add_kind(parser)
    parser.add_argument("--headless", action="store_true", help="plain lines as each run begins and ends, no status line")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="the report as JSON (docs/json.md)")
    form.add_argument("--markdown", action="store_true", help="the report as Markdown")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write the report as a page with plots")


def split_words(words: list[str]) -> tuple[list[str], list[str]]:
    """Sweep's own flags; and those of run with the command, which are the same for every run."""
    for_runs = {name: count for name, count in RUN_FLAGS.items() if name not in _NOT_FOR_RUNS}
    known = {**for_runs, **OWN_FLAGS}
    split = split_arguments(words, known)
    own: list[str] = []
    passed: list[str] = []
    for flag in own_flags(split.own, known):
        (own if flag.name in OWN_FLAGS else passed).extend(flag.words)
    return own, [*passed, *(word for flag in split.horovod for word in flag.words), "--", *split.command]


def run(arguments: argparse.Namespace) -> int:
    if arguments.html is not None:
        require_plots()
    with _folder(arguments) as folder:
        sweep = folder.sweep
        for sentence in sharing(sweep.sizes, len(os.sched_getaffinity(0)), _gpus()) if _local(sweep) else []:
            say(f"warning: {sentence}")
        swept = SweepRuns(folder, plain=arguments.headless)
        code = swept.run_all()
    if swept.stopped:
        say(f"stopped after {swept.done} of {len(runs(sweep))} runs; go on with: distmon sweep --resume {folder.path}")
        return 128 + swept.stopped
    form = {"json": arguments.json, "markdown": arguments.markdown, "html": arguments.html, "kind": arguments.kind}
    publish(argparse.Namespace(session=[str(folder.path)], png=None, demo=False, price=None, timeline=None, **form), each=False)
    return code


def _folder(arguments: argparse.Namespace) -> SweepFolder:
    """A new sweep's, or the one to go on with."""
    flags, command = arguments.words[: arguments.words.index("--")], arguments.words[arguments.words.index("--") + 1 :]
    if arguments.resume is not None:
        if command or flags or arguments.sizes or arguments.repeat:
            raise UsageError("--resume goes on with the sweep as it was asked for: give it no sizes, repeats, flags or command")
        return SweepFolder.opened(arguments.resume)
    if not command:
        raise UsageError("there is no command to run; write it after --, as in: distmon sweep -np 1,2 -- python train.py")
    if arguments.sizes is None:
        raise UsageError("which numbers of ranks? say them with -np, as in: distmon sweep -np 1,2 -- python train.py")
    if arguments.repeat is not None and arguments.repeat < 1:
        raise UsageError(f"--repeat takes a number from 1 up, not {arguments.repeat}")
    sweep = Sweep(
        sizes=parse_sizes(arguments.sizes),
        repeats=arguments.repeat or 1,
        flags=flags,
        command=command,
        cwd=str(Path.cwd()),
        kind=arguments.kind,
    )
    return SweepFolder.made(arguments.folder or Path(time.strftime("sweep-%Y-%m-%dT%H-%M-%S")), sweep)


def _local(sweep: Sweep) -> bool:
    """Whether all ranks are on this machine, by the hosts that a run would use; not where these cannot be told, as it will."""
    words = [*sweep.flags, "-np", str(sweep.sizes[-1]), "--", *sweep.command]
    try:
        arguments = completed(words, load_settings(Path(sweep.cwd)))
        spec = job_spec(arguments, backend="horovod", cwd=sweep.cwd, environment=os.environ)
        return all(is_local(host.name) for host in hosts_of(spec))
    except DistmonError:
        return False


def _gpus() -> int:
    """NVIDIA's, as the kernel's driver lists them; 0 where there is none."""
    try:
        return sum(1 for _ in Path("/proc/driver/nvidia/gpus").iterdir())
    except OSError:
        return 0
