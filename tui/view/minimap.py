"""A recording in one row: how high the step times were, cell by cell, and a tick where something happened."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from distmon.core.moments import Moment
from distmon.core.pace import PacePoint
from distmon.core.quantiles import median
from distmon.tui.glyphs import SPARKS, STATES
from distmon.tui.view.words import SEVERITY

USUAL_LEVEL, HIGHEST_LEVEL = 2, 6
"""Of SPARKS: where a p95 as long as the session's median step stands, and the row's top, three times as long."""
UNEVEN = 1.5
"""A cell whose p95 is so many times its p50 is drawn as a warning: its height stands out as well."""
EMPTY, UNREAD = "─", "…"
CROWDED = 6
"""Checkpoints have no ticks when they would take more than one cell in so many: they would hide the step times."""

TICKS = {
    "failure": STATES["bad"], "mark": "◆", "verdict": STATES["warn"], "leave": "▽", "join": "△", "other": "│", "checkpoint": "◇",
}  # fmt: skip
"""A shape per kind of moment; where several fall into one cell, the first of these is drawn."""
TICK_WORDS = {kind: kind for kind in TICKS} | {"verdict": "finding", "other": "another event"}
_ORDER = {kind: place for place, kind in enumerate(TICKS)}

Cell = tuple[str, str]
"""A character and the role of its colour."""


def cell_of(position: float, total: float, length: int) -> int:
    """The cell of a position in a row of `length` cells that stands for `total`."""
    share = position / total if total > 0 else 0.0
    return min(max(int(share * length), 0), length - 1)


def pace_cells(points: Sequence[PacePoint], width_s: float, start: float, total: float, length: int) -> list[Cell | None]:
    """The step times in each cell; None where no step ended. A cell shows the longest p95 of its time: no spike is lost."""
    usual = median(point.p50_s for point in points) or 0.0
    highest: list[PacePoint | None] = [None] * length
    for point in points:
        first = cell_of(point.at - start, total, length)
        last = max(cell_of(point.at - start + width_s * 0.999, total, length), first)
        for x in range(first, last + 1):
            before = highest[x]
            if before is None or point.p95_s > before.p95_s:
                highest[x] = point
    return [None if point is None or not usual else _pace_cell(point, usual) for point in highest]


def _pace_cell(point: PacePoint, usual: float) -> Cell:
    level = min(max(round(USUAL_LEVEL * point.p95_s / usual), 1), HIGHEST_LEVEL)
    return SPARKS[level], "warn" if point.p95_s > UNEVEN * point.p50_s else "series1"


def tick_cells(moments: Sequence[Moment], start: float, total: float, length: int) -> dict[int, Cell]:
    """The ticks by their cell."""
    found = _gravest(with_ticks(moments, start, total, length), start, total, length)
    return {x: (TICKS[moment.kind], _role(moment)) for x, moment in found.items()}


def with_ticks(moments: Sequence[Moment], start: float, total: float, length: int) -> Sequence[Moment]:
    """The moments that a row of `length` cells tells of: without checkpoints where these are CROWDED."""
    found = _gravest(moments, start, total, length)
    if sum(moment.kind == "checkpoint" for moment in found.values()) * CROWDED <= length:
        return moments
    return [moment for moment in moments if moment.kind != "checkpoint"]


def _gravest(moments: Sequence[Moment], start: float, total: float, length: int) -> dict[int, Moment]:
    """Of the moments in each cell the one that is drawn."""
    found: dict[int, Moment] = {}
    for moment in moments:
        x = cell_of(moment.at - start, total, length)
        if x not in found or _ORDER[moment.kind] < _ORDER[found[x].kind]:
            found[x] = moment
    return found


def _role(moment: Moment) -> str:
    return "accent" if moment.kind in ("mark", "join", "checkpoint") else SEVERITY[moment.severity][1]


def pace_at(points: Sequence[PacePoint], at: float) -> PacePoint | None:
    """The last point that begins at a moment or before it."""
    found = bisect_right(points, at, key=lambda point: point.at)
    return points[found - 1] if found else None
