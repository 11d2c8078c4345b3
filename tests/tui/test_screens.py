"""Going from screen to screen, and what each of them does: keys, mouse, drill-down, crosshair, files, clipboard."""

from __future__ import annotations

import csv
import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from xml.etree import ElementTree

import pytest
from textual.pilot import Pilot

from distmon.core import events as ev
from distmon.core.events import AnyEvent
from distmon.core.fold import apply
from distmon.core.state import SessionState
from distmon.core.steady import SteadySpeed
from distmon.core.synthetic import Script, session
from distmon.tui.app import DistmonApp
from distmon.tui.bindings import COMMANDS
from distmon.tui.format import clock, size
from distmon.tui.screens.logs import Events, LinesPage, Logs
from distmon.tui.screens.node import NodeDetail
from distmon.tui.screens.nodes import Nodes
from distmon.tui.screens.page import Page
from distmon.tui.screens.ranks import Ranks
from distmon.tui.screens.registry import SCREENS, TABS, entry
from distmon.tui.screens.scaling import ScalingPage
from distmon.tui.screens.timeline import Timeline
from distmon.tui.screens.verdicts import Verdicts
from distmon.tui.theme import DARK
from distmon.tui.view.facts import facts
from distmon.tui.view.measures import RANK_MEASURES, UNIT_MEASURES
from distmon.tui.view.node_table import ranks_by_node
from distmon.tui.view.nodes import state_of
from distmon.tui.view.scaling import Run, bar_lines
from distmon.tui.view.timeline import SLOT_FIELDS, change_lines
from distmon.tui.widgets.lanes import LaneRow, Lanes, LanesData
from distmon.tui.widgets.rows import RowsPanel
from distmon.tui.widgets.text_panel import TextPanel

if TYPE_CHECKING:
    from tests.tui.conftest import FakePlayer, Grid, OpenApp, Settle

P = TypeVar("P", bound=Page)
SCRIPT = Script(ranks=16, nodes=4, seconds=40, slow_rank=5, delay_s=0.03, gpus_per_node=2)
RUNNING: list[AnyEvent] = [
    event for event in session(SCRIPT) if not isinstance(event, (ev.WorkerExited, ev.JobEnded, ev.SessionEnded))
]
END = RUNNING[-1].at
UNOFFERED = {
    "find any command by its name or what it does",
    *(command.help for command in COMMANDS if command.action.startswith("panel(")),
}
"""The palette itself, and panels that a screen may not have."""
OWN = ("overview", "nodes", "ranks", "scaling", "timeline", "events", "logs", "verdicts")


def page(app: DistmonApp, kind: type[P]) -> P:
    shown = app.cockpit.page
    assert isinstance(shown, kind)
    return shown


@pytest.fixture(autouse=True)
def no_recordings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


# --- the frame ----------------------------------------------------------------------------------------------------


def test_names_and_keys_of_screens_are_their_own() -> None:
    names = [screen.name for screen in SCREENS]
    keys = [key for screen in SCREENS for key in screen.keys]
    assert len(names) == len(set(names)) and len(keys) == len(set(keys))
    assert set(OWN) <= set(names)
    with pytest.raises(KeyError):
        entry("nowhere")


def test_every_place_in_the_table_of_bindings_is_there() -> None:
    assert {command.where for command in COMMANDS} <= {"app", "screen", "bar", *(screen.name for screen in SCREENS)}


@pytest.mark.parametrize("number", [0, 1])
async def test_each_key_goes_to_its_screen_and_escape_comes_back(open_app: OpenApp, text_grid: Grid, number: int) -> None:
    async with open_app(RUNNING, size=(120, 40)) as (app, pilot, _):
        for name in OWN[1:]:
            await pilot.press(entry(name).keys[number])
            assert app.cockpit.page.screen_name == name
            assert f"› {entry(name).title}" in text_grid(app)[0]
            assert app.screen.focused in app.cockpit.page.panels.values()
        for name in reversed(OWN[:-1]):
            await pilot.press("escape")
            assert app.cockpit.page.screen_name == name
        await pilot.press("escape")
        assert app.cockpit.page.screen_name == "overview"


async def test_a_click_on_a_tab_goes_there(open_app: OpenApp, text_grid: Grid) -> None:
    async with open_app(RUNNING, size=(160, 40)) as (app, pilot, _):
        for title in ("Ranks", "Verdicts", "Overview"):
            await pilot.click("#tabs", offset=(text_grid(app)[2].index(title), 0))
            assert entry(app.cockpit.page.screen_name).title == title
        left = text_grid(app)[2].index("Ranks")
        await pilot.press("question_mark")
        await pilot.click(offset=(left, 2))
        assert app.cockpit.page.screen_name == "overview"


@pytest.mark.parametrize("size", [(40, 12), (80, 24), (200, 60)])
async def test_every_tab_fits_or_is_left_out_but_for_the_current_one(
    open_app: OpenApp, text_grid: Grid, size: tuple[int, int]
) -> None:
    async with open_app(RUNNING, size=size) as (app, pilot, _):
        for screen in TABS:
            app.cockpit.go(screen.name)
            await pilot.pause()
            rows = text_grid(app)
            assert all(len(row) <= size[0] for row in rows)
            assert "quit" in rows[-1]
            if size[1] >= 30:
                assert screen.title in rows[2]


async def test_the_palette_goes_to_screens(open_app: OpenApp) -> None:
    async with open_app(RUNNING) as (app, pilot, _):
        await pilot.press("ctrl+p")
        await pilot.pause()
        await pilot.press(*"timeline", "enter")
        await pilot.pause()
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert app.cockpit.page.screen_name == "timeline"


@pytest.mark.parametrize("name", ["scaling", "timeline", "verdicts", "against", "sessions", "node"])
async def test_every_table_is_filtered_and_sorted_by_the_same_keys(open_app: OpenApp, text_grid: Grid, name: str) -> None:
    async with open_app(RUNNING, size=(120, 40)) as (app, pilot, _):
        app.cockpit.go(name)
        await pilot.press("tab", "shift+tab")
        assert "/ filter" in text_grid(app)[-1] and "s sort" in text_grid(app)[-1]
        target = app.cockpit.page.filter_target
        table = app.cockpit.page.panels[target]
        await pilot.press("s")
        assert app.cockpit.page.choices.sorts[target][0] == app.cockpit.page.SORTS[target][1]
        assert f"{target} by " in app.cockpit.note
        await pilot.press("slash", *"!/./", "enter")
        assert isinstance(table, RowsPanel | Lanes) and not table.model.keys
        await pilot.press("escape", "p")
        assert app.cockpit.note == "there is nothing to hide here" and not app.cockpit.page.choices.problems


async def test_every_screen_says_where_it_is_has_a_way_back_and_its_commands_in_the_palette(
    open_app: OpenApp, text_grid: Grid, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_app(RUNNING, size=(80, 24)) as (app, pilot, _):
        for screen in SCREENS[1:]:
            app.cockpit.go(screen.name)
            await pilot.pause()
            await pilot.pause()
            assert f"› {screen.title} " in text_grid(app)[0]
            offered = {command.help for command in app.get_system_commands(app.screen)}
            here = [c for c in COMMANDS if c.where in ("app", "screen", screen.name)]
            idle = app.cockpit.page.idle_actions
            assert {c.help for c in here if c.action not in idle} - offered <= UNOFFERED
            if screen.name != "launch":
                assert " s sort " in text_grid(app)[-1] and " v why" in text_grid(app)[-1], screen.name
            app.cockpit.action_back()
            assert app.cockpit.page.screen_name == "overview", screen.name


async def test_a_note_goes_with_the_next_key(open_app: OpenApp, text_grid: Grid) -> None:
    async with open_app(RUNNING) as (app, pilot, _):
        await pilot.press("p")
        assert "problems only" in text_grid(app)[-1]
        await pilot.press("down")
        assert "problems only" not in text_grid(app)[-1]


async def test_a_screen_that_is_not_shown_costs_nothing(open_app: OpenApp, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_app(RUNNING) as (app, pilot, source):
        await pilot.press("f4", "f2")
        drawn: list[str] = []
        for shown in app.cockpit.pages.values():
            monkeypatch.setattr(shown, "draw_parts", lambda facts, parts, name=shown.screen_name: drawn.append(name))
        source.waiting.append(ev.Ticked(at=END + 1))
        app.frame()
        assert drawn == ["overview"]


# --- ranks --------------------------------------------------------------------------------------------------------


async def test_ranks_say_that_only_the_last_steps_are_kept_over_time(open_app: OpenApp, text_grid: Grid) -> None:
    async with open_app(RUNNING, size=(120, 40)) as (app, pilot, _):
        await pilot.press("f4")
        assert any("time × rank, last 256 steps" in row for row in text_grid(app))
        assert any("late ms · last 256 steps" in row for row in text_grid(app))
        for key in ("w", "less_than_sign", "w", "w", "greater_than_sign"):
            await pilot.press(key)
            assert app.cockpit.note == "that is all that is kept of ranks over time: last 256 steps", key


async def test_ranks_show_who_differs_first_and_one_rank_is_selected_in_all_panels(
    open_app: OpenApp, text_grid: Grid
) -> None:
    async with open_app(RUNNING, size=(120, 40)) as (app, pilot, _):
        await pilot.press("f4")
        ranks = page(app, Ranks)
        assert ranks.table.model.keys[0] == 5
        assert any("input wait +" in row or "exposed comm -" in row for row in text_grid(app))
        await pilot.press("1", "right", "right", "right")
        assert ranks.heat.selected == ranks.table.model.selected == ranks.ripple.selected == 2
        await pilot.press("3", "g")
        assert ranks.heat.selected == 5
        await pilot.press("enter")
        assert "› Ranks › rank 5" in text_grid(app)[0]
        await pilot.press("escape")
        assert ranks.choices.details is None


async def test_d_goes_through_all_measures_of_ranks(open_app: OpenApp, text_grid: Grid) -> None:
    async with open_app(RUNNING, size=(120, 40)) as (app, pilot, _):
        await pilot.press("f4")
        for measure in (*RANK_MEASURES[1:], RANK_MEASURES[0]):
            await pilot.press("d")
            assert f" {measure.title} " in text_grid(app)[4]


async def test_filter_and_problems_only_hold_for_heat_map_and_table_alike(open_app: OpenApp) -> None:
    async with open_app(RUNNING, size=(120, 40)) as (app, pilot, _):
        await pilot.press("f4", "slash", *"host=node-002", "enter")
        ranks = page(app, Ranks)
        assert sorted(ranks.table.model.keys) == [8, 9, 10, 11]
        assert list(ranks.heat.keys) == [8, 9, 10, 11]
        await pilot.press("escape", "p")
        assert ranks.table.model.keys == [5]
        await pilot.press("p")
        assert len(ranks.table.model.keys) == 16


@pytest.mark.parametrize("key", ["f3", "f4", "f7", "f8"])
async def test_what_hides_all_rows_of_a_screen_is_told(open_app: OpenApp, text_grid: Grid, key: str) -> None:
    async with open_app(RUNNING, size=(160, 40)) as (app, pilot, _):
        await pilot.press(key)
        app.cockpit.page.set_filter("zzz")
        await pilot.pause()
        assert any("no row passes the filter: /zzz" in row for row in text_grid(app))
        app.cockpit.page.set_filter("/(/")
        await pilot.pause()
        assert any("/(/ missing )" in row for row in text_grid(app))


async def test_the_time_by_rank_map_is_selected_with_the_mouse(open_app: OpenApp) -> None:
    async with open_app(RUNNING, size=(200, 60)) as (app, pilot, _):
        await pilot.press("f4")
        ranks = page(app, Ranks)
        await pilot.click("#ripple", offset=(20, 1))
        assert ranks.ripple.selected == 5
        await pilot.click("#ripple", offset=(20, 1), times=2)
        assert ranks.choices.details == ("rank", 5)


# --- nodes --------------------------------------------------------------------------------------------------------


async def test_from_the_nodes_to_a_gpu_to_its_node_to_a_rank_and_all_the_way_back(
    open_app: OpenApp, text_grid: Grid
) -> None:
    async with open_app(RUNNING, size=(120, 40)) as (app, pilot, _):
        await pilot.press("f3")
        await pilot.press("right", "down", "right")
        nodes = page(app, Nodes)
        assert nodes.heat.selected == ("n1", 1, -1)
        assert nodes.table.model.selected == "n1"
        await pilot.press("enter")
        node = page(app, NodeDetail)
        assert node.key == "n1"
        assert "› Node › node-001" in text_grid(app)[0]
        await pilot.press("5", "down", "enter")
        ranks = page(app, Ranks)
        assert ranks.choices.details == ("rank", 4)
        await pilot.press("escape", "escape")
        assert page(app, NodeDetail) is node
        await pilot.press("escape")
        assert page(app, Nodes) is nodes


async def test_the_node_screen_has_every_part_of_the_node(open_app: OpenApp, text_grid: Grid) -> None:
    sample = ev.NodeSampled(
        at=END,
        node="n0",
        interval_s=1.0,
        cores_percent=[100.0, 0.0, None],
        power=[ev.PowerRail(name="VDD_IN", watts=12.0, source="ina3221")],
        temperatures=[ev.Temperature(name="tj", celsius=61.0)],
        engines=[ev.EngineReading(name="NVENC", utilization_percent=40.0, clock_mhz=700.0)],
        gpus=[ev.GpuReading(index=0, utilization_percent=12.0, ranks=[3], throttle=["thermal"], name="Orin")],
        processes=[ev.ProcessReading(pid=4242, rank=3, cpu_percent=99.0, memory_bytes=1 << 30, threads=17)],
    )
    async with open_app([*RUNNING, sample], size=(200, 60)) as (app, pilot, _):
        app.cockpit.go("node", "n0")
        await pilot.pause()
        screen = "\n".join(text_grid(app))
        for part in ("VDD_IN", "tj", "NVENC", "thermal", "Orin", "4242", "17", "2 of 3 on"):
            assert part in screen, part
        await pilot.press("3", "down", "enter")
        assert page(app, Ranks).choices.details == ("rank", 3)


async def test_d_goes_through_all_measures_of_nodes_and_a_lost_node_is_marked(open_app: OpenApp, text_grid: Grid) -> None:
    silent = [ev.Ticked(at=END + 60)]
    async with open_app([*RUNNING, *silent], size=(120, 40)) as (app, pilot, _):
        await pilot.press("f3")
        assert "\n".join(text_grid(app)).count("✖ lost") == 4
        for measure in (*UNIT_MEASURES[1:], UNIT_MEASURES[0]):
            await pilot.press("d")
            assert measure.title in text_grid(app)[4]


@pytest.mark.parametrize(
    ("nodes", "gpus", "first", "later"),
    [
        (1, 0, "every node .* CPU utilisation · 1 node ", "every node .* CPU · 1 node "),
        (2, 1, "every GPU .* utilisation · 2 GPUs ", "every node .* CPU · 2 nodes "),
        (1, 1, "every GPU .* utilisation · 1 GPU ", "every node .* CPU · 1 node "),
    ],
)
async def test_the_heat_map_of_nodes_says_what_its_cells_are(
    open_app: OpenApp, text_grid: Grid, nodes: int, gpus: int, first: str, later: str
) -> None:
    events = list(session(Script(ranks=2, nodes=nodes, seconds=10, gpus_per_node=gpus)))[:-3]
    async with open_app(events, size=(120, 40)) as (_, pilot, _):
        await pilot.press("f3")
        assert re.search(f"1 {first}", text_grid(pilot.app)[4])
        await pilot.press(*"dddd")
        assert re.search(f"1 {later}", text_grid(pilot.app)[4])


async def test_s_sorts_the_nodes_while_the_heat_map_has_the_focus(open_app: OpenApp) -> None:
    async with open_app(RUNNING, size=(120, 40)) as (app, pilot, _):
        await pilot.press("f3")
        nodes = page(app, Nodes)
        assert nodes.choices.focused == "heat"
        await pilot.press("s")
        assert nodes.choices.sorts["nodes"][0] == "state" and app.cockpit.note == "nodes by state, smallest first"
        await pilot.press("S")
        assert nodes.choices.sorts["nodes"] == ("state", True)


# --- charts -------------------------------------------------------------------------------------------------------


async def test_the_crosshair_is_the_same_on_all_charts_and_the_keys_move_it(open_app: OpenApp, text_grid: Grid) -> None:
    async with open_app(RUNNING, size=(120, 40)) as (app, pilot, _):
        app.cockpit.go("node", "n0")
        await pilot.pause()
        await pilot.press("x")
        assert app.cockpit.cross == END
        await pilot.press("left", "left")
        assert app.cockpit.cross is not None and app.cockpit.cross < END
        assert text_grid(app)[4].count(" at 0:") == 2
        await pilot.press("x")
        assert app.cockpit.cross is None


async def test_the_mouse_points_zooms_and_drags(open_app: OpenApp) -> None:
    async with open_app(RUNNING, size=(120, 40)) as (app, pilot, _):
        chart = app.cockpit.page.panels["throughput"]
        await pilot.hover("#throughput", offset=(30, 5))
        await pilot.pause()
        assert app.cockpit.cross is not None
        await pilot.hover("#ranks", offset=(5, 5))
        await pilot.pause()
        assert app.cockpit.cross is None
        await pilot.press("w", "w", "w")
        assert app.cockpit.page.time_view.window_s == 900.0
        app.cockpit.page.on_chart_zoomed(type(chart).Zoomed(1))
        assert app.cockpit.page.time_view.window_s == 300.0
        app.cockpit.page.on_chart_zoomed(type(chart).Zoomed(-1))
        app.cockpit.page.on_chart_zoomed(type(chart).Zoomed(-1))
        assert app.cockpit.page.time_view.window_s is None


async def test_a_window_goes_back_in_time_and_follows_again_at_the_end(open_app: OpenApp) -> None:
    long = [*RUNNING, ev.Ticked(at=END + 400)]
    async with open_app(long) as (app, pilot, _):
        await pilot.press("less_than_sign")
        assert "whole session" in app.cockpit.note
        await pilot.press("w", "less_than_sign")
        assert app.cockpit.page.time_view.end == END + 400 - 15
        await pilot.press("greater_than_sign")
        assert app.cockpit.page.time_view.end is None
        for _ in range(60):
            await pilot.press("less_than_sign")
        end = app.cockpit.page.time_view.end
        assert end is not None and end >= app.cockpit.facts.origin + 60 - 1


async def test_l_makes_the_value_axis_logarithmic(open_app: OpenApp, text_grid: Grid) -> None:
    async with open_app(RUNNING, size=(120, 40)) as (app, pilot, _):
        before = text_grid(app)
        await pilot.press("l")
        assert app.cockpit.page.time_view.log
        assert text_grid(app) != before
        await pilot.press("l")
        assert text_grid(app) == before


# --- events and logs ----------------------------------------------------------------------------------------------


def said(rank: int, text: str, at: float = END, output: str = "stdout") -> ev.OutputWritten:
    host = f"node-{rank // 4:03d}"
    return ev.OutputWritten(at=at, rank=rank, host=host, local_rank=rank % 4, output=output, lines=[text])  # type: ignore[arg-type]


async def test_a_line_of_many_ranks_is_one_and_c_tells_them_apart(open_app: OpenApp, text_grid: Grid) -> None:
    lines = [said(rank, "CUDA out of memory", output="stderr") for rank in range(16)]
    async with open_app([*RUNNING, *lines]) as (app, pilot, _):
        await pilot.press("f8")
        rows = [row for row in text_grid(app) if "CUDA out of memory" in row]
        assert len(rows) == 1 and "×16 ranks" in rows[0] and "!" in rows[0]
        await pilot.press("c")
        assert len([row for row in text_grid(app) if "CUDA out of memory" in row]) >= 13


async def test_the_same_line_of_one_rank_twice_or_much_later_stays_two(open_app: OpenApp) -> None:
    lines = [said(0, "again", END), said(0, "again", END), said(1, "again", END + 60)]
    async with open_app([*RUNNING, *lines]) as (app, pilot, _):
        await pilot.press("f8", "slash", *"again", "enter")
        assert len(page(app, Logs).lines.all_lines) == 3


async def test_events_and_logs_are_sorted_by_the_keys_of_every_table(open_app: OpenApp, text_grid: Grid) -> None:
    lines = [said(rank, f"hello {rank}", END - rank) for rank in (3, 11, 7)]
    async with open_app([*RUNNING, *lines], size=(100, 40)) as (app, pilot, source):
        await pilot.press("f8", "slash", *"hello", "enter")
        logs = page(app, Logs)

        def shown() -> list[str]:
            return [row.partition("│ ")[2].rstrip("┃ ") for row in text_grid(app) if "hello " in row and "│ hello" in row]

        assert shown() == ["hello 3", "hello 11", "hello 7"]
        await pilot.press("s", "s")
        assert logs.choices.sorts["lines"] == ("rank", False) and shown() == ["hello 3", "hello 7", "hello 11"]
        await pilot.press("down", "down")
        assert logs.line() is not None and logs.line().entry.text == "hello 7"  # type: ignore[union-attr]
        source.waiting += [said(0, "hello 0", END + 1), ev.Ticked(at=END + 1)]
        app.frame()
        await pilot.pause()
        assert shown() == ["hello 0", "hello 3", "hello 7", "hello 11"]
        assert logs.line().entry.text == "hello 7", "the cursor holds to its line"  # type: ignore[union-attr]
        await pilot.press("S")
        assert shown() == ["hello 11", "hello 7", "hello 3", "hello 0"]
        logs.choices.sorts["lines"] = ("time", True)
        await pilot.press("escape")
        logs.redraw()
        await pilot.pause()
        assert shown() == ["hello 0", "hello 7", "hello 11", "hello 3"], "the newest first"
        record = logs.lines.records()[0]
        who = {"ranks": [0], "hosts": ["node-000"], "stream": "stdout", "severity": "info"}
        assert record == {"at_s": END + 1, **who, "text": "hello 0"}
        await pilot.press("f7", "s")
        events = page(app, Events)
        assert "lines by severity" in app.cockpit.note
        graded = [str(record["severity"]) for record in events.lines.records()]
        assert graded == sorted(graded, key=["error", "warning", "info"].index) and graded


async def test_logs_of_a_rank_by_r_and_by_filter_of_fields(open_app: OpenApp, text_grid: Grid) -> None:
    lines = [said(rank, f"hello {rank}") for rank in range(16)]
    async with open_app([*RUNNING, *lines], size=(100, 40)) as (app, pilot, _):
        await pilot.press("f8")
        logs = page(app, Logs)
        await pilot.press("slash", *"host=node-002 !/9/", "enter")
        assert [line.text for line in logs.lines.all_lines] == ["hello 8", "hello 10", "hello 11"]
        await pilot.press("up", "r", "escape")
        assert logs.choices.only_rank == 11
        assert [line.text for line in logs.lines.all_lines] == ["hello 11"]
        assert "› Logs › rank 11" in text_grid(app)[0]
        await pilot.press("r")
        assert logs.choices.only_rank is None


async def test_a_cursor_stops_following_holds_its_line_and_points_at_its_moment(open_app: OpenApp) -> None:
    async with open_app(RUNNING) as (app, pilot, source):
        await pilot.press("f8", "up", "up")
        lines = page(app, Logs).lines
        held = lines.cursor
        assert not lines.following and app.cockpit.cross == END - 1
        source.waiting += [said(0, f"more {i}", END + 1) for i in range(200)]
        app.frame()
        await pilot.pause()
        assert lines.cursor == held
        await pilot.press("G")
        assert lines.following and lines.cursor is None and app.cockpit.cross is None


async def test_a_long_line_is_read_in_full(open_app: OpenApp, text_grid: Grid) -> None:
    words = " ".join(f"word{number:03}" for number in range(60))
    async with open_app([*RUNNING, said(1, "short"), said(3, words)], size=(120, 40)) as (app, pilot, _):
        await pilot.press("f8")
        assert not any("word059" in row for row in text_grid(app))
        await pilot.press("i")
        screen = " ".join(" ".join(row.strip("│ ┃") for row in text_grid(app)).split())
        assert words in screen and "node-000 rank 3 stdout" in screen
        await pilot.press("up")
        assert not any("word059" in row for row in text_grid(app)) and any(row.strip("│ ") == "short" for row in text_grid(app))
        await pilot.press("escape")
        assert page(app, Logs).chart.display and page(app, Logs).lines.cursor is not None


async def test_enter_on_an_event_takes_the_recording_there_and_back(
    open_app: OpenApp, fake_player: type[FakePlayer]
) -> None:
    player = fake_player(RUNNING, position_s=33.0)
    async with open_app(RUNNING, player=player) as (app, pilot, _):
        await pilot.press("f7", "g")
        events = page(app, Events)
        await pilot.press("down")
        at = events.feed().entry(1)
        assert at is not None
        await pilot.press("enter")
        there = f"seek {at.at - RUNNING[0].at:g}"
        assert player.asked == [there]
        app.frame()
        await pilot.press("enter")
        assert player.asked[-1] == "seek 33"


@pytest.mark.parametrize(("key", "kind"), [("f7", Events), ("f8", Logs)])
async def test_after_a_jump_the_cursor_is_on_the_last_line_of_that_moment(
    open_app: OpenApp, fake_player: type[FakePlayer], key: str, kind: type[LinesPage]
) -> None:
    start = RUNNING[0].at
    told: list[ev.AnyEvent] = [said(0, f"at {at}", start + at) for at in range(10, 50, 10)]
    told += [ev.NoticeGiven(at=start + at, severity="info", text=f"at {at}") for at in range(10, 50, 10)]
    events = sorted([*(event for event in RUNNING if event.at < start + 10), *told], key=lambda event: event.at)
    player = fake_player(events, position_s=45.0)
    async with open_app(events, player=player) as (app, pilot, _):
        await pilot.press(key, "up", "up")
        lines = page(app, kind)

        async def jumped(*keys: str) -> str:
            await pilot.press(*keys)
            app.frame()
            await pilot.pause()
            line = lines.line()
            assert line is not None and app.cockpit.cross == line.entry.at and not lines.lines.following
            return line.entry.text

        assert await jumped("colon", *"25", "enter") == "at 20"
        assert await jumped("colon", *"40", "enter") == "at 40"
        assert await jumped("up", "up", "enter") == "at 20"
        assert await jumped("escape") == "at 20", "the line that it was left by"
        assert await jumped("colon", *"45", "enter") == "at 40"


async def test_an_event_of_a_live_session_is_shown_by_the_crosshair(open_app: OpenApp) -> None:
    async with open_app(RUNNING) as (app, pilot, _):
        await pilot.press("f7", "g", "enter")
        assert app.cockpit.cross == RUNNING[0].at
        assert "crosshair" in app.cockpit.note


async def test_problems_only_leaves_warnings_and_errors(open_app: OpenApp) -> None:
    notice = ev.NoticeGiven(at=END, severity="warning", text="the disk fills up")
    async with open_app([*RUNNING, notice]) as (app, pilot, _):
        await pilot.press("f7", "p")
        assert [line.text for line in page(app, Events).lines.all_lines] == ["the disk fills up"]


async def test_a_wrong_expression_is_told(open_app: OpenApp, text_grid: Grid) -> None:
    async with open_app(RUNNING, size=(120, 30)) as (_, pilot, _):
        app = pilot.app
        await pilot.press("f7", "slash", *"/(/")
        assert any("regular expression" in row for row in text_grid(app))


# --- verdicts, timeline, scaling ----------------------------------------------------------------------------------


async def test_a_verdict_has_evidence_gain_try_and_check_and_enter_goes_to_its_rank(
    open_app: OpenApp, text_grid: Grid
) -> None:
    async with open_app(RUNNING, size=(120, 40)) as (app, pilot, _):
        await pilot.press("f9", "down", "down", "up")
        verdicts = page(app, Verdicts)
        screen = "\n".join(text_grid(app))
        for heading in ("because", "would gain", "try", "to check"):
            assert heading in screen, heading
        selected = verdicts.table.model.selected
        assert selected is not None and selected[1] == 5
        await pilot.press("enter")
        assert page(app, Ranks).choices.details == ("rank", 5)


async def test_the_timeline_has_a_lane_per_slot_and_says_how_a_worker_ended(open_app: OpenApp, text_grid: Grid) -> None:
    died = ev.WorkerExited(at=END, host="node-001", local_rank=1, rank=5, exit_code=137, signal="SIGKILL")
    async with open_app([*RUNNING, died], size=(120, 40)) as (app, pilot, _):
        await pilot.press("f6")
        timeline = page(app, Timeline)
        assert len(timeline.slots.model.keys) == 16
        await pilot.press("g", *["down"] * 5)
        assert timeline.slots.model.selected == ("node-001", 1)
        await pilot.press("2", "down")
        assert app.cockpit.cross is not None


async def test_escape_takes_a_recording_back_from_the_moment_of_a_generation(
    open_app: OpenApp, fake_player: type[FakePlayer]
) -> None:
    player = fake_player(RUNNING)
    async with open_app(RUNNING, size=(120, 40), player=player) as (app, pilot, _):
        await pilot.press("f6", "2", "down", "enter")
        assert player.asked[-1].startswith("seek ") and "Esc goes back" in app.cockpit.note
        there = player.position_s
        await pilot.press("f2", "f6", "escape")
        assert player.asked[-1] == "seek 10" and there != 10 and app.cockpit.page.screen_name == "timeline"
        await pilot.press("enter", "right_square_bracket", "escape")
        assert player.asked[-1] != "seek 10" and app.cockpit.page.screen_name != "timeline", "who went on is not taken back"


async def test_escape_goes_back_from_a_moment_before_it_clears_the_filter_that_led_there(
    open_app: OpenApp, fake_player: type[FakePlayer]
) -> None:
    player = fake_player(RUNNING)
    async with open_app(RUNNING, size=(120, 40), player=player) as (app, pilot, _):
        await pilot.press("f7", "slash", *"rank", "enter", "g", "enter")
        events = page(app, Events)
        assert "Esc goes back" in app.cockpit.note and player.position_s != 10
        await pilot.press("escape")
        assert player.position_s == 10 and events.choices.filters["lines"] == "rank"
        await pilot.press("g", "enter", "i", "escape")
        assert player.position_s != 10 and events.choices.details is None, "what was opened later is closed first"
        await pilot.press("escape", "escape")
        assert player.position_s == 10 and not events.choices.filters.get("lines")


async def test_slots_are_narrowed_to_a_host_and_sorted(open_app: OpenApp, text_grid: Grid) -> None:
    died = ev.WorkerExited(at=END, host="node-001", local_rank=1, rank=5, exit_code=137, signal="SIGKILL")
    async with open_app([*RUNNING, died], size=(160, 50)) as (app, pilot, _):
        await pilot.press("f6", "1", "slash")
        assert any("filter slots:" in row for row in text_grid(app))
        await pilot.press(*"host=node-002", "enter")
        slots = page(app, Timeline).slots
        assert slots.model.keys == [("node-002", slot) for slot in range(4)]
        assert "4 of 16" in text_grid(app)[slots.region.y]
        page(app, Timeline).set_filter("end=SIGKILL trained_s>10")
        assert slots.model.keys == [("node-001", 1)]
        page(app, Timeline).set_filter("host=nowhere")
        await pilot.pause()
        assert any("no row passes the filter: /host=nowhere" in row for row in text_grid(app))
        await pilot.press("escape", "s", "s", "s", "S")
        assert "slots by rank, largest first" in app.cockpit.note and "by rank↓" in text_grid(app)[slots.region.y]
        assert slots.model.keys[:2] == [("node-003", 3), ("node-003", 2)]
        assert app.cockpit.page.fields["slots"] == SLOT_FIELDS


async def test_a_node_is_in_one_state_on_all_screens(open_app: OpenApp, text_grid: Grid) -> None:
    async with open_app(RUNNING, size=(160, 50)) as (app, pilot, _):
        named = {verdict.host for verdict in app.cockpit.facts.verdicts if verdict.host}
        node = next(node for node in app.state.nodes.values() if node.host in named)
        assert state_of(app.cockpit.facts, node) == "slow"
        found = [next(row for row in text_grid(app) if f"{node.host} " in row and "slow" in row)]
        await pilot.press("f3")
        found.append(next(row for row in text_grid(app) if f"{node.host} " in row and "slow" in row))
        app.cockpit.go("node", node.node)
        await pilot.press("6", "g")
        assert any("▲ slow" in row for row in text_grid(app)) and len(found) == 2
        why = next(verdict.text for verdict in app.cockpit.facts.verdicts if verdict.host == node.host)
        assert any(f"slow: {why[:40]}" in row for row in text_grid(app)), "the detail says what is slow"


async def test_the_crosshair_is_on_the_chart_of_ranks_over_time_too_by_key_and_by_mouse(
    open_app: OpenApp, text_grid: Grid
) -> None:
    async with open_app(RUNNING, size=(120, 50)) as (app, pilot, _):
        await pilot.press("f4", "x", *["left"] * 8)
        ripple, band = app.cockpit.page.panels["ripple"], app.cockpit.page.panels["band"]
        crossed = app.cockpit.cross
        assert crossed is not None and crossed < END
        rows = text_grid(app)[ripple.region.y + 1 : ripple.region.bottom - 2]
        places = {row.index("│", 4) for row in rows if row.strip("│ ")}
        assert len(places) == 1, "one column, in all ranks"
        told = [re.search(r" at \d+:\d\d ", text_grid(app)[panel.region.y]) for panel in (ripple, band)]
        assert told[0] is not None and told[1] is not None and told[0][0] == told[1][0], "the moment is told in one way"
        assert " ms" in text_grid(app)[ripple.region.y]
        await pilot.press("x")
        assert app.cockpit.cross is None
        await pilot.hover(ripple, offset=(places.pop() - ripple.region.x, 3))
        await pilot.pause()
        assert app.cockpit.cross == pytest.approx(crossed, abs=1.0)
        assert "at " in text_grid(app)[band.region.y], "and on the other chart"
        times = re.findall(r"\d+(?::\d\d)+", text_grid(app)[ripple.region.bottom - 2])
        assert times and all(re.fullmatch(r"\d+:\d\d", time) for time in times), "as below the other chart"


async def test_the_label_of_a_lane_keeps_its_slot(open_app: OpenApp, text_grid: Grid) -> None:
    async with open_app(RUNNING, size=(120, 40)) as (app, pilot, _):
        await pilot.press("f6")
        page(app, Timeline).slots.show(LanesData([LaneRow(("a-gpu-node-0012", 3), "a-gpu-node-0012:3", [], "", "muted")]))
        await pilot.pause()
        assert any("…pu-node-0012:3" in row for row in text_grid(app))


async def test_the_timeline_of_an_elastic_job_accounts_for_what_changes_cost(open_app: OpenApp, text_grid: Grid) -> None:
    started = ev.JobStarted(at=RUNNING[0].at, job="j", command=["python", "t.py"], np=16, min_np=8, max_np=16)
    events = [started if isinstance(event, ev.JobStarted) else event for event in RUNNING]
    lost = ev.MembershipChanged(at=END, change="host_failed", host="node-003", detail="no route")
    async with open_app([*events, lost], size=(200, 60)) as (app, pilot, _):
        await pilot.press("f6")
        screen = "\n".join(text_grid(app))
        for part in ("training", "detection", "below capacity", "goodput", "host failed node-003", "no route"):
            assert part in screen, part


async def test_scaling_reads_a_recording_beside_the_screen_and_compares(
    open_app: OpenApp, text_grid: Grid, tmp_path: Path
) -> None:
    from distmon.replay.recorder import Recorder

    folder = tmp_path / "state" / "distmon" / "sessions"
    folder.mkdir(parents=True)
    recorder = Recorder(folder / "half.jsonl")
    for event in session(Script(ranks=8, nodes=2, seconds=40, slow_rank=5, delay_s=0.03)):
        recorder.write(event)
    recorder.close()
    (folder / "broken.jsonl").write_text("not a recording\n")
    async with open_app(RUNNING, size=(120, 40)) as (app, pilot, _):
        await pilot.press("f5")
        await app.workers.wait_for_complete()
        scaling = page(app, ScalingPage)
        for name in ("half", "broken"):
            scaling.table.select(str(folder / f"{name}.jsonl"))
            await pilot.press("enter")
            await app.workers.wait_for_complete()
            await pilot.pause()
        row = next(row for row in text_grid(app) if "this session" in row)
        assert "2.00x" in row and "100%" in row
        assert any("against half of" in row for row in text_grid(app))
        await pilot.press("b")
        assert "read first" in app.cockpit.note
        scaling.table.select("")
        await pilot.press("b")
        assert any("against this session" in row for row in text_grid(app))


async def test_scaling_lists_the_recordings_that_there_are_by_their_jobs_and_when_they_began(
    open_app: OpenApp, settle: Settle, text_grid: Grid, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Opened before there is any; one comes, is read and goes; keys that come while the list is read wait for it."""
    from distmon.replay.recorder import Recorder

    monkeypatch.setattr("distmon.tui.screens.scaling.LOOK_EVERY_S", 0.02)
    folder = tmp_path / "state" / "distmon" / "sessions"
    made = [folder / f"2026-11-29T17-0{n}-00-torch-digits-{n}6c003fd5d00.jsonl.zst" for n in range(3)]

    def write(number: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        with Recorder(made[number]) as recorder:
            for event in session(Script(ranks=8, nodes=2, seconds=40, start=SCRIPT.start + 61 * number)):
                recorder.write(event)

    async def listed(app: DistmonApp, pilot: Pilot[int], *numbers: int) -> list[str]:
        scaling = page(app, ScalingPage)
        for _ in range(500):
            await pilot.pause(0.01)
            if set(scaling._runs) == {"", *(str(made[n]) for n in numbers)}:
                await settle(pilot)
                return [row for row in text_grid(app) if "torch-digits" in row]
        raise AssertionError(list(scaling._runs))

    async with open_app(RUNNING, size=(80, 24)) as (app, pilot, _):
        await pilot.press("f5")
        await listed(app, pilot)
        write(0)
        write(1)
        rows = await listed(app, pilot, 0, 1)
        assert all("torch-digits " in row and "Enter: read" in row for row in rows)
        moments = [time.strftime("%m-%d %H:%M:%S", time.localtime(SCRIPT.start + 61 * n)) for n in (1, 0)]
        assert [moment in row for moment, row in zip(moments, rows, strict=True)] == [True, True]
        await pilot.resize_terminal(40, 12)
        narrow = [row for row in text_grid(app) if "Enter: read" in row]
        assert [moment in row for moment, row in zip(moments, narrow, strict=True)] == [True, True]
        await pilot.resize_terminal(80, 24)
        scaling = page(app, ScalingPage)
        scaling.table.select(str(made[0]))
        await pilot.press("enter", "b")
        while scaling._runs[str(made[0])].speed is None:
            await pilot.pause(0.01)
        await pilot.press("b")
        assert scaling.baseline == str(made[0]) and any(f"against torch-digits of {moments[1]}" in row for row in text_grid(app))
        await pilot.press("f2")
        made[0].unlink()
        write(2)
        await pilot.press("f5")
        assert not any("Enter: read" in row and moments[1] in row for row in await listed(app, pilot, 1, 2))
        assert scaling.baseline is None and not any("against torch-digits" in row for row in text_grid(app))
        made[1].write_text("")
        scaling.table.select(str(made[1]))
        await pilot.press("enter")
        while scaling._runs[str(made[1])].state in ("reading", "Enter: read"):
            await pilot.pause(0.01)
        await settle(pilot)
        assert any("holds no" in row for row in text_grid(app)), "the sentence begins with what is wrong, not with the path"


async def test_the_narrowest_screens_have_what_matters_most(open_app: OpenApp, settle: Settle, text_grid: Grid) -> None:
    """What and who holds the job back, speeds and speedups, and a node's figures rather than bars of them."""
    async with open_app(RUNNING, size=(40, 12)) as (app, pilot, _):
        await pilot.press("f9")
        row = next(row for row in text_grid(app) if "straggler" in row)
        assert "rank 5 is late by" in row
        await pilot.press("f5")
        await app.workers.wait_for_complete()
        scaling = page(app, ScalingPage)
        scaling._runs["half"] = Run("half", SteadySpeed(ranks=8, samples_per_s=50.0), "")
        scaling.redraw()
        head, row = (next(row for row in text_grid(app) if word in row) for word in ("speedup", "this"))
        assert "ranks" in head and "sampl" in head and "effic" in head and " 16 " in row and "x " in row and "% " in row
        node = next(iter(app.state.nodes.values()))
        assert node.sample is not None
        app.cockpit.go("node", node.node)
        await settle(pilot)
        await pilot.press("6")
        rows = text_grid(app)
        for name in ("cpu", "memory", "gpu 0"):
            assert any(row.startswith(f" {name} ") and "% " in row and "━" in row for row in rows), (name, rows)
        memory = next(row for row in rows if row.startswith(" memory "))
        assert memory.rstrip(" ┃").endswith(size(node.sample.memory_total_bytes))
        await pilot.press("f8")
        assert any(" output " in row and " following " in row for row in text_grid(app))
        await pilot.press("A")
        told = " ".join(" ".join(row.split()) for row in text_grid(app))
        assert "2 measures" in told and "o lists the recordings, and i there puts the selected one here" in told


def test_the_speedup_of_many_ranks_is_written_whole() -> None:
    known = {str(n): Run(f"np{n}", SteadySpeed(ranks=n, samples_per_s=100.0 * n)) for n in (1, 16, 2048)}
    for width in (40, 58, 90):
        rows = [line.strip(width, DARK.style("text")).text for line in bar_lines(known, "1", DARK, width, 10)]
        assert [row.split()[-1] for row in rows[1:]] == ["1.00x", "16.00x", "2048.00x"]
        assert all(line.width <= width for line in bar_lines(known, "1", DARK, width, 10)[1:])


async def test_scaling_lists_the_runs_of_sweeps_and_how_far_they_are(
    open_app: OpenApp, text_grid: Grid, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from distmon.launcher.sweep import Sweep, runs
    from distmon.replay.recorder import Recorder
    from distmon.tui.cli.sweep_folder import SweepFolder

    monkeypatch.chdir(tmp_path)
    sweep = Sweep(sizes=[1, 2], repeats=2, flags=[], command=["train.py"], cwd=str(tmp_path))
    first, second, *_ = runs(sweep)
    with SweepFolder.made(tmp_path / "sweep-x", sweep) as folder:
        with Recorder(folder.recording(first)) as recorder:
            for event in session(Script(ranks=1, nodes=1, seconds=40)):
                recorder.write(event)
        with Recorder(folder.recording(second)):
            async with open_app(RUNNING, size=(160, 40)) as (app, pilot, _):
                await pilot.press("f5")
                await app.workers.wait_for_complete()
                await pilot.pause()
                screen = "\n".join(text_grid(app))
                assert "sweep-x: 1 of 4 runs, 2 ranks, repeat 1 under way" in screen
                page(app, ScalingPage).table.select(str(folder.recording(first)))
                await pilot.press("enter")
                await app.workers.wait_for_complete()
                await pilot.pause()
                assert any("against sweep-x/np1-run1" in row for row in text_grid(app))


# --- out of the screen --------------------------------------------------------------------------------------------


async def test_the_view_goes_into_files_that_other_programs_read_and_never_over_another(
    open_app: OpenApp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_app(RUNNING, size=(120, 40)) as (app, pilot, _):
        await pilot.press("f4")
        for kind in "shtcj":
            await pilot.press("e", kind)
        await pilot.press("e", "j", "e", "escape")
        assert app.cockpit.question == ""
    assert sorted(path.name for path in tmp_path.glob("distmon-*")) == [
        "distmon-ranks-2.json", "distmon-ranks.csv", "distmon-ranks.html", "distmon-ranks.json", "distmon-ranks.svg",
        "distmon-ranks.txt",
    ]  # fmt: skip
    ElementTree.parse(tmp_path / "distmon-ranks.svg")
    assert "every rank" in (tmp_path / "distmon-ranks.txt").read_text()
    assert "every rank" in (tmp_path / "distmon-ranks.html").read_text()
    for kind in ("svg", "html", "txt"):
        picture = (tmp_path / f"distmon-ranks.{kind}").read_text().replace("\N{NO-BREAK SPACE}", " ").replace("&#160;", " ")
        assert "Save this" not in picture and "question" not in picture, kind
    rows = list(csv.DictReader((tmp_path / "distmon-ranks.csv").read_text().splitlines()))
    assert rows[0]["rank"] == "5" and len(rows) == 16
    figures = json.loads((tmp_path / "distmon-ranks.json").read_text())
    assert [{name: "" if value is None else str(value) for name, value in row.items()} for row in figures] == rows
    assert figures[0]["state"] == "slow" and figures[0]["samples_per_s"] > 100 and 20 < figures[0]["late_ms"] < 40


async def test_every_panel_has_data_for_a_file(open_app: OpenApp) -> None:
    async with open_app(RUNNING, size=(120, 40)) as (app, pilot, _):
        for name in (*OWN, "node"):
            app.cockpit.go(name)
            await pilot.pause()
            await pilot.pause()
            for panel_name, panel in app.cockpit.page.panels.items():
                records = panel.records()
                assert records, (name, panel_name)
                json.dumps(list(records))
                assert panel.selected_records()
                assert set(panel.file_names()) <= set(records[0]) or panel.file_names() == ("line",), (name, panel_name)


async def test_the_file_of_an_empty_panel_has_names(open_app: OpenApp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_app([], size=(120, 40)) as (app, pilot, _):
        for name in (*OWN, "sessions", "against"):
            app.cockpit.go(name)
            await pilot.pause()
            await pilot.pause()
            for panel in app.cockpit.page.panels.values():
                panel.focus()
                await pilot.pause()
                await pilot.press("e", "c")
    files = {path.name: path.read_text() for path in tmp_path.glob("*.csv")}
    assert files["distmon-ranks-4.csv"].startswith("rank,host,state,step,epoch,step_ms,input_ms,")
    assert files["distmon-events.csv"] == "at_s,severity,rank,host,times,text\n"
    assert not [name for name, text in files.items() if not text.strip()]


async def test_no_panel_puts_display_text_where_it_has_figures(open_app: OpenApp, fake_player: type[FakePlayer]) -> None:
    """A record is a row of figures: only words that were words when they were measured are text."""
    words = {
        "kind", "phase", "series", "run", "state", "part", "what", "host", "detail", "cause", "node", "group", "key", "law",
        "parameter", "who", "text", "evidence", "try", "gain_of", "pattern", "severity", "stream", "measure", "unit", "better",
        "session", "name", "command", "trouble", "reading", "value", "refused", "line", "uuid", "differs_in",
        "file",
    }  # fmt: skip
    async with open_app(RUNNING, size=(160, 50)) as (app, pilot, _):
        for name in (*OWN, "node", "against", "sessions"):
            app.cockpit.go(name)
            await pilot.pause()
            await pilot.pause()
            for panel_name, panel in app.cockpit.page.panels.items():
                records = panel.records()
                json.dumps(list(records))
                texts = {key for record in records for key, value in record.items() if isinstance(value, str)}
                assert texts <= words, (name, panel_name, texts - words)
                lines = isinstance(panel, TextPanel) and not (panel.figures and panel.figures())
                assert lines or not any("line" in record for record in records), (name, panel_name)
                assert not isinstance(panel, TextPanel) or panel.figures or name == "sessions", (name, panel_name)


async def test_figures_in_files_are_as_they_were_measured_and_have_their_units(open_app: OpenApp) -> None:
    gpu = ev.GpuReading(index=0, utilization_percent=12.34, memory_used_bytes=3_289_000_001)
    process = ev.ProcessReading(pid=4242, rank=3, cpu_percent=99.5, memory_bytes=1 << 30, threads=17)
    sample = ev.NodeSampled(at=END, node="n0", interval_s=1.0, cpu_percent=43.21, gpus=[gpu], processes=[process])
    async with open_app([*RUNNING, sample], size=(160, 50)) as (app, pilot, _):
        cards, table = app.cockpit.page.panels["nodes"], app.cockpit.page.panels["ranks"]
        assert cards.records()[0]["cpu_percent"] == 43.21 and isinstance(table.records()[0]["step_ms"], float)
        await pilot.press("f3")
        assert app.cockpit.page.panels["nodes"].records()[0]["cpu_percent"] == 43.21
        app.cockpit.go("node", "n0")
        await pilot.pause()
        node = page(app, NodeDetail)
        assert node.gpus.records()[0]["memory_used_bytes"] == 3_289_000_001
        assert [row["pid"] for row in node.processes.records() if row["rank"] == 3] == [4242]
        json.dumps([*node.gpus.records(), *node.processes.records()])


async def test_values_and_moments_in_files_are_in_the_units_that_their_names_say(open_app: OpenApp) -> None:
    gpu = ev.GpuReading(index=0, utilization_percent=12.34, power_w=71.5, temperature_c=44.0)
    sample = ev.NodeSampled(at=END, node="n0", interval_s=1.0, cpu_percent=43.21, cores_percent=[12.5], gpus=[gpu])
    async with open_app([*RUNNING, sample], size=(160, 50)) as (app, pilot, _):
        await pilot.press("f4")
        heat, ripple = app.cockpit.page.panels["heat"].records(), app.cockpit.page.panels["ripple"].records()
        assert heat[5]["key"] == "5" and heat[5]["late_s"] == app.cockpit.facts.ranks[5].lateness_s
        assert {row["rank"] for row in ripple} == set(range(16)) and set(ripple[0]) == {"rank", "at_s", "late_s"}
        assert all(-1 < float(str(row["at_s"])) <= END - app.cockpit.facts.origin for row in ripple)
        await pilot.press("f3")
        found: dict[str, object] = {}
        for _ in range(6):
            found |= app.cockpit.page.panels["heat"].records()[0]
            await pilot.press("d")
        assert found["utilization_percent"] == 12.34 and found["power_w"] == 71.5 and found["temperature_c"] == 44.0
        assert found["cpu_percent"] == 43.21 and {"memory_percent", "load"} <= set(found)
        app.cockpit.go("node", "n0")
        await pilot.pause()
        assert page(app, NodeDetail).cores.records()[0]["load_percent"] == 12.5


async def test_a_folder_that_takes_no_file_is_told(
    open_app: OpenApp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_app(RUNNING) as (app, pilot, _):
        monkeypatch.setattr("os.open", lambda *arguments: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
        await pilot.press("e", "t")
        assert "cannot be saved" in app.cockpit.note and "Permission denied" in app.cockpit.note


async def test_y_copies_the_selected_row(open_app: OpenApp) -> None:
    async with open_app(RUNNING, size=(120, 40)) as (app, pilot, _):
        await pilot.press("f4", "g", "y")
        assert app.clipboard.startswith("5\tnode-001\t")
        assert "copied 1 line" in app.cockpit.note
        await pilot.press("f7", "y")
        assert app.clipboard.startswith("time\tseverity\t") and app.clipboard.count("\n") > 3
        await pilot.press("g", "y")
        first = app.state.log[0]
        assert app.clipboard.split("\t")[:2] == [clock(first.at), first.severity]
        await pilot.press("f4", "2", "y")
        names, *rows = [line.split("\t") for line in app.clipboard.splitlines()]
        assert names == ["series", "at_s", "late_s", "low", "high"] and {len(row) for row in rows} == {5}
        assert not any("e-" in cell for row in rows for cell in row[1:])


async def test_ranks_are_filtered_by_what_the_heads_of_their_columns_say(open_app: OpenApp, text_grid: Grid) -> None:
    async with open_app(RUNNING, size=(120, 40)) as (app, pilot, _):
        await pilot.press("f4")
        shown, ranks = page(app, Ranks), page(app, Ranks).table
        slowest = max(row.recent.step_s * 1e3 for row in app.cockpit.facts.ranks.values() if row.recent)
        for text, passes in (
            (f"step ms<={slowest + 1:.3f}", 16), ("step_ms>1e6", 0), ("differs by>20", 1), ("differs_in~input", 1),
            ("compute", 15),
        ):  # fmt: skip
            shown.set_filter(text)
            assert len(ranks.model.keys) == passes, text
        assert set(ranks.records()[0]) >= {"step_ms", "differs_in", "differs_by_ms"}
        await pilot.press("f2", "4")
        app.cockpit.page.set_filter("differs by>20")
        await pilot.pause()
        assert any("1 of 16" in row for row in text_grid(app))


def test_the_timeline_lists_when_a_host_did_not_answer() -> None:
    state = SessionState()
    for event in (
        ev.MembershipChanged(at=10.0, change="host_joined", host="node1"),
        ev.MembershipChanged(at=10.0, change="host_joined", host="node2"),
        ev.HostReachChanged(at=26.0, host="node1", answers=False, since=20.0),
        ev.HostReachChanged(at=32.0, host="node1", answers=True, since=20.0),
        ev.HostReachChanged(at=46.0, host="node2", answers=False, since=40.0),
        ev.Ticked(at=50.0),
    ):
        apply(state, event)
    lines = ["".join(text for text, _ in line.pieces) for line in change_lines(facts(state), DARK, 60, 10)]
    assert [line.strip().partition("  ")[2] for line in lines] == [
        "node2 silent for 10 s  still",
        "node1 silent for 12 s",
        "host joined node2",
        "host joined node1",
    ]


def test_ranks_are_counted_on_the_node_that_hears_them_whatever_the_launcher_calls_it() -> None:
    state = SessionState()
    place = [ev.RankPlace(rank=rank, host="localhost", local_rank=rank) for rank in range(2)]
    for event in (
        ev.NodeJoined(at=1.0, node="n0", host="vm", boot="b"),
        ev.RanksAssigned(at=2.0, generation=0, world_size=2, places=place),
        ev.WorkerIdentified(at=3.0, worker="w0", node="n0", host="vm", pid=7, rank=0, size=2, local_rank=0),
        ev.WorkerIdentified(at=3.0, worker="w1", node="n0", host="vm", pid=8, rank=1, size=2, local_rank=1),
    ):
        apply(state, event)
    assert ranks_by_node(facts(state)) == {"n0": [0, 1]}
