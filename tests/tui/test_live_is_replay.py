"""For every screen, live and replay are equal cell for cell: the live view goes forward, the recording is sought at random.

DISTMON_FRAMES=500 is the long form.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from textual.pilot import Pilot

from distmon.core.events import AnyEvent
from distmon.core.synthetic import Script, session
from distmon.replay.player import Player
from distmon.replay.recorder import Recorder
from distmon.replay.session_file import open_session
from distmon.tui.app import DistmonApp

if TYPE_CHECKING:
    from tests.tui.conftest import Grid, OpenApp, Settle

SCRIPT = Script(ranks=3, nodes=2, seconds=40, step_s=0.25, slow_rank=1, delay_s=0.05, gpus_per_node=1, epochs=5)
EVENTS: list[AnyEvent] = list(session(SCRIPT))
SCREENS = ("overview", "nodes", "node", "ranks", "timeline", "events", "logs", "verdicts")
FRAMES = int(os.environ.get("DISTMON_FRAMES", "40"))
WIDTH, HEIGHT = 100, 30

Frame = tuple[float, str]
"""Seconds since the start, and a screen."""


@pytest.mark.usefixtures("utc")
async def test_a_moment_looks_the_same_live_and_in_replay(
    open_app: OpenApp,
    settle: Settle,
    text_grid: Grid,
    style_grid: Grid,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("distmon.replay.index.KEYFRAME_BYTES", 16 << 10)
    monkeypatch.setattr("distmon.replay.index.KEYFRAME_RATIO", 0)
    path = tmp_path / "s.jsonl"
    with Recorder(path) as recorder:
        for event in EVENTS:
            recorder.write(event)
    source, start = random.Random(1), EVENTS[0].at
    frames = [(source.uniform(0.5, EVENTS[-1].at - start), SCREENS[i % len(SCREENS)]) for i in range(FRAMES)]

    async def seen(app: DistmonApp, pilot: Pilot[int], screen: str) -> list[tuple[str, str]]:
        """The frame without its footer and bar, which are the player's."""
        app.cockpit.go(screen)
        app.frame()
        await settle(pilot)
        return list(zip(text_grid(app), style_grid(app), strict=True))[: HEIGHT - 1]

    live: dict[Frame, list[tuple[str, str]]] = {}
    async with open_app(size=(WIDTH, HEIGHT)) as (app, pilot, events):
        waiting = list(EVENTS)
        for screen in SCREENS:
            app.cockpit.go(screen)
        await pilot.pause()
        for at, screen in sorted(frames):
            while waiting and waiting[0].at <= start + at:
                events.waiting.append(waiting.pop(0))
            live[at, screen] = await seen(app, pilot, screen)
    player = Player(open_session(path), clock=lambda: 0.0)
    player.pause()
    async with open_app(size=(WIDTH, HEIGHT + 1), player=player) as (app, pilot, _):
        for screen in SCREENS:
            app.cockpit.go(screen)
        await pilot.pause()
        for at, screen in frames:
            player.seek(at)
            assert await seen(app, pilot, screen) == live[at, screen], f"{screen} at {at:.2f} s"
    player.close()
