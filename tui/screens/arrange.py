"""Where the parts of a screen go in a terminal of a given size: pure functions, so that every size is a test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

MIN_WIDTH, MIN_HEIGHT = 40, 10
"""Below this the screen only says how large it is and how large it should be."""
TABS_HEIGHT = 30
"""From this height of the terminal on, the screens are named in a row of tabs."""
SINGLE_WIDTH, SINGLE_HEIGHT = 76, 16
"""A page below this shows one panel at a time."""
BOXED_WIDTH, BOXED_HEIGHT = 116, 27
"""From here on a page's panels have whole frames and stand in two columns."""


class Box(NamedTuple):
    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True)
class Situation:
    """What decides the overview's layout besides the size."""

    ranks: int = 0
    nodes: int = 0
    details: bool = False
    zoomed: str | None = None
    focused: str = "throughput"


@dataclass(frozen=True)
class Arrangement:
    """A place for every part that is shown; what is not in `places` is hidden."""

    places: dict[str, Box]
    boxed: bool = False


def too_small(width: int, height: int) -> bool:
    return width < MIN_WIDTH or height < MIN_HEIGHT


def frame_places(width: int, height: int, *, bar: bool, prompt: int) -> dict[str, Box]:
    """Places for header, tabs, verdict, page, prompt (of so many rows), bar and footer, which tile the terminal."""
    if too_small(width, height):
        return {"too_small": Box(0, 0, width, height)}
    header, tabs = 2 if height >= 12 else 1, height >= TABS_HEIGHT
    verdict = 2 if width < SINGLE_WIDTH and height >= 12 else 1
    places = {"header": Box(0, 0, width, header), "verdict": Box(0, header + tabs, width, verdict)}
    if tabs:
        places["tabs"] = Box(0, header, width, 1)
    top, bottom = header + tabs + verdict, height
    for name, rows in (("footer", 1), ("prompt", prompt), ("bar", int(bar))):
        if rows:
            bottom -= rows
            places[name] = Box(0, bottom, width, rows)
    return {**places, "page": Box(0, top, width, bottom - top)}


def is_single(width: int, height: int) -> bool:
    """Whether a page of this size shows one panel at a time."""
    return width < SINGLE_WIDTH or height < SINGLE_HEIGHT


def is_boxed(width: int, height: int) -> bool:
    return width >= BOXED_WIDTH and height >= BOXED_HEIGHT


def arrange(width: int, height: int, situation: Situation) -> Arrangement:
    """Places for the overview's panels and details in a page of this size; they tile it."""
    area, boxed = Box(0, 0, width, height), is_boxed(width, height)
    if situation.zoomed is not None or is_single(width, height):
        panels = one_panel(area, situation.zoomed or situation.focused, situation.details)
    elif boxed:
        panels = _two_columns(area, situation)
    else:
        panels = _stacked(area, situation)
    return Arrangement(panels, boxed)


def one_panel(area: Box, name: str, details: bool) -> dict[str, Box]:
    """One panel; its details beside it, or below where it is narrow."""
    if not details:
        return {name: area}
    if area.width >= SINGLE_WIDTH:
        left = area.width // 2
        return {
            name: resized(area, width=left),
            "details": Box(area.x + left, area.y, area.width - left, area.height),
        }
    top = max(area.height // 2, 2)
    return {
        name: resized(area, height=top),
        "details": Box(area.x, area.y + top, area.width, area.height - top),
    }


def _stacked(area: Box, situation: Situation) -> dict[str, Box]:
    """One column: chart and split share a row, nodes and ranks take what they need, the rest goes to the logs."""
    nodes, ranks = 1 + min(max(situation.nodes, 1), 2), 2 + min(max(situation.ranks, 1), 2)
    top, logs = 6, 4
    spare = area.height - top - nodes - ranks - logs
    grow = min(max(situation.ranks - 2, 0), max(spare - 1, 0) // 2)
    ranks, spare = ranks + grow, spare - grow
    grow = min(max(situation.nodes - 2, 0), spare // 3)
    nodes, spare = nodes + grow, spare - grow
    if situation.details:
        top = 0
    else:
        top += (spare + 1) // 2
    split = max(30, area.width * 2 // 5)
    places = {
        "nodes": Box(0, area.y + top, area.width, nodes),
        "ranks": Box(0, area.y + top + nodes, area.width, ranks),
    }
    if top:
        places["throughput"] = Box(0, area.y, area.width - split, top)
        places["split"] = Box(area.width - split, area.y, split, top)
    used = top + nodes + ranks
    return {**places, **_logs(Box(0, area.y + used, area.width, area.height - used), situation)}


def _two_columns(area: Box, situation: Situation) -> dict[str, Box]:
    """Two columns of framed panels over the logs."""
    left = max(83, area.width * 6 // 10)
    right = area.width - left
    split = 10 if area.height >= 35 else 8
    chart = min(max(area.height * 2 // 5, 10), 22)
    ranks = min(max(3 + situation.ranks, 5), max(area.height - chart - 8, 5))
    nodes = 2 + 5 * max(situation.nodes, 1)
    upper = min(max(chart + ranks, split + min(nodes, area.height // 2)), area.height - 8)
    chart = upper - ranks if ranks + 10 <= upper else 10
    places = {
        "throughput": Box(0, area.y, left, chart),
        "ranks": Box(0, area.y + chart, left, upper - chart),
        "split": Box(left, area.y, right, split),
        "nodes": Box(left, area.y + split, right, upper - split),
    }
    return {**places, **_logs(Box(0, area.y + upper, area.width, area.height - upper), situation)}


def _logs(area: Box, situation: Situation) -> dict[str, Box]:
    """Events beside output; details, while they are open, take the place of both."""
    if situation.details:
        return {"details": area}
    events = area.width * 2 // 5
    return {"events": resized(area, width=events), "output": Box(events, area.y, area.width - events, area.height)}


Rows = Sequence[tuple[int, Sequence[tuple[str, int]]]]
"""Rows of panels: the weight of each row's height, and of each of its panels' widths."""


def in_rows(area: Box, rows: Rows) -> dict[str, Box]:
    """Panels side by side in rows below one another, by weight; they tile the area."""
    places = {}
    for (top, bottom), (_, panels) in zip(_cuts(area.y, area.height, [weight for weight, _ in rows]), rows, strict=True):
        for (left, right), (name, _) in zip(_cuts(area.x, area.width, [share for _, share in panels]), panels, strict=True):
            places[name] = Box(left, top, right - left, bottom - top)
    return places


def _cuts(start: int, length: int, weights: Sequence[int]) -> list[tuple[int, int]]:
    """A length cut by weight, as (from, to)."""
    total, done, cuts = sum(weights), 0, [start]
    for weight in weights:
        done += weight
        cuts.append(start + length * done // total)
    return list(pairwise(cuts))


def resized(box: Box, *, width: int | None = None, height: int | None = None) -> Box:
    return Box(box.x, box.y, box.width if width is None else width, box.height if height is None else height)
