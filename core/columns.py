"""Sums over packed columns of steps: in machine code where that was built (`_native.c`), else the same in Python."""

from __future__ import annotations

from distmon.core.step_table import UInt32s

try:
    from distmon.core import _native
except ImportError:
    _native = None  # type: ignore[assignment]


def column_sums_python(numbers: UInt32s, count: int) -> tuple[int, ...]:
    """The sum of each column of `count` numbers but the last, which lie one after the other."""
    return tuple(sum(numbers[place : place + count]) for place in range(0, len(numbers) - count, count))


def row_sums_python(rows: list[UInt32s], begin: int, length: int) -> list[int]:
    """The sums over rows of each of `length` numbers from `begin` on."""
    return [*map(sum, zip(*[row[begin : begin + length] for row in rows], strict=True))]


def tuple_sums_python(tuples: list[tuple[int, ...]]) -> tuple[int, ...]:
    """The sums of tuples, of which there is at least one, place by place."""
    return tuple(map(sum, zip(*tuples, strict=True)))


usual_batches = None if _native is None else _native.usual_batches
column_sums = column_sums_python if _native is None else _native.column_sums
row_sums = row_sums_python if _native is None else _native.row_sums
tuple_sums = tuple_sums_python if _native is None else _native.tuple_sums
