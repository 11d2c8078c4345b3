"""`make truth`: the matrix of causes, on seeded streams and on real jobs, as docs/truth.md."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator

from distmon.core.synthetic_faults import CAUSES, Cause
from tests.truth import real
from tests.truth.matrix import Matrix, run, trials

HEAD = """# What the verdicts say, against what was true

`make truth` writes this page. A fault of known kind, rank, moment and size is put into a job. Right is a trial in which the
verdict names the class, the rank and the phase at the end, nothing else is blamed, and no other rank was named at any moment.
"""
STREAMS = """## Seeded streams

Through the fold and the verdicts, second by second, as a viewer gets them (`core/synthetic_faults.py`): steps of 100 ms, delays
of 4 to 12 % of the step on a drawn rank from step 200 on, 500 steps. Trials of each cause, seeds from 0: {sizes}.
With more than 100 ranks: healthy, input and send alone.
"""
REAL = """
## Real jobs

Under horovodrun on one machine (`tests/truth/job.py`), 2 cores that others used too: steps of about 100 ms, delays of 8 to 12 ms
on a drawn rank from step 60 to 220 of 300, as the job's own log says; `stopped` stops a rank for 16 s. Seeds {seeds}.
"""


MANY_RANKS = 100
FEW_CAUSES: tuple[Cause, ...] = ("healthy", "input", "send")
"""Tried with more than MANY_RANKS ranks, where a trial takes minutes."""


def streams(sizes: dict[int, int]) -> Iterator[str]:
    """The matrix over all sizes, and what follows from it."""
    matrix = Matrix()
    for ranks, count in sizes.items():
        for trial in trials(ranks, range(count), CAUSES if ranks <= MANY_RANKS else FEW_CAUSES):
            matrix.add(run(trial, with_gain=trial.cause in ("input", "compute", "disk", "cpu_hog", "send") and ranks <= 16))
        sys.stderr.write(f"{ranks} ranks done\n")
    yield STREAMS.format(sizes=", ".join(f"{ranks:,} ranks, {count} each" for ranks, count in sizes.items()))
    yield from matrix.lines()
    yield ""
    yield (
        f"Right in {matrix.share_right:.1%} of all trials; {matrix.false} false verdicts in {matrix.healthy_steps:,} healthy "
        f"steps; the gain measured on the same job without the fault lies in the stated interval in {sum(matrix.gains)} of "
        f"{len(matrix.gains)} trials."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seeds", type=int, default=20, help="trials of each cause with 2 and 4 ranks; with 16, 128 and 1,024 fewer"
    )
    parser.add_argument("--real-seeds", type=int, default=2, help="real jobs of each cause with 2 and with 4 ranks; 0 for none")
    options = parser.parse_args()
    some, few = max(options.seeds // 3, 1), max(options.seeds // 10, 1)
    _write([HEAD])
    _write(streams({2: options.seeds, 4: options.seeds, 16: some, 128: few, 1024: few}))
    if options.real_seeds:
        _write([REAL.format(seeds=f"0 to {options.real_seeds - 1}")])
        _write(real.lines((2, 4), range(options.real_seeds)))


def _write(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
