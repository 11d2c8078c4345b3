"""What was spent over the last while, and in which of it steps were trained: of a step or an epoch one hears when it is over.

Bins of a quarter of a second, each reading spread over the time that it is of. That makes sums that do not depend on the order
in which nodes report, and needs no more room for many nodes than for one. What came before the first bin is kept as sums.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from distmon.core.columns import Floats, spread_amounts

KEEP_S = 15.0
"""Steps and readings that are told so much later than others still count where they belong."""
_LEAST_WIDTH_S = 0.25
_MOST_BINS = 1_024
"""Past them neighbours merge: a step of four minutes has the bins as fine as they are made, one of an hour those of 4 s."""
_JOULES, _SECONDS, _VARIANCE, _INTERVALS, _TRAINED = range(5)
_WIDE = 5


class Spent(NamedTuple):
    """What the session's power readings had come to at a moment, each joule counted once."""

    at: float
    """Seconds since the epoch of the clock."""
    joules: float
    seconds: float
    """Measured ones, added up over the readings."""
    variance: float
    """Of the joules that were summed from watts."""
    change_j: float
    """By how much the power changes between the readings before and after the moment, times the length of the one it lies in."""


@dataclass(slots=True)
class EnergyTrail:
    """Times are seconds since the epoch of the clock."""

    origin: float | None = None
    """The start of the first bin; None before anything came."""
    width_s: float = _LEAST_WIDTH_S
    cells: Floats = field(default_factory=lambda: array("d"))
    """Bin after bin: joules, seconds measured, variance, seconds times the length of their reading or bin, seconds trained."""
    joules: float = 0.0
    """This and the next three are of before the first bin."""
    seconds: float = 0.0
    variance: float = 0.0
    idle_joules: float = 0.0
    trained_until: float = -math.inf
    settled_at: float = -math.inf
    """How far steps had been told when what lay long before was summed up (`energy.settle`)."""

    def add(self, at: float, lasted_s: float, joules: float, seconds: float, variance: float) -> None:
        """Readings of the `lasted_s` before `at`; `seconds` are added up over them."""
        self._spread(at - lasted_s, at, (joules, seconds, variance, seconds * max(lasted_s, self.width_s), 0.0))

    def train(self, begin: float, end: float) -> None:
        """Steps were trained from `begin` to `end`, as others may have been."""
        begin = max(begin, self.trained_until)
        if begin < end:
            self._spread(begin, end, (0.0, 0.0, 0.0, 0.0, end - begin))
            self.trained_until = end

    def _spread(self, begin: float, end: float, amounts: tuple[float, ...]) -> None:
        width = self.width_s
        if (origin := self.origin) is None:
            origin = self.origin = math.floor(begin / width) * width - KEEP_S
        if begin < origin:
            part = min((origin - begin) / (end - begin), 1.0) if end > begin else 1.0
            self._add_before(*(amount * part for amount in amounts[:_INTERVALS]), idle=self.trained_until < origin)
            if end <= origin:
                return
            begin, amounts = origin, tuple(amount * (1 - part) for amount in amounts)
        while end - origin >= width * _MOST_BINS:
            self._merge()
            width = self.width_s
        first, last = int((begin - origin) / width), int((end - origin) / width)
        missing = (last + 1) * _WIDE - len(self.cells)
        if missing > 0:
            self.cells.frombytes(bytes(8 * missing))
        weights: tuple[float, ...] = (1.0,)
        if first != last:
            each = width / (end - begin)
            head, tail = first + 1 - (begin - origin) / width, (end - origin) / width - last
            weights = (head * each, *(each,) * (last - first - 1), tail * each)
        spread_amounts(self.cells, first, amounts, weights)

    def _add_before(self, joules: float, seconds: float, variance: float, *, idle: bool) -> None:
        self.joules += joules
        self.seconds += seconds
        self.variance += variance
        self.idle_joules += joules * idle

    def drop_before(self, moment: float) -> None:
        """Sums up the bins that end before a moment."""
        if self.origin is None or moment < self.origin + self.width_s:
            return
        bins = int((moment - self.origin) / self.width_s)
        gone = self.cells[: bins * _WIDE]
        self.joules += math.fsum(gone[_JOULES::_WIDE])
        self.seconds += math.fsum(gone[_SECONDS::_WIDE])
        self.variance += math.fsum(gone[_VARIANCE::_WIDE])
        self.idle_joules += self._idle(gone)
        self.origin += bins * self.width_s
        del self.cells[: bins * _WIDE]
        while self.width_s > _LEAST_WIDTH_S and 8 * len(self.cells) <= 3 * _MOST_BINS * _WIDE:  # room is left for what comes
            self._split()

    def _idle(self, cells: Floats) -> float:
        pairs = zip(cells[_JOULES::_WIDE], cells[_TRAINED::_WIDE], strict=True)
        return math.fsum(joules * max(1 - trained / self.width_s, 0.0) for joules, trained in pairs)

    def idle(self, *, ended: bool) -> float:
        """Joules spent while no step was trained. Unless it has `ended`, a step may be under way since the last one's end."""
        until = math.inf if ended or self.origin is None else (self.trained_until - self.origin) / self.width_s
        known = self.cells if until == math.inf else self.cells[: max(math.ceil(until), 0) * _WIDE]
        return self.idle_joules + self._idle(known)

    def _merge(self) -> None:
        cells = self.cells
        if len(cells) // _WIDE % 2:
            cells.extend([0.0] * _WIDE)
        merged = array("d", bytes(4 * len(cells)))
        for column in range(_WIDE):
            pairs = zip(cells[column :: 2 * _WIDE], cells[column + _WIDE :: 2 * _WIDE], strict=True)
            merged[column::_WIDE] = array("d", [a + b for a, b in pairs])
        self.cells, self.width_s = merged, 2 * self.width_s
        for place in range(0, len(merged), _WIDE):
            merged[place + _INTERVALS] = max(merged[place + _INTERVALS], merged[place + _SECONDS] * self.width_s)

    def _split(self) -> None:
        """Steps have gone on after a long time without: bins are fine again, the old ones as if nothing changed within."""
        halves = array("d", bytes(16 * len(self.cells)))
        for column in range(_WIDE):
            half = array("d", [value / 2 for value in self.cells[column::_WIDE]])
            halves[column :: 2 * _WIDE] = halves[column + _WIDE :: 2 * _WIDE] = half
        self.cells, self.width_s = halves, self.width_s / 2

    @property
    def all_seconds(self) -> float:
        """Measured ones, added up over the readings."""
        return self.seconds + math.fsum(self.cells[_SECONDS::_WIDE])

    @property
    def interval_s(self) -> float:
        """How long a reading in the bins lasts, a mean over the time measured."""
        seconds = math.fsum(self.cells[_SECONDS::_WIDE])
        return math.fsum(self.cells[_INTERVALS::_WIDE]) / seconds if seconds else 0.0

    def spent(self, moment: float) -> Spent | None:
        """Up to a moment; None where it lies before the first bin, and something had been spent before that."""
        place = (moment - self.origin) / self.width_s if self.origin is not None else -1.0
        if place < 0:
            return None if self.seconds else Spent(moment, 0.0, 0.0, 0.0, 0.0)
        bins = int(min(place, len(self.cells) // _WIDE))
        row = self.cells[bins * _WIDE : (bins + 1) * _WIDE] or [0.0] * _WIDE
        before = self.cells[: bins * _WIDE]
        joules, seconds, variance = (
            base + math.fsum(before[column::_WIDE]) + (place - bins if bins <= place < bins + 1 else 0.0) * row[column]
            for column, base in ((_JOULES, self.joules), (_SECONDS, self.seconds), (_VARIANCE, self.variance))
        )
        return Spent(moment, joules, seconds, variance, self._change_j(bins))

    def _change_j(self, place: int) -> float:
        """Of the bins within a reading's length of one, and one more: these hold parts of other readings alone."""
        _, seconds, _, intervals, _ = self.cells[place * _WIDE : (place + 1) * _WIDE] or [0.0] * _WIDE
        lasts = intervals / seconds if seconds else self.interval_s
        reach = math.ceil(lasts / self.width_s) + 1
        powers = list(self._powers(max(place - reach, 0), place + reach + 1))
        return (max(powers) - min(powers)) * lasts if powers else 0.0

    def _powers(self, first: int, end: int) -> Iterator[float]:
        """Watts in each bin as if all readings were there in it; bins that most readings are missing in say nothing."""
        cells = self.cells[first * _WIDE : end * _WIDE]
        full = max(cells[_SECONDS::_WIDE], default=0.0)
        for joules, seconds in zip(cells[_JOULES::_WIDE], cells[_SECONDS::_WIDE], strict=True):
            if seconds > full / 2:
                yield joules / seconds * full / self.width_s
