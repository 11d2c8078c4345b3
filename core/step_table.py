"""The steps of several workers of a node as one block of numbers: bytes on the wire, lists by name in a session file."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, convert

if TYPE_CHECKING:
    UInt32s = array[int]
else:
    UInt32s = array  # Python 3.11 cannot subscript it, and the states' codec resolves annotations

COLUMNS = (
    "duration_ns",
    "input_wait_ns",
    "compute_ns",
    "exposed_communication_ns",
    "optimizer_ns",
    "samples",
    "micro_batches",
    "start_ns",
)
"""In this order; the first and the last are always there, `start_ns` at the end since it is never added up."""
LARGEST = (1 << 32) - 1
MOST_STEPS = 16_384
"""Of all workers of a table, so that it fits into a message."""


class StepTable:
    """`numbers` holds for each worker its `counts[i]` steps, column after column; every number was measured and fits 32 bits.

    Raises ValueError when they do not belong together.
    """

    __slots__ = ("columns", "counts", "numbers")

    def __init__(self, columns: Sequence[str], counts: Sequence[int], numbers: UInt32s) -> None:
        self.columns = known_columns(columns)
        self.counts = tuple(counts)
        self.numbers = numbers
        steps = sum(self.counts)
        if not self.counts or min(self.counts) < 1 or steps > MOST_STEPS:
            raise ValueError("a table of steps has no workers, a worker without steps, or too many steps")
        if steps * len(self.columns) != len(numbers):
            raise ValueError("the columns of a table of steps differ in length")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StepTable):
            return NotImplemented
        return (self.columns, self.counts, self.numbers) == (other.columns, other.counts, other.numbers)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"StepTable({self.columns!r}, {self.counts!r}, {self.numbers!r})"

    def rows(self) -> list[UInt32s]:
        """The numbers of each worker."""
        width, begin, rows = len(self.columns), 0, []
        for count in self.counts:
            end = begin + width * count
            rows.append(self.numbers[begin:end])
            begin = end
        return rows


_INTERNED: dict[tuple[str, ...], tuple[str, ...]] = {}


def known_columns(names: Iterable[str]) -> tuple[str, ...]:
    """The same tuple for the same columns: thousands are held. Raises ValueError for others than those of COLUMNS in order."""
    columns = tuple(names)
    known = _INTERNED.get(columns)
    if known is None:
        if columns != tuple(name for name in COLUMNS if name in columns) or not {COLUMNS[0], COLUMNS[-1]} <= set(columns):
            raise ValueError(f"columns of steps that are not known: {', '.join(columns)[:100]}")
        known = _INTERNED[columns] = columns
    return known


class _Packed(Struct, array_like=True):
    columns: list[str]
    counts: list[int]
    numbers: bytes


def packed(table: StepTable) -> _Packed:
    """For the wire: names, counts, and the numbers as 32-bit integers, the lowest byte first."""
    return _Packed(list(table.columns), list(table.counts), _little_endian(table.numbers).tobytes())


def listed(table: StepTable) -> dict[str, list[list[int]]]:
    """For a file that people read: name of a column -> a list for each worker."""
    rows, found = table.rows(), {}
    for place, name in enumerate(table.columns):
        pairs = zip(rows, table.counts, strict=True)
        found[name] = [row[place * count : (place + 1) * count].tolist() for row, count in pairs]
    return found


def unpacked(value: Any) -> StepTable:
    """The reverse of `packed`. Raises ValueError, or msgspec's ValidationError, for anything else."""
    given = convert(value, _Packed)
    if len(given.numbers) % 4:
        raise ValueError("a table of steps ends within a number")
    numbers = array("I")
    numbers.frombytes(given.numbers)
    return StepTable(given.columns, given.counts, _little_endian(numbers))


def unlisted(value: Any) -> StepTable:
    """The reverse of `listed`. Raises ValueError, or msgspec's ValidationError, for anything else."""
    columns = convert(value, dict[str, list[list[int]]])
    ordered = [columns[name] for name in COLUMNS if name in columns]
    counts = [len(row) for row in columns.get(COLUMNS[0], [])]
    if any([len(row) for row in column] != counts for column in ordered):
        raise ValueError("the columns of a table of steps differ in length")
    try:
        numbers = array("I", [number for worker in zip(*ordered, strict=True) for row in worker for number in row])
    except OverflowError:
        raise ValueError(f"a number of a table of steps is not within 0 to {LARGEST}") from None
    return StepTable(sorted(columns, key=_place), counts, numbers)


def _place(name: str) -> int:
    return COLUMNS.index(name) if name in COLUMNS else len(COLUMNS)


def _little_endian(numbers: UInt32s) -> UInt32s:
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers
