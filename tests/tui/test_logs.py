"""Logs are bounded, filtered as they come, and hold still while someone reads."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from textual.app import App, ComposeResult

from distmon.core import events as ev
from distmon.core.fold import apply
from distmon.core.state import LogEntry, OutputLine, SessionState
from distmon.replay.player import Player
from distmon.replay.recorder import Recorder
from distmon.replay.session_file import open_session
from distmon.tui.format import clock
from distmon.tui.screens.logs import Logs
from distmon.tui.theme import DARK
from distmon.tui.view.logs import EVENT_FIELDS, Feed, Kept, event_line, full_output_line, line_at, line_in_full, output_line
from distmon.tui.view_out import as_csv, as_tsv
from distmon.tui.widgets.cursor_log import CursorLog
from distmon.tui.widgets.log_view import LogView

if TYPE_CHECKING:
    from tests.tui.conftest import Grid, OpenApp, Settle


def line(number: int, rank: int = 0) -> OutputLine:
    return OutputLine(1.0, rank, "host", "stdout", f"line {number}")


def feed(limit: int = 100) -> Feed[OutputLine]:
    return Feed(output_line, limit)


def test_only_new_lines_are_taken_and_numbers_grow() -> None:
    log, lines = deque([line(0), line(1)], maxlen=3), feed()
    assert [x.text for x in lines.update(log)[:]] == ["line 0", "line 1"]
    log.append(line(2))
    log.append(line(3))
    assert [(x.number, x.text) for x in lines.update(log)[:]] == [(i, f"line {i}") for i in range(4)]


def test_a_log_that_moved_on_further_than_it_holds_is_read_from_its_start() -> None:
    log, lines = deque([line(0)], maxlen=2), feed()
    lines.update(log)
    log.extend(line(i) for i in range(1, 9))
    assert [x.text for x in lines.update(log)[:]] == ["line 7", "line 8"]


def test_another_state_after_a_seek_replaces_what_was_there() -> None:
    lines = feed()
    lines.update(deque([line(0), line(1)]))
    assert [x.text for x in lines.update(deque([line(5)]))[:]] == ["line 5"]
    assert len(lines.update(deque())) == 0


def test_a_filter_by_rank_and_text_holds_for_lines_that_come_later() -> None:
    log, lines = deque([line(0), line(1, rank=3), line(10, rank=3)]), feed()
    lines.set_filter(3, "LINE 1")
    assert [x.text for x in lines.update(log)[:]] == ["line 1", "line 10"]
    log.append(line(11, rank=3))
    log.append(line(12, rank=2))
    assert [x.text for x in lines.update(log)[:]] == ["line 1", "line 10", "line 11"]


def test_how_many_lines_pass_is_told_where_all_of_them_are_here() -> None:
    log = deque((line(n % 3, rank) for rank in range(2) for n in range(5)), maxlen=10)
    lines = Feed(output_line, 100, collapse=True)
    assert len(lines.update(log)) == 5 + 2 and lines.passed(10) == []
    assert not lines.set_filter(None, '"line 2"')
    assert len(lines.update(log)) == 1 and lines.passed(10) == ["2 of 10"] and lines.passed(11) == []
    assert lines.set_filter(None, "rank>x") and not lines.passed(10), "a filter that is wrong hides nothing"


def test_output_is_filtered_and_sorted_by_the_severity_that_it_tells() -> None:
    """A line says what it is, and on stderr it is a warning at least; events have no stream, and say so."""
    said = [
        ("stdout", "epoch 1 loss 0.4, error 0.02", "info"),
        ("stderr", "Traceback (most recent call last):", "error"),
        ("stderr", "  File \"train.py\", line 7, in main", "warning"),
        ("stderr", "torch.cuda.OutOfMemoryError: CUDA out of memory", "error"),
        ("stdout", "[2026-11-29 17:00:01] ERROR: no such shard", "error"),
        ("stdout", "train.py:9: UserWarning: lr is large", "warning"),
        ("stderr", "NCCL WARN retry", "warning"),
    ]
    lines, log = feed(), deque(OutputLine(1.0, 3, "h", stream, text) for stream, text, _ in said)
    for severity in ("info", "warning", "error"):
        assert not lines.set_filter(None, f"severity={severity}")
        assert [x.text for x in lines.update(log)[:]] == [text for _, text, told in said if told == severity], severity
    lines.set_filter(None, "", problems=True)
    assert len(lines.update(log)) == len(said) - 1
    lines.set_filter(None, "")
    ordered = lines.in_order(lines.update(log), "severity", descending=True)
    assert [ordered.record(i)["severity"] for i in range(len(said))] == ["error"] * 3 + ["warning"] * 3 + ["info"]
    events = Feed(event_line, 9, EVENT_FIELDS)
    assert "out: no field of these rows" in events.set_filter(None, "out=stderr")
    assert not events.set_filter(None, "severity=error")


def test_a_line_of_several_ranks_names_all_of_their_hosts() -> None:
    lines = Feed(output_line, 10, collapse=True)
    shown = lines.update(deque(OutputLine(1_700_000_099.25, rank, f"node-{rank // 2}", "stdout", "step 7") for rank in range(6)))
    record = shown.record(0)
    assert len(shown) == 1 and record["ranks"] == [0, 1, 2, 3, 4, 5] and "host" not in record
    assert record["hosts"] == ["node-0", "node-1", "node-2"]
    assert as_csv([record]).splitlines()[1].split(",")[1:3] == ["0 1 2 3 4 5", "node-0 node-1 node-2"]
    head = line_in_full(lines.kept(0), DARK, 60, 5)[0].strip(60, DARK.style("text")).text
    assert "3 hosts  6 ranks" in head and "node-0" not in head
    assert as_tsv([shown.shown_record(0)]).split("\t") == [
        clock(1_700_000_099.25), "0 1 2 3 4 5", "node-0 node-1 node-2", "stdout", "info", "step 7\n",
    ]  # fmt: skip


def test_user_made_text_is_cleaned() -> None:
    shown = output_line(Kept(0, OutputLine(0.0, 1, "h", "stderr", "\x1b[31mred\x1b]0;x\x07 [b]")))
    assert shown.text == "red [b]"
    assert event_line(Kept(0, LogEntry(0.0, "error", "rank 1 died\x1b[2J"))).text == "rank 1 died"


def test_a_long_host_keeps_the_end_that_tells_it_from_others() -> None:
    shown = [full_output_line(str, Kept(0, OutputLine(0.0, 1, f"gpu-node-{n:04}", "stdout", "x"), {1: "h"})) for n in (12, 13, 1)]
    assert [line.prefix[1][0] for line in shown] == [f"…u-node-{n:04}    1 " for n in (12, 13, 1)]


class LogApp(App[None]):
    def compose(self) -> ComposeResult:
        yield LogView("output", 6, empty="empty", id="log")


async def test_a_scroll_up_stops_following_and_holds_the_place_until_the_end_is_reached_again() -> None:
    app, log, lines = LogApp(), deque([line(i) for i in range(30)], maxlen=40), feed(40)
    async with app.run_test(size=(40, 12)) as pilot:
        view = app.query_one(LogView)
        view.show(lines.update(log))
        await pilot.pause()

        def top() -> str:
            return view.draw_body(36, 10)[0].text.strip()

        assert top() == "0 │ line 20"
        view.scroll_by(-5)
        assert not view.following
        log.extend(line(i) for i in range(30, 36))
        view.show(lines.update(log))
        assert top() == "0 │ line 15"
        view.scroll_by(100)
        assert view.following
        assert top() == "0 │ line 26"


class CursorApp(App[None]):
    def compose(self) -> ComposeResult:
        yield CursorLog("output", 6, empty="empty", id="log")


@pytest.mark.parametrize("kind", [LogApp, CursorApp])
async def test_what_is_read_stays_however_many_lines_come(kind: type[LogApp] | type[CursorApp]) -> None:
    app, log, lines = kind(), deque([line(i) for i in range(30)], maxlen=30), feed(30)
    async with app.run_test(size=(40, 12)):
        view = app.query_one(LogView)
        view.show(lines.update(log))
        view.draw_body(36, 10)
        for _ in range(12):
            view.navigate("up")

        def top() -> str:
            return view.draw_body(36, 10)[0].text.strip()

        held = top()
        for count in (*range(30, 200, 7), 5_000):
            log.extend(line(i) for i in range(lines._next, count))
            view.show(lines.update(log, view.reads_from))
            assert top() == held and not view.following and len(lines._shown) <= 60 and len(lines._read) <= 30
        assert f"{lines.update(log).newest - view._bottom:,} below" in str(view.caption().pieces)
        view.navigate("last")
        view.show(lines.update(log, view.reads_from))
        assert view.following and view.draw_body(36, 10)[-1].text.strip() == "0 │ line 4999"


async def test_the_line_under_the_cursor_is_marked_and_no_other() -> None:
    """Drawn lines are kept from frame to frame."""
    app, log, lines = CursorApp(), deque([line(i) for i in range(30)], maxlen=30), feed(30)
    async with app.run_test(size=(40, 12)):
        view = app.query_one(CursorLog)
        view.show(lines.update(log))

        def marked() -> list[str]:
            rows = view.draw_body(36, 10)
            styles = {row.text.strip(): next(iter(row)).style for row in rows}
            return [text for text, style in styles.items() if style is not None and style.bgcolor != view.base.bgcolor]

        seen = [marked()]
        for where in ("up", "up", "down", "last"):
            view.navigate(where)
            seen.append(marked())
        assert seen == [[], ["0 │ line 29"], ["0 │ line 28"], ["0 │ line 29"], []]


async def test_a_reader_goes_down_from_what_was_dropped_through_all_that_is_kept() -> None:
    app, log, lines = LogApp(), deque([line(i) for i in range(30)], maxlen=30), feed(30)
    async with app.run_test(size=(40, 12)):
        view = app.query_one(LogView)
        view.show(lines.update(log))
        view.draw_body(36, 10)
        view.navigate("first")
        log.extend(line(i) for i in range(30, 45))
        seen = []
        while not view.following:
            view.show(lines.update(log, view.reads_from))
            seen.append(view.draw_body(36, 10)[0].text.strip().removeprefix("0 │ line "))
            view.scroll_by(5)
        assert seen == ["0", "5", "10", "15", "20", "25", "30"]
        assert len(lines.update(log, view.reads_from)) == 30


def player_of_needle(path: Path, where: int) -> Player:
    """Half a minute of output with one needle, in this second."""
    with Recorder(path) as recorder:
        recorder.write(ev.SessionStarted(at=1000.0, session_id="s", distmon_version="0"))
        for second in range(30):
            lines = [f"line {second} {i}" for i in range(400)]
            lines[7] = "the Needle" if second == where else lines[7]
            recorder.write(ev.OutputWritten(at=1001.0 + second, rank=0, host="h", local_rank=0, output="stdout", lines=lines))
            recorder.write(ev.Ticked(at=1001.5 + second))
    return Player(open_session(path), clock=lambda: 0.0)


async def test_a_line_of_what_cannot_be_sought_yet_is_told_of(
    open_app: OpenApp, settle: Settle, text_grid: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    player = player_of_needle(tmp_path / "s.jsonl", 20)
    monkeypatch.setattr(Player, "reach_s", 15.0)
    monkeypatch.setattr(Player, "unread", "48% of the recording is read so far")
    async with open_app(player=player) as (app, pilot, _):
        app.cockpit.go("logs")
        app.frame()
        await settle(pilot)
        app.cockpit.page.set_filter("needle")
        await pilot.press("right_parenthesis")
        await app.workers.wait_for_complete()
        await settle(pilot)
        shown = text_grid(app)[-1]
        assert "there is one at 00:17:01, but 48% of the recording is read so far" in shown
        assert player.position_s == 0.0
    player.close()


async def test_a_line_that_only_the_recording_still_has_is_found(
    open_app: OpenApp, settle: Settle, text_grid: Grid, tmp_path: Path
) -> None:
    player = player_of_needle(tmp_path / "s.jsonl", 3)
    player.pause()
    player.seek(29.0)
    async with open_app(player=player) as (app, pilot, _):
        app.cockpit.go("logs")
        app.frame()
        await settle(pilot)
        app.cockpit.page.set_filter("needle")
        assert not any("the Needle" in row for row in text_grid(app))
        await pilot.press("left_parenthesis")
        await app.workers.wait_for_complete()
        app.frame()
        await settle(pilot)
        assert any("the Needle" in row for row in text_grid(app))
        assert 4.0 <= player.position_s < 5.0
        await pilot.press("left_parenthesis")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "no such line" in text_grid(app)[-1]
    player.close()


def test_older_lines_come_before_those_that_are_there_as_far_as_there_is_room() -> None:
    log, lines = deque([line(8), line(9)], maxlen=2), feed(6)
    lines.set_filter(None, "line")
    lines.update(log)
    assert lines.since == (1.0, 2)
    lines.take_older([line(6), line(7)])
    lines.take_older([line(i) for i in range(6)])
    log.append(line(10))
    shown = lines.update(log)
    assert [x.text for x in shown[:]] == [f"line {i}" for i in range(5, 11)] and lines.is_full
    assert [x.number for x in shown[:]] == list(range(-3, 3)) and lines.entry(-2) is not None
    same = Feed(output_line, 9, collapse=True)
    same.update(deque([line(3)]))
    same.take_older([line(2, rank=0), line(2, rank=1)])
    assert [list(kept.ranks) for kept in same.update(deque([line(3)])).kept][-1] == [0]


async def test_a_filter_finds_all_lines_of_the_recording_and_keeps_those_that_come(
    open_app: OpenApp, settle: Settle, text_grid: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while more lines come between two frames than the state keeps."""
    monkeypatch.setattr("distmon.tui.screens.logs.LOOK_AFTER_S", 0.001)
    monkeypatch.setattr("distmon.replay.search.BLOCK_BYTES", 20_000)
    player = player_of_needle(tmp_path / "s.jsonl", 3)
    player.pause()
    player.seek(29.0)
    async with open_app(player=player, size=(120, 40)) as (app, pilot, _):
        app.cockpit.go("logs")
        page = app.cockpit.page
        assert isinstance(page, Logs)
        app.frame()
        await settle(pilot)
        assert f"since {clock(page.frame.facts.state.output[0].at)}; ( and )" in "\n".join(text_grid(app))
        page.set_filter("needle")
        assert "and looking back" in "\n".join(text_grid(app))

        async def found() -> list[str]:
            for _ in range(200):
                await app.workers.wait_for_complete()
                await pilot.pause()
                if page._looking_back is None and page._back_soon is None:
                    break
            return [kept.entry.text for kept in page.feed().update(app.state.output).kept]

        assert await found() == ["the Needle"]
        assert "in all of the output" in "\n".join(text_grid(app)) and "the Needle" in "\n".join(text_grid(app))
        page.set_filter(r"/^line \d+ 7$/")
        assert await found() == [f"line {second} 7" for second in range(29) if second != 3]
        page.set_filter("/line/")
        lines = await found()
        assert len(lines) == 5_000 and lines[-1] == "line 28 399"
        page.set_filter("needle")
        assert await found() == ["the Needle"]
        for second in range(4):
            texts = [f"more {second} {i}" for i in range(4_000)] + [f"needle {second}"]
            apply(app.state, ev.OutputWritten(at=1100.0 + second, rank=0, host="h", local_rank=0, output="stdout", lines=texts))
            app.cockpit.keep_up()
        assert await found() == ["the Needle", *(f"needle {second}" for second in range(4))]
    player.close()


async def test_the_cursor_stays_on_its_line_when_the_filter_changes(open_app: OpenApp, settle: Settle, tmp_path: Path) -> None:
    player = player_of_needle(tmp_path / "s.jsonl", 3)
    player.pause()
    player.seek(29.0)
    async with open_app(player=player) as (app, pilot, _):
        app.cockpit.go("logs")
        page = app.cockpit.page
        assert isinstance(page, Logs)
        app.frame()
        await settle(pilot)
        await pilot.press("up", "up")
        found = page.line()
        assert found is not None
        for text in (found.entry.text, ""):
            page.set_filter(text)
            app.frame()
            await settle(pilot)
            there = page.line()
            assert there is not None and there.entry is found.entry
        page.set_filter("no such text")
        app.frame()
        await settle(pilot)
        assert page.line() is None and app.cockpit.cross is None
    player.close()


def test_an_event_that_came_again_stands_where_it_came_last_and_says_since_when() -> None:
    """It had the time of the first with the text of the last, above lines that were older than that."""
    state = SessionState()
    feed = Feed(event_line, 100)
    for at in (10.0, 40.0, 70.0):
        apply(state, ev.EpochStarted(at=at, worker="w", rank=0, epoch=int(at) // 30))
        lines = feed.update(state.log)
        assert lines[-1].text.startswith(f"epoch {int(at) // 30 + 1} started"), "the newest is the last"
        apply(state, ev.NoticeGiven(at=at + 5, severity="info", text=f"x{at}"))
    lines = feed.update(state.log)
    shown = [line.prefix[0][0].strip() for line in lines[:]]
    assert shown == sorted(shown) == [clock(at) for at in (15.0, 45.0, 70.0, 75.0)]
    assert lines[2].text == f"epoch 3 started  ×3 since {clock(10.0)}"
    assert [lines.shown_record(i)["time"] for i in range(len(lines))] == shown
    assert [lines.index_of(line.number) for line in lines[:]] == [0, 1, 2, 3] and lines.index_of(4) is None
    assert [lines.below(end) for end in (1, 3, 4)] == [3, 1, 0]
    head = line_in_full(feed.kept(0), DARK, 60, 5)[0].strip(60, DARK.style("text")).text
    assert f"{clock(70.0)}  ×3 since {clock(10.0)}" in head
    assert line_at(lines, 72.0) == 0 and line_at(lines, 50.0) == 2, "by its number it is the first still"
