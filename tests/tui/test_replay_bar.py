"""The bar is the one part that talks to the player; every other part is the same without it."""

from __future__ import annotations

import ast
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from textual.pilot import Pilot

from distmon.core.codec import encode_json
from distmon.core.errors import DistmonError
from distmon.core.events import AnyEvent, Ticked
from distmon.core.moments import Moment
from distmon.core.synthetic import Script, session
from distmon.replay.open_index import open_index
from distmon.replay.player import Player
from distmon.replay.session_file import open_session
from distmon.tui.app import DistmonApp
from distmon.tui.moment import MOMENTS
from tests.held_maker import HeldMaker

if TYPE_CHECKING:
    from tests.tui.conftest import FakePlayer, Grid, OpenApp

EVENTS: list[AnyEvent] = list(session(Script(ranks=2, nodes=1, seconds=60)))
TUI = Path(__file__).parent.parent.parent / "tui"
LIMIT_S = 60.0

KEYS = [
    ("space", "pause"), ("plus", "speed 2"), ("minus", "speed 0.5"), ("full_stop", "step 1"), ("comma", "step -1"),
    ("right", "seek 20"), ("left", "seek 0"), ("right_square_bracket", "seek 60"), ("left_square_bracket", "seek 0"),
    ("home", "seek 0"), ("end", "seek 60"), ("n", "seek 15"), ("u", "by step True"), ("m", "pause"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "asked"), KEYS)
async def test_keys_reach_the_player(open_app: OpenApp, fake_player: type[FakePlayer], key: str, asked: str) -> None:
    player = fake_player(EVENTS)
    async with open_app(EVENTS, player=player) as (_, pilot, _):
        await pilot.press(key)
        assert player.asked[-1] == asked


async def test_space_plays_again(open_app: OpenApp, fake_player: type[FakePlayer]) -> None:
    player = fake_player(EVENTS)
    async with open_app(EVENTS, player=player) as (_, pilot, _):
        await pilot.press("space", "space")
        assert player.asked == ["pause", "play"]


async def test_a_recording_that_is_cut_off_says_so_and_shows_nothing_as_going_on(
    open_app: OpenApp, fake_player: type[FakePlayer], text_grid: Grid
) -> None:
    running = [event for event in EVENTS if event.at < EVENTS[0].at + 40]
    player = fake_player(running)
    async with open_app(running, player=player) as (app, pilot, _):
        assert "● training" in text_grid(app)[0] and not any("▲ stale" in row for row in text_grid(app))
        player.cut_off = True  # its writer is killed: nothing more comes
        app.frame()
        await pilot.pause()
        rows = text_grid(app)
        assert "▲ cut off" in rows[0] and "▲ cut off" in rows[-2] and any("its end was not recorded" in row for row in rows)
        assert not any(words in row for row in rows for words in ("training", "ETA", "● n0"))
        assert sum("▲ stale" in row for row in rows) == 2 and any("▲ n" in row and " stale " in row for row in rows), rows
        player.cut_off = False
        app.frame()
        await pilot.pause()
        assert "● training" in text_grid(app)[0]


async def test_a_click_on_the_track_seeks_and_the_screen_shows_that_moment(
    open_app: OpenApp, fake_player: type[FakePlayer], text_grid: Grid
) -> None:
    player = fake_player(EVENTS)
    async with open_app(EVENTS, player=player) as (app, pilot, _):
        bar = app.cockpit.bar
        assert bar is not None
        first, length = bar._track
        await pilot.click("#bar", offset=(first + length // 2, 0))
        assert player.asked[-1].startswith("seek ")
        assert player.position_s == pytest.approx(30.0, abs=0.6)
        app.frame()
        await pilot.pause()
        assert app.state.job.status == "running"
        assert "0:30" in text_grid(app)[-2]
        assert "0:30" in text_grid(app)[0] or "0:29" in text_grid(app)[0]


async def test_the_bar_shows_position_length_speed_and_marks(
    open_app: OpenApp, fake_player: type[FakePlayer], text_grid: Grid
) -> None:
    async with open_app(EVENTS, player=fake_player(EVENTS)) as (app, _, _):
        row = text_grid(app)[-2]
    assert "playing" in row and "1x" in row and "0:10" in row and "1:00" in row
    assert row.count("△") == 1 and row.count("✖") == 1 and row.count("●") == 1


async def test_the_track_is_a_map_of_the_step_times(
    open_app: OpenApp, fake_player: type[FakePlayer], text_grid: Grid
) -> None:
    """A usual step stands at a third of the row's height; three times as long at the top; without steps there is a line."""
    async with open_app(EVENTS, size=(120, 30), player=fake_player(EVENTS)) as (app, pilot, _):
        row = text_grid(app)[-2]
        assert app.cockpit.bar is not None
        first, length = app.cockpit.bar._track
        track = row[first : first + length]
        assert "p50    100 p95    100 ms" in row
        assert track[:3] == "───" and track[-3:] == "───"
        half = length * 30 // 60
        assert set(track[length // 6 + 2 : half - 1]) <= {"▂", "△"} and set(track[half + 1 : length * 54 // 60]) <= {"▆", "✖"}
        await pilot.press("n", "n")
        assert "p95    300 ms" in text_grid(app)[-2]
        assert "rank 1 on h failed: SIGKILL" in text_grid(app)[-1]
        await pilot.press("n")
        assert "no event after this" in text_grid(app)[-1]
        await pilot.press("N")
        assert app.cockpit.bar._player.position_s == 15.0


async def test_what_is_not_read_yet_is_told_from_what_is_empty_and_where_one_cannot_go_is_said(
    open_app: OpenApp, fake_player: type[FakePlayer], text_grid: Grid
) -> None:
    player = fake_player(EVENTS, unread="50% of the recording is read so far")
    async with open_app(EVENTS, size=(120, 30), player=player) as (app, pilot, _):
        player.pace_to = 20.0
        app.cockpit.redraw()
        row = text_grid(app)[-2]
        assert app.cockpit.bar is not None
        first, length = app.cockpit.bar._track
        track = row[first : first + length]
        assert set(track[length // 2 + 1 :]) == {"…", "✖"} and "…" not in track[: length // 2]
        assert "─" in track[length // 3 + 2 : length // 2] and " 1:00 50% read " in row
        await pilot.press("end")
        assert "50% of the recording is read so far; this is as far as it goes" in text_grid(app)[-1]
        await pilot.press("home", "n", "n", "n")
        assert "no event after this; 50% of the recording is read so far" in text_grid(app)[-1]
        await pilot.press("right")
        assert "as far as it goes" in text_grid(app)[-1]
        await pilot.press("home", "right")
        assert "as far as it goes" not in text_grid(app)[-1]


async def test_a_recording_that_is_read_meanwhile_fills_the_bar_though_nothing_else_happens(
    open_app: OpenApp, fake_player: type[FakePlayer], text_grid: Grid, monkeypatch: pytest.MonkeyPatch
) -> None:
    player = fake_player(EVENTS, unread="50% of the recording is read so far")
    async with open_app(EVENTS, size=(120, 30), player=player) as (app, pilot, _):
        monkeypatch.setattr(app._budget, "due", lambda events: None)
        assert "50% read" in text_grid(app)[-2] and "…" in text_grid(app)[-2]
        player.unread = ""
        await until(pilot, lambda: "read" not in text_grid(app)[-2])
        assert "…" not in text_grid(app)[-2]


async def test_of_a_recording_that_is_gone_the_screen_says_so_and_stays(
    open_app: OpenApp, text_grid: Grid, tmp_path: Path
) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"".join(encode_json(event) + b"\n" for event in EVENTS))
    player = Player(open_session(path), clock=lambda: 0.0)
    async with open_app(source=player, player=player, size=(120, 30)) as (app, pilot, _):
        await pilot.press("colon", *"0:20", "enter")
        await until(pilot, lambda: "0:20" in text_grid(app)[0])
        await pilot.press("f7", "up")
        path.unlink()
        bar, gone = text_grid(app)[-2], "s.jsonl is not there any more"
        for act in (pilot.press("home"), pilot.press("enter"), pilot.click("#bar", offset=(80, 0)), pilot.press("end")):
            await pilot.press("x")
            assert gone not in text_grid(app)[-1]
            await act
            assert gone in text_grid(app)[-1] and text_grid(app)[-2] == bar
        await pilot.press("colon", *"0:10", "enter")
        assert app.cockpit.prompting and gone in text_grid(app)[-2]
        await pilot.press("escape")
        assert app.is_running and "0:20" in text_grid(app)[0]


async def test_a_recording_without_an_index_is_on_the_screen_before_there_is_any_of_it(
    open_app: OpenApp, text_grid: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, now = tmp_path / "s.jsonl", 0.0
    path.write_bytes(b"".join(encode_json(event) + b"\n" for event in EVENTS))
    maker = HeldMaker(tmp_path, 0.0, monkeypatch)
    index = open_index(open_session(path), at_once=True)
    player = Player(open_session(path), clock=lambda: now, index=index)
    async with open_app(source=player, player=player, size=(120, 30)) as (app, pilot, _):
        now = 20.0
        await until(pilot, lambda: "0:20" in text_grid(app)[0])
        assert "0:20" in text_grid(app)[-2] and "% read" in text_grid(app)[-2] and "…" in text_grid(app)[-2]
        await pilot.press("space", "end")
        assert "0% of the recording is read so far; this is as far as it goes" in text_grid(app)[-1]
        maker.let_go()
        await until(pilot, lambda: "% read" not in text_grid(app)[-2])
        assert "▂" in text_grid(app)[-2] and "…" not in text_grid(app)[-2]
        await pilot.press("end")
        await until(pilot, lambda: app.state.complete)
    player.close()


async def until(pilot: Pilot[int], holds: Callable[[], bool]) -> None:
    """Frame after frame; fails after LIMIT_S."""
    app, deadline = pilot.app, time.monotonic() + LIMIT_S
    assert isinstance(app, DistmonApp)
    while not holds():
        assert time.monotonic() < deadline
        app.frame()
        await pilot.pause()


async def test_the_footer_of_a_recording_has_the_keys_to_play_it(
    open_app: OpenApp, fake_player: type[FakePlayer], text_grid: Grid
) -> None:
    async with open_app(EVENTS, size=(80, 24), player=fake_player(EVENTS)) as (app, _, _):
        assert "Space play  s sort  v why" in text_grid(app)[-1]


async def test_n_passes_by_checkpoints_that_are_too_many_for_ticks(
    open_app: OpenApp, fake_player: type[FakePlayer], text_grid: Grid
) -> None:
    player = fake_player(EVENTS)
    for second in range(60):
        player.named[second] = Moment(player.started_at + second, "checkpoint", "info", f"checkpoint {second}")
    async with open_app(EVENTS, size=(100, 30), player=player) as (app, pilot, _):
        assert "◇" not in text_grid(app)[-2]
        await pilot.press("n", "n", "N")
        assert player.asked == ["seek 15", "seek 45", "seek 15"]
        for second in range(2, 60):
            del player.named[second]
        app.cockpit.redraw()
        await pilot.press("N")
        assert player.asked[-1] == "seek 1" and "checkpoint 1" in text_grid(app)[-1]


async def test_a_moment_is_named_in_the_prompt_and_becomes_a_tick(
    open_app: OpenApp, fake_player: type[FakePlayer], text_grid: Grid
) -> None:
    player = fake_player(EVENTS)
    async with open_app(EVENTS, size=(100, 30), player=player) as (app, pilot, _):
        await pilot.press("m", *"dip!", "enter")
        assert player.asked == ["pause", "mark 10 dip!"]
        await pilot.press("n", "N")
        assert "mark: dip!" in text_grid(app)[-1]
        await pilot.press("m", "escape")
        assert "dip!" not in app.cockpit.page.choices.filters.values()
        assert player.named
        await pilot.press("end", "m", *"dip!", "space", "enter")
        assert len(player.named) == 1 and "a mark of that name is at 0:10; another name" in text_grid(app)[-2]
        await pilot.press("2", "enter")
        assert [moment.text for moment in player.named.values()] == ["dip!", "dip! 2"] and not app.cockpit.prompting
        await pilot.press("N", "N", "N", "m", "enter")
        assert len(player.named) == 2, "its own name is no other's"
        await pilot.press("m", *["backspace"] * 4, "enter")
        assert list(player.named) == [60.0]


async def test_it_goes_where_the_command_line_would_begin_and_says_in_the_prompt_what_is_wrong(
    open_app: OpenApp, fake_player: type[FakePlayer], text_grid: Grid
) -> None:
    player = fake_player(EVENTS)
    async with open_app(EVENTS, size=(120, 30), player=player) as (app, pilot, _):
        for place, second in (("0:30", 30), ("step:80", 40), ("mark:h2 joined", 15), ("end", 60)):
            await pilot.press("colon", *place, "enter")
            assert player.asked[-1] == f"seek {second}" and not app.cockpit.prompting, place
        asked = len(player.asked)
        await pilot.press("colon", *"soon", "enter")
        assert app.cockpit.prompting and f"soon: give {MOMENTS}" in text_grid(app)[-2]
        for wrong, says in (("step:x", "give the step's number"), ("step:999", "no step 999"), ("9:00", "lasts 1:00")):
            await pilot.press(*["backspace"] * len(app.cockpit.prompt.value), *wrong, "enter")
            assert app.cockpit.prompting and says in text_grid(app)[-2], wrong
        await pilot.press("escape")
        assert len(player.asked) == asked and not app.cockpit.prompting


async def test_escape_goes_back_to_where_one_was(open_app: OpenApp, fake_player: type[FakePlayer], text_grid: Grid) -> None:
    """After a jump, however many there were; out of the prompt nothing has moved, and what played goes on."""
    player = fake_player(EVENTS)
    async with open_app(EVENTS, size=(120, 30), player=player) as (app, pilot, _):
        await pilot.press("colon", *"30", "enter")
        assert "Esc goes back" in text_grid(app)[-1]
        await pilot.press("colon", *"Step:80", "enter", "colon", *"4", "escape")
        assert player.asked == ["seek 30", "seek 40"]
        await pilot.press("escape")
        assert player.asked[-1] == "seek 10" and "back where you were" in text_grid(app)[-1]
        await pilot.press("escape")
        assert player.asked[-1] == "seek 10"
        await pilot.press("m", "x", "escape")
        assert player.asked[-2:] == ["pause", "play"] and not player.named
        player.pause()
        await pilot.press("m", "escape")
        assert player.asked[-1] == "pause"


async def test_a_mark_that_cannot_be_kept_says_so(open_app: OpenApp, fake_player: type[FakePlayer], text_grid: Grid) -> None:
    class ReadOnly(fake_player):  # type: ignore[valid-type,misc]
        def name_mark(self, position_s: float, name: str) -> None:
            raise DistmonError("s.marks cannot be written: Read-only file system")

    async with open_app(EVENTS, size=(100, 30), player=ReadOnly(EVENTS)) as (app, pilot, _):
        await pilot.press("m", "x", "enter")
        assert "cannot be written: Read-only" in text_grid(app)[-1]


async def test_a_mark_that_may_not_be_set_does_not_pause_the_view(
    open_app: OpenApp, fake_player: type[FakePlayer], text_grid: Grid
) -> None:
    player = fake_player(EVENTS)
    async with open_app(EVENTS, player=player, environment={"DISTMON_READ_ONLY": "1"}) as (app, pilot, _):
        await pilot.press("m")
        assert "read-only" in text_grid(app)[-1] and player.playing


async def test_the_rest_of_the_screen_is_the_same_live_and_recorded(
    open_app: OpenApp, fake_player: type[FakePlayer], text_grid: Grid
) -> None:
    """With a row less for the bar, a recording shows what a terminal one row lower shows live."""
    half = [*EVENTS[: len(EVENTS) // 2], Ticked(at=EVENTS[len(EVENTS) // 2].at)]
    for width, height in ((80, 24), (120, 40)):
        async with open_app(half, size=(width, height)) as (live, _, _):
            expected = text_grid(live)
        async with open_app(half, size=(width, height + 1), player=fake_player(EVENTS)) as (recorded, _, _):
            rows = text_grid(recorded)
        assert rows[: height - 1] == expected[: height - 1]


def test_only_the_bar_the_app_and_the_ports_know_of_a_player() -> None:
    knowing = {
        str(path.relative_to(TUI))
        for path in TUI.rglob("*.py")
        if not path.is_relative_to(TUI / "cli")
        and any(
            isinstance(node, ast.Attribute) and "player" in node.attr for node in ast.walk(ast.parse(path.read_text()))
        )
    }
    # The log has it look through what is on the disk, and go to what was found.
    assert knowing <= {"widgets/replay_bar.py", "app.py", "screens/cockpit.py", "screens/logs.py"}


async def test_without_a_player_its_keys_do_nothing(open_app: OpenApp) -> None:
    async with open_app(EVENTS) as (app, pilot, _):
        await pilot.press("space", "plus", "home", "left_square_bracket")
        assert app.cockpit.bar is None
