"""For every screen, live and replay are equal cell for cell: the live view goes forward, the recording is sought at random.

The same holds of a live session that is rewound while it goes on. `make equal` runs the long form.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec import structs
from textual.pilot import Pilot

from distmon.core import events as ev
from distmon.core.events import AnyEvent
from distmon.core.synthetic import Script, session
from distmon.replay.player import Player
from distmon.replay.recorder import Recorder
from distmon.replay.session_file import open_session
from distmon.tui.app import DistmonApp
from distmon.tui.ports import Player as PlayerPort
from distmon.tui.rewind import Rewind
from distmon.tui.screens.against import AgainstPage
from distmon.tui.screens.registry import SCREENS as ALL_SCREENS

if TYPE_CHECKING:
    from tests.tui.conftest import Grid, ListSource, OpenApp, Settle

SCRIPT = Script(ranks=3, nodes=2, seconds=40, step_s=0.25, slow_rank=1, delay_s=0.05, gpus_per_node=1, epochs=5)
START = SCRIPT.start
HAPPENINGS: list[AnyEvent] = [
    ev.MembershipChanged(at=START + 6.2, change="host_joined", host="node-002", slots=1),
    ev.MetricsLogged(at=START + 9.1, worker="w0", rank=0, epoch=0, values={"loss": 1.25}),
    ev.SpanRecorded(at=START + 14.4, node="n0", worker="w0", rank=0, span="checkpoint", started=START + 14, duration_s=0.4),
    ev.MembershipChanged(at=START + 21.7, change="host_failed", host="node-002", detail="no answer"),
    ev.NoticeGiven(at=START + 28.3, severity="warning", text="the disk is nearly full"),
]


def _events() -> list[AnyEvent]:
    """A job whose ranks may come and go, and in which something happens on every screen."""
    told = [structs.replace(e, min_np=1, max_np=4) if isinstance(e, ev.JobStarted) else e for e in session(SCRIPT)]
    for happening in HAPPENINGS:
        told.insert(next(i for i, event in enumerate(told) if event.at > happening.at), happening)
    return told


EVENTS = _events()
BESIDE = Script(ranks=3, nodes=2, seconds=30, step_s=0.25, gpus_per_node=1, epochs=5, seed=3)
"""The session beside which the screen of A/B puts the shown one."""
NOT_OF_A_SESSION = ("sessions", "launch")
"""Screens that are of no session."""
SCREENS = tuple(screen.name for screen in ALL_SCREENS if screen.name not in NOT_OF_A_SESSION)
WIDTH, HEIGHT = 100, 30

Frame = tuple[float, str]
"""Seconds since the start, and a screen."""
Rows = list[tuple[str, str]]
"""Text and style of each."""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # the screen of scaling lists the recordings that are there
    monkeypatch.setattr("distmon.replay.index.KEYFRAME_BYTES", 16 << 10)
    monkeypatch.setattr("distmon.replay.index.KEYFRAME_RATIO", 0)
    with Recorder(tmp_path / "beside.jsonl") as recorder:
        for event in session(BESIDE):
            recorder.write(event)
    return tmp_path / "s.jsonl"


class Seen:
    """What one app shows, without the footer and the bar, which are the player's."""

    def __init__(self, settle: Settle, text_grid: Grid, style_grid: Grid, folder: Path) -> None:
        self._settle, self._text, self._style = settle, text_grid, style_grid
        self._beside = folder / "beside.jsonl"

    async def open_all(self, app: DistmonApp, pilot: Pilot[int]) -> None:
        for screen in SCREENS:
            app.cockpit.go(screen, self._beside if screen == "against" else None)
        await app.workers.wait_for_complete()
        await pilot.pause()

    async def rows(self, app: DistmonApp, pilot: Pilot[int], screen: str) -> Rows:
        app.cockpit.go(screen)
        app.frame()
        await self._settle(pilot)
        page = app.cockpit.page
        while isinstance(page, AgainstPage) and (page._busy or page._other is None):  # the other session follows
            await app.workers.wait_for_complete()
            await self._settle(pilot)
        return list(zip(self._text(app), self._style(app), strict=True))[: HEIGHT - 1]


@pytest.fixture
def seen(settle: Settle, text_grid: Grid, style_grid: Grid, path: Path) -> Seen:
    return Seen(settle, text_grid, style_grid, path.parent)


@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize("count", [3 * len(SCREENS), pytest.param(500, marks=pytest.mark.long)])
async def test_a_moment_looks_the_same_live_and_in_replay(open_app: OpenApp, seen: Seen, path: Path, count: int) -> None:
    with Recorder(path) as recorder:
        for event in EVENTS:
            recorder.write(event)
    frames = _frames(count)
    live: dict[Frame, Rows] = {}
    async with open_app(size=(WIDTH, HEIGHT)) as (app, pilot, events):
        waiting = list(EVENTS)
        await seen.open_all(app, pilot)
        for at, screen in sorted(frames):
            _tell(waiting, events, at)
            live[at, screen] = await seen.rows(app, pilot, screen)
    player = Player(open_session(path), clock=lambda: 0.0)
    player.pause()
    await _compare(open_app, seen, player, frames, live)
    player.close()


@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize("count", [len(SCREENS), pytest.param(250, marks=pytest.mark.long)])
async def test_a_moment_looks_the_same_live_and_rewound(open_app: OpenApp, seen: Seen, path: Path, count: int) -> None:
    """In the header's first line the rewound view says that it is one."""
    frames = _frames(count)
    live: dict[Frame, Rows] = {}
    with Recorder(path) as recorder:
        async with open_app(size=(WIDTH, HEIGHT)) as (app, pilot, events):
            waiting = list(EVENTS)
            await seen.open_all(app, pilot)
            for at, screen in sorted(frames):
                for event in _tell(waiting, events, at):
                    recorder.write(event)
                live[at, screen] = await seen.rows(app, pilot, screen)
            recorder.flush()
            rewind = Rewind(events, app.state, recorder, clock=lambda: 0.0)
            past = [frame for frame in frames if frame[0] < rewind.duration_s]
            await _compare(open_app, seen, rewind, past, live, skip=1)
            rewind.close()


async def _compare(
    open_app: OpenApp, seen: Seen, player: PlayerPort, frames: list[Frame], live: dict[Frame, Rows], skip: int = 0
) -> None:
    async with open_app(size=(WIDTH, HEIGHT + 1), player=player, source=player) as (app, pilot, _):
        await seen.open_all(app, pilot)
        for at, screen in frames:
            player.seek(at)
            rows = await seen.rows(app, pilot, screen)
            assert rows[skip:] == live[at, screen][skip:], f"{screen} at {at:.2f} s"


def _frames(count: int) -> list[Frame]:
    source = random.Random(1)
    return [(source.uniform(0.5, EVENTS[-1].at - START), SCREENS[i % len(SCREENS)]) for i in range(count)]


def _tell(waiting: list[AnyEvent], events: ListSource, at: float) -> list[AnyEvent]:
    """What happens up to a time, and what of it is new."""
    new = []
    while waiting and waiting[0].at <= START + at:
        new.append(waiting.pop(0))
    events.waiting += new
    return new
