"""Consecutive steps of one rank, as the state keeps them: one array of numbers, column after column."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from distmon.core.columns import column_sums, compiled_fold, tuple_sums
from distmon.core.events import AnyEvent, NodeStepsRecorded, NodeStepsSummed, StepsRecorded
from distmon.core.step_table import COLUMNS, MOST_STEPS, known_columns

if TYPE_CHECKING:
    Int64s = array[int]
else:
    Int64s = array  # Python 3.11 cannot subscript it, and the states' codec resolves annotations

PHASES = ("input_wait", "compute", "exposed_communication", "optimizer")
"""The phases of a step that are measured; what they leave of the step is the rest."""
UNKNOWN = -(1 << 62)
"""In an array with signs: what was not measured."""
_ADDED = ("duration_ns", "samples", *(f"{phase}_ns" for phase in PHASES))
USUAL_STEPS = 9
"""Of so many last steps the median is their usual time."""
USUAL = known_columns(name for name in COLUMNS if name != "micro_batches")
"""The columns of nearly all batches."""
_USUAL_SUMS = frozenset(USUAL[:-1])

Sums = tuple[int, int, int, int, int, int, int, int, int, int, int, int]
"""Steps, duration, samples, steps with known samples; the four phases; the steps in which each was seen. Times in ns."""
NOTHING: Sums = (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


def add_up(sums: list[Sums]) -> Sums:
    """Of one or more."""
    total: Any = tuple_sums(sums)  # type: ignore[arg-type]
    return total  # type: ignore[no-any-return]


class Batch(NamedTuple):
    """Steps from `first_step` on. `numbers` are unsigned where all is known, signed with UNKNOWN for what is not."""

    first_step: int
    steps: int
    begin: float
    """Start of the first step, in seconds since the epoch."""
    end: float
    """End of the last step."""
    columns: tuple[str, ...]
    numbers: Int64s

    @property
    def sums(self) -> Sums:
        """Not kept: they would take as much room as the numbers."""
        if self.usual:
            count = self.steps
            d, a, b, c, e, samples = column_sums(self.numbers, count)
            return (count, d, samples, count, a, b, c, e, count, count, count, count)
        return self.first_sums(self.steps)

    @property
    def usual(self) -> bool:
        """All of the usual columns are there, and known."""
        return self.columns is USUAL and self.numbers.typecode == "I"

    @property
    def last_step(self) -> int:
        return self.first_step + self.steps - 1

    def column(self, name: str) -> Sequence[int | None] | None:
        """A column of COLUMNS; None, for a step or for all, where it was not measured."""
        if name not in self.columns:
            return None
        place = self.columns.index(name) * self.steps
        values = self.numbers[place : place + self.steps]
        return values if values.typecode == "I" else [None if value == UNKNOWN else value for value in values]

    @property
    def durations_ns(self) -> Int64s:
        return self.numbers[: self.steps]

    def starts(self) -> list[float]:
        """Of each step, in seconds since the epoch."""
        first_ns, begin = self.numbers[-self.steps], self.begin
        return [begin + (start - first_ns) / 1e9 for start in self.numbers[-self.steps :]]

    def first_sums(self, count: int) -> Sums:
        """The sums of its first steps."""
        count = min(count, self.steps)
        parts = [self.numbers[place : place + count] for place in range(0, len(self.numbers), self.steps)]
        return _sums_by_name(self.columns, parts, count)

    def without_first(self, count: int) -> Batch | None:
        """The rest of it; None if nothing is left."""
        if count >= self.steps:
            return None
        kept = (self.numbers[place + count : place + self.steps] for place in range(0, len(self.numbers), self.steps))
        numbers = array(self.numbers.typecode, chain.from_iterable(kept))
        return make_batch(self.first_step + count, self.steps - count, self._origin, self.columns, numbers)

    def single_steps(self) -> Iterator[Batch]:
        """Each step by itself."""
        for i in range(self.steps):
            yield make_batch(self.first_step + i, 1, self._origin, self.columns, self.numbers[i :: self.steps])

    @property
    def _origin(self) -> float:
        return self.begin - self.numbers[-self.steps] / 1e9


def sums_of(batches: list[Batch]) -> Sums:
    """Of one or more batches."""
    found = compiled_fold.sums_of(batches, USUAL) if compiled_fold is not None else None
    return found or add_up([batch.sums for batch in batches])


_new: Any = tuple.__new__
"""Of a named tuple its own way takes three times as long."""


def make_batch(first_step: int, count: int, origin: float, columns: tuple[str, ...], numbers: Int64s) -> Batch:
    """`origin` is what `start_ns` counts from, in seconds since the epoch."""
    begin, end = origin + numbers[-count] / 1e9, origin + (numbers[-1] + numbers[count - 1]) / 1e9
    made: Batch = _new(Batch, (first_step, count, begin, end, columns, numbers))
    return made


def _sums_by_name(columns: Sequence[str], parts: Sequence[Int64s], count: int) -> Sums:
    found = {name: _sum_known(part) for name, part in zip(columns, parts, strict=True) if name in _ADDED}
    (duration, _), (samples, sampled), *phases = (found.get(name, (0, 0)) for name in _ADDED)
    (a, seen_a), (b, seen_b), (c, seen_c), (d, seen_d) = phases
    return (count, duration, samples, sampled, a, b, c, d, seen_a, seen_b, seen_c, seen_d)


def _sum_known(values: Int64s) -> tuple[int, int]:
    """Sum and number of the values that are known."""
    if UNKNOWN not in values:
        return sum(values), len(values)
    known = [value for value in values if value != UNKNOWN]
    return sum(known), len(known)


def batch_of(event: StepsRecorded) -> Batch:
    """The steps of one worker's event, which has some."""
    given = {name: column for name in COLUMNS if (column := getattr(event, name)) is not None}
    values = list(chain.from_iterable(given.values()))
    columns = known_columns(given)
    numbers: Int64s
    try:
        numbers = array("I", values)
    except (TypeError, OverflowError):
        numbers = array("q", [UNKNOWN if value is None else value for value in values])
    return make_batch(event.first_step, len(event.duration_ns), event.origin, columns, numbers)


def told_by(event: AnyEvent) -> list[tuple[int, str, Batch]]:
    """(rank, worker, steps) that an event tells of; nothing for an event of another kind. Of sums, steps that are all alike."""
    if isinstance(event, StepsRecorded):
        return [(event.rank, event.worker, batch_of(event))] if event.duration_ns else []
    if isinstance(event, NodeStepsSummed):
        return _mean_steps(event)
    if not isinstance(event, NodeStepsRecorded):
        return []
    table, origin = event.table, event.origin
    if table.columns is USUAL and compiled_fold is not None:
        whose = (event.ranks, event.workers, event.first_steps)
        return compiled_fold.usual_told(Batch, table.numbers, origin, *whose, table.counts, USUAL)
    rows = zip(event.ranks, event.workers, event.first_steps, table.counts, table.rows(), strict=True)
    return [
        (rank, worker, make_batch(first, count, origin, table.columns, numbers)) for rank, worker, first, count, numbers in rows
    ]


def _mean_steps(event: NodeStepsSummed) -> list[tuple[int, str, Batch]]:
    """Of sums: as many steps as there were, all alike, that add up to the same."""
    given, counts = event.sums, event.counts
    whose = (event.ranks, event.workers, event.first_steps)
    if compiled_fold is not None and given.keys() == _USUAL_SUMS:
        sums = [given[name] for name in USUAL[:-1]]
        packed = compiled_fold.spread_sums(MOST_STEPS, counts, event.start_ns, event.span_ns, *sums)
        if packed is not None:
            return compiled_fold.usual_told(Batch, array("I", packed), event.origin, *whose, tuple(counts), USUAL)
    names = [name for name in COLUMNS[:-1] if name in given]
    columns, by_worker = known_columns([*names, COLUMNS[-1]]), zip(*(given[name] for name in names), strict=True)
    rows = map(_means, counts, event.start_ns, event.span_ns, by_worker)
    told = zip(*whose, counts, rows, strict=True)
    return [
        (rank, worker, make_batch(first, count, event.origin, columns, _packed(row))) for rank, worker, first, count, row in told
    ]


def _means(count: int, start: int, span: int, sums: tuple[int | None, ...]) -> list[int]:
    """The columns of a batch: each sum spread evenly, and the starts so that the last step ends where it did."""
    numbers: list[int] = []
    for value in sums:
        each, more = (UNKNOWN, 0) if value is None else divmod(value, count)
        numbers += [each] * (count - more)
        numbers += [each + 1] * more
    last = max(span - numbers[count - 1], 0)
    numbers += [start + last * i // (count - 1) for i in range(count - 1)]
    numbers.append(start + last)
    return numbers


def _packed(numbers: list[int]) -> Int64s:
    """Unsigned where all are known and fit."""
    try:
        return array("I", numbers)
    except OverflowError:
        return array("q", numbers)


def aligned(event: AnyEvent, told: list[tuple[int, str, Batch]]) -> bool:
    """Whether it tells of the same steps of several workers, with the usual columns, all known. `told` is what `told_by` gave."""
    if isinstance(event, NodeStepsRecorded):
        usual, counts = event.table.columns is USUAL, event.table.counts
    elif isinstance(event, NodeStepsSummed):
        usual, counts = False not in [batch.usual for *_, batch in told], tuple(event.counts)
    else:
        return False
    firsts = event.first_steps
    return usual and firsts.count(firsts[0]) == len(firsts) and counts.count(counts[0]) == len(counts)


def single_events(event: AnyEvent) -> Iterator[StepsRecorded]:
    """The same as an event for each worker; nothing for an event of another kind."""
    if isinstance(event, StepsRecorded):
        yield event
    elif isinstance(event, NodeStepsRecorded):
        for rank, worker, batch in told_by(event):
            columns: dict[str, Any] = {name: list(batch.column(name) or ()) for name in batch.columns}
            columns["start_ns"] = [start - columns["start_ns"][0] for start in columns["start_ns"]]
            yield StepsRecorded(
                at=event.at,
                stream=event.stream,
                seq=event.seq,
                node=event.node,
                worker=worker,
                rank=rank,
                generation=event.generation,
                first_step=batch.first_step,
                origin=batch.begin,
                epoch=event.epoch,
                **columns,
            )


def first_steps(event: AnyEvent, count: int) -> list[StepsRecorded]:
    """The first so many steps of each worker; nothing of an event that does not have single steps."""
    return [_first(one, count) for one in single_events(event)]


def steps_ended_by(event: AnyEvent, at: float) -> list[StepsRecorded]:
    """The steps of each worker that had ended at a time of the node's clock, told then; likewise."""
    found = []
    for one in single_events(event):
        ends = step_ends(one)
        if count := bisect_right(ends, at):
            found.append(replace(_first(one, count), at=ends[count - 1]))
    return found


def step_ends(event: StepsRecorded) -> list[float]:
    """Of each step, in seconds since the epoch."""
    return [event.origin + (start + took) / 1e9 for start, took in zip(event.start_ns, event.duration_ns, strict=True)]


def _first(event: StepsRecorded, count: int) -> StepsRecorded:
    columns = {name: column[:count] for name in COLUMNS if (column := getattr(event, name)) is not None}
    return replace(event, **columns)
