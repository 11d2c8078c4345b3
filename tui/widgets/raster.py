"""From samples to braille: min/max-preserving bins, then dots. Pure functions, no widget."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

from distmon.tui.glyphs import BRAILLE

Bin = tuple[float, float] | None
"""Least and greatest value of the samples in one bin, or None where there is no sample."""

_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_SPANS = [[[sum(dots[a : b + 1]) for b in range(4)] for a in range(4)] for dots in _DOTS]
"""The mask of the dots from one to another of a cell's column."""
_TIME_STEPS = (
    0.05,
    0.1,
    0.2,
    0.25,
    0.5,
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    21600,
    43200,
    86400,
)


def nice_time_step(seconds: float) -> float:
    """The least handsome time step that is at least this long."""
    for step in _TIME_STEPS:
        if step >= seconds * (1 - 1e-9):
            return step
    return math.ceil(seconds / 86400) * 86400.0


def nice_ceiling(value: float) -> float:
    """An axis end for values up to `value`. Of the values alone: the same moment must look the same whatever was drawn before."""
    if not value > 0:
        return 1.0
    magnitude = 10.0 ** math.floor(math.log10(value))
    for factor in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10):
        if factor * magnitude >= value * (1 + 1e-9):
            return factor * magnitude
    return 20 * magnitude


def bins(times: Sequence[float], values: Sequence[float | None], start: float, step: float, count: int) -> list[Bin]:
    """Least and greatest value per bin; a sample of a single bin keeps its spike however long the history is.

    `times` is sorted; bin i holds start + i*step <= time < start + (i+1)*step. None and NaN are gaps.
    """
    result: list[Bin] = [None] * count
    for i in range(bisect_left(times, start), bisect_left(times, start + step * count)):
        value = values[i]
        if value is None or value != value:
            continue
        column = min(int((times[i] - start) / step), count - 1)
        held = result[column]
        if held is None:
            result[column] = (value, value)
        elif value < held[0]:
            result[column] = (value, held[1])
        elif value > held[1]:
            result[column] = (held[0], value)
    return result


def bridged(columns: Sequence[Bin], reach: int) -> list[Bin]:
    """Fill holes of at most `reach` bins by a straight line: samples farther apart than a bin are not a gap."""
    result = list(columns)
    last = -1
    for i, column in enumerate(columns):
        if column is None:
            continue
        before = columns[last] if last >= 0 else None
        if before is not None and 1 < i - last <= reach + 1:
            a, b = (before[0] + before[1]) / 2, (column[0] + column[1]) / 2
            for k in range(last + 1, i):
                value = a + (b - a) * (k - last) / (i - last)
                result[k] = (value, value)
        last = i
    return result


def dots(columns: Sequence[Bin], rows: int, low: float, high: float, below: int = 0) -> list[list[int]]:
    """Braille dot masks, `rows` lines of len(columns)/2 cells: a line through the bins, and so many more dots below it.

    Values outside low..high are drawn at the edge.
    """
    cells = [[0] * ((len(columns) + 1) // 2) for _ in range(rows)]
    top = rows * 4 - 1
    scale = top / (high - low) if high > low else 0.0
    previous: tuple[int, int] | None = None
    for x, column in enumerate(columns):
        if column is None:
            previous = None
            continue
        least, greatest = column
        lower = upper = top - round(min(max((least - low) * scale, 0.0), float(top)))
        if greatest != least:
            upper = top - round(min(max((greatest - low) * scale, 0.0), float(top)))
        first, last = _joined(upper, lower, previous)
        previous = (upper, lower)
        _fill(cells, x, first, min(last + below, top))
    return cells


def _fill(cells: list[list[int]], x: int, first: int, last: int) -> None:
    """The dots of a column from the row `first` to `last`."""
    spans, place = _SPANS[x & 1], x >> 1
    begin, end = first >> 2, last >> 2
    if begin == end:
        cells[begin][place] |= spans[first & 3][last & 3]
    elif first <= last:
        cells[begin][place] |= spans[first & 3][3]
        for row in range(begin + 1, end):
            cells[row][place] |= spans[0][3]
        cells[end][place] |= spans[0][last & 3]


def _joined(upper: int, lower: int, previous: tuple[int, int] | None) -> tuple[int, int]:
    """The rows of dots that touch the previous column's, so that a steep line has no holes."""
    if previous is None:
        return upper, lower
    if upper > previous[1] + 1:
        return previous[1] + 1, lower
    if lower < previous[0] - 1:
        return upper, previous[0] - 1
    return upper, lower


braille = [chr(BRAILLE + mask) for mask in range(256)].__getitem__
"""The character of a mask of dots."""
