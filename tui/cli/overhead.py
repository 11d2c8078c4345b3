"""`distmon overhead`: the same job with and without the timing of its steps, in turns, and what the difference is."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from distmon.core.death import death
from distmon.core.errors import DistmonError, UsageError
from distmon.core.measures import steps
from distmon.core.printable import clean
from distmon.replay.session_file import load_state
from distmon.tui.cli.run import split_words as split_run_words
from distmon.tui.cli.sweep_runs import say

EPILOG = """\
The job is run 2 x PAIRS times, in turns, so that drift of the machine does not look like cost.
Keep it short, and the machine idle.

  distmon overhead --pairs 3 -np 2 -- python train.py --steps 500
"""
MIN_PAIRS = 3
OWN_FLAGS = ("--pairs", "--json", "--debug", "--help", "-h")


class Usage(NamedTuple):
    """One run: seconds of all its processes' CPU, seconds by the wall clock, and rank 0's steps where they were recorded."""

    cpu_s: float
    wall_s: float
    steps: int | None


class Comparison(NamedTuple):
    """Ratios of runs with over runs without, pair by pair: the median, and the least and greatest."""

    median: float
    least: float
    greatest: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "distmon overhead [--pairs K] [--json] -np N [flags of distmon run] -- COMMAND ..."
    parser.epilog = EPILOG
    parser.add_argument("--pairs", type=int, default=3, metavar="K", help="runs with and without, each (default 3)")
    parser.add_argument("--json", action="store_true", help="the figures as JSON")


def split_words(words: list[str]) -> tuple[list[str], list[str]]:
    """Our own flags come first; what follows is for `distmon run`, which checks it before anything starts."""
    own: list[str] = []
    rest = list(words)
    while rest and rest[0].partition("=")[0] in OWN_FLAGS:
        own.append(rest.pop(0))
        if own[-1] == "--pairs" and rest:
            own.append(rest.pop(0))
    if not {"-h", "--help"} & set(own):
        split_run_words(rest)
    return own, rest


def run(arguments: argparse.Namespace) -> int:
    if arguments.pairs < 1:
        raise UsageError(f"--pairs takes a number from 1 up, not {arguments.pairs}")
    without: list[Usage] = []
    with_timing: list[Usage] = []
    for pair in range(arguments.pairs):
        arms = [(without, False), (with_timing, True)]
        for results, timed in arms if pair % 2 == 0 else reversed(arms):
            place = f"pair {pair + 1} of {arguments.pairs}, {'with' if timed else 'without'} timing"
            say(f"{place}: begins")
            results.append(used := _run_once(arguments.words, timed))
            say(f"{place}: {used.wall_s:.1f} s, {used.cpu_s:.1f} s of CPU time")
    sys.stdout.write((as_json(without, with_timing) if arguments.json else as_text(without, with_timing)) + "\n")
    return 0


def compare(without: list[float], with_timing: list[float]) -> Comparison:
    """Pair by pair, since neighbours in time share the machine's mood."""
    ratios = [b / a for a, b in zip(without, with_timing, strict=True)]
    return Comparison(statistics.median(ratios), min(ratios), max(ratios))


def as_text(without: list[Usage], with_timing: list[Usage]) -> str:
    cpu = compare([u.cpu_s for u in without], [u.cpu_s for u in with_timing])
    wall = compare([u.wall_s for u in without], [u.wall_s for u in with_timing])
    lines = [
        f"{len(without)} pair{'s' * (len(without) != 1)} of runs, in turns; all processes of the job and of distmon",
        f"CPU time   {_times(cpu)}   {statistics.median(u.cpu_s for u in without):.2f} s without timing",
        f"wall time  {_times(wall)}   {statistics.median(u.wall_s for u in without):.2f} s without timing",
    ]
    if (per_step := cpu_us_per_step(without, with_timing)) is not None:
        lines.append(f"per step   {per_step:+.1f} us of CPU over all ranks, start-up included; {with_timing[0].steps} steps")
    if len(without) < MIN_PAIRS:
        lines.append(f"fewer than {MIN_PAIRS} pairs show no more than the order of size")
    elif cpu.least <= 1 <= cpu.greatest:
        lines.append("no difference shown: the runs differ among themselves by more; make them longer, or the machine quieter")
    return "\n".join(lines)


def as_json(without: list[Usage], with_timing: list[Usage]) -> str:
    cpu = compare([u.cpu_s for u in without], [u.cpu_s for u in with_timing])
    wall = compare([u.wall_s for u in without], [u.wall_s for u in with_timing])
    return json.dumps(
        {
            "format": 1,
            "pairs": len(without),
            "cpu_ratio": cpu._asdict(),
            "wall_ratio": wall._asdict(),
            "cpu_us_per_step": cpu_us_per_step(without, with_timing),
            "without": [u._asdict() for u in without],
            "with": [u._asdict() for u in with_timing],
        },
        indent=2,
    )


def cpu_us_per_step(without: list[Usage], with_timing: list[Usage]) -> float | None:
    """Median extra CPU of a pair over the steps of its timed run; None where no step was seen."""
    extra = [(b.cpu_s - a.cpu_s) / b.steps * 1e6 for a, b in zip(without, with_timing, strict=True) if b.steps]
    return statistics.median(extra) if extra else None


def _run_once(words: list[str], timed: bool) -> Usage:
    with tempfile.TemporaryDirectory(prefix="distmon-overhead-") as folder:
        recording = Path(folder, "run.jsonl")
        command = [sys.executable, "-m", "distmon.tui.cli.main", "run", "--headless", "--record", str(recording), *words]
        environment = {**os.environ, "DISTMON_DISABLE": "0" if timed else "1"}
        begun = time.monotonic()
        with Path(folder, "said").open("w+b") as said:
            process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            said.seek(0)
            lines = said.read().decode("utf-8", "replace").strip().splitlines()
        if process.returncode != 0:
            raise DistmonError(_why(recording, process.returncode, lines))
        state, _ = load_state(recording)
        return Usage(usage.ru_utime + usage.ru_stime, time.monotonic() - begun, steps(state) or None)


def _why(recording: Path, exit_code: int, lines: list[str]) -> str:
    """A failed run in one line: the job's first failure, or what was said last."""
    job = load_state(recording)[0].job if recording.exists() else None
    failure = job.failure if job else None
    if failure is None:
        said = job.end_detail if job else lines[-1].removeprefix("distmon: ") if lines else ""
        return f"the run failed with exit code {exit_code}: {clean(said) or 'it said nothing'}"
    last = f": {clean(failure.last_lines[-1])}" if failure.last_lines else ""
    return f"rank {failure.rank} of the job failed ({death(failure.signal, failure.exit_code, failure.cause)}){last}"


def _times(ratio: Comparison) -> str:
    return f"x {ratio.median:.4f} ({ratio.least:.4f} to {ratio.greatest:.4f})"
