"""Random keys, clicks, sizes and events on all screens: no error, and the screen is whole after each."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from distmon.core.synthetic import Script, session
from distmon.tui.bindings import COMMANDS
from distmon.tui.screens.arrange import too_small

if TYPE_CHECKING:
    from tests.tui.conftest import FakeJob, FakePlayer, Grid, OpenApp

ENDING = {"q", "ctrl+c", "ctrl+q", "ctrl+z"}
KEYS = [key for command in COMMANDS for key in command.keys if key not in ENDING] + ["n", "x", "0", "backspace"]
ROUNDS = int(os.environ.get("DISTMON_MONKEY_ROUNDS", "40"))


@pytest.mark.parametrize("seed", [1, 2])
async def test_random_use(
    open_app: OpenApp,
    fake_job: type[FakeJob],
    fake_player: type[FakePlayer],
    text_grid: Grid,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    seed: int,
) -> None:
    monkeypatch.chdir(tmp_path)  # views are saved in the current folder
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    dice = random.Random(seed)
    events = list(session(Script(ranks=12, nodes=3, seconds=40, slow_rank=5, delay_s=0.02, gpus_per_node=2)))
    player = fake_player(events) if seed == 2 else None
    async with open_app(events[:20], job=fake_job(), player=player) as (app, pilot, source):
        fed = 20
        for _ in range(ROUNDS):
            choice = dice.random()
            if choice < 0.7:
                await pilot.press(dice.choice(KEYS))
            elif choice < 0.8:
                width, height = app.size
                await pilot.click(offset=(dice.randrange(width), dice.randrange(height)))
            elif choice < 0.88:
                await pilot.resize_terminal(dice.randint(1, 220), dice.randint(1, 70))
            else:
                source.waiting.extend(events[fed : fed + 10])
                fed += 10
                app.frame()
                await pilot.pause()
        assert app.is_running
        await pilot.resize_terminal(100, 30)
        for _ in range(20):
            await pilot.press("escape")
        await pilot.pause()
        rows = text_grid(app)
        assert not too_small(100, 30)
        assert rows[0].startswith(" distmon ")
        assert "quit" in rows[-1]
