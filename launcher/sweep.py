"""A sweep: the same job with several numbers of ranks, several times each. Pure: what to run, in which order, how long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Literal, NamedTuple

from msgspec import Struct

from distmon.core.errors import UsageError

FORMAT = 1
FAILURES_IN_A_ROW = 2
"""After so many the sweep ends: what fails now would fail again."""


class Sweep(Struct, frozen=True, kw_only=True):
    """What was asked for; kept in the sweep's folder, so that it can go on after a break."""

    format: int = FORMAT
    sizes: list[int]
    """Numbers of ranks, ascending."""
    repeats: int
    flags: list[str]
    """Of `distmon run`, the same for all runs."""
    command: list[str]
    cwd: str
    kind: Literal["strong", "weak"] | None = None
    """As stated by the user; else it is told from the samples of an epoch."""


class Run(NamedTuple):
    ranks: int
    repeat: int
    """Counted from 1."""

    @property
    def name(self) -> str:
        """Of its files."""
        return f"np{self.ranks}-run{self.repeat}"

    def __str__(self) -> str:
        return f"{self.ranks} rank{'s' * (self.ranks != 1)}, repeat {self.repeat}"


def parse_sizes(text: str) -> list[int]:
    """The value of -np, as in 1,2,4: ascending. Raises UsageError."""
    words = text.split(",")
    if not all(word.strip().isdecimal() and int(word) >= 1 for word in words):
        raise UsageError(f"-np takes numbers of ranks from 1 up, set apart by commas, as in 1,2,4, not {text!r}")
    sizes = sorted(int(word) for word in words)
    if twice := next((size for size, following in pairwise(sizes) if size == following), None):
        raise UsageError(f"-np names {twice} twice; --repeat K runs every size K times")
    return sizes


def runs(sweep: Sweep) -> list[Run]:
    """All runs, every size once before any comes again, up and down in turns: a machine that drifts slows no size more."""
    order: list[Run] = []
    for repeat in range(1, sweep.repeats + 1):
        sizes = sweep.sizes if repeat % 2 else reversed(sweep.sizes)
        order += [Run(ranks, repeat) for ranks in sizes]
    return order


def left_s(pending: Sequence[Run], took_s: Mapping[Run, float], gone_s: float = 0.0) -> float | None:
    """Seconds until the pending runs are over, going by those of their size, else by all; the first has gone on for `gone_s`.

    None before the first run is over.
    """
    if not took_s:
        return None
    by_size = {size: fmean(s for run, s in took_s.items() if run.ranks == size) for size in {run.ranks for run in took_s}}
    usual = fmean(by_size.values())
    expected = [by_size.get(run.ranks, usual) for run in pending]
    return sum(expected) - min(gone_s, expected[0]) if expected else 0.0


def sharing(sizes: Sequence[int], cores: int, gpus: int) -> list[str]:
    """What ranks on one machine have to share, in sentences: its cores, and its GPUs where it has any."""
    said = []
    for what, count in (("core", cores), ("GPU", gpus)):
        over = [size for size in sizes if size > count]
        if over and count:
            sizes_said = " and ".join(map(str, over))
            have = f"{count} {what}{'s' * (count != 1)}"
            said.append(f"{sizes_said} ranks share the {have} of this machine: their times show that, not how the job scales")
    return said
