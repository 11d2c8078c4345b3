"""Whether a printed number agrees with one computed from others that were rounded too."""

from __future__ import annotations

from typing import NamedTuple

from distmon.core.audit.table import Cell

TOLERANCE = 0.01
"""A difference of less is never called a contradiction: it may come from a clock or a count that the table does not show."""


class Computed(NamedTuple):
    """A value with the range that the precision of its inputs leaves open."""

    value: float
    low: float
    high: float


def quotient(a: Cell, b: Cell) -> Computed | None:
    """a / b; None where either is missing or b may be 0."""
    if a.value is None or b.value is None or b.low <= 0:
        return None
    return Computed(a.value / b.value, a.low / b.high, a.high / b.low)


def product(a: Cell, b: Cell) -> Computed | None:
    """a * b; None where either is missing or may be 0."""
    if a.value is None or b.value is None or min(a.low, b.low) <= 0:
        return None
    return Computed(a.value * b.value, a.low * b.low, a.high * b.high)


def scaled(found: Computed, by: float) -> Computed:
    return Computed(found.value * by, found.low * by, found.high * by)


def difference(a: Cell, b: Cell) -> Computed | None:
    """a - b; None where either is missing."""
    if a.value is None or b.value is None:
        return None
    return Computed(a.value - b.value, a.low - b.high, a.high - b.low)


def contradicts(printed: Cell, found: Computed) -> bool:
    """Whether no values that round to what is written give both, and the difference is no trifle."""
    if printed.value is None:
        return False
    apart = printed.low > found.high or printed.high < found.low
    return apart and abs(printed.value - found.value) > TOLERANCE * abs(found.value)
