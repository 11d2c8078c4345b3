"""One run against another that is taken as the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from distmon.core.intervals import Interval, ratio
from distmon.core.steady import SteadySpeed


@dataclass(slots=True, frozen=True)
class Against:
    """Steady speed over the baseline's; `ideal` is the ratio of ranks, and the efficiency is speedup over ideal."""

    speedup: float
    interval: Interval | None
    """Of the speedup; None where one of the two has none."""
    ideal: float

    @property
    def efficiency(self) -> float:
        return self.speedup / self.ideal


def against(base: SteadySpeed, run: SteadySpeed) -> Against:
    """How a run compares with a baseline, whichever has more ranks."""
    ours, theirs = run.samples_per_s, base.samples_per_s
    interval = ratio(theirs, ours) if isinstance(ours, Interval) and isinstance(theirs, Interval) else None
    return Against(run.estimate / base.estimate, interval, run.ranks / base.ranks)


def program_of(command: Sequence[str]) -> tuple[str, ...]:
    """What a command runs, whatever starts it and from whichever folder: the name of its script or module, then its arguments."""
    for place, word in enumerate(command):
        if word == "-m" and place + 1 < len(command):
            return tuple(command[place + 1 :])
        if word.endswith(".py"):
            return PurePath(word).name, *command[place + 1 :]
    return tuple(command)
