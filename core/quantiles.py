"""Quantiles of a stream of positive numbers in bounded memory, whatever the order of arrival."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import repeat
from operator import rshift
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Numbers = array[int] | array[float]
else:
    Numbers = array  # Python 3.11 cannot subscript it, and the states' codec resolves annotations

EXACT_LIMIT = 4096
_SHIFT = 44
"""Of the 64 bits of a number, what is left holds the exponent and eight bits of the fraction."""
RELATIVE_ERROR = 1 / 513


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
    """Exact up to EXACT_LIMIT values or more, then in bins with RELATIVE_ERROR, of which each power of two has 256.

    Bins are cut from the bits of the numbers, as HdrHistogram does it, since the logarithms that others use cost five times that.
    """

    binned: int = 0
    values: Numbers = field(default_factory=lambda: array("I"))
    """Not yet in bins."""
    bins: Counter[int] = field(default_factory=Counter)
    room: int = EXACT_LIMIT
    """So many values may wait."""

    @property
    def count(self) -> int:
        """Of all values."""
        return self.binned + len(self.values)

    def extend(self, values: Iterable[float]) -> None:
        """Adds positive numbers."""
        waiting = self.values
        before = len(waiting)
        kept = values if isinstance(values, array) else list(values)
        try:
            waiting.extend(kept)  # type: ignore[arg-type]
        except (TypeError, OverflowError):
            # Not all are whole and small.
            waiting = self.values = array("d", waiting[:before])
            waiting.extend(float(value) for value in kept)
        if len(waiting) > self.room:
            self.settle()

    def settle(self) -> None:
        """Puts what waits into bins."""
        self.bins.update(bins_of(self.values))
        self.binned += len(self.values)
        self.values = array("I")

    def with_binned(self, values: Numbers) -> Quantiles:
        """Another, with more values, all in bins."""
        bins = Counter(self.bins)
        bins.update(bins_of(values))
        return Quantiles(self.binned + len(values), self.values, bins, self.room)

    def merge(self, other: Quantiles) -> None:
        """Adds the values of another."""
        self.bins.update(other.bins)
        self.binned += other.binned
        self.extend(other.values)

    @property
    def relative_error(self) -> float:
        return RELATIVE_ERROR if self.bins else 0.0

    def above(self, limit: float) -> int:
        """How many values are greater, where `limit` is within `relative_error`."""
        return sum(count for index, count in self.bins.items() if _centre(index) > limit) + sum(v > limit for v in self.values)

    def quantile(self, q: float) -> float | None:
        """The q-quantile, within `relative_error` of the exact one; None of nothing."""
        if not self.bins:
            return quantile(sorted(self.values), q)
        bins = self.bins + Counter(bins_of(self.values))
        position = q * (self.count - 1)
        low, seen, below = int(position), 0, None
        for index in sorted(bins):
            seen += bins[index]
            if below is None and seen > low:
                below = _centre(index)
            if below is not None and seen > min(low + 1, self.count - 1):
                return below + (_centre(index) - below) * (position - low)
        return below


def bins_of(values: Numbers) -> Iterable[int]:
    """The upper bits of each number, which grow with it."""
    # By way of a list: from an array of another kind it takes twice as long.
    bits = array("Q", array("d", values.tolist()).tobytes())
    return map(rshift, bits, repeat(_SHIFT))


def _centre(index: int) -> float:
    """As far from the lower end of a bin as from the upper, in proportion."""
    low, high = array("d", array("Q", [index << _SHIFT, (index + 1) << _SHIFT]).tobytes())
    return 2 * low * high / (low + high)
