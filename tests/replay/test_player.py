"""However a recording is read (whole, cut, played at any speed, sought), the state is the one that folding live gave."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distmon.core import events as ev
from distmon.core.codec import encode_json
from distmon.core.fold import apply
from distmon.core.state import SessionState
from distmon.core.synthetic import Script, session
from distmon.replay import index as index_module
from distmon.replay.index import build_index, index_path, open_index
from distmon.replay.player import Player
from distmon.replay.recorder import Recorder
from distmon.replay.session_file import load_state, open_session

SCRIPT = Script(ranks=2, nodes=1, seconds=25, step_s=0.4, slow_rank=1, delay_s=0.02)
EVENTS = list(session(SCRIPT))
ALL = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Viewer:
    """What the app does with a source: fold what it yields, and take the state that a seek leaves."""

    def __init__(self, player: Player) -> None:
        self.player = player
        self.state = SessionState()

    def poll(self, limit: int | None = None) -> None:
        if (sought := self.player.take_state()) is not None:
            self.state = sought
        for event in islice(self.player.poll(), limit):
            apply(self.state, event)


def folded(events: list[ev.AnyEvent], until: float = float("inf")) -> SessionState:
    """The live state when the clock of the session stood at a time."""
    state = SessionState()
    for event in events:
        if event.at > until:
            break
        apply(state, event)
    return state


def record(path: Path, events: list[ev.AnyEvent]) -> Path:
    with Recorder(path) as recorder:
        for event in events:
            recorder.write(event)
    return path


@pytest.fixture(params=["s.jsonl", "s.jsonl.zst"])
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(index_module, "KEYFRAME_BYTES", 8 << 10)
    monkeypatch.setattr(index_module, "KEYFRAME_RATIO", 0)
    monkeypatch.setattr("distmon.replay.recorder.FRAME_BYTES", 12 << 10)
    return record(tmp_path / str(request.param), EVENTS)


def player(path: Path, clock: Callable[[], float], speed: float = 1.0) -> Player:
    return Player(open_session(path), speed=speed, clock=clock)


def test_the_whole_recording_folds_to_the_live_state(path: Path) -> None:
    assert load_state(path)[0] == folded(EVENTS)


@ALL
@given(cut=st.floats(0.05, 1.0))
def test_a_recording_cut_anywhere_folds_to_the_live_state_of_the_lines_before(tmp_path: Path, cut: float) -> None:
    whole = b"".join(encode_json(event) + b"\n" for event in EVENTS)
    cut_path = tmp_path / "cut.jsonl"
    cut_path.write_bytes(whole[: int(cut * len(whole))])
    state, _ = load_state(cut_path)
    assert state == folded(EVENTS[: state.events])


actions = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.floats(0.0, 3.0)),
        st.tuples(st.just("speed"), st.floats(0.1, 1000.0)),
        st.tuples(st.just("seek"), st.floats(-1.0, 30.0)),
        st.tuples(st.just("step"), st.sampled_from([-1.0, 1.0])),
        st.tuples(st.just("pause"), st.just(0.0)),
        st.tuples(st.just("play"), st.just(0.0)),
        st.tuples(st.just("take a few"), st.floats(0.0, 30.0)),
    ),
    max_size=12,
)


@ALL
@given(actions=actions)
def test_any_speed_and_any_seek_gives_the_live_state(path: Path, actions: list[tuple[str, float]]) -> None:
    clock = Clock()
    viewer = Viewer(player(path, clock))
    for action, value in actions:
        match action:
            case "wait":
                clock.now += value
            case "speed":
                viewer.player.set_speed(value)
            case "seek":
                viewer.player.seek(value)
            case "step":
                viewer.player.step(int(value))
            case "pause":
                viewer.player.pause()
            case "play":
                viewer.player.play()
            case "take a few":
                viewer.poll(int(value))
                assert viewer.state == folded(EVENTS[: viewer.state.events])
                continue
        viewer.poll()
        assert viewer.state == folded(EVENTS, viewer.player.started_at + viewer.player.position_s)


def test_it_plays_at_its_speed_and_stops_at_the_end(path: Path) -> None:
    clock = Clock()
    viewer = Viewer(player(path, clock, speed=2.0))
    viewer.poll()
    assert viewer.state.session_id and not viewer.state.generations
    clock.now += 5.0
    viewer.poll()
    assert viewer.player.position_s == pytest.approx(10.0)
    viewer.player.pause()
    clock.now += 100.0
    viewer.poll()
    assert viewer.player.position_s == pytest.approx(10.0)
    viewer.player.play()
    viewer.player.set_speed(1000.0)
    clock.now += 1.0
    viewer.poll()
    assert viewer.state == folded(EVENTS)
    assert viewer.player.at_end and not viewer.player.playing
    assert viewer.player.position_s == pytest.approx(viewer.player.duration_s) == pytest.approx(26.2)


def test_a_slow_caller_falls_behind_and_loses_nothing(path: Path) -> None:
    clock = Clock()
    viewer = Viewer(player(path, clock, speed=1000.0))
    while not viewer.player.at_end:
        clock.now += 1.0
        before = viewer.state.events
        viewer.poll(7)
        assert viewer.state.events - before <= 7
    assert viewer.state == folded(EVENTS)


def test_step_moves_by_one_moment_and_back(path: Path) -> None:
    clock = Clock()
    viewer = Viewer(player(path, clock))
    viewer.player.seek(10.2)
    viewer.poll()
    viewer.player.step(1)
    viewer.poll()
    assert viewer.player.position_s == pytest.approx(11.0)
    viewer.player.step(-1)
    viewer.poll()
    assert viewer.player.position_s == pytest.approx(10.0)
    assert not viewer.player.playing


def test_a_node_lost_live_is_lost_at_the_same_moment(tmp_path: Path) -> None:
    from distmon.core.measures import node_status

    sample = ev.NodeSampled(at=1.0, node="n0", interval_s=1.0)
    events: list[ev.AnyEvent] = [ev.SessionStarted(at=0.0, session_id="s", distmon_version="0"), sample]
    events += [ev.Ticked(at=float(t)) for t in range(2, 20)]
    path = record(tmp_path / "s.jsonl", events)
    clock = Clock()
    viewer = Viewer(player(path, clock))
    seen = []
    for _ in range(40):
        clock.now += 0.5
        viewer.poll()
        if viewer.state.nodes:
            live = folded(events, viewer.player.position_s)
            assert node_status(viewer.state, viewer.state.nodes["n0"]) == node_status(live, live.nodes["n0"])
            seen.append(node_status(viewer.state, viewer.state.nodes["n0"]))
    assert [s for i, s in enumerate(seen) if i == 0 or seen[i - 1] != s] == ["live", "stale", "lost"]


def test_marks_name_what_went_wrong(tmp_path: Path) -> None:
    exited = ev.WorkerExited(at=EVENTS[0].at + 26.0, host="h", local_rank=0, rank=1, exit_code=137, signal="SIGKILL")
    path = record(tmp_path / "s.jsonl", [*EVENTS[:-3], exited])
    assert player(path, Clock()).marks == [(26.0, "error")]


# --- the index ------------------------------------------------------------------------------------------------------


def test_the_index_made_while_recording_is_used_and_holds_states(path: Path) -> None:
    before = index_path(path).read_bytes()
    index = open_index(open_session(path))
    assert index.keyframes >= 3
    assert index_path(path).read_bytes() == before
    index.close()


def kept_states(path: Path) -> Iterator[tuple[SessionState, list[ev.AnyEvent]]]:
    from distmon.replay.session_file import Notes

    opened = open_session(path)
    index = open_index(opened)
    for kept, _, _ in index._keyframes:
        state, position = index.start_for(kept.at)
        yield state, list(opened.events(Notes(), position))
    index.close()


@pytest.mark.parametrize("rebuilt", [False, True])
def test_a_kept_state_is_the_fold_of_what_lies_before_it(path: Path, rebuilt: bool) -> None:
    if rebuilt:
        index_path(path).unlink()
    count = 0
    for state, rest in kept_states(path):
        assert state == folded(EVENTS[: state.events])
        assert rest == EVENTS[state.events :]
        count += 1
    assert count >= 3
    assert index_path(path).exists()


@pytest.mark.parametrize("spoil", ["truncated", "garbage", "other recording", "recording changed"])
def test_an_index_that_does_not_fit_is_made_again(path: Path, spoil: str) -> None:
    kept = index_path(path)
    match spoil:
        case "truncated":
            kept.write_bytes(kept.read_bytes()[:-9])
        case "garbage":
            kept.write_bytes(os.urandom(999))
        case "other recording":
            other = record(path.with_name("o" + path.name), list(session(Script(ranks=2, nodes=1, seconds=9, seed=7))))
            kept.write_bytes(index_path(other).read_bytes())
        case "recording changed":
            os.utime(path, ns=(1, 1))
    viewer = Viewer(player(path, Clock()))
    viewer.player.seek(20.0)
    viewer.poll()
    assert viewer.state == folded(EVENTS, EVENTS[0].at + 20.0)


def test_a_folder_that_cannot_be_written_costs_only_the_index_on_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index_path(path).unlink()

    def refused(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr("tempfile.NamedTemporaryFile", refused)
    index = build_index(open_session(path))
    assert index.keyframes >= 3 and not index_path(path).exists()
    index.close()


def test_the_recording_is_not_changed_by_playing(path: Path) -> None:
    before, touched = path.read_bytes(), path.stat().st_mtime_ns
    viewer = Viewer(player(path, Clock(), speed=1000.0))
    viewer.player.seek(12.0)
    viewer.poll()
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (before, touched)


def test_a_recording_under_way_can_be_played(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl.zst"
    recorder = Recorder(path)
    for event in EVENTS[:200]:
        recorder.write(event)
    recorder.flush()
    viewer = Viewer(player(path, Clock()))
    viewer.player.seek(1e9)
    viewer.poll()
    assert viewer.state == folded(EVENTS[:200])
    recorder.close()


def test_a_large_job_gets_its_states_when_they_are_first_needed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distmon.replay.recorder.FOLDED_PARTIES", 2)
    large = record(path.with_name("large" + path.name), EVENTS)
    index = open_index(open_session(large))
    assert index.keyframes >= 3
    index.close()
