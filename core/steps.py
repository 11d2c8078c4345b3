"""Step records added up: per rank, per job, and over time, in bounded memory and whatever the order in which ranks report."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import repeat
from operator import add
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from distmon.core.arrivals import Arrivals
from distmon.core.events import StepsRecorded
from distmon.core.quantiles import Quantiles, median

PHASES = ("input_wait", "compute", "exposed_communication", "optimizer")
"""The phases of a step that are measured; what they leave of the step is the rest."""

HISTORY_COLUMNS = ("samples", "steps", *PHASES, "rest", "step")
"""Of a job over time: samples and rank-steps done, and rank-seconds per phase, of the rest and of whole steps."""

EXACT_PREFIX = 512
RECENT_STEPS = 256
USUAL_STEPS = 9
MAX_SERIES = 65_536
UNKNOWN = -(1 << 62)
MAX_BINS = 3_600

if TYPE_CHECKING:
    Int64s = array[int]
else:
    Int64s = array  # Python 3.11 cannot subscript it, and the states' codec resolves annotations


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
    totals: Totals = field(default_factory=Totals)
    first_start: float | None = None
    last_end: float | None = None
    last_step: int = -1
    epoch: int | None = None
    micro_batches: int = 0
    durations: Quantiles = field(default_factory=Quantiles)
    prefix: list[Int64s] = field(default_factory=lambda: [array("q") for _ in range(6)])
    """The first EXACT_PREFIX steps, so that any warm-up within them can be taken off exactly: duration, the four phases and
    samples, in columns, since a large job has thousands of ranks. UNKNOWN stands for None."""
    checkpoints: list[Totals] = field(default_factory=list)
    """Totals after batches past the prefix, at a widening spacing."""
    batches: deque[StepsRecorded] = field(default_factory=deque)
    """The last batches, that hold at least RECENT_STEPS steps between them."""
    batch_sums: deque[Totals] = field(default_factory=deque)
    """The sums of each of `batches`."""
    kept_steps: int = 0

    def add(self, batch: StepsRecorded) -> Totals:
        """Adds a batch and gives its sums; batches of one worker come in order."""
        count = len(batch.duration_ns)
        if (room := EXACT_PREFIX - len(self.prefix[0])) > 0:
            self._extend_prefix(batch, min(room, count))
        added = batch_totals(batch)
        self.totals = self.totals.plus(added)
        if self.totals.steps > EXACT_PREFIX:
            self._checkpoint()
        self.durations.extend([duration / 1e9 for duration in batch.duration_ns])
        self.micro_batches += sum(batch.micro_batches) if batch.micro_batches else count
        self._keep(batch, added)
        self.worker = batch.worker
        if self.first_start is None:
            self.first_start = batch.origin
        self.last_step = batch.first_step + count - 1
        self.last_end = batch.origin + (batch.start_ns[-1] + batch.duration_ns[-1]) / 1e9
        if batch.epoch is not None:
            self.epoch = batch.epoch
        return added

    def steady(self, warmup_steps: int) -> Totals:
        """Totals of the steps after the first `warmup_steps`; past the exact prefix, after the next checkpoint."""
        if warmup_steps <= len(self.prefix[0]):
            return self.totals.less(_sum([_known(column[:warmup_steps]) for column in self.prefix]))
        for before in self.checkpoints:
            if before.steps >= warmup_steps:
                return self.totals.less(before)
        return Totals()

    def recent(self, count: int = RECENT_STEPS) -> list[Step]:
        """The last steps, oldest first."""
        steps: deque[Step] = deque()
        for batch in reversed(self.batches):
            columns = _columns(batch)
            for i in range(len(batch.duration_ns) - 1, -1, -1):
                if len(steps) == count:
                    return list(steps)
                duration = batch.duration_ns[i]
                end = batch.origin + (batch.start_ns[i] + duration) / 1e9
                a, b, c, d = (None if (v := column[i]) is None else v / 1e9 for column in columns[1:5])
                steps.appendleft(Step(batch.first_step + i, end, duration / 1e9, (a, b, c, d), columns[5][i]))
        return list(steps)

    def usual_step_s(self) -> float:
        """Median of the last few steps; 0 before the first."""
        return (median(d for batch in self.last_batches(USUAL_STEPS) for d in batch.duration_ns) or 0.0) / 1e9

    def last_batches(self, count: int) -> list[StepsRecorded]:
        """Whole batches, the latest first, until they hold at least `count` steps."""
        chosen: list[StepsRecorded] = []
        for batch in reversed(self.batches):
            chosen.append(batch)
            count -= len(batch.duration_ns)
            if count <= 0:
                break
        return chosen

    def last_totals(self, count: int) -> Totals:
        """The sums of `last_batches`. Every rank is asked for them at every look: adding to plain numbers takes a quarter."""
        steps = duration = samples = sampled = a = b = c = d = seen_a = seen_b = seen_c = seen_d = 0
        for more in reversed(self.batch_sums):
            (w, x, y, z), (seen_w, seen_x, seen_y, seen_z) = more.phase_ns, more.seen
            steps, duration, samples, sampled = (
                steps + more.steps, duration + more.duration_ns, samples + more.samples, sampled + more.sampled_steps,
            )  # fmt: skip
            a, b, c, d = a + w, b + x, c + y, d + z
            seen_a, seen_b, seen_c, seen_d = seen_a + seen_w, seen_b + seen_x, seen_c + seen_y, seen_d + seen_z
            if steps >= count:
                break
        return Totals(steps, duration, samples, sampled, (a, b, c, d), (seen_a, seen_b, seen_c, seen_d))

    def _extend_prefix(self, batch: StepsRecorded, count: int) -> None:
        columns = (
            batch.duration_ns,
            batch.input_wait_ns,
            batch.compute_ns,
            batch.exposed_communication_ns,
            batch.optimizer_ns,
            batch.samples,
        )
        for kept, column in zip(self.prefix, columns, strict=True):
            if column is None:
                kept.extend(repeat(UNKNOWN, count))
            else:
                kept.extend([UNKNOWN if value is None else value for value in column[:count]])

    def _keep(self, batch: StepsRecorded, sums: Totals) -> None:
        self.batches.append(batch)
        self.batch_sums.append(sums)
        self.kept_steps += sums.steps
        while self.kept_steps - (oldest := self.batch_sums[0].steps) >= RECENT_STEPS:
            self.batches.popleft()
            self.batch_sums.popleft()
            self.kept_steps -= oldest

    def _checkpoint(self) -> None:
        self.checkpoints.append(self.totals)
        if len(self.checkpoints) > EXACT_PREFIX:
            del self.checkpoints[1::2]


_Columns = Sequence[Sequence[int | None]]


def _columns(batch: StepsRecorded) -> list[Sequence[int | None]]:
    """Duration, phases and samples, each as long as the batch."""
    nothing = [None] * len(batch.duration_ns)
    return [
        batch.duration_ns,
        batch.input_wait_ns or nothing,
        batch.compute_ns or nothing,
        batch.exposed_communication_ns or nothing,
        batch.optimizer_ns or nothing,
        batch.samples or nothing,
    ]


def without_first(batch: StepsRecorded, count: int) -> StepsRecorded | None:
    """The rest of a batch; None if nothing is left."""
    if count >= len(batch.duration_ns):
        return None
    names = ("start_ns", "duration_ns", "samples", "micro_batches", *(f"{phase}_ns" for phase in PHASES))
    offset = batch.start_ns[count]
    columns = {name: column[count:] for name in names if (column := getattr(batch, name)) is not None}
    columns["start_ns"] = [start - offset for start in columns["start_ns"]]
    return structs.replace(batch, first_step=batch.first_step + count, origin=batch.origin + offset / 1e9, **columns)


def step_totals(batch: StepsRecorded) -> list[Totals]:
    """The sums of each step of a batch by itself."""
    return [_sum([(value,) for value in row]) for row in zip(*_columns(batch), strict=True)]


def batch_totals(batch: StepsRecorded) -> Totals:
    """The sums of a batch."""
    a, seen_a = _sum_known(batch.input_wait_ns)
    b, seen_b = _sum_known(batch.compute_ns)
    c, seen_c = _sum_known(batch.exposed_communication_ns)
    d, seen_d = _sum_known(batch.optimizer_ns)
    samples, sampled = _sum_known(batch.samples)
    durations = batch.duration_ns
    return Totals(len(durations), sum(durations), samples, sampled, (a, b, c, d), (seen_a, seen_b, seen_c, seen_d))


def _sum(columns: _Columns) -> Totals:
    (duration, count), *phases, (samples, sampled) = (_sum_known(column) for column in columns)
    (a, seen_a), (b, seen_b), (c, seen_c), (d, seen_d) = phases
    return Totals(count, duration, samples, sampled, (a, b, c, d), (seen_a, seen_b, seen_c, seen_d))


def _known(column: Int64s) -> Sequence[int]:
    return [value for value in column if value != UNKNOWN] if UNKNOWN in column else column


def _sum_known(column: Sequence[int | None] | None) -> tuple[int, int]:
    """Sum and number of the values that are not None."""
    if not column:
        return 0, 0
    try:
        return sum(column), len(column)  # type: ignore[arg-type]
    except TypeError:
        known = [value for value in column if value is not None]
        return sum(known), len(known)


@dataclass(slots=True)
class JobSeries:
    """Steps joined over ranks by their index: the whole job's samples and mean duration for each.

    Past MAX_SERIES steps neighbours are merged, so that one entry stands for `width` steps.
    """

    width: int = 1
    samples: Int64s = field(default_factory=lambda: array("q"))
    duration_ns: Int64s = field(default_factory=lambda: array("q"))
    reports: Int64s = field(default_factory=lambda: array("q"))
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
        counts = batch.samples
        if counts is None or None in counts:
            self.sampled = False
            counts = [count or 0 for count in counts or [0] * len(batch.duration_ns)]
        if self.width == 1:
            window = slice(batch.first_step, last + 1)
            for column, values in ((self.duration_ns, batch.duration_ns), (self.samples, counts)):
                column[window] = array("q", map(add, column[window], values))
            self.reports[window] = array("q", map((1).__add__, self.reports[window]))
            return
        for i, duration in enumerate(batch.duration_ns):
            index = (batch.first_step + i) // self.width
            self.duration_ns[index] += duration
            self.reports[index] += 1
            self.samples[index] += counts[i] or 0

    def _halve(self) -> None:
        self.width *= 2
        for column in (self.samples, self.duration_ns, self.reports):
            if len(column) % 2:
                column.append(0)
            column[:] = array("q", [a + b for a, b in zip(column[::2], column[1::2], strict=True)])


@dataclass(slots=True)
class History:
    """Amounts per second since `origin`, a column for each name; past `limit` bins, neighbours merge and `width_s` doubles."""

    origin: int
    columns: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in HISTORY_COLUMNS})
    width_s: int = 1
    limit: int = MAX_BINS

    def spread(self, start: float, end: float, amounts: Sequence[float]) -> None:
        """Adds amounts, in the order of HISTORY_COLUMNS, evenly over a time; those of before the origin go into the first bin."""
        start, end = max(start - self.origin, 0.0), max(end - self.origin, 0.0)
        while end >= self.width_s * self.limit:
            self._halve()
        width = self.width_s
        first, last = int(start / width), int(end / width)
        columns = self.columns.values()
        missing = last + 1 - len(next(iter(columns)))
        if missing > 0:
            for column in columns:
                column.extend([0.0] * missing)
        if first == last:
            for column, amount in zip(columns, amounts, strict=True):
                column[first] += amount
            return
        per_second = 1 / (end - start)
        head, whole, tail = ((first + 1) * width - start) * per_second, width * per_second, (end - last * width) * per_second
        for column, amount in zip(columns, amounts, strict=True):
            column[first] += amount * head
            column[last] += amount * tail
            if last - first > 1:
                for index in range(first + 1, last):
                    column[index] += amount * whole

    def between(self, name: str, start: float, end: float) -> float:
        """The amount between two times; bins cut by them count in proportion."""
        column, total = self.columns[name], 0.0
        first = max(int((start - self.origin) / self.width_s), 0)
        for index in range(first, min(int((end - self.origin) / self.width_s) + 1, len(column))):
            left = self.origin + index * self.width_s
            share = (min(end, left + self.width_s) - max(start, left)) / self.width_s
            total += column[index] * max(share, 0.0)
        return total

    def _halve(self) -> None:
        for name, column in self.columns.items():
            if len(column) % 2:
                column.append(0.0)
            self.columns[name] = [a + b for a, b in zip(column[::2], column[1::2], strict=True)]
        self.width_s *= 2


@dataclass(slots=True)
class Generation:
    """One rendezvous round: who took part, and their steps."""

    number: int
    world_size: int | None = None
    ranks: dict[int, RankSteps] = field(default_factory=dict)
    series: JobSeries = field(default_factory=JobSeries)
    arrivals: Arrivals = field(default_factory=Arrivals)

    def new_steps(self, batch: StepsRecorded) -> StepsRecorded | None:
        """The batch without the steps that are there already, which an agent that was started again tells once more."""
        rank = self.ranks.get(batch.rank)
        if rank is None or rank.worker != batch.worker or batch.first_step > rank.last_step:
            return batch
        return without_first(batch, rank.last_step + 1 - batch.first_step)

    def add(self, batch: StepsRecorded) -> Totals:
        """Adds a batch to its rank and to the job, and gives the batch's sums."""
        if (rank := self.ranks.get(batch.rank)) is None:
            rank = self.ranks[batch.rank] = RankSteps(batch.rank)
        self.series.add(batch)
        self.arrivals.add(batch, self.world_size or max(len(self.ranks), 2))
        return rank.add(batch)
