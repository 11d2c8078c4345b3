"""Step records added up: per rank, per job, and over time, in bounded memory and whatever the order in which ranks report."""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import add
from typing import NamedTuple

from distmon.core.arrivals import Arrivals
from distmon.core.batches import NOTHING, PHASES, USUAL, USUAL_STEPS, Batch, Int64s, Sums, add_up, sums_of
from distmon.core.columns import Floats, compiled_columns, compiled_fold, row_sums, spread_amounts
from distmon.core.leaps import BACK_S, PAUSE_S, Leap
from distmon.core.quantiles import EXACT_LIMIT, Quantiles, median
from distmon.core.step_bins import BLOCK, StepBins

HISTORY_COLUMNS = ("samples", "steps", *PHASES, "rest", "step")
"""Of a job over time: samples and rank-steps done, and rank-seconds per phase, of the rest and of whole steps."""

EXACT_PREFIX = 512
RECENT_STEPS = 256
MAX_SERIES = 65_536
MAX_BINS = 3_600
NEARLY_ALL_SAMPLED = 0.95
"""Of a rank's steps: where the samples of fewer are known, it is not told how many were trained, nor how fast."""
_APART = 1_024
"""Ranks put their step times into bins up to so many steps apart: all at once would hold up a viewer for seconds."""


class Step(NamedTuple):
    """One step as kept for recent views. Times in seconds; a phase not seen is None."""

    step: int
    end: float
    duration_s: float
    phases_s: tuple[float | None, float | None, float | None, float | None]
    samples: int | None


class Totals(NamedTuple):
    """Sums over steps. `seen` counts, per phase, the steps in which the phase was measured."""

    steps: int = 0
    duration_ns: int = 0
    samples: int = 0
    sampled_steps: int = 0
    phase_ns: tuple[int, int, int, int] = (0, 0, 0, 0)
    seen: tuple[int, int, int, int] = (0, 0, 0, 0)

    @staticmethod
    def of(sums: Sequence[int]) -> Totals:
        """Of twelve sums in the order of `Sums`."""
        steps, duration, samples, sampled, a, b, c, d, seen_a, seen_b, seen_c, seen_d = sums
        return Totals(steps, duration, samples, sampled, (a, b, c, d), (seen_a, seen_b, seen_c, seen_d))

    def less(self, other: Totals) -> Totals:
        """The difference of two."""
        a, b = self.phase_ns, other.phase_ns
        s, t = self.seen, other.seen
        return Totals(
            self.steps - other.steps,
            self.duration_ns - other.duration_ns,
            self.samples - other.samples,
            self.sampled_steps - other.sampled_steps,
            (a[0] - b[0], a[1] - b[1], a[2] - b[2], a[3] - b[3]),
            (s[0] - t[0], s[1] - t[1], s[2] - t[2], s[3] - t[3]),
        )

    def plus(self, other: Totals) -> Totals:
        """The sum of two; `+` of a tuple would concatenate."""
        a, b = self.phase_ns, other.phase_ns
        s, t = self.seen, other.seen
        return Totals(
            self.steps + other.steps,
            self.duration_ns + other.duration_ns,
            self.samples + other.samples,
            self.sampled_steps + other.sampled_steps,
            (a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]),
            (s[0] + t[0], s[1] + t[1], s[2] + t[2], s[3] + t[3]),
        )


@dataclass(slots=True)
class RankSteps:
    """The steps of one rank in one generation."""

    rank: int
    worker: str = ""
    sums: Sums = NOTHING
    """Of all steps."""
    first_start: float | None = None
    last_end: float | None = None
    last_step: int = -1
    epoch: int | None = None
    more_micro_batches: int = 0
    """Beyond one for each step."""
    durations: Quantiles = field(default_factory=Quantiles)
    """In nanoseconds; without `summed_steps`."""
    summed_steps: int = 0
    """Steps of which only sums over about a second came."""
    first_batches: list[Batch] = field(default_factory=list)
    """Those of the first EXACT_PREFIX steps, so that any warm-up within them can be taken off exactly."""
    checkpoints: Floats = field(default_factory=lambda: array("d"))
    """Sums after batches past those, one behind the other, at a widening spacing; exact up to a hundred days."""
    batches: list[Batch] = field(default_factory=list)
    """The last batches, that hold at least RECENT_STEPS steps between them."""
    kept_steps: int = 0
    set_back: list[Leap] = field(default_factory=list)
    """Where steps began before the last ones had ended, the first of them."""
    pauses: list[Leap] = field(default_factory=list)
    """The longest between steps."""

    def __post_init__(self) -> None:
        if not self.durations.count:
            self.durations.room = EXACT_LIMIT + self.rank * 37 % _APART

    @property
    def totals(self) -> Totals:
        """Of all steps."""
        return Totals.of(self.sums)

    @property
    def micro_batches(self) -> int:
        """Forward and backward passes."""
        return self.sums[0] + self.more_micro_batches

    def add(self, batch: Batch, worker: str = "", epoch: int | None = None, summed: bool = False) -> None:
        """Adds a batch; those of one worker come in order. `summed`: its steps are means."""
        first_step, count, begin, end, columns, numbers = batch
        before = self.sums[0]
        if before < EXACT_PREFIX:
            if not before:
                self.first_start = begin
            self.first_batches.append(batch)
        self.sums = add_up([self.sums, batch.sums])
        if before + count > EXACT_PREFIX:
            self._checkpoint()
        if summed:
            self.summed_steps += count
        else:
            self.durations.extend(numbers[:count])
        told = None if columns is USUAL else batch.column("micro_batches")
        if told is not None:
            self.more_micro_batches += sum(number or 0 for number in told) - count
        self.batches.append(batch)
        self.kept_steps += count
        while self.kept_steps - (oldest := self.batches[0].steps) >= RECENT_STEPS:
            del self.batches[0]
            self.kept_steps -= oldest
        self.worker = worker
        self.last_step = first_step + count - 1
        self.last_end = end
        if epoch is not None:
            self.epoch = epoch

    def steady(self, warmup_steps: int) -> Totals:
        """Totals of the steps after the first `warmup_steps`; past the exact prefix, after the next checkpoint."""
        if warmup_steps <= min(EXACT_PREFIX, self.sums[0]):
            return self.totals.less(Totals.of(self.first_sums(warmup_steps)))
        for place in range(0, len(self.checkpoints), len(NOTHING)):
            if self.checkpoints[place] >= warmup_steps:
                before = self.checkpoints[place : place + len(NOTHING)]
                return self.totals.less(Totals.of([int(value) for value in before]))
        return Totals()

    def first_sums(self, steps: int) -> Sums:
        """The sums of its first steps, of the EXACT_PREFIX at most."""
        total = NOTHING
        for batch in self.first_batches:
            if steps <= 0:
                break
            total = add_up([total, batch.first_sums(steps)])
            steps -= batch.steps
        return total

    @property
    def first_duration_s(self) -> float | None:
        """Of its first step."""
        return self.first_batches[0].numbers[0] / 1e9 if self.first_batches else None

    def recent(self, count: int = RECENT_STEPS) -> list[Step]:
        """The last steps, oldest first."""
        steps: deque[Step] = deque()
        for batch in reversed(self.batches):
            nothing: list[int | None] = [None] * batch.steps
            phases = [batch.column(f"{phase}_ns") or nothing for phase in PHASES]
            samples, durations, starts = batch.column("samples") or nothing, batch.durations_ns, batch.starts()
            for i in range(batch.steps - 1, -1, -1):
                if len(steps) == count:
                    return list(steps)
                end = starts[i] + durations[i] / 1e9
                a, b, c, d = (None if (v := column[i]) is None else v / 1e9 for column in phases)
                steps.appendleft(Step(batch.first_step + i, end, durations[i] / 1e9, (a, b, c, d), samples[i]))
        return list(steps)

    def usual_step_s(self) -> float:
        """Median of the last few steps; 0 before the first."""
        return (median(d for batch in self.last_batches(USUAL_STEPS) for d in batch.durations_ns) or 0.0) / 1e9

    def last_batches(self, count: int) -> list[Batch]:
        """Whole batches, the latest first, until they hold at least `count` steps."""
        chosen: list[Batch] = []
        for batch in reversed(self.batches):
            chosen.append(batch)
            count -= batch.steps
            if count <= 0:
                break
        return chosen

    def last_sums(self, count: int) -> Sums:
        """The sums of `last_batches`."""
        chosen = self.last_batches(count)
        return sums_of(chosen) if chosen else NOTHING

    def _checkpoint(self) -> None:
        self.checkpoints.extend(self.sums)
        if len(self.checkpoints) > EXACT_PREFIX * len(NOTHING):
            self.thin()

    def thin(self) -> None:
        """Leaves every second checkpoint."""
        rows = memoryview(self.checkpoints).cast("B").cast("d", (len(self.checkpoints) // len(NOTHING), len(NOTHING)))
        self.checkpoints = array("d", rows[::2].tobytes())


@dataclass(slots=True)
class JobSeries:
    """Steps joined over ranks by their index: the whole job's samples and mean duration for each.

    Past MAX_SERIES steps neighbours are merged, so that one entry stands for `width` steps; how single steps are spread is then
    in `singles`.
    """

    width: int = 1
    samples: Int64s = field(default_factory=lambda: array("q"))
    duration_ns: Int64s = field(default_factory=lambda: array("q"))
    reports: Int64s = field(default_factory=lambda: array("q"))
    singles: StepBins | None = None

    def add(self, batches: list[Batch], *, aligned: bool = False) -> None:
        """Adds batches of different ranks; `aligned` says that they are usual ones of the same steps."""
        if aligned:
            first, count = batches[0].first_step, batches[0].steps
            self._make_room(first + count - 1)
            if self.width == 1 and compiled_columns is not None:
                compiled_columns.add_table(self.duration_ns, self.samples, self.reports, first, batches, count)
            else:
                rows = [batch.numbers for batch in batches]
                self._add(first, row_sums(rows, 0, count), row_sums(rows, 5 * count, count), len(rows))
            return
        for batch in batches:
            self._add(batch.first_step, batch.durations_ns, self._samples_of(batch), 1)

    def _samples_of(self, batch: Batch) -> Sequence[int]:
        """Those that are not known are taken to be as the others of the batch, or of the last steps, so that rates are of all."""
        told = batch.column("samples")
        if told is None:
            return [0] * batch.steps
        known = [samples for samples in told if samples is not None]
        if len(known) == batch.steps:
            return known
        before = self.samples[-1] / self.reports[-1] if self.reports and self.reports[-1] else 0.0
        usual = round(sum(known) / len(known) if known else before)
        return [usual if samples is None else samples for samples in told]

    def _add(self, first: int, durations: Sequence[int], counts: Sequence[int], reports: int) -> None:
        self._make_room(first + len(durations) - 1)
        if self.width == 1:
            window = slice(first, first + len(durations))
            for column, values in ((self.duration_ns, durations), (self.samples, counts)):
                column[window] = array("q", map(add, column[window], values))
            self.reports[window] = array("q", map(reports.__add__, self.reports[window]))
            return
        if self.singles is not None:
            self.singles.add(first, durations, counts, reports)
        for i, (duration, samples) in enumerate(zip(durations, counts, strict=True)):
            index = (first + i) // self.width
            self.duration_ns[index] += duration
            self.reports[index] += reports
            self.samples[index] += samples

    def _make_room(self, last: int) -> None:
        while last // self.width >= MAX_SERIES:
            self._halve()
        missing = last // self.width + 1 - len(self.reports)
        if missing > 0:
            for column in (self.samples, self.duration_ns, self.reports):
                column.frombytes(bytes(8 * missing))

    def _halve(self) -> None:
        if self.singles is None:
            self.singles = StepBins(0, self.samples[:], self.duration_ns[:], self.reports[:])
            self.singles.settle((len(self.reports) - BLOCK) // BLOCK * BLOCK)
        self.width *= 2
        for column in (self.samples, self.duration_ns, self.reports):
            if len(column) % 2:
                column.append(0)
            column[:] = array("q", [a + b for a, b in zip(column[::2], column[1::2], strict=True)])


@dataclass(slots=True)
class History:
    """Amounts per second since `origin`, a column for each name; past `limit` bins, neighbours merge and `width_s` doubles."""

    origin: int
    cells: Floats = field(default_factory=lambda: array("d"))
    """Bin after bin, in the order of HISTORY_COLUMNS."""
    width_s: int = 1
    limit: int = MAX_BINS

    def column(self, name: str) -> Floats:
        """The amount in each bin."""
        return self.cells[HISTORY_COLUMNS.index(name) :: len(HISTORY_COLUMNS)]

    def spread(self, start: float, end: float, amounts: Sequence[float]) -> None:
        """Adds amounts, in the order of HISTORY_COLUMNS, evenly over a time; those of before the origin go into the first bin.

        A time that ends before it begins, which only damage or malice can say, counts at its end.
        """
        end = max(end - self.origin, 0.0)
        start = min(max(start - self.origin, 0.0), end)
        while end >= self.width_s * self.limit:
            self._halve()
        width = self.width_s
        first, last = int(start / width), int(end / width)
        missing = (last + 1) * len(HISTORY_COLUMNS) - len(self.cells)
        if missing > 0:
            self.cells.frombytes(bytes(8 * missing))
        spread_amounts(self.cells, first, tuple(amounts), _weights(start, end, first, last, width))

    def between(self, name: str, start: float, end: float, filled: tuple[float, float] = (-math.inf, math.inf)) -> float:
        """The amount between two times; bins cut by them count in proportion to what of them lies in `filled`."""
        column, total = self.column(name), 0.0
        first = max(int((start - self.origin) / self.width_s), 0)
        for index in range(first, min(int((end - self.origin) / self.width_s) + 1, len(column))):
            left, right = float(self.origin + index * self.width_s), float(self.origin + (index + 1) * self.width_s)
            if left < filled[1] and filled[0] < right:
                left, right = max(left, filled[0]), min(right, filled[1])
            total += column[index] * min(max((min(end, right) - max(start, left)) / (right - left), 0.0), 1.0)
        return total

    def _halve(self) -> None:
        cells, wide = self.cells, len(HISTORY_COLUMNS)
        if len(cells) // wide % 2:
            cells.extend([0.0] * wide)
        pairs = (place for begin in range(0, len(cells), 2 * wide) for place in range(begin, begin + wide))
        self.cells = array("d", [cells[place] + cells[place + wide] for place in pairs])
        self.width_s *= 2


def _weights(start: float, end: float, first: int, last: int, width: int) -> tuple[float, ...]:
    """What part of an amount goes into each bin from the first to the last."""
    if first == last:
        return (1.0,)
    per_second = 1 / (end - start)
    head, tail = ((first + 1) * width - start) * per_second, (end - last * width) * per_second
    return (head, *[width * per_second] * (last - first - 1), tail)


@dataclass(slots=True)
class Generation:
    """One rendezvous round: who took part, and their steps."""

    number: int
    world_size: int | None = None
    ranks: dict[int, RankSteps] = field(default_factory=dict)
    series: JobSeries = field(default_factory=JobSeries)
    arrivals: Arrivals = field(default_factory=Arrivals)
    told: int = 0
    """Batches that it has taken in."""

    @property
    def sampled(self) -> bool:
        """Whether the samples of nearly all steps of each rank are known."""
        return all(rank.sums[3] >= NEARLY_ALL_SAMPLED * rank.sums[0] for rank in self.ranks.values())

    def all_new(self, told: list[tuple[int, str, Batch]]) -> bool:
        """Whether none of the steps is there already, and they begin when the last ones of their ranks ended, or soon after."""
        if compiled_fold is not None:
            return bool(compiled_fold.all_new(self.ranks, told, BACK_S, PAUSE_S))
        for rank, worker, batch in told:
            known = self.ranks.get(rank)
            if known is not None and (
                (batch[0] <= known.last_step and known.worker == worker)
                or (known.last_end is not None and not -BACK_S <= batch[2] - known.last_end <= PAUSE_S)
            ):
                return False
        return True

    def new_steps(self, rank: int, worker: str, batch: Batch) -> Batch | None:
        """The batch without the steps that are there already, which an agent that was started again tells once more."""
        known = self.ranks.get(rank)
        if known is None or known.worker != worker or batch.first_step > known.last_step:
            return batch
        return batch.without_first(known.last_step + 1 - batch.first_step)

    def add(
        self, told: list[tuple[int, str, Batch]], epoch: int | None, *, aligned: bool = False, summed: bool = False
    ) -> Totals:
        """Adds each batch to its rank and to the job, and gives the sums of all; the worker tells who had the rank.

        `summed`: the steps are means, which say nothing of who came late, or how long a single step took.
        """
        ranks, batches, sums = self.ranks, [batch for _, _, batch in told], None
        self.told += len(told)
        if compiled_fold is not None:
            sums = compiled_fold.add_batches(ranks, told, epoch, RankSteps, USUAL, EXACT_PREFIX, RECENT_STEPS, summed)
        else:
            for rank, worker, batch in told:
                if (made := ranks.get(rank)) is None:
                    made = ranks[rank] = RankSteps(rank)
                made.add(batch, worker, epoch, summed)
        if not summed:
            self.arrivals.add(told, self.world_size or max(len(ranks), 2))
        self.series.add(batches, aligned=aligned)
        return Totals.of(sums or sums_of(batches))
