"""Case UI-01: no size and no change of size ends the app; too small says so; enlarging gives the full screen back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from distmon.core import events as ev
from distmon.core.events import AnyEvent
from distmon.tui.screens.arrange import MIN_HEIGHT, MIN_WIDTH, too_small

if TYPE_CHECKING:
    from tests.tui.conftest import FakeJob, Grid, OpenApp, Settle

CASES = Path(__file__).parent.parent / "data" / "cases"
SIZES = json.loads((CASES / "UI-01" / "sizes.json").read_text())
WALK = [tuple(size) for size in (*SIZES["fixed"], *SIZES["resize_walk"])]
PANELS = ("throughput", "split", "nodes", "ranks", "events", "output")
VIEWS = {
    "overview": [],
    **{f"only {name}": [str(number), str(number)] for number, name in enumerate(PANELS, 1)},
    "help": ["question_mark"],
    "why": ["v"],
    "rank": ["4", "down", "enter"],
    "node": ["3", "down", "enter"],
    "filter": ["slash", "n"],
    "question": ["q"],
    "palette": ["ctrl+p"],
}

PANELS = ("throughput", "split", "nodes", "ranks", "events", "output")


def small_session() -> list[AnyEvent]:
    """The case's session in distmon's own events, up to the end of its samples."""
    records = [json.loads(line) for line in (CASES / "common" / "session_small.jsonl").read_text().splitlines()]
    start = next(record["started"] for record in records if record["kind"] == "session")
    return [event for record in records for event in converted(record, start)]


def converted(record: dict[str, Any], start: float) -> list[AnyEvent]:
    at = start + record.get("t", 0.0)
    kind, node = record["kind"], record.get("node", "")
    if kind == "session":
        return [ev.SessionStarted(at=at, session_id=record["id"], distmon_version="0")]
    if kind == "node":
        return [
            ev.NodeJoined(at=at, node=node, host=node, cores=record["cpus"])
            if record["state"] == "joined"
            else ev.NodeLeft(at=at, node=node)
        ]
    if kind == "job":
        return (
            [ev.JobStarted(at=at, job="j", command=record["command"], np=record["np"])]
            if record["state"] == "started"
            else []
        )
    if kind == "log":
        return [
            ev.OutputWritten(
                at=at, rank=record["rank"], host="node-a", local_rank=0, output="stdout", lines=[record["line"]]
            )
        ]
    if kind == "event":
        return [ev.NoticeGiven(at=at, severity=record["level"], text=record["text"])]
    return [sample(record, at) if kind == "sample" else step(record, at)]


def sample(record: dict[str, Any], at: float) -> AnyEvent:
    gpus = [
        ev.GpuReading(index=g["i"], utilization_percent=g["util"], power_w=g["power_w"], temperature_c=g["temp_c"])
        for g in record["gpus"]
    ]
    return ev.NodeSampled(
        at=at, node=record["node"], interval_s=1.0, cpu_percent=record["cpu_pct"], gpus=gpus,
        memory_used_bytes=record["mem_used"], memory_total_bytes=record["mem_total"],
    )  # fmt: skip


def step(record: dict[str, Any], at: float) -> AnyEvent:
    node = record["worker"].split("/")[0]
    return ev.StepsRecorded(
        at=at, node=node, worker=record["worker"], rank=record["rank"], generation=0, first_step=record["step"] - 1,
       origin=at - 1.0,        start_ns=[0], duration_ns=[int(1e9)], compute_ns=[int(record["compute_s"] * 1e9)],
        exposed_communication_ns=[int(record["comm_s"] * 1e9)], samples=[record["samples"]],
    )  # fmt: skip


@pytest.mark.parametrize("view", VIEWS)
async def test_every_view_lives_through_every_size(
    open_app: OpenApp, fake_job: type[FakeJob], text_grid: Grid, view: str
) -> None:
    async with open_app(small_session(), job=fake_job()) as (app, pilot, _):
        await pilot.press(*VIEWS[view])
        before = text_grid(app)
        for width, height in WALK:
            await pilot.resize_terminal(width, height)
            app.frame()
            await pilot.pause()
            rows = text_grid(app)
            assert len(rows) == height
            if too_small(width, height) and view != "palette":
                assert_says_sizes(rows, width, height)
        assert app.is_running
        if view == "palette":
            # The framework fills its list in the background.
            assert any("Search for commands" in row for row in text_grid(app))
        else:
            assert text_grid(app) == before


async def test_the_selected_panel_has_the_keys_again_once_there_is_room(open_app: OpenApp, settle: Settle) -> None:
    async with open_app(small_session(), size=(76, 21)) as (app, pilot, _):
        await pilot.press("f4", "2")
        await settle(pilot)
        panel = app.cockpit.page.panels[app.cockpit.page.choices.focused]
        assert app.cockpit.focused is panel
        await pilot.resize_terminal(39, 21)
        await settle(pilot)
        await pilot.resize_terminal(76, 21)
        await settle(pilot)
        assert app.cockpit.focused is panel


def assert_says_sizes(rows: list[str], width: int, height: int) -> None:
    """One line with the actual and the needed size, as far as the width allows."""
    text = "".join(rows).strip()
    wanted = f"{width}x{height}, needs {MIN_WIDTH}x{MIN_HEIGHT}"
    assert text.count("\n") == 0
    assert wanted in text or text.startswith(wanted[: max(width - 1, 0)]) or f"is {width}x{height}" in text


async def test_at_80x24_every_node_is_visible_or_reached_by_scrolling(open_app: OpenApp, text_grid: Grid) -> None:
    async with open_app(small_session()[:-60]) as (app, pilot, _):
        seen: list[str] = []
        await pilot.press("3")
        for _ in range(4):
            await pilot.press("down")
            seen += text_grid(app)
        screen = "\n".join(seen)
        for node in ("node-a", "nœud-c", "node-[d]"):
            row = next(row for row in seen if f"● {node}" in row)
            assert "%" in row
        assert "samples/s" in screen


@pytest.mark.parametrize("size", [(80, 24), (132, 43), (300, 80)])
async def test_no_row_is_wider_than_the_terminal(open_app: OpenApp, text_grid: Grid, size: tuple[int, int]) -> None:
    from rich.cells import cell_len

    async with open_app(small_session(), size=size) as (app, _, _):
        assert {cell_len(row) for row in text_grid(app)} == {size[0]}
