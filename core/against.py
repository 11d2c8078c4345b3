"""One run against another that is taken as the baseline."""

from __future__ import annotations

from dataclasses import dataclass

from distmon.core.intervals import Interval, ratio
from distmon.core.reconcile import RunFigures


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


def against(base: RunFigures, run: RunFigures) -> Against:
    """How a run compares with a baseline, whichever has more ranks."""
    ours, theirs = run.steady_samples_per_s, base.steady_samples_per_s
    interval = ratio(theirs, ours) if isinstance(ours, Interval) and isinstance(theirs, Interval) else None
    return Against(run.steady / base.steady, interval, run.ranks / base.ranks)
