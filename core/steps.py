"""Step records added up: per rank, per job, and over time, in bounded memory and whatever the order in which ranks report."""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from distmon.core.events import StepsRecorded
from distmon.core.quantiles import Quantiles

PHASES = ("input_wait", "compute", "exposed_communication", "optimizer")
"""The phases of a step that are measured; what they leave of the step is the rest."""

EXACT_PREFIX = 512
RECENT_STEPS = 256
MAX_SERIES = 65_536
MAX_BINS = 3_600


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

    def __sub__(self, other: Totals) -> Totals:
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
        return self - (Totals() - other)


@dataclass(slots=True)
class RankSteps:
    """The steps of one rank in one generation."""

    rank: int
    worker: str = ""
    totals: Totals = field(default_factory=Totals)
    first_start: float | None = None
    last_end: float | None = None
    last_step: int = -1
    epoch: int | None = None
    micro_batches: int = 0
    durations: Quantiles = field(default_factory=Quantiles)
    recent: deque[Step] = field(default_factory=lambda: deque(maxlen=RECENT_STEPS))
    checkpoints: list[Totals] = field(default_factory=lambda: [Totals()])
    """Totals after each of the first EXACT_PREFIX steps, then after each batch at a widening spacing."""

    def add(self, batch: StepsRecorded) -> None:
        """Adds a batch; batches of one worker come in order."""
        self.worker = batch.worker
        columns = [_column(batch, name) for name in PHASES]
        samples = batch.samples or [None] * len(batch.duration_ns)
        exact = self.totals.steps < EXACT_PREFIX
        for i, duration in enumerate(batch.duration_ns):
            row = (columns[0][i], columns[1][i], columns[2][i], columns[3][i])
            if exact:
                self._accumulate((duration,), tuple((v,) for v in row), (samples[i],))
                self.checkpoints.append(self.totals)
            if len(batch.duration_ns) - i <= RECENT_STEPS:
                self._remember(batch, i, duration, row, samples[i])
        if not exact:
            self._accumulate(batch.duration_ns, columns, samples)
            self._checkpoint()
        self.durations.extend([duration / 1e9 for duration in batch.duration_ns])
        self.micro_batches += sum(batch.micro_batches) if batch.micro_batches else len(batch.duration_ns)
        if self.first_start is None:
            self.first_start = batch.origin
        self.last_step = batch.first_step + len(batch.duration_ns) - 1
        self.last_end = batch.origin + (batch.start_ns[-1] + batch.duration_ns[-1]) / 1e9
        if batch.epoch is not None:
            self.epoch = batch.epoch

    def steady(self, warmup_steps: int) -> Totals:
        """Totals of the steps after the first `warmup_steps`, to the nearest checkpoint at or after that."""
        for before in self.checkpoints:
            if before.steps >= warmup_steps:
                return self.totals - before
        return Totals()

    def _accumulate(self, durations: list[int] | tuple[int, ...], columns: object, samples: object) -> None:
        phases = [[v for v in column if v is not None] for column in columns]  # type: ignore[attr-defined]
        known = [s for s in samples if s is not None]  # type: ignore[attr-defined]
        self.totals = self.totals.plus(
            Totals(
                len(durations),
                sum(durations),
                sum(known),
                len(known),
                (sum(phases[0]), sum(phases[1]), sum(phases[2]), sum(phases[3])),
                (len(phases[0]), len(phases[1]), len(phases[2]), len(phases[3])),
            )
        )

    def _remember(
        self, batch: StepsRecorded, i: int, duration: int, row: tuple[int | None, ...], samples: int | None
    ) -> None:
        a, b, c, d = (None if v is None else v / 1e9 for v in row)
        end = batch.origin + (batch.start_ns[i] + duration) / 1e9
        self.recent.append(Step(batch.first_step + i, end, duration / 1e9, (a, b, c, d), samples))

    def _checkpoint(self) -> None:
        self.checkpoints.append(self.totals)
        if len(self.checkpoints) > 2 * EXACT_PREFIX:
            del self.checkpoints[EXACT_PREFIX + 1 :: 2]


def _column(batch: StepsRecorded, phase: str) -> list[int | None]:
    column: list[int | None] | None = getattr(batch, phase + "_ns")
    return column if column is not None else [None] * len(batch.duration_ns)


@dataclass(slots=True)
class JobSeries:
    """Steps joined over ranks by their index: the whole job's samples and mean duration for each.

    Past MAX_SERIES steps neighbours are merged, so that one entry stands for `width` steps.
    """

    width: int = 1
    samples: array[int] = field(default_factory=lambda: array("q"))
    duration_ns: array[int] = field(default_factory=lambda: array("q"))
    reports: array[int] = field(default_factory=lambda: array("q"))
    sampled: bool = True
    """False once a step came without its number of samples."""

    def add(self, batch: StepsRecorded) -> None:
        last = batch.first_step + len(batch.duration_ns) - 1
        while last // self.width >= MAX_SERIES:
            self._halve()
        missing = last // self.width + 1 - len(self.reports)
        if missing > 0:
            for column in (self.samples, self.duration_ns, self.reports):
                column.frombytes(bytes(8 * missing))
        self.sampled = self.sampled and batch.samples is not None and None not in batch.samples
        samples = batch.samples or [None] * len(batch.duration_ns)
        for i, duration in enumerate(batch.duration_ns):
            index = (batch.first_step + i) // self.width
            self.duration_ns[index] += duration
            self.reports[index] += 1
            self.samples[index] += samples[i] or 0

    def _halve(self) -> None:
        self.width *= 2
        for column in (self.samples, self.duration_ns, self.reports):
            if len(column) % 2:
                column.append(0)
            column[:] = array("q", [a + b for a, b in zip(column[::2], column[1::2], strict=True)])


@dataclass(slots=True)
class Bins:
    """A quantity per second since `origin`; past `limit` bins, neighbours are merged and `width_s` doubles."""

    origin: int
    width_s: int = 1
    values: list[float] = field(default_factory=list)
    limit: int = MAX_BINS

    def spread(self, start: float, end: float, amount: float) -> None:
        """Adds an amount evenly over a time; what lies before the origin goes into the first bin."""
        start, end = max(start - self.origin, 0.0), max(end - self.origin, 0.0)
        while end >= self.width_s * self.limit:
            self._halve()
        first, last = int(start / self.width_s), int(end / self.width_s)
        if last >= len(self.values):
            self.values.extend([0.0] * (last + 1 - len(self.values)))
        if first == last:
            self.values[first] += amount
            return
        rate = amount / (end - start)
        self.values[first] += rate * ((first + 1) * self.width_s - start)
        for index in range(first + 1, last):
            self.values[index] += rate * self.width_s
        self.values[last] += rate * (end - last * self.width_s)

    def between(self, start: float, end: float) -> float:
        """The amount between two times; bins cut by them count in proportion."""
        total = 0.0
        first = max(int((start - self.origin) / self.width_s), 0)
        for index in range(first, min(int((end - self.origin) / self.width_s) + 1, len(self.values))):
            left = self.origin + index * self.width_s
            share = (min(end, left + self.width_s) - max(start, left)) / self.width_s
            total += self.values[index] * max(share, 0.0)
        return total

    def _halve(self) -> None:
        if len(self.values) % 2:
            self.values.append(0.0)
        self.values = [a + b for a, b in zip(self.values[::2], self.values[1::2], strict=True)]
        self.width_s *= 2


@dataclass(slots=True)
class Generation:
    """One rendezvous round: who took part, and their steps."""

    number: int
    world_size: int | None = None
    ranks: dict[int, RankSteps] = field(default_factory=dict)
    series: JobSeries = field(default_factory=JobSeries)

    def add(self, batch: StepsRecorded) -> RankSteps:
        """Adds a batch to its rank and to the job."""
        if (rank := self.ranks.get(batch.rank)) is None:
            rank = self.ranks[batch.rank] = RankSteps(batch.rank)
        rank.add(batch)
        self.series.add(batch)
        return rank
