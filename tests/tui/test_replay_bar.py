"""The bar is the one part that talks to the player; every other part is the same without it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from distmon.core.events import AnyEvent, Ticked
from distmon.core.synthetic import Script, session

if TYPE_CHECKING:
    from tests.tui.conftest import FakePlayer, Grid, OpenApp

EVENTS: list[AnyEvent] = list(session(Script(ranks=2, nodes=1, seconds=60)))
TUI = Path(__file__).parent.parent.parent / "tui"

KEYS = [
    ("space", "pause"), ("plus", "speed 2"), ("minus", "speed 0.5"), ("full_stop", "step 1"), ("comma", "step -1"),
    ("right", "seek 20"), ("left", "seek 0"), ("right_square_bracket", "seek 60"), ("left_square_bracket", "seek 0"),
    ("home", "seek 0"), ("end", "seek 60"),
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
    assert row.count("╋") == 2 and row.count("●") == 1


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
    assert knowing <= {"widgets/replay_bar.py", "app.py", "screens/cockpit.py"}


async def test_without_a_player_its_keys_do_nothing(open_app: OpenApp) -> None:
    async with open_app(EVENTS) as (app, pilot, _):
        await pilot.press("space", "plus", "home", "left_square_bracket")
        assert app.cockpit.bar is None
