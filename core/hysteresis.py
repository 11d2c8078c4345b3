"""Whether a value that wanders is there: it comes at one threshold and goes at a lower one, so that it does not flicker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, islice
from typing import NamedTuple


class Thresholds(NamedTuple):
    """A value comes at `on` or above, and goes below `off`."""

    on: float
    off: float


def share_holds(part: Sequence[float], whole: Sequence[float], width: int, at: Thresholds) -> bool:
    """Whether the share of `part` in `whole`, over `width` entries at a time, has come in these entries and not gone since.

    Shorter stretches count only where there are no `width` entries yet: else each look would begin at another single one.
    """
    width = min(width, len(whole))
    if not width or _ratio(sum(part[-width:]), sum(whole[-width:])) < at.off:
        return False
    parts, wholes = [0.0, *accumulate(part)], [0.0, *accumulate(whole)]
    held = False
    for first in range(len(whole) - width + 1):
        share = _ratio(parts[first + width] - parts[first], wholes[first + width] - wholes[first])
        held = share >= (at.off if held else at.on)
    return held


def mean_holds(newest_first: Iterable[float | None], width: int, at: Thresholds) -> bool:
    """The same of the mean of those values that are known. Mostly it is enough to look at the newest: no more are taken then."""
    values = iter(newest_first)
    recent = list(islice(values, width))
    known = [value for value in recent if value is not None]
    if not known or sum(known) < at.off * len(known):
        return False
    ordered = [*recent, *values][::-1]
    return share_holds([value or 0.0 for value in ordered], [float(value is not None) for value in ordered], width, at)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
