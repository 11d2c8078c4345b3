"""A live session that is paused and rewound: the screens show the past, and nothing of what happens meanwhile is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textual.pilot import Pilot

from distmon.core.events import AnyEvent, NoticeGiven, Ticked
from distmon.core.fold import apply
from distmon.core.state import SessionState
from distmon.core.synthetic import Script, session
from distmon.replay.open_index import open_index
from distmon.replay.player import Player
from distmon.replay.recorder import Recorder
from distmon.replay.session_file import load_state, open_session
from distmon.tui.app import DistmonApp
from distmon.tui.rewind import Rewind
from distmon.tui.screens.logs import Events

if TYPE_CHECKING:
    from tests.tui.conftest import Grid, OpenApp

SCRIPT = Script(ranks=3, nodes=2, seconds=60, step_s=0.25, slow_rank=1, delay_s=0.05, gpus_per_node=1)
EVENTS: list[AnyEvent] = list(session(SCRIPT))
START = EVENTS[0].at


class Live:
    """A live source of ready-made events, recorded as they come, as a session's own thread does it."""

    def __init__(self, path: Path) -> None:
        self.recorder = Recorder(path)
        self.waiting: list[AnyEvent] = []
        self.state = SessionState()
        self._coming = list(EVENTS)

    def until(self, seconds: float) -> None:
        """What happens up to a time."""
        while self._coming and self._coming[0].at <= START + seconds:
            self.tell(self._coming.pop(0))
        self.recorder.flush()

    def tell(self, event: AnyEvent) -> None:
        self.recorder.write(event)
        self.waiting.append(event)

    def poll(self) -> Iterator[AnyEvent]:
        while self.waiting:
            yield self.waiting.pop(0)


@pytest.fixture(params=["s.jsonl", "s.jsonl.zst"])
def live(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    monkeypatch.setattr("distmon.replay.index.KEYFRAME_BYTES", 16 << 10)
    monkeypatch.setattr("distmon.replay.index.KEYFRAME_RATIO", 0)
    monkeypatch.setattr("distmon.replay.index.LENT_RATIO", 2)
    monkeypatch.setattr("distmon.replay.recorder.FRAME_BYTES", 12 << 10)
    made = Live(tmp_path / str(request.param))
    yield made
    made.recorder.close()


def folded(seconds: float) -> SessionState:
    state = SessionState()
    for event in EVENTS:
        if event.at <= START + seconds:
            apply(state, event)
    return state


def folded_first(count: int) -> SessionState:
    state = SessionState()
    for event in EVENTS[:count]:
        apply(state, event)
    return state


class View:
    """What the app does with a source that is a player too."""

    def __init__(self, rewind: Rewind, state: SessionState) -> None:
        self.rewind, self.state = rewind, state

    def look(self) -> None:
        if (sought := self.rewind.take_state()) is not None:
            self.state = sought
        for event in self.rewind.poll():
            apply(self.state, event)

    def look_until(self, holds: Callable[[], bool]) -> None:
        """A state that is large or copied comes from a thread."""
        deadline = time.monotonic() + 20
        while not holds() and time.monotonic() < deadline:
            self.look()
            time.sleep(0.001)
        assert holds()


def test_what_is_shown_stands_still_while_what_happens_is_folded_and_recorded(live: Live, tmp_path: Path) -> None:
    rewind = Rewind(live, live.state, live.recorder)
    view = View(rewind, live.state)
    live.until(20)
    view.look()
    rewind.pause()
    assert (rewind.live, rewind.playing) == (False, False)
    live.until(42)
    view.look_until(lambda: view.state is not live.state and live.state.now >= START + 42)
    assert view.state == folded(20) and live.state == folded(42)
    assert rewind.behind_s == pytest.approx(22)
    rewind.seek(7.5)
    live.until(50)
    view.look()
    view.look()
    assert view.state == folded(7.5) and live.state == folded(50)
    rewind.seek(rewind.duration_s)
    live.until(55)
    view.look()
    assert view.state is live.state and view.state == folded(55) and rewind.behind_s is None
    live.until(100)
    view.look()
    rewind.close()
    live.recorder.close()
    assert load_state(live.recorder.path)[0] == view.state == folded(100)


def test_the_past_is_played_and_becomes_the_present_again(live: Live) -> None:
    now = [0.0]
    rewind = Rewind(live, live.state, live.recorder, clock=lambda: now[0])
    view = View(rewind, live.state)
    live.until(30)
    view.look()
    rewind.seek(10)
    view.look()
    rewind.play()
    now[0] += 5
    view.look()
    assert view.state == folded(15) and rewind.behind_s == pytest.approx(15)
    rewind.set_speed(10)
    now[0] += 5
    view.look()
    view.look()
    assert rewind.live and view.state is live.state == folded(30)
    rewind.close()


actions = st.lists(
    st.one_of(
        st.tuples(st.just("happens"), st.floats(0.0, 9.0)),
        st.tuples(st.just("wait"), st.floats(0.0, 3.0)),
        st.tuples(st.just("speed"), st.floats(0.1, 1000.0)),
        st.tuples(st.just("seek"), st.floats(-1.0, 70.0)),
        st.tuples(st.just("step"), st.sampled_from([-1.0, 1.0])),
        st.tuples(st.sampled_from(["pause", "play", "by step", "live"]), st.just(0.0)),
    ),
    max_size=14,
)


@settings(deadline=None, max_examples=12)
@given(actions=actions, at_once=st.booleans())
def test_whatever_is_done_the_view_is_a_moment_and_nothing_is_lost(actions: list[tuple[str, float]], at_once: bool) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("distmon.replay.index.KEYFRAME_BYTES", 16 << 10)
        patch.setattr("distmon.replay.player.AT_ONCE_BYTES", 1 << 30 if at_once else 0)
        live, now = Live(Path(folder) / "s.jsonl"), [0.0]
        rewind = Rewind(live, live.state, live.recorder, clock=lambda: now[0])
        view, happened = View(rewind, live.state), 5.0
        live.until(happened)
        for action, value in actions:
            match action:
                case "happens":
                    happened += value
                    live.until(happened)
                case "wait":
                    now[0] += value
                case "speed":
                    rewind.set_speed(value)
                case "seek":
                    rewind.seek(value)
                case "step":
                    rewind.step(int(value))
                case "pause":
                    rewind.pause()
                case "play":
                    rewind.play()
                case "by step":
                    rewind.set_by_step(not rewind.by_step)
                case "live":
                    rewind.seek(rewind.duration_s)
            view.look_until(lambda: not rewind.busy)
            view.look()
            view.look()
            assert view.state == folded_first(view.state.events), action
            assert rewind.live is (view.state is live.state), action
        rewind.seek(rewind.duration_s)
        live.until(100)
        view.look_until(lambda: rewind.live and not live.waiting)
        rewind.close()
        live.recorder.close()
        assert load_state(live.recorder.path)[0] == live.state == folded(100)


def test_a_job_too_large_for_the_recorder_lends_it_its_state(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distmon.replay.recorder.FOLDED_PARTIES", 0)
    monkeypatch.setattr("distmon.replay.player.AT_ONCE_BYTES", 0)
    rewind = Rewind(live, live.state, live.recorder)
    view = View(rewind, live.state)
    for second in range(1, 50):
        live.until(second)
        view.look_until(lambda: not live.waiting)
    assert live.recorder.index is not None and live.recorder.index.keyframes > 3
    for moment in (40.0, 11.5, 30.0):
        rewind.seek(moment)
        view.look_until(lambda: not rewind.busy)
        view.look()
        assert view.state == folded(moment)
    rewind.close()
    live.recorder.close()
    kept = open_index(open_session(live.recorder.path))
    assert kept.keyframes == live.recorder.index.keyframes, "what was lent serves the next viewer"
    kept.close()


async def until(pilot: Pilot[int], holds: Callable[[], bool]) -> None:
    app = pilot.app
    assert isinstance(app, DistmonApp)
    for _ in range(2000):
        app.frame()
        await pilot.pause()
        if holds():
            return
        await asyncio.sleep(0.001)
    assert holds()


async def test_pause_rewind_and_live_on_the_screen(open_app: OpenApp, live: Live, text_grid: Grid) -> None:
    rewind = Rewind(live, live.state, live.recorder)
    async with open_app(source=rewind, player=rewind, state=live.state, size=(150, 30)) as (app, pilot, _):
        live.until(30)
        await until(pilot, lambda: "0:30" in text_grid(app)[0])
        assert "Space play" in text_grid(app)[-1] and "paused" not in text_grid(app)[-2]
        await pilot.press("space")
        live.until(48)
        await until(pilot, lambda: "PAUSED 0:18 behind live" in text_grid(app)[0])
        assert "‖ paused" in text_grid(app)[-2]
        assert "0:30" in text_grid(app)[0] and app.state is not live.state
        await pilot.press("left", "left")
        await until(pilot, lambda: "PAUSED 0:38 behind live" in text_grid(app)[0])
        live.tell(NoticeGiven(at=live.state.now + 1, severity="error", text="disk full"))
        live.tell(Ticked(at=live.state.now + 2))
        live.recorder.flush()
        await until(pilot, lambda: "1 new error" in text_grid(app)[0])
        await until(pilot, lambda: app._last_alert is not None and app._last_alert.text == "disk full")
        assert app.state is not live.state, "it calls for what happens while the screens show another moment"
        await pilot.press("m", "x", "enter")
        assert [moment.text for moment in rewind.moments if moment.kind == "mark"] == ["x"]
        await pilot.press("end")
        await until(pilot, lambda: app.state is live.state)
        assert "behind" not in text_grid(app)[0] and "‖" not in text_grid(app)[-2]
        await pilot.press("N")
        await until(pilot, lambda: "behind live" in text_grid(app)[0])
        await pilot.press("space", "plus", "plus", "plus", "plus", "plus", "plus")
        await until(pilot, lambda: rewind.live)
    rewind.close()


async def test_a_pause_leaves_the_cursor_on_its_line_and_live_lines_are_followed_again(open_app: OpenApp, live: Live) -> None:
    rewind = Rewind(live, live.state, live.recorder)
    async with open_app(source=rewind, player=rewind, state=live.state, size=(150, 30)) as (app, pilot, _):
        for second in (20, 25):
            live.until(second)
            live.tell(NoticeGiven(at=START + second, severity="info", text=f"at {second}"))
        live.until(30)
        await until(pilot, lambda: live.state.now >= START + 30)
        await pilot.press("f7", "up", "up")
        page = app.cockpit.page
        assert isinstance(page, Events) and page.line() is not None
        held = page.line()
        assert held is not None and held.entry is not live.state.log[-1]
        await pilot.press("space")
        await until(pilot, lambda: app.state is not live.state)
        still = page.line()
        assert still is not None and still.entry == held.entry
        await pilot.press("end")
        await until(pilot, lambda: app.state is live.state)
        assert page.lines.following and page.lines.cursor is None
    rewind.close()


def test_a_recording_of_another_process_is_followed_while_it_is_written(live: Live) -> None:
    live.until(20)
    now = [0.0]
    player = Player(open_session(live.recorder.path), clock=lambda: now[0])
    player.seek(player.duration_s)
    state = player.take_state()
    assert state == folded(20) and player.behind_s == 0 and player.playing
    live.until(45)
    deadline = time.monotonic() + 20
    while player.duration_s < 45 and time.monotonic() < deadline:
        list(player.poll())
    now[0] += 100
    assert state is not None
    for event in player.poll():
        apply(state, event)
    assert state == folded(45)
    live.until(100)
    live.recorder.close()
    while (player.behind_s is not None or not player.at_end) and time.monotonic() < deadline:
        now[0] += 100
        for event in player.poll():
            apply(state, event)
    assert state == folded(100) and player.behind_s is None and not player.playing
    player.close()
