"""Steps of one worker as a row of numbers: what a ring's table holds, and what a node's event is made of."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

from distmon.agent.machine_code import native
from distmon.core.batches import batch_of
from distmon.core.events import StepsRecorded
from distmon.core.step_table import COLUMNS, LARGEST, UInt32s, known_columns
from distmon.probe.ring import UNSEEN, Step, Steps, Table

MOST_STEPS_PER_EVENT = 2000
"""Of one worker."""
UNKNOWN_EPOCH = -1


class Row(NamedTuple):
    """The fields of a StepsRecorded that has steps, with its columns packed as in a StepTable."""

    at: float
    node: str
    worker: str
    rank: int
    generation: int
    first_step: int
    origin: float
    length_ns: int
    """From the first step's start to the last one's end."""
    epoch: int | None
    columns: tuple[str, ...]
    steps: int
    numbers: bytes

    def event(self) -> StepsRecorded:
        """The same by itself."""
        count, numbers = self.steps, memoryview(self.numbers).cast("I").tolist()
        columns: dict[str, Any] = {name: numbers[place * count : (place + 1) * count] for place, name in enumerate(self.columns)}
        return StepsRecorded(
            at=self.at,
            node=self.node,
            worker=self.worker,
            rank=self.rank,
            generation=self.generation,
            first_step=self.first_step,
            origin=self.origin,
            epoch=self.epoch,
            **columns,
        )


def row_of(event: StepsRecorded) -> Row | None:
    """None for one without steps, or with numbers that are not known or do not fit."""
    batch = batch_of(event) if event.duration_ns else None
    if batch is None or batch.numbers.typecode != "I":
        return None
    return Row(
        event.at,
        event.node,
        event.worker,
        event.rank,
        event.generation,
        event.first_step,
        event.origin,
        event.start_ns[-1] + event.duration_ns[-1],
        event.epoch,
        batch.columns,
        batch.steps,
        batch.numbers.tobytes(),
    )


@cache
def columns_of(bits: int) -> tuple[str, ...]:
    """The names of a table's columns."""
    return known_columns(name for place, name in enumerate(COLUMNS) if bits >> place & 1)


def joined_numbers(rows: list[tuple[bytes, int, int]]) -> UInt32s:
    """Of (numbers, steps, later_ns) of each worker all columns, the starts so much later: in machine code where that is built."""
    return numbers_of(native.join_steps(rows)) if native is not None else joined_numbers_python(rows)


def joined_numbers_python(rows: list[tuple[bytes, int, int]]) -> UInt32s:
    """The same in Python."""
    joined: UInt32s = array("I")
    for numbers, steps, later_ns in rows:
        joined.frombytes(numbers)
        joined[-steps:] = array("I", [start + later_ns for start in joined[-steps:]])
    return joined


def numbers_of(packed: bytes) -> UInt32s:
    """As an array."""
    found = array("I")
    found.frombytes(packed)
    return found


def joined_tables(tables: Sequence[Table], most: int) -> list[Table]:
    """As few as can be of at most `most` steps, with the same steps in the same order."""
    if len(tables) < 2:
        return [*tables]
    joined = list(tables[:1])
    for table in tables[1:]:
        last = joined[-1]
        follows = table[:3] == (last.first_step + last.steps, last.generation, last.epoch) and table.columns == last.columns
        later_ns = table.start_ns - last.start_ns
        if follows and last.steps + table.steps <= most and later_ns >= 0 and table.end_ns - last.start_ns <= LARGEST:
            joined[-1] = _one_after_the_other(last, table, later_ns)
        else:
            joined.append(table)
    return joined


def _one_after_the_other(one: Table, other: Table, later_ns: int) -> Table:
    first, second = numbers_of(one.numbers), numbers_of(other.numbers)
    second[-other.steps :] = array("I", [start + later_ns for start in second[-other.steps :]])
    places = range(len(first) // one.steps)
    numbers = array("I")
    for place in places:
        numbers += first[place * one.steps : (place + 1) * one.steps]
        numbers += second[place * other.steps : (place + 1) * other.steps]
    return one._replace(end_ns=other.end_ns, steps=one.steps + other.steps, numbers=numbers.tobytes())


def steps_of(table: Table) -> Steps:
    """The same as columns of integers."""
    count = table.steps
    numbers = iter(numbers_of(table.numbers))
    found = {name: [next(numbers) for _ in range(count)] for name in columns_of(table.columns)}
    unseen = [UNSEEN] * count
    return Steps(
        step=tuple(range(table.first_step, table.first_step + count)),
        generation=(table.generation,) * count,
        epoch=(table.epoch,) * count,
        start_ns=tuple(table.start_ns + start for start in found["start_ns"]),
        duration_ns=tuple(found["duration_ns"]),
        **{name: tuple(found.get(name, unseen)) for name in (*COLUMNS[1:5], "samples")},
        micro_batches=tuple(found.get("micro_batches", [1] * count)),
    )


def chained(batches: Sequence[Steps]) -> Steps:
    """All of them as one."""
    if len(batches) == 1:
        return batches[0]
    return Steps(*(tuple(chain.from_iterable(columns)) for columns in zip(*batches, strict=True)))


def consecutive(steps: Steps) -> list[Steps]:
    """Runs of steps that one event can hold: same generation and epoch, no step missing in between."""
    runs: list[Steps] = []
    begin = 0
    while begin < len(steps.step):
        end = _end_of_run(steps, begin)
        if end - begin == len(steps.step):
            return [steps]
        runs.append(Steps(*(column[begin:end] for column in steps)))
        begin = end
    return runs


def _end_of_run(steps: Steps, begin: int) -> int:
    numbers, generations, epochs = (column[begin : begin + MOST_STEPS_PER_EVENT] for column in steps[:3])
    count = len(numbers)
    # Nearly always all of them follow one another, and these comparisons are made in C.
    if (
        numbers == tuple(range(numbers[0], numbers[0] + count))
        and generations.count(generations[0]) == count
        and epochs.count(epochs[0]) == count
    ):
        return begin + count
    rows = zip(numbers, generations, epochs, strict=True)
    return begin + next(i for i, row in enumerate(rows) if row != (numbers[0] + i, generations[0], epochs[0]))


def alone(step: Step) -> Steps:
    """One step as columns."""
    return Steps(*((UNSEEN if number is None else number,) for number in step))


def seen(column: Sequence[int]) -> list[int | None] | None:
    """None in place of what could not be seen; of nothing but that, no column."""
    unseen = column.count(UNSEEN)
    if not unseen:
        return list(column)
    return None if unseen == len(column) else [None if number == UNSEEN else number for number in column]


def more_than_one(column: Sequence[int]) -> list[int] | None:
    """No column of nothing but ones."""
    return None if column.count(1) == len(column) else list(column)
