"""The scroll bar of every panel of rows answers the mouse: pressed beside the mark, and dragged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from textual.pilot import Pilot

from distmon.core import events as ev
from distmon.core.synthetic import Script, session
from distmon.tui.widgets.cursor_log import CursorLog
from distmon.tui.widgets.lanes import Lanes
from distmon.tui.widgets.panel import Panel, ScrollMark
from distmon.tui.widgets.rows import RowsPanel

if TYPE_CHECKING:
    from tests.tui.conftest import OpenApp

ENDS = (ev.JobEnded, ev.SessionEnded)
RUNNING = [event for event in session(Script(ranks=64, nodes=16, seconds=20)) if not isinstance(event, ENDS)]
LINES = [
    ev.OutputWritten(at=RUNNING[-1].at, rank=i % 4, host="h", local_rank=0, output="stdout", lines=[f"line {i}"], dropped=0)
    for i in range(200)
]


def mark_of(panel: Panel) -> ScrollMark:
    mark = panel.scroll_mark()
    assert mark is not None
    return mark


async def drag(pilot: Pilot[int], panel: Panel, *rows: int) -> None:
    """Along the bar, from the first of these rows of the body to the last; there the pointer strays."""
    x = panel.size.width - 1
    await pilot.mouse_down(panel, offset=(x, panel.body_top + rows[0]))
    for row in rows[1:]:
        await pilot.hover(panel, offset=(x, panel.body_top + row))
    await pilot.hover(panel, offset=(x - 5, panel.body_top + rows[-1]))
    await pilot.mouse_up(panel, offset=(x - 5, panel.body_top + rows[-1]))
    await pilot.pause()


@pytest.mark.parametrize(("keys", "name"), [("f2", "ranks"), ("f3", "nodes"), ("f6", "slots"), ("f8", "lines"), ("f1", "help")])
async def test_a_drag_along_the_bar_scrolls_to_either_end_and_selects_nothing(open_app: OpenApp, keys: str, name: str) -> None:
    async with open_app([*RUNNING, *LINES], size=(80, 24)) as (app, pilot, _):
        await pilot.press(keys)
        panel = app.cockpit.overlays["help"] if name == "help" else app.cockpit.page.panels[name]
        if name != "help":
            app.cockpit.page.focus_panel(name)
            await pilot.pause()
        assert isinstance(panel, Panel)
        height = panel.body_size[1]
        assert (most := mark_of(panel).total - mark_of(panel).visible) > 0
        begins = mark_of(panel).rows(height).start
        await drag(pilot, panel, begins, 2, height)
        assert mark_of(panel).before == most
        await drag(pilot, panel, height - 1, 2, -1)
        assert mark_of(panel).before == 0
        await drag(pilot, panel, height // 2)
        assert 0 < mark_of(panel).before < most, "pressed beside the mark, it comes there"
        before = mark_of(panel).before
        await drag(pilot, panel, mark_of(panel).rows(height).start)
        assert mark_of(panel).before == before, "taken hold of it stays"
        if isinstance(panel, RowsPanel | Lanes):
            assert panel.model.selected is None
        if isinstance(panel, CursorLog):
            assert panel.cursor is None and not panel.following


async def test_a_press_on_the_rule_where_all_rows_are_in_view_is_for_the_row(open_app: OpenApp) -> None:
    async with open_app(RUNNING[:2], size=(80, 24)) as (app, pilot, _):
        await pilot.press("f3")
        panel = app.cockpit.page.panels["nodes"]
        await pilot.click(panel, offset=(panel.size.width - 1, 2))
        assert not panel.bar_pressed
