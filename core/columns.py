"""Sums over packed columns of steps: in machine code where that was built (`_native.c`, `_fold.c`), else the same in Python."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from distmon.core.step_table import UInt32s

if TYPE_CHECKING:
    Floats = array[float]
else:
    Floats = array  # Python 3.11 cannot subscript it, and the states' codec resolves annotations

try:
    from distmon.core import _fold, _native
except ImportError:
    _fold = _native = None  # type: ignore[assignment]


def column_sums_python(numbers: UInt32s, count: int) -> tuple[int, ...]:
    """The sum of each column of `count` numbers but the last, which lie one after the other."""
    return tuple(sum(numbers[place : place + count]) for place in range(0, len(numbers) - count, count))


def row_sums_python(rows: list[UInt32s], begin: int, length: int) -> list[int]:
    """The sums over rows of each of `length` numbers from `begin` on."""
    return [*map(sum, zip(*[row[begin : begin + length] for row in rows], strict=True))]


def tuple_sums_python(tuples: list[tuple[int, ...]]) -> tuple[int, ...]:
    """The sums of tuples, of which there is at least one, place by place."""
    return tuple(map(sum, zip(*tuples, strict=True)))


def spread_python(cells: Floats, first: int, amounts: tuple[float, ...], weights: tuple[float, ...]) -> None:
    """Adds each amount to its column of the rows from `first` on, in parts by weight."""
    place = first * len(amounts)
    for weight in weights:
        for amount in amounts:
            cells[place] += amount * weight
            place += 1


compiled_fold, compiled_columns = _fold, _native
"""None where they were not built."""
column_sums = column_sums_python if _native is None else _native.column_sums
row_sums = row_sums_python if _native is None else _native.row_sums
tuple_sums = tuple_sums_python if _native is None else _native.tuple_sums
spread_amounts = spread_python if _native is None else _native.spread
