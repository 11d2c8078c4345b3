"""Case UI-05: selection, scroll, details and focus hold while the order reverses and nodes join and leave."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from distmon.core import events as ev
from distmon.core.events import AnyEvent
from distmon.tui.app import DistmonApp
from distmon.tui.screens.overview import Overview

if TYPE_CHECKING:
    from tests.tui.conftest import Grid, OpenApp

CASE = Path(__file__).parent.parent / "data" / "cases" / "UI-05"
EXPECTED = json.loads((CASE / "expected.json").read_text())


def landing(app: DistmonApp) -> Overview:
    """The page of the landing screen."""
    page = app.cockpit.page
    assert isinstance(page, Overview)
    return page


def seconds() -> dict[int, list[AnyEvent]]:
    """The case's samples as events, by second; a node without a sample has left."""
    by_second: dict[int, dict[str, float]] = defaultdict(dict)
    for text in (CASE / "samples.jsonl").read_text().splitlines():
        record = json.loads(text)
        by_second[record["t"]][record["node"]] = record["gpu_util"]
    present: set[str] = set()
    result: dict[int, list[AnyEvent]] = {}
    for t, loads in sorted(by_second.items()):
        at = float(t)
        joined = [ev.NodeJoined(at=at, node=node, host=node) for node in loads.keys() - present]
        left = [ev.NodeLeft(at=at, node=node) for node in present - loads.keys()]
        samples = [
            ev.NodeSampled(at=at, node=node, interval_s=1.0, gpus=[ev.GpuReading(index=0, utilization_percent=load)])
            for node, load in loads.items()
        ]
        result[t] = [*sorted(joined, key=lambda e: e.node), *left, *samples, ev.Ticked(at=at)]
        present = set(loads)
    return result


async def test_selection_details_focus_and_scroll_hold(open_app: OpenApp, text_grid: Grid) -> None:
    script = seconds()
    async with open_app(size=tuple(EXPECTED["size"])) as (app, pilot, source):
        nodes = landing(app).nodes
        tops, notes = [], {}
        for t in sorted(script):
            source.waiting.extend(script[t])
            app.frame()
            await pilot.pause()
            if t == 1:
                await pilot.press("3", *["s"] * 4)
                assert landing(app).choices.sorts["nodes"] == ("gpu", True)
                nodes.select(EXPECTED["selected_at_t1"])
                await pilot.press("enter")
            if t >= 1:
                tops.append(nodes.model.top)
                assert app.screen.focused is nodes
                notes[t] = app.cockpit.note
            if 1 <= t < 12:
                assert nodes.model.selected == "node-d", t
                assert nodes.model.selected in nodes.model.in_view()
                assert any("node node-d" in row for row in text_grid(app)), t
        assert max(abs(b - a) for a, b in pairwise(tops)) <= EXPECTED["scroll_jump_rows_max"]
        assert nodes.model.selected is not None and nodes.model.selected != "node-d"
        assert "node-d left" in notes[12]
        assert nodes.model.selected in notes[12]
        screen = text_grid(app)
        assert any(f"node {nodes.model.selected}" in row for row in screen)
        assert any("node-d left" in row for row in screen)
