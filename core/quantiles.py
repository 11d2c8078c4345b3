"""Quantiles of a stream of positive numbers in bounded memory, whatever the order of arrival."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

EXACT_LIMIT = 4096
RELATIVE_ERROR = 0.0025
_GAMMA = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
_LOG_GAMMA = math.log(_GAMMA)


def quantile(ordered: list[float], q: float) -> float | None:
    """The q-quantile of sorted values, linear between neighbours; None of nothing."""
    if not ordered:
        return None
    position = q * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def median(values: Iterable[float]) -> float | None:
    return quantile(sorted(values), 0.5)


@dataclass(slots=True)
class Quantiles:
    """Exact up to EXACT_LIMIT values, then logarithmic bins with RELATIVE_ERROR (DDSketch: Masson et al., VLDB 2019)."""

    count: int = 0
    values: list[float] = field(default_factory=list)
    bins: Counter[int] = field(default_factory=Counter)

    def extend(self, values: Iterable[float]) -> None:
        """Adds positive values."""
        before = len(self.values)
        self.values.extend(values)
        self.count += len(self.values) - before
        if self.count > EXACT_LIMIT:
            self.bins.update(_bin(value) for value in self.values)
            self.values.clear()

    def merge(self, other: Quantiles) -> None:
        """Adds the values of another."""
        self.bins.update(other.bins)
        self.count += other.count - len(other.values)
        self.extend(other.values)

    @property
    def relative_error(self) -> float:
        return RELATIVE_ERROR if self.bins else 0.0

    def quantile(self, q: float) -> float | None:
        """The q-quantile, within `relative_error` of the exact one; None of nothing."""
        if not self.bins:
            return quantile(sorted(self.values), q)
        target = q * (self.count - 1)
        seen = 0
        for index in sorted(self.bins):
            seen += self.bins[index]
            if seen > target:
                return _centre(index)
        return None


def _bin(value: float) -> int:
    return math.ceil(math.log(max(value, 1e-12)) / _LOG_GAMMA)


def _centre(index: int) -> float:
    return 2 * _GAMMA**index / (_GAMMA + 1)
