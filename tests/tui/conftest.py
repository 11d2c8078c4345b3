"""What the tests of the screens share: sources of ready-made events, a player and a job that only remember, and grids."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import pytest
from rich.style import Style
from textual.app import App
from textual.pilot import Pilot
from textual.strip import Strip

from distmon.core.errors import DistmonError
from distmon.core.events import AnyEvent
from distmon.core.fold import apply
from distmon.core.moments import Moment
from distmon.core.pace import PacePoint
from distmon.core.state import SessionState
from distmon.launcher.actions import AnyAction
from distmon.tui.app import DistmonApp
from distmon.tui.budget import Budget
from distmon.tui.ports import Player, Source
from distmon.tui.theme import PALETTES

CASES = Path(__file__).parent.parent / "data" / "cases"
NEVER_S = 3600.0
IDLE_S = 0.008
"""The pilot takes the app to be idle when it has used no CPU for so long; the framework's own 20 ms add up to minutes here."""
GROUNDS = {palette.background for palette in PALETTES.values() if not palette.ansi}
TRUECOLOR = {"COLORTERM": "truecolor", "LANG": "C.UTF-8"}


class ListSource:
    """Gives the events that it is told to give, once."""

    def __init__(self, events: Iterable[AnyEvent] = ()) -> None:
        self.waiting = list(events)

    def poll(self) -> Iterator[AnyEvent]:
        while self.waiting:
            yield self.waiting.pop(0)


@dataclass
class FakeJob:
    running: bool = True
    stopped: int = 0
    stopping: bool = False
    restarting: bool = False
    hosts: dict[str, int] | None = None
    acted: list[AnyAction] = field(default_factory=list)
    focused: str = ""

    answers: Callable[[str], str] = "{} answers".format

    def focus(self, node: str) -> None:
        self.focused = node

    def told_of_host(self, host: str) -> str:
        return self.answers(host)

    def stop(self) -> None:
        self.stopped += 1
        self.running = False

    def act(self, action: AnyAction) -> str:
        self.acted.append(action)
        return f"{action.NAME} is under way"


@dataclass
class FakePlayer:
    """A player over ready-made events that remembers what it was asked."""

    events: Sequence[AnyEvent]
    position_s: float = 10.0
    duration_s: float = 60.0
    speed: float = 1.0
    playing: bool = True
    by_step: bool = False
    live: bool = False
    behind_s: float | None = None
    busy: bool = False
    cut_off: bool = False
    news: str = ""
    unread: str = ""
    pace_to: float = 56.0
    present: SessionState | None = None
    asked: list[str] = field(default_factory=list)
    named: dict[float, Moment] = field(default_factory=dict)
    _sought: SessionState | None = None

    @property
    def reach_s(self) -> float:
        return self.duration_s / 2 if self.unread else self.duration_s

    @property
    def started_at(self) -> float:
        return self.events[0].at

    @property
    def moments(self) -> Sequence[Moment]:
        found = [*self.named.values(), Moment(self.started_at + 15.0, "join", "info", "h2 joined")]
        found.append(Moment(self.started_at + 45.0, "failure", "error", "rank 1 on h failed: SIGKILL"))
        return sorted(found, key=lambda moment: moment.at)

    @property
    def pace(self) -> tuple[float, Sequence[PacePoint]]:
        """A step of 0.1 s; in the second half p95 is three times that."""
        return 2.0, [PacePoint(self.started_at + i, 0.1, 0.1 if i < 30 else 0.3) for i in range(4, 56, 2) if i < self.pace_to]

    def poll(self) -> Iterator[AnyEvent]:
        return iter(())

    def play(self) -> None:
        self.playing = True
        self.asked.append("play")

    def pause(self) -> None:
        self.playing = False
        self.asked.append("pause")

    def set_speed(self, speed: float) -> None:
        self.speed = speed
        self.asked.append(f"speed {speed:g}")

    def set_by_step(self, by_step: bool) -> None:
        self.by_step = by_step
        self.asked.append(f"by step {by_step}")

    def name_mark(self, position_s: float, name: str) -> None:
        self.named.pop(position_s, None)
        if name:
            self.named[position_s] = Moment(self.started_at + position_s, "mark", "info", name)
        self.asked.append(f"mark {position_s:g} {name}")

    def position_of_step(self, step: int) -> float:
        if step > 100:
            raise DistmonError(f"there is no step {step:,} in this recording: rank 0 did 100")
        return step / 2

    def position_of_mark(self, name: str) -> float:
        return next(moment.at - self.started_at for moment in self.moments if moment.text == name)

    def step(self, count: int = 1) -> None:
        self.playing = False
        self.asked.append(f"step {count}")

    def seek(self, position_s: float, *, exact: bool = False) -> None:
        self.position_s = position_s
        self.asked.append(f"seek {position_s:g}")
        start = self.events[0].at
        self._sought = folded(event for event in self.events if event.at <= start + position_s)

    def take_state(self) -> SessionState | None:
        state, self._sought = self._sought, None
        return state


def folded(events: Iterable[AnyEvent]) -> SessionState:
    """The state after these events."""
    state = SessionState()
    for event in events:
        apply(state, event)
    return state


Opened = tuple[DistmonApp, Pilot[int], ListSource]
OpenApp = Callable[..., AbstractAsyncContextManager[Opened]]
Settle = Callable[[Pilot[int]], Awaitable[None]]
Grid = Callable[[App[int]], list[str]]


@asynccontextmanager
async def _open_app(
    events: Iterable[AnyEvent] = (),
    size: tuple[int, int] = (80, 24),
    player: Player | None = None,
    job: FakeJob | None = None,
    environment: dict[str, str] | None = None,
    source: Source | None = None,
    state: SessionState | None = None,
    toasts: bool = False,
    opening: tuple[str, object] | None = None,
) -> AsyncIterator[Opened]:
    """With a `source` of the test's own the third part of what is opened is not used by the app."""
    told = ListSource()
    state = state if state is not None else folded(events)
    colours = {**TRUECOLOR, **(environment or {})}
    app = DistmonApp(source or told, player, job, state=state, environment=colours, opening=opening)
    # Every frame is a full one with all events, whatever a slow machine makes of it, and comes when the test asks for it.
    app._budget = Budget(itertools.count(0, 1000).__next__)
    with (
        patch.multiple("distmon.tui.app", FRAME_S=NEVER_S, TAKE_S=NEVER_S, DRAW_SHARE=NEVER_S),
        patch("distmon.tui.budget.HEAVY_S", NEVER_S),
        patch.multiple("textual._wait", SLEEP_GRANULARITY=IDLE_S, SLEEP_IDLE=IDLE_S / 20),
    ):
        async with app.run_test(size=size, notifications=toasts) as pilot:
            for name in ("press", "click", "resize_terminal"):
                setattr(pilot, name, settled(pilot, getattr(pilot, name)))
            await _settle(pilot)
            yield app, pilot, told


async def _settle(pilot: Pilot[int]) -> None:
    """Until the page has the keys and nothing moves any more, however slow the machine is."""
    app = pilot.app
    assert isinstance(app, DistmonApp)
    before: list[str] = []
    for _ in range(200):
        await pilot.pause()
        focused, now = app.screen.focused, style_grid(app)
        covered = bool(app.cockpit.helping or app.cockpit.question)  # which has the keys itself
        has_keys = covered or (focused is not None and focused.has_focus and focused.display)
        if has_keys and now == before and not app.cockpit.page.wants_focus:
            return
        before = now if has_keys else []


@pytest.fixture
def settle() -> Settle:
    return _settle


def settled(pilot: Pilot[int], act: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
    """An act of the pilot that is over only when the messages that it led to have led to theirs."""

    async def act_and_settle(*arguments: object, **options: object) -> object:
        result = await act(*arguments, **options)
        app = pilot.app
        for round_ in range(200):
            await pilot.pause()
            # A page that was just made takes the keys only when it has its place.
            if round_ and not (isinstance(app, DistmonApp) and app.is_running and app.cockpit.page.wants_focus):
                break
        return result

    return act_and_settle


@pytest.fixture
def open_app() -> OpenApp:
    return _open_app


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def strips(app: App[int]) -> list[Strip]:
    """The finished lines of the whole screen, filters applied."""
    width, height = app.size
    return [Strip(line, width) for line in app.screen._compositor.render_strips()][:height]


def text_grid(app: App[int]) -> list[str]:
    """What is on the screen, one string a row, blanks at the right included."""
    return [strip.text for strip in strips(app)]


def style_grid(app: App[int]) -> list[str]:
    """Per row the runs of equal style as `start:foreground/background/marks`; the theme's own background is `-`."""
    rows = []
    for strip in strips(app):
        x, runs, last = 0, [], ""
        for segment in strip:
            words = _style_words(segment.style)
            if words != last:
                runs.append(f"{x}:{words}")
                last = words
            x += segment.cell_length
        rows.append(" ".join(runs))
    return rows


def _style_words(style: Style | None) -> str:
    if style is None:
        return "-"
    marks = "b" * bool(style.bold) + "d" * bool(style.dim) + "r" * bool(style.reverse)
    colour = style.color.name if style.color else "-"
    background = style.bgcolor.name if style.bgcolor and style.bgcolor.name not in GROUNDS else "-"
    return f"{colour}/{background}" + (f"/{marks}" if marks else "")


@pytest.fixture(name="text_grid")
def text_grid_fixture() -> Callable[[App[int]], list[str]]:
    return text_grid


@pytest.fixture(name="style_grid")
def style_grid_fixture() -> Callable[[App[int]], list[str]]:
    return style_grid


@pytest.fixture(name="folded")
def folded_fixture() -> Callable[[Iterable[AnyEvent]], SessionState]:
    return folded


@pytest.fixture
def fake_player() -> type[FakePlayer]:
    return FakePlayer


@pytest.fixture
def fake_job() -> type[FakeJob]:
    return FakeJob
