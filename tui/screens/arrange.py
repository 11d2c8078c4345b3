"""Where the parts of the overview go in a terminal of a given size: a pure function, so that every size is a test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

MIN_WIDTH, MIN_HEIGHT = 40, 10
"""Below this the screen only says how large it is and how large it should be."""
SINGLE_WIDTH, SINGLE_HEIGHT = 76, 20
"""Below this one panel is shown at a time."""
BOXED_WIDTH, BOXED_HEIGHT = 116, 32
"""From here on panels have whole frames and stand in two columns."""


class Box(NamedTuple):
    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True)
class Situation:
    """What decides the layout besides the size."""

    ranks: int = 0
    nodes: int = 0
    bar: bool = False
    prompt: bool = False
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


def arrange(width: int, height: int, situation: Situation) -> Arrangement:
    """Places for header, verdict, panels, details, prompt, bar and footer; they never overlap and never leave the terminal."""
    if too_small(width, height):
        return Arrangement({"too_small": Box(0, 0, width, height)})
    header = 2 if height >= 12 else 1
    places = {"header": Box(0, 0, width, header), "verdict": Box(0, header, width, 1)}
    bottom = height
    for name, shown in (("footer", True), ("prompt", situation.prompt), ("bar", situation.bar)):
        if shown:
            bottom -= 1
            places[name] = Box(0, bottom, width, 1)
    area = Box(0, header + 1, width, bottom - header - 1)
    single = situation.zoomed is not None or width < SINGLE_WIDTH or height < SINGLE_HEIGHT
    boxed = width >= BOXED_WIDTH and height >= BOXED_HEIGHT
    if single:
        panels = _one(area, situation)
    elif boxed:
        panels = _two_columns(area, situation)
    else:
        panels = _stacked(area, situation)
    return Arrangement({**places, **panels}, boxed)


def _one(area: Box, situation: Situation) -> dict[str, Box]:
    """The focused panel; its details beside it, or below where it is narrow."""
    name = situation.zoomed or situation.focused
    if not situation.details:
        return {name: area}
    if area.width >= SINGLE_WIDTH:
        left = area.width // 2
        return {
            name: _resized(area, width=left),
            "details": Box(area.x + left, area.y, area.width - left, area.height),
        }
    top = max(area.height // 2, 2)
    return {
        name: _resized(area, height=top),
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
    split = 10 if area.height >= 40 else 8
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
    return {"events": _resized(area, width=events), "output": Box(events, area.y, area.width - events, area.height)}


def _resized(box: Box, *, width: int | None = None, height: int | None = None) -> Box:
    return Box(box.x, box.y, box.width if width is None else width, box.height if height is None else height)
