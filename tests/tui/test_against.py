"""A/B: the session on the screen beside a recording, from the command line's subject and from the list of recordings."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from textual.pilot import Pilot

from distmon.core.events import AnyEvent
from distmon.core.measures import steps
from distmon.core.side_by_side import Lock, Measure, Row, Side, Standing
from distmon.core.synthetic import Script, session
from distmon.replay.recorder import Recorder
from distmon.tui.app import DistmonApp
from distmon.tui.screens.against import AgainstPage
from distmon.tui.view.against import cells
from tests.tui.conftest import folded

if TYPE_CHECKING:
    from tests.tui.conftest import FakeJob, Grid, OpenApp, Settle

SCRIPT = Script(ranks=4, nodes=2, seconds=60, gpus_per_node=1, epochs=20)
OURS: list[AnyEvent] = [event for event in session(SCRIPT) if event.at <= SCRIPT.start + 40]
THEIRS = replace(SCRIPT, seconds=80, slow_rank=3, delay_s=0.012, seed=3)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = tmp_path / "distmon" / "sessions"
    made.mkdir(parents=True)
    return made


@pytest.fixture
def other(folder: Path) -> Path:
    return record(folder / "2026-01-03-slow.jsonl.zst", THEIRS)


def record(path: Path, script: Script) -> Path:
    with Recorder(path) as recorder:
        for event in session(script):
            recorder.write(event)
    return path


async def read(app: DistmonApp, pilot: Pilot[int]) -> None:
    """Until B has been read and moved, which are one after the other."""
    for _ in range(3):
        await app.workers.wait_for_complete()
        await pilot.pause()


async def test_measures_differences_and_the_reason_are_shown_by_step_time_and_epoch(
    open_app: OpenApp, text_grid: Grid, other: Path
) -> None:
    async with open_app(OURS, size=(100, 50)) as (app, pilot, _):
        app.cockpit.go("against", other)
        await read(app, pilot)
        shown = "\n".join(text_grid(app))
        assert "B is 11% slower: +8." in shown and "rank 3 late in its input" in shown
        row = next(row for row in text_grid(app) if " throughput " in row)
        assert "worse" in row and "/s" in row and "-1" in row
        assert sum("step 368 " in row for row in text_grid(app)[4:]) == 2
        assert "locked by step" in shown and "samples/s by step" in shown
        for lock in ("time", "epoch"):
            await pilot.press("c")
            await read(app, pilot)
            shown = "\n".join(text_grid(app))
            assert f"locked by {lock}" in shown and f"samples/s by {lock}" in shown and "B is 11% slower" in shown


async def test_one_that_has_ended_before_the_other_says_so_and_has_no_values(
    open_app: OpenApp, text_grid: Grid, folder: Path
) -> None:
    short = record(folder / "2026-01-03-short.jsonl.zst", replace(SCRIPT, seconds=20))
    async with open_app(OURS, size=(100, 50)) as (app, pilot, _):
        app.cockpit.go("against", short)
        await read(app, pilot)
        shown = text_grid(app)
        assert any("B ended at step 1" in row and "0:2" in row for row in shown)
        row = next(row for row in shown if " throughput " in row)
        assert row.count("–") == 3 and "/s" in row, "A has a value, B and the differences have none"
    async with open_app(session(replace(SCRIPT, seconds=20)), size=(100, 50)) as (app, pilot, _):
        app.cockpit.go("against", record(folder / "2026-01-03-long.jsonl.zst", replace(SCRIPT, seconds=50)))
        await read(app, pilot)
        shown = text_grid(app)
        assert any("A ended at step 1" in row and "B went on to step 4" in row for row in shown)
        assert "–" not in next(row for row in shown if " throughput " in row)


async def test_the_crosshair_of_the_two_is_that_of_all_charts(open_app: OpenApp, text_grid: Grid, other: Path) -> None:
    half = SCRIPT.start + 20
    async with open_app(OURS, size=(100, 50)) as (app, pilot, _):
        app.cockpit.go("against", other)
        await read(app, pilot)
        app.cockpit.point_at(half)
        chart = app.cockpit.page.panels["speed"]
        step = next(row for row in text_grid(app) if "at 1" in row or "at 2" in row)
        told = int(step.partition("at ")[2].split()[0])
        assert told == pytest.approx(steps(folded(event for event in OURS if event.at <= half)), abs=15)
        await pilot.hover(chart, offset=(50, 5))
        await pilot.pause()
        assert app.cockpit.cross is not None and app.cockpit.cross != half
        moved = app.cockpit.cross
        await pilot.press("right")
        assert app.cockpit.cross > moved
        await pilot.press("c")
        assert any("at 0:" in row for row in text_grid(app)), "by time it is at a time"


async def test_b_follows_where_a_goes(
    open_app: OpenApp, text_grid: Grid, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = [event for event in session(SCRIPT) if event.at > SCRIPT.start + 40]
    async with open_app(OURS, size=(100, 50)) as (app, pilot, events):
        app.cockpit.go("against", other)
        await read(app, pilot)
        page = app.cockpit.page
        assert isinstance(page, AgainstPage) and page._b is not None
        before = page._b.standing.step
        events.waiting += [event for event in waiting if event.at <= SCRIPT.start + 55]
        app.frame()
        await read(app, pilot)
        assert page._b.standing.step == steps(app.state) > before + 100
        shown, held = f"step {steps(app.state):,} ", threading.Event()
        at = page._other.at if page._other is not None else None
        assert at is not None and page._other is not None

        def slowly(lock: Lock, of: Standing) -> Side | None:
            held.wait(60)
            return at(lock, of)

        monkeypatch.setattr(page._other, "at", slowly)
        events.waiting += [event for event in waiting if event.at > SCRIPT.start + 55]
        app.frame()
        await pilot.pause()
        assert page._busy and steps(app.state) != page._b.standing.step
        assert "\n".join(text_grid(app)).count(shown) == 2, "the two that belong together, until B is there"
        held.set()
        await read(app, pilot)
        assert page._b.standing.step == steps(app.state)


async def test_the_narrowest_screen_has_a_and_the_difference(open_app: OpenApp, text_grid: Grid, other: Path) -> None:
    async with open_app(OURS, size=(40, 12)) as (app, pilot, _):
        app.cockpit.go("against", other)
        await read(app, pilot)
        head = next(row for row in text_grid(app) if "measure " in row and "measures" not in row)
        assert head.rstrip(" ┃").split() == ["measure", "A", "B-A"] and any("ms " in row and "+" in row for row in text_grid(app))


async def test_what_cannot_be_read_and_nothing_at_all_are_said(open_app: OpenApp, text_grid: Grid, folder: Path) -> None:
    (folder / "odd.jsonl").write_text("no session\n")
    async with open_app(OURS, size=(100, 30)) as (app, pilot, _):
        await pilot.press("A")
        assert any("nothing is beside this session yet" in row for row in text_grid(app))
        app.cockpit.go("against", folder / "odd.jsonl")
        await read(app, pilot)
        assert any("is not a distmon session" in row for row in text_grid(app))


async def test_from_the_recordings_beside_the_session_or_beside_the_base(
    open_app: OpenApp, settle: Settle, text_grid: Grid, folder: Path, other: Path, fake_job: type[FakeJob]
) -> None:
    async with open_app(OURS, size=(140, 40)) as (app, pilot, _):
        await pilot.press("o")
        await app.workers.wait_for_complete()
        await settle(pilot)
        await pilot.press("down", "i")
        await read(app, pilot)
        assert app.cockpit.page.screen_name == "against" and "B is 11% slower" in "\n".join(text_grid(app))
    base = record(folder / "2026-01-02-fast.jsonl.zst", replace(SCRIPT, seed=9))
    for job in (None, fake_job()):
        async with open_app(OURS, size=(140, 40), job=job) as (app, pilot, _):
            await pilot.press("o")
            await app.workers.wait_for_complete()
            await settle(pilot)
            await pilot.press("down", "b", "down", "i")
            await pilot.pause()
            if job is None:
                assert {app.wanted, app.wanted_beside} == {base, other}
            else:
                assert app.wanted is None and "in another terminal" in text_grid(app)[-1]


def test_a_difference_that_is_shown_as_nothing_is_no_better_and_no_worse() -> None:
    rest = Measure("rest", "s", "less")
    for b, word in ((2e-9, ""), (2e-5, "worse")):
        assert cells({"rest": Row(rest, 0.0, b)}, "rest")[-1][0] == word
