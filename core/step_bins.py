"""The single steps of a job that has done so many that their series merges neighbours: how they are spread, in bounded memory."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import add
from typing import NamedTuple

from distmon.core.batches import Int64s
from distmon.core.quantiles import Numbers, Quantiles, bins_of

BLOCK = 8_192
"""Steps that go into bins together. The first so many are kept as they were, too, so that a warm-up can be taken off exactly."""
_WINDOW = 2 * BLOCK
"""So many of the last steps at most wait for ranks that tell of them late."""
MAX_BLOCKS = 64


class Spread(NamedTuple):
    """Of steps: their mean durations over ranks (ns), and the samples per nanosecond of one rank."""

    durations: Quantiles
    rates: Quantiles


class _Values(NamedTuple):
    durations: Numbers
    rates: Numbers


@dataclass(slots=True)
class StepBins:
    """Steps from `first` on are still single, in the columns of JobSeries. Those before are counted in bins, block by block.

    What a rank tells of a step that is in bins already is not in them.
    """

    first: int = 0
    """A multiple of BLOCK."""
    samples: Int64s = field(default_factory=lambda: array("q"))
    duration_ns: Int64s = field(default_factory=lambda: array("q"))
    reports: Int64s = field(default_factory=lambda: array("q"))
    block: int = field(default_factory=lambda: BLOCK)
    """Steps of a block; past MAX_BLOCKS, neighbours merge and it doubles."""
    durations: list[Counter[int]] = field(default_factory=list)
    rates: list[Counter[int]] = field(default_factory=list)
    first_durations: Numbers = field(default_factory=lambda: array("d"))
    """Of the first BLOCK steps, as `first_rates`."""
    first_rates: Numbers = field(default_factory=lambda: array("d"))

    def add(self, first: int, durations: Sequence[int], counts: Sequence[int], reports: int) -> None:
        """Adds sums over `reports` ranks of the durations and samples of steps."""
        for begin in range(0, len(durations), BLOCK):
            part = slice(begin, begin + BLOCK)
            self._add(first + begin, durations[part], counts[part], reports)

    def _add(self, first: int, durations: Sequence[int], counts: Sequence[int], reports: int) -> None:
        end = first + len(durations)
        if end - self.first > _WINDOW:
            self.settle((end - BLOCK) // BLOCK * BLOCK)
        late = max(self.first - first, 0)
        if first + late >= end:
            return
        window = slice(first + late - self.first, end - self.first)
        missing = window.stop - len(self.reports)
        for column, values in ((self.duration_ns, durations), (self.samples, counts)):
            if missing > 0:
                column.frombytes(bytes(8 * missing))
            column[window] = array("q", map(add, column[window], values[late:]))
        if missing > 0:
            self.reports.frombytes(bytes(8 * missing))
        self.reports[window] = array("q", map(reports.__add__, self.reports[window]))

    def settle(self, until: int) -> None:
        """Puts the steps before `until`, a multiple of BLOCK, into bins."""
        while self.first < until and self.reports:
            found = self._values(0, BLOCK)
            if self.first == 0:
                self.first_durations, self.first_rates = found
            while self.first // self.block >= MAX_BLOCKS:
                self._merge()
            place = self.first // self.block
            for blocks, values in ((self.durations, found.durations), (self.rates, found.rates)):
                blocks.extend(Counter() for _ in range(place + 1 - len(blocks)))
                blocks[place].update(bins_of(values))
            for column in (self.samples, self.duration_ns, self.reports):
                del column[:BLOCK]
            self.first += BLOCK
        self.first = max(self.first, until)

    def _merge(self) -> None:
        self.block *= 2
        for blocks in (self.durations, self.rates):
            if len(blocks) % 2:
                blocks.append(Counter())
            blocks[:] = [a + b for a, b in zip(blocks[::2], blocks[1::2], strict=True)]

    def _values(self, begin: int, end: int) -> _Values:
        """Of places in the window; those that no rank told are left out."""
        window = slice(begin, end)
        rows = zip(self.duration_ns[window], self.samples[window], self.reports[window], strict=True)
        told = [(ns, samples, reports) for ns, samples, reports in rows if ns > 0]
        return _Values(
            array("d", [ns / reports for ns, _, reports in told]), array("d", [samples / ns for ns, samples, _ in told])
        )

    def begin(self, step: int) -> int:
        """The first step from `step` on that can be told from those before it."""
        return step if step <= BLOCK or step >= self.first else -(-step // self.block) * self.block

    def spread(self, begin: int) -> Spread:
        """Of the steps in bins from `begin` on, which is one that `begin()` gave."""
        place = 0 if begin <= BLOCK else begin // self.block
        counts = [sum(blocks[place:], Counter[int]()) for blocks in (self.durations, self.rates)]
        if not place:
            for count, first in zip(counts, (self.first_durations, self.first_rates), strict=True):
                count.subtract(bins_of(first[:begin]))
        return Spread(*(Quantiles(binned=count.total(), bins=+count) for count in counts))

    def extended(self, known: Spread, begin: int, end: int) -> Spread:
        """The same with single steps that are not in bins yet."""
        added = self._values(begin - self.first, end - self.first)
        return Spread(*(quantiles.with_binned(values) for quantiles, values in zip(known, added, strict=True)))
