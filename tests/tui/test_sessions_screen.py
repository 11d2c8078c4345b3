"""The recordings: what is listed, and that each of open, report, compare and delete does what it says."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import msgspec
import pytest
from textual.events import Key

from distmon.core.events import AnyEvent, JobEnded, JobStarted, SessionEnded
from distmon.core.measures import elapsed
from distmon.core.synthetic import Script, session
from distmon.replay.glance import Glance, glances
from distmon.replay.index import index_path
from distmon.replay.marks import NamedMark, marks_path, save_marks
from distmon.replay.recorder import Recorder
from distmon.tui.format import duration
from distmon.tui.screens.sessions import Sessions
from tests.tui.conftest import folded

if TYPE_CHECKING:
    from tests.tui.conftest import FakeJob, Grid, OpenApp, Settle

EVENTS: list[AnyEvent] = list(session(Script(ranks=2, nodes=1, seconds=20, step_s=0.2)))
SLOWER: list[AnyEvent] = list(session(Script(ranks=2, nodes=1, seconds=30, step_s=0.3, seed=5)))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = tmp_path / "distmon" / "sessions"
    made.mkdir(parents=True)
    return made


@pytest.fixture
def two(folder: Path) -> list[Path]:
    """A fast and a slow one, and the marks of the slow one."""
    paths = [folder / "2026-01-02-fast.jsonl.zst", folder / "2026-01-03-slow.jsonl.zst"]
    for path, events in zip(paths, (EVENTS, SLOWER), strict=True):
        with Recorder(path) as recorder:
            for event in events:
                recorder.write(event)
    os.utime(paths[0], (1_700_000_100, 1_700_000_100))
    os.utime(paths[1], (1_700_000_200, 1_700_000_200))
    save_marks(paths[1], [NamedMark(1_700_000_005.0, "here")])
    return paths


@pytest.mark.usefixtures("folder")
async def test_without_recordings_it_says_how_to_make_one(open_app: OpenApp, settle: Settle, text_grid: Grid) -> None:
    async with open_app() as (app, pilot, _):
        await pilot.press("o")
        await app.workers.wait_for_complete()
        await settle(pilot)
        assert isinstance(app.cockpit.page, Sessions)
        assert any("distmon run makes one" in row for row in text_grid(app))
        await pilot.press("r", "X", "c", "b", "enter")
        assert not app.cockpit.question and app.wanted is None


async def test_it_lists_the_newest_first_and_says_what_cannot_be_opened(
    open_app: OpenApp, settle: Settle, text_grid: Grid, folder: Path, two: list[Path]
) -> None:
    (folder / "2026-01-01-odd.jsonl").write_text("no session\n")
    os.utime(folder / "2026-01-01-odd.jsonl", (1, 1))
    async with open_app(size=(160, 40)) as (app, pilot, _):
        await pilot.press("o")
        await app.workers.wait_for_complete()
        await settle(pilot)
        rows = [row for row in text_grid(app) if "2026-01-0" in row]
        assert ["slow" in rows[0], "fast" in rows[1], "odd" in rows[2]] == [True] * 3
        assert "train.py" in rows[0] and "0:31" in rows[0] and "not a distmon session" in rows[2]
        await pilot.press("down", "G", "enter")
        assert app.wanted is None and "not a distmon session" in text_grid(app)[-1]


async def test_the_list_goes_on_while_it_is_looked_at(
    open_app: OpenApp, settle: Settle, text_grid: Grid, folder: Path, two: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recording that is made, written on or taken away meanwhile; the selection stays, and how it ended is never blank."""
    monkeypatch.setattr("distmon.tui.screens.sessions.LOOK_EVERY_S", 0.02)
    shown: list[Mapping[str, Glance]] = []
    took = Sessions._took_list

    def seen(page: Sessions, found: dict[str, Glance]) -> None:
        shown.append(found)
        took(page, found)

    monkeypatch.setattr(Sessions, "_took_list", seen)
    *others, ended, complete = EVENTS
    path = folder / "2026-01-04-new.jsonl.zst"
    async with open_app(size=(120, 40)) as (app, pilot, _):
        await pilot.press("o")
        await app.workers.wait_for_complete()
        await pilot.press("down")

        async def until(*words: str) -> None:
            deadline = time.monotonic() + 20
            while not any(all(word in row for word in words) for row in text_grid(app)) and time.monotonic() < deadline:
                await pilot.pause(0.02)
            assert any(all(word in row for word in words) for row in text_grid(app)), words

        with Recorder(path) as recorder:
            for event in others:
                recorder.write(event)
            await until("2026-01-04-new", "running")
            shown.clear()
            recorder.write(ended)
            recorder.write(complete)
        await until("2026-01-04-new", "ended")
        assert all(found[str(path)].outcome for found in shown)
        page = app.cockpit.page
        assert isinstance(page, Sessions) and page.table.model.selected == str(two[1])
        path.unlink()
        deadline = time.monotonic() + 20
        while any("2026-01-04-new" in row for row in text_grid(app)) and time.monotonic() < deadline:
            await pilot.pause(0.02)
        assert not any("2026-01-04-new" in row for row in text_grid(app))


async def test_where_there_are_more_than_are_listed_it_says_so(
    open_app: OpenApp, settle: Settle, text_grid: Grid, two: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distmon.tui.screens.sessions.LISTED", 1)
    async with open_app() as (app, pilot, _):
        await pilot.press("o")
        await app.workers.wait_for_complete()
        await settle(pilot)
        assert any("recordings" in row and "the newest 1 " in row for row in text_grid(app))


async def test_when_it_was_last_written_and_both_ends_of_a_long_name_are_shown(
    open_app: OpenApp, settle: Settle, text_grid: Grid, folder: Path, two: list[Path]
) -> None:
    """The name is what tells one run of a study from the next."""
    for letter in "ab":
        long = folder / f"2026-01-04T10-00-{'resnet-' * 14}{letter}.jsonl.zst"
        long.write_bytes(two[0].read_bytes())
        os.utime(long, (1_700_086_400, 1_700_086_400))
    async with open_app(size=(120, 40)) as (app, pilot, _):
        await pilot.press("o")
        await app.workers.wait_for_complete()
        await settle(pilot)
        rows = text_grid(app)
        shown = [row for row in rows if "2026-01-04" in row and "…" in row]
        assert len(shown) == 2 and {"-a " in shown[0], "-b " in shown[0]} == {True, False}
        assert any("last write" in row for row in rows)
        assert all(time.strftime("%Y-%m-%d %H:%M", time.localtime(1_700_086_400)) in row for row in shown)


async def test_at_80_columns_the_jobs_names_and_how_they_ended_are_shown(
    open_app: OpenApp, settle: Settle, text_grid: Grid, folder: Path
) -> None:
    """The date and the session of an automatic recording's name stand elsewhere; its job's name does not."""
    *others, ended, complete = EVENTS
    assert isinstance(ended, JobEnded) and isinstance(complete, SessionEnded)
    endings: dict[str, list[AnyEvent]] = {
        "ended": [ended, complete],
        "failed": [msgspec.structs.replace(ended, exit_code=1, reason="failed"), complete],
        "stopped": [msgspec.structs.replace(ended, exit_code=143, reason="stopped"), complete],
        "cut off": [],
        "running": [],
    }
    for number, (word, ending) in enumerate(endings.items()):
        recorder = Recorder(folder / f"2026-11-29T14-05-0{number}-train-{word.replace(' ', '-')}-00000000000{number}.jsonl.zst")
        for event in [*others, *ending]:
            recorder.write(event)
        recorder.flush()
        if word == "running":
            running = recorder
        else:
            recorder.close()
    async with open_app(size=(80, 24)) as (app, pilot, _):
        await pilot.press("o")
        await app.workers.wait_for_complete()
        await settle(pilot)
        rows = text_grid(app)
        for word, sign in (("ended", "✔"), ("failed", "✖"), ("stopped", "○"), ("cut off", "▲"), ("running", "●")):
            name = f"train-{word.replace(' ', '-')} "
            assert any(name in row and f"{sign} {word}" in row and row.count("2023-11-1") == 1 for row in rows), (word, rows)
        running.close()
        await pilot.press("f2", "o")
        await app.workers.wait_for_complete()
        await settle(pilot)
        assert any("train-running " in row and "▲ cut off" in row for row in text_grid(app))


async def test_a_recording_ran_as_long_as_its_job_did_whenever_it_was_written(
    open_app: OpenApp, settle: Settle, text_grid: Grid, folder: Path, two: list[Path]
) -> None:
    """A copy is written long after its job; a recording that was cut off goes up to what was written last into it."""
    cut = folder / "2026-01-04-cut.jsonl"
    with Recorder(cut) as recorder:
        for event in EVENTS[: len(EVENTS) // 2]:
            recorder.write(event)
    lasted = max(event.at for event in EVENTS[: len(EVENTS) // 2]) - next(e.at for e in EVENTS if isinstance(e, JobStarted))
    for path in (two[0], cut):
        os.utime(path, (1_796_000_000, 1_796_000_000))
    state = folded(EVENTS)
    async with open_app(size=(80, 24)) as (app, pilot, _):
        await pilot.press("o")
        await app.workers.wait_for_complete()
        await settle(pilot)
        row = {name: next(row for row in text_grid(app) if f"-{name} " in row) for name in ("fast", "cut")}
        assert f" {duration(elapsed(state))} " in row["fast"] and "✔ ended" in row["fast"]
        assert f" {duration(lasted)} " in row["cut"] and "▲ cut off" in row["cut"]
        records = {str(record["name"]): record for record in app.cockpit.page.panels["recordings"].records()}
        assert records[two[0].name]["ran_s"] == elapsed(state)


async def test_keys_that_come_while_the_list_is_read_act_on_it_when_it_is_there(
    open_app: OpenApp, settle: Settle, text_grid: Grid, two: list[Path]
) -> None:
    may_read = threading.Event()

    def slowly(folder: Path, most: int, known: Mapping[str, Glance]) -> dict[str, Glance]:
        assert may_read.wait(20)
        return glances(folder, most, known)

    with patch("distmon.tui.screens.sessions.glances", slowly):
        async with open_app(size=(140, 40)) as (app, pilot, _):
            await pilot.press("o", "G", "X")
            assert not app.cockpit.question and any("reading the list" in row for row in text_grid(app))
            may_read.set()
            await app.workers.wait_for_complete()
            await settle(pilot)
            assert "Delete 2026-01-02-fast" in app.cockpit.question
            await pilot.press("n")
            may_read.clear()
            await pilot.press("f2", "o", "g", "X")
            assert "Delete 2026-01-03-slow" in app.cockpit.question, "what was read before is there at once"
            may_read.set()
        may_read.clear()
        async with open_app(size=(140, 40)) as (app, pilot, _):
            await pilot.press("o", "X", "f2")
            may_read.set()
            await app.workers.wait_for_complete()
            await settle(pilot)
            assert not app.cockpit.question, "who has gone elsewhere is asked nothing"


@pytest.mark.usefixtures("two")
async def test_keys_typed_at_once_reach_the_screen_that_the_first_of_them_goes_to(open_app: OpenApp, settle: Settle) -> None:
    async with open_app(size=(140, 40)) as (app, pilot, _):
        for key in "oGX":
            app.post_message(Key(key, key))
        await settle(pilot)
        await app.workers.wait_for_complete()
        await settle(pilot)
        assert "Delete 2026-01-02-fast" in app.cockpit.question


@pytest.mark.usefixtures("two")
async def test_report_and_comparison_are_those_of_the_command_line(open_app: OpenApp, settle: Settle, text_grid: Grid) -> None:
    async with open_app(size=(140, 50)) as (app, pilot, _):
        await pilot.press("o")
        await app.workers.wait_for_complete()
        await settle(pilot)
        await pilot.press("down", "r")
        await app.workers.wait_for_complete()
        await pilot.pause()
        shown = "\n".join(text_grid(app))
        assert "report of 2026-01-03-slow" in shown and "FINDINGS" in shown
        await pilot.press("c")
        assert "b makes a recording the base" in text_grid(app)[-1]
        await pilot.press("down", "b", "up", "c")
        await app.workers.wait_for_complete()
        await pilot.pause()
        shown = "\n".join(text_grid(app))
        assert "2026-01-03-slow.jsonl.zst against 2026-01-02-fast.jsonl.zst" in shown
        assert "OTHER AGAINST BASE" in shown


async def test_delete_asks_and_takes_index_and_marks_along(
    open_app: OpenApp, settle: Settle, text_grid: Grid, two: list[Path]
) -> None:
    async with open_app(size=(140, 40)) as (app, pilot, _):
        await pilot.press("o")
        await app.workers.wait_for_complete()
        await settle(pilot)
        await pilot.press("down", "X")
        assert "Delete 2026-01-03-slow" in app.cockpit.question
        for no in ("n", "ctrl+c"):
            await pilot.press("X", no)
            assert not app.cockpit.question and two[1].exists()
        await pilot.press("X", "y")
        assert not any(part.exists() for part in (two[1], index_path(two[1]), marks_path(two[1])))
        assert two[0].exists() and index_path(two[0]).exists()
        assert "deleted 2026-01-03-slow" in text_grid(app)[-1]


async def test_the_session_on_the_screen_is_not_deleted(
    open_app: OpenApp, settle: Settle, text_grid: Grid, two: list[Path]
) -> None:
    async with open_app(EVENTS, size=(140, 40)) as (app, pilot, _):
        await pilot.press("o")
        await app.workers.wait_for_complete()
        await settle(pilot)
        await pilot.press("down", "G", "X")
        assert not app.cockpit.question and "the session on the screen" in text_grid(app)[-1]
        assert two[0].exists()


async def test_enter_leaves_for_the_recording_but_not_from_a_job(
    open_app: OpenApp, settle: Settle, text_grid: Grid, two: list[Path], fake_job: type[FakeJob]
) -> None:
    async with open_app(job=fake_job(), size=(140, 40)) as (app, pilot, _):
        await pilot.press("o")
        await app.workers.wait_for_complete()
        await settle(pilot)
        await pilot.press("down", "enter")
        await pilot.pause()
        assert app.wanted is None and "in another terminal: distmon replay" in text_grid(app)[-1]
    async with open_app(size=(140, 40)) as (app, pilot, _):
        await pilot.press("o")
        await app.workers.wait_for_complete()
        await settle(pilot)
        await pilot.press("down", "enter")
        await pilot.pause()
        assert app.wanted == two[1] and app.return_value == 0
