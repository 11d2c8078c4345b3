"""When the readings of a log were taken, from clocks that go by whole seconds, are missing or step back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from statistics import fmean, median

DEFAULT_INTERVAL_S = 1.0
"""tegrastats' own."""
_GAP_INTERVALS = 2.5
_LONGEST_INTERVAL_S = 86_400.0
"""What lies longer between two readings is a gap, or a clock that was set, wherever there are but few of them."""


@dataclass(slots=True, frozen=True)
class Timeline:
    """Seconds since the epoch of each reading, ascending, and what lies usually between two."""

    times: list[float]
    interval_s: float
    has_clock: bool
    went_back: list[int] = field(default_factory=list)
    """Readings (from 0) before which the log's clock was set back."""

    def moved(self, by_s: float) -> Timeline:
        return replace(self, times=[at + by_s for at in self.times])


def reading_times(clocks: Sequence[float | None], start: float | None, interval_s: float | None) -> Timeline:
    """`clocks` are the log's, one for each reading, None where it gives none; one before 1970 was never set, and is none.

    Readings of the same second are spread over it. `start` is the time of the first one; by default the clock's, without one 0.
    """
    spread = _spread([clock if clock is not None and clock >= 0 else None for clock in clocks])
    usual = interval_s or _usual_interval(spread)
    times: list[float] = []
    went_back: list[int] = []
    offset = 0.0
    for index, clock in enumerate(spread):
        if not times:
            times.append(clock if clock is not None else _first(spread, usual))
            continue
        at = times[-1] + usual if clock is None else clock + offset
        if at <= times[-1]:
            went_back.append(index)
            offset += times[-1] + usual - at
            at = times[-1] + usual
        times.append(at)
    found = Timeline(times, usual, any(clock is not None for clock in clocks), went_back)
    return found if start is None or not times else found.moved(start - times[0])


def _first(spread: Sequence[float | None], usual: float) -> float:
    """The time of a first reading without a clock, counted back from the first that has one."""
    index = next((i for i, clock in enumerate(spread) if clock is not None), None)
    return 0.0 if index is None else max((spread[index] or 0.0) - index * usual, 0.0)


def _spread(clocks: Sequence[float | None]) -> list[float | None]:
    spread: list[float | None] = []
    for second, group in groupby(clocks):
        count = len(list(group))
        spread += [None if second is None else second + i / count for i in range(count)]
    return spread


def _usual_interval(times: Sequence[float | None]) -> float:
    """Mean of the differences that are no gaps."""
    pairs = [(a, b) for a, b in pairwise(times) if a is not None and b is not None]
    steps = [step for earlier, later in pairs if 0 < (step := later - earlier) <= _LONGEST_INTERVAL_S]
    if not steps:
        return DEFAULT_INTERVAL_S
    limit = _GAP_INTERVALS * median(steps)
    return fmean(step for step in steps if step <= limit)
