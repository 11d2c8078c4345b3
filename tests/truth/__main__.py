"""`make truth`: the matrix of causes, on seeded streams and on real jobs, as docs/truth.md."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from itertools import chain

from distmon.core.synthetic_faults import CAUSES, Cause, Trial
from tests.truth import real
from tests.truth.matrix import GAIN_RANKS, LATE, Matrix, first_named, run, small_delays, trials

FIRST_SEED = 5_000
"""The constants were looked for with others."""
MANY_RANKS = 100
FEW_CAUSES: tuple[Cause, ...] = ("healthy", "input", "send")
"""Tried with more than MANY_RANKS ranks, where a trial takes long."""
HEALTHY_STEPS = {2: 120_000, 4: 100_000, 16: 30_000}
HEALTHY_RUN = 5_000
VARIED_STEPS = {2: 100_000, 4: 70_000, 16: 20_000}
"""Of healthy jobs on varied nodes."""
HEAD = """# What the verdicts say, against what was true

`make truth` writes this page, all of it. A fault of known kind, rank, moment and size is put into a job. Right is a trial in
which the verdicts name the class, the rank and the phase at the end, blame nothing else, and named no other rank at any moment.
"""
STREAMS = """## Seeded streams

Through the fold and the verdicts, second by second, as a viewer gets them (`core/synthetic_faults.py`): steps of 100 ms whose
noise is that of real runs, delays of 4 to 12 % of the step on a drawn rank from about step 200 on, 500 steps. `full_cores`,
`crowded`, `starved` and `hot_gpu` happen among nodes as different as healthy ones are: more to run than cores, with a late rank;
the same on all nodes from the first step on, by other programs, all steps alike and no rank late; the same with ranks that wait
for their input and GPUs that rest; a GPU held down for its heat, whose rank is late. Where there is more to run than cores, ranks
wait for one for 25 to 60 % of the time. Trials of each cause, seeds {first:,} on, which no constant was looked for with:
{sizes}. With more than {many} ranks: {few} alone.
Steps until named count from the fault's first step to the look, once a second, that first named all of it.
"""
HEALTHY = """
## While nothing is wrong

{steps:,} steps of jobs without a fault, {runs} runs of {length:,} steps
({sizes}; seeds {first:,} on), and the steps before the faults above.
{varied:,} of them are on nodes as different as healthy ones are (`core/synthetic_nodes.py`): half have cores that loaders
fill to 90 to 99.5 %, with a load of 0.9 to 4 a core, the others 5 to 90 %; 40 to 93 % of memory in use; tasks that wait for
memory in noise, and for up to 20 % of ten seconds when rank 0 saves a checkpoint, for which all wait; GPUs of 40 to 84 °C, busy
for 15 to 99 % of the time; epochs that begin with a wait for the input, as long as six steps. Their ranks wait for a core for up
to 8 % of the time, as four real ranks on two cores did (9 %); besides as a real rank with a core of its own did (2 % of a second
in the median, 7 % of one in ten, log-normal); for up to 20 % more while a checkpoint is saved; and for 5 to 60 % where GPUs are
busy for 95 % of the time and loaders fill the cores.
Every verdict of any kind but that all is well counts as false, as often as it comes up.
"""
SOON = """
## How soon a small delay is named

A constant delay in the input or the compute of one rank, from about step 150 on; {count} streams of each row, seeds {first:,} on.
Steps from its begin until the rank is named; in time are 150 of them for 2 % of the step and 25 for 8 %.

| ranks | delay | median | 95 % within | 99 % within | most | in time | another named, or before |
| --- | --- | --- | --- | --- | --- | --- | --- |"""
SOON_SEEDS = 1_000
SOON_LIMITS = {0.02: 150, 0.08: 25}
GAINS = """
## What taking the fault away would gain

The gain that the verdict states, as a 95 % interval, against the same job with other noise and without the fault, of the trials
above with {causes} and up to {ranks} ranks: it lies in the interval in {hits} of {count}, {share:.0%}.
"""
REAL = """
## Real jobs

Under horovodrun on one machine of {cores} cores (load {load:.1f} when they began), by `tests/truth/job.py`: steps of about
100 ms, delays of 8 to 12 ms on a drawn rank from step {begin} to {end}, as the job's own log says. `cpu_hog` is a process that
spins on the core of that rank alone; `crowded` are {crowd} that spin on each core from before the job's begin to its end; both
where there is a core for each rank. `stopped` stops the rank for {stop:.0f} s. Seeds {seeds}. Send, memory and a slow link are
tried on the streams alone: there is one host here, and its memory is not ours to fill. Where ranks share cores their allreduce
takes a fifth to a third of such a step, and to say so (communication_bound) is not held against the verdicts; nor is what was
said of the whole job before the fault began, nor that others use the machine.

The gain that the verdict states at step {end} is measured by the steps after it, which no verdict has seen: there the fault is
away and there in turns, {blocks} times {block} steps, and the gain is the mean step without it against that with it. So what
others do to the machine for a while is in both. The first {settle} steps of a turn are left out, and the shortest and the longest
{trimmed:.0%} of either side. A plain mean before and after, which it was once measured by, is moved as much by one stall as by
the delay in ten steps, and by whatever the machine did later.
"""


def streams(sizes: Mapping[int, int], pool: ProcessPoolExecutor) -> Iterator[str]:
    """The matrix over all sizes, the healthy runs, how soon, and the gains."""
    matrix = Matrix()
    for ranks, count in sizes.items():
        causes = CAUSES if ranks <= MANY_RANKS else FEW_CAUSES
        _add(matrix, trials(ranks, range(FIRST_SEED, FIRST_SEED + count), causes), pool)
    told = ", ".join(f"{ranks:,} ranks, {count} each" for ranks, count in sizes.items())
    yield STREAMS.format(first=FIRST_SEED, sizes=told, many=MANY_RANKS, few=", ".join(FEW_CAUSES))
    yield from matrix.lines()
    yield f"\nRight in {matrix.share_right:.1%} of {sum(sum(c.values()) for c in matrix.said.values())} trials."
    yield from (f"Not right: {o.trial}: {o.label}." for o in matrix.wrong)
    yield from _healthy(matrix, pool)
    yield from _soon(SOON_SEEDS, pool)
    hits, count = sum(matrix.gains), len(matrix.gains)
    yield GAINS.format(causes=", ".join(LATE), ranks=GAIN_RANKS, hits=hits, count=count, share=hits / max(count, 1))


def _healthy(before: Matrix, pool: ProcessPoolExecutor) -> Iterator[str]:
    matrix = Matrix()
    runs = [
        Trial("healthy", ranks=ranks, steps=HEALTHY_RUN, seed=FIRST_SEED + seed, varied=varied)
        for varied, of in ((False, HEALTHY_STEPS), (True, VARIED_STEPS))
        for ranks, steps in of.items()
        for seed in range(steps // HEALTHY_RUN)
    ]
    _add(matrix, runs, pool)
    sizes = ", ".join(f"{steps + VARIED_STEPS[ranks]:,} of {ranks} ranks" for ranks, steps in HEALTHY_STEPS.items())
    yield HEALTHY.format(
        steps=matrix.healthy_steps,
        runs=len(runs),
        length=HEALTHY_RUN,
        sizes=sizes,
        first=FIRST_SEED,
        varied=sum(VARIED_STEPS.values()),
    )
    steps, false = matrix.healthy_steps + before.healthy_steps, matrix.false + before.false
    kinds = ", ".join(f"{kind}: {count}" for kind, count in false.most_common()) or "none"
    yield f"False verdicts in {steps:,} healthy steps: {kinds}; {1e5 * false.total() / steps:.2f} per 100,000 steps."


def _soon(count: int, pool: ProcessPoolExecutor) -> Iterator[str]:
    yield SOON.format(count=count, first=FIRST_SEED)
    for ranks in (2, 4, 16):
        for size, limit in SOON_LIMITS.items():
            found = list(pool.map(first_named, small_delays(ranks, size, range(FIRST_SEED, FIRST_SEED + count)), chunksize=8))
            late = sorted(steps for steps, _ in found if steps is not None)
            marks = [str(late[min(int(part * len(late)), len(late) - 1)]) for part in (0.5, 0.95, 0.99, 1)] if late else ["–"] * 4
            within, wrong = sum(steps <= limit for steps in late), sum(other for _, other in found)
            yield f"| {ranks} | {size:.0%} | {' | '.join(marks)} | {within / count:.1%} | {wrong} |"


def _add(matrix: Matrix, wanted: Iterable[Trial], pool: ProcessPoolExecutor) -> None:
    """The longest first would end sooner; in order, the page is the same each time."""
    begun, last = time.monotonic(), None
    for outcome in pool.map(run, wanted):
        matrix.add(outcome)
        if (outcome.trial.cause, outcome.trial.ranks) != last:
            last = outcome.trial.cause, outcome.trial.ranks
            sys.stderr.write(f"{time.monotonic() - begun:4.0f} s: {last[1]} ranks, {last[0]}\n")


def real_jobs(seeds: int) -> Iterator[str]:
    """A row for each job as it ends."""
    yield REAL.format(
        cores=os.cpu_count(),
        load=os.getloadavg()[0],
        begin=real.BEGIN,
        end=real.END,
        block=real.BLOCK,
        blocks=real.BLOCKS,
        settle=real.SETTLE,
        trimmed=real.TRIMMED,
        crowd=real.CROWD,
        stop=real.STOP_S,
        seeds=f"0 to {seeds - 1}",
    )
    yield from real.lines((2, 4), range(seeds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seeds", type=int, default=40, help="trials of each cause with 2 and 4 ranks; with 16, 128 and 1,024 fewer; 0 for none"
    )
    parser.add_argument("--real-seeds", type=int, default=2, help="real jobs of each cause with 2 and with 4 ranks; 0 for none")
    options = parser.parse_args()
    some, few = max(options.seeds // 3, 1), max(options.seeds // 10, 1)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        found = streams({2: options.seeds, 4: options.seeds, 16: some, 128: few, 1024: few}, pool) if options.seeds else ()
        _write(chain([HEAD], found))
    if options.real_seeds:
        _write(real_jobs(options.real_seeds))


def _write(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
