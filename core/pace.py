"""The step times of a whole session over time, for one row that shows all of it. Bounded in memory, whatever the length."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

BINS = 512
"""Of time, at most; past them neighbours merge."""
_LOG_GAMMA = math.log(1.02)
"""Step times are counted in classes that differ by 2 %."""


class PacePoint(NamedTuple):
    """Seconds per step over all ranks, of the steps that were told of between `at` and `at` + the width of a bin."""

    at: float
    p50_s: float
    p95_s: float


@dataclass(slots=True)
class Pace:
    """`bins`: number of the bin since the epoch -> how many steps of each class it holds."""

    width_s: float = 1.0
    bins: dict[int, Counter[int]] = field(default_factory=dict)

    def add(self, at: float, durations_ns: Iterable[int]) -> None:
        """Steps that were told of at a time, in seconds since the epoch."""
        number = int(at // self.width_s)
        found = self.bins.get(number)
        if found is None:
            found = self.bins[number] = Counter()
        found.update([int(math.log(max(ns, 1)) / _LOG_GAMMA) for ns in durations_ns])
        while len(self.bins) > BINS:
            self._widen()

    def points(self) -> list[PacePoint]:
        """In order of time; a bin in which no step ended is left out."""
        return [
            PacePoint(number * self.width_s, _quantile(found, 0.5), _quantile(found, 0.95))
            for number, found in sorted(self.bins.items())
            if found
        ]

    def _widen(self) -> None:
        self.width_s *= 2
        before, self.bins = self.bins, {}
        for number, found in before.items():
            self.bins.setdefault(number // 2, Counter()).update(found)


def _quantile(found: Counter[int], q: float) -> float:
    """Seconds, within 1 %."""
    wanted, seen = q * (found.total() - 1), 0
    for number in sorted(found):
        seen += found[number]
        if seen > wanted:
            return math.exp((number + 0.5) * _LOG_GAMMA) / 1e9
    return 0.0
