"""However a recording is read (whole, cut, played at any speed, sought), the state is the one that folding live gave."""

from __future__ import annotations

import io
import os
import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distmon.core import events as ev
from distmon.core.codec import encode_json
from distmon.core.errors import DistmonError
from distmon.core.fold import apply
from distmon.core.measures import steps
from distmon.core.state import SessionState
from distmon.core.synthetic import Script, session
from distmon.replay import index as index_module
from distmon.replay.build_index import build_index
from distmon.replay.index import IndexWriter, cached_index_path, index_path
from distmon.replay.keyframe import encode_state
from distmon.replay.lines import START
from distmon.replay.marks import marks_path
from distmon.replay.open_index import open_index
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
    monkeypatch.setattr(index_module, "BASE_SHARE", 1.8)
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


def test_moments_name_what_happened(tmp_path: Path) -> None:
    start = EVENTS[0].at
    spans = [
        ev.SpanRecorded(at=start + 25.5, node="n", worker="w", rank=r, span="checkpoint", started=start + 25, duration_s=0.4)
        for r in (0, 1)
    ]
    exited = ev.WorkerExited(at=start + 26.0, host="h", local_rank=0, rank=1, exit_code=137, signal="SIGKILL")
    joined = ev.MembershipChanged(at=start + 25.2, change="host_joined", host="h2")
    path = record(tmp_path / "s.jsonl", [*EVENTS[:-3], joined, *spans, exited])
    played = player(path, Clock())
    found = [(round(m.at - start, 3), m.kind, m.severity) for m in played.moments if m.kind != "verdict"]
    assert found == [(25.2, "join", "info"), (25.5, "checkpoint", "info"), (26.0, "failure", "error")]
    assert "SIGKILL" in played.moments[-1].text
    assert [m.text.partition(" ")[0] for m in played.moments if m.kind == "verdict"]  # the slow rank of the script


def test_the_pace_is_the_step_times_over_all_of_the_recording(path: Path) -> None:
    width, points = player(path, Clock()).pace
    assert len(points) > 10
    assert points[0].at <= EVENTS[-1].at and width >= 1.0
    assert points[0].p95_s > 4 * SCRIPT.step_s  # the warm-up of the script
    for point in points[8:]:
        assert SCRIPT.step_s * 0.5 < point.p50_s <= point.p95_s < SCRIPT.step_s * 3


def test_a_jump_to_a_step_stands_where_rank_0_has_done_that_many_and_no_more(path: Path) -> None:
    """Though the steps of a second are told together."""
    viewer = Viewer(player(path, Clock()))
    total = steps(folded(EVENTS))
    for step in (1, 7, total // 2, total):
        position = viewer.player.position_of_step(step)
        viewer.player.pause()
        viewer.player.seek(position, exact=True)
        viewer.poll()
        viewer.poll()
        assert steps(viewer.state) == step
        assert viewer.player.position_s == pytest.approx(position) and viewer.state.now <= EVENTS[0].at + position + 1e-6
        ends = [r.last_end for g in viewer.state.generations.values() for r in g.ranks.values() if r.rank == 0]
        assert ends == [pytest.approx(EVENTS[0].at + position, abs=1e-5)]
    with pytest.raises(DistmonError, match=f"rank 0 did {total}"):
        viewer.player.position_of_step(total + 1)


@ALL
@given(step=st.integers(1, 40), then=st.sampled_from(["play", "next", "last", "skip", "again"]))
def test_after_a_jump_what_is_shown_is_the_live_state_again(path: Path, step: int, then: str) -> None:
    clock = Clock()
    viewer = Viewer(player(path, clock))
    viewer.player.pause()
    viewer.player.seek(viewer.player.position_of_step(step), exact=True)
    viewer.poll()
    match then:
        case "play":
            viewer.player.play()
            clock.now += 0.7
        case "next":
            viewer.player.step(1)
        case "last":
            viewer.player.step(-1)
        case "skip":
            viewer.player.seek(viewer.player.position_s + 3.3)
        case "again":
            viewer.player.seek(viewer.player.position_s)
    viewer.poll()
    viewer.poll()
    viewer.poll()
    assert viewer.state == folded(EVENTS, viewer.player.started_at + viewer.player.position_s)


def test_a_jump_to_a_mark_of_the_script_has_the_mark_and_the_steps_before_it(tmp_path: Path) -> None:
    """A mark is told before the steps of its second, and may come after an event that is later."""
    base: dict[str, Any] = {"node": "n", "worker": "w", "rank": 0, "generation": 0}
    started = ev.SessionStarted(at=100.0, session_id="s", distmon_version="0")
    rows = [
        ev.StepsRecorded(at=at, **base, first_step=first, origin=at - 1, start_ns=starts, duration_ns=[100_000_000] * 10)
        for at, first in ((111.0, 0), (112.0, 10))
        for starts in ([i * 100_000_000 for i in range(10)],)
    ]
    mark = ev.MarkSet(at=111.55, rank=0, text="drop")
    events: list[ev.AnyEvent] = [started, rows[0], ev.Ticked(at=111.9), mark, rows[1], ev.Ticked(at=130.0)]
    viewer = Viewer(player(record(tmp_path / "s.jsonl", events), Clock()))
    viewer.player.pause()
    viewer.player.seek(viewer.player.position_of_mark("drop"), exact=True)
    viewer.poll()
    assert viewer.player.position_s == pytest.approx(11.55)
    assert steps(viewer.state) == 15 and "mark of rank 0: drop" in [entry.text for entry in viewer.state.log]


def test_by_step_so_many_steps_pass_in_a_second(path: Path) -> None:
    clock = Clock()
    viewer = Viewer(player(path, clock, speed=10.0))
    viewer.player.seek(viewer.player.position_of_step(10))
    viewer.player.set_by_step(True)
    viewer.poll()
    before = steps(viewer.state)
    clock.now += 2.0
    viewer.poll()
    a_batch = max(len(e.duration_ns) for e in EVENTS if isinstance(e, ev.StepsRecorded))
    assert abs(steps(viewer.state) - before - 20) <= 2 * a_batch
    clock.now += 1000.0
    viewer.poll()
    assert viewer.player.at_end and viewer.state == folded(EVENTS)


def test_by_step_passes_over_a_pause_in_training(tmp_path: Path) -> None:
    """Nothing trains for ten minutes; a second of playing still shows steps from after it."""
    late = [msgspec.structs.replace(event, at=event.at + (600.0 if event.at > EVENTS[0].at + 12 else 0.0)) for event in EVENTS]
    clock = Clock()
    viewer = Viewer(player(record(tmp_path / "s.jsonl", late), clock, speed=10.0))
    viewer.player.seek(11.0)
    viewer.player.set_by_step(True)
    clock.now += 2.0
    viewer.poll()
    assert viewer.player.position_s > 600.0


def test_of_a_recording_that_is_gone_the_moment_stays_and_what_follows_is_played(path: Path) -> None:
    clock = Clock()
    played = player(path, clock)
    viewer = Viewer(played)
    played.seek(10.0)
    viewer.poll()
    path.unlink()
    for go in (partial(played.seek, 0.0), partial(played.seek, 20.0), partial(played.step, -1)):
        with pytest.raises(DistmonError):
            go()
        assert played.position_s == 10.0 and played.take_state() is None
    played.play()
    clock.now += 100.0
    viewer.poll()
    assert viewer.state == folded(EVENTS)
    with pytest.raises(DistmonError, match=f"{path.name} is not there any more"):
        played.play()
    assert played.position_s == played.duration_s


def test_a_recording_that_goes_while_it_is_followed_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distmon.replay.open_index.LOOK_S", 0.0)
    path, clock = tmp_path / "s.jsonl", Clock()
    with Recorder(path) as recorder:
        for event in EVENTS[: len(EVENTS) // 2]:
            recorder.write(event)
        recorder.flush()
        followed = player(path, clock)
        viewer = Viewer(followed)
        followed.seek(followed.duration_s)
        viewer.poll()
        assert followed.behind_s is not None and not followed.cut_off
        path.unlink()
        for _ in range(3):
            clock.now += 1.0
            viewer.poll()
        assert followed.behind_s is None and followed.cut_off


def test_marks_are_kept_beside_the_recording(path: Path) -> None:
    before = path.read_bytes()
    first = player(path, Clock())
    first.name_mark(12.5, "  the   dip \n")
    first.name_mark(3.0, "first")
    first.name_mark(3.0, "begin")
    second = player(path, Clock())
    assert [(m.at - second.started_at, m.text) for m in second.moments if m.kind == "mark"] == [(3.0, "begin"), (12.5, "the dip")]
    assert second.position_of_mark("the dip") == 12.5
    with pytest.raises(DistmonError, match="its marks: begin, the dip"):
        second.position_of_mark("first")
    second.name_mark(3.0, "")
    second.name_mark(12.5, "")
    assert not marks_path(path).exists()
    assert path.read_bytes() == before


def test_of_a_recording_that_was_deleted_no_mark_is_kept(path: Path) -> None:
    played = player(path, Clock())
    path.unlink()
    with pytest.raises(DistmonError, match=r"the mark cannot be kept: .* was deleted"):
        played.name_mark(1.0, "here")
    assert not marks_path(path).exists() and "mark" not in {moment.kind for moment in played.moments}


def test_a_marks_file_that_is_spoilt_costs_only_its_spoilt_lines(path: Path) -> None:
    good = b'{"at":' + str(EVENTS[0].at + 2).encode() + b',"name":"good"}\n'
    marks_path(path).write_bytes(b"\xff\xfe\n[1]\n" + good + b'{"at":"x"}\n{"at":1')
    assert player(path, Clock()).position_of_mark("good") == 2.0


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


def test_steps_of_a_kept_state_are_as_quick_to_add_up_as_live_ones(path: Path) -> None:
    """The usual columns are told by their identity."""
    for state, _ in kept_states(path):
        ranks = [steps for generation in state.generations.values() for steps in generation.ranks.values()]
        assert ranks and all(batch.usual for steps in ranks for batch in (*steps.first_batches, *steps.batches))


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


def test_what_goes_with_a_recording_that_is_part_of_distmon_lies_among_the_users_own_files(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    index_path(path).unlink()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("distmon.replay.beside.__file__", str(path.with_name("beside.py")))
    open_index(open_session(path)).close()
    kept = cached_index_path(path)
    assert kept.exists() and kept.is_relative_to(tmp_path / "cache") and not index_path(path).exists()
    made = kept.stat().st_mtime_ns
    open_index(open_session(path)).close()
    assert kept.stat().st_mtime_ns == made
    played = player(path, Clock())
    played.name_mark(1.0, "here")
    assert marks_path(path).is_relative_to(tmp_path / "state")
    assert player(path, Clock()).position_of_mark("here") == 1.0
    assert [file.name for file in path.parent.iterdir() if file.is_file()] == [path.name]


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


@pytest.mark.parametrize("complete", [True, False])
def test_who_follows_a_recording_is_told_when_its_writer_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complete: bool
) -> None:
    monkeypatch.setattr("distmon.replay.open_index.LOOK_S", 0.0)
    path, written, half = tmp_path / "s.jsonl", EVENTS if complete else EVENTS[:-1], len(EVENTS) // 2
    recorder = Recorder(path)
    for event in written[:half]:
        recorder.write(event)
    recorder.flush()
    clock = Clock()
    viewer = Viewer(player(path, clock))
    viewer.player.seek(1e9)
    viewer.poll()
    assert not viewer.player.cut_off and viewer.player.behind_s is not None
    for event in written[half:]:
        recorder.write(event)
    recorder.close()
    for _ in range(4):
        clock.now += 100.0
        viewer.poll()
    assert viewer.state == folded(written), "what was written last is shown"
    assert viewer.player.behind_s is None and viewer.player.cut_off is not complete
    viewer.player.seek(2.0)
    viewer.poll()
    assert not viewer.player.cut_off
    opened = Viewer(player(path, clock))
    opened.player.seek(1e9)
    opened.poll()
    assert opened.player.cut_off is not complete


def test_a_large_job_gets_its_states_when_they_are_first_needed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distmon.replay.recorder.FOLDED_PARTIES", 2)
    large = record(path.with_name("large" + path.name), EVENTS)
    index = open_index(open_session(large))
    assert index.keyframes >= 3
    index.close()


def test_states_are_packed_against_earlier_ones_and_take_less_room(path: Path) -> None:
    index = open_index(open_session(path))
    packed = [(kept, size) for kept, _, size in index._keyframes]
    against = [(kept, size) for kept, size in packed if kept.base >= 0]
    assert against
    for kept, size in against:
        base, base_size = packed[kept.base]
        assert base.base < 0 and base.at <= kept.at
        assert size * index_module.BASE_SHARE <= base_size
        assert size < len(encode_state(index.start_for(kept.at)[0]))
    index.close()


def test_a_state_whose_base_is_damaged_is_passed_over(path: Path) -> None:
    index = open_index(open_session(path))
    kept = next(kept for kept, _, _ in index._keyframes if kept.base >= 0)
    base, offset, _ = index._keyframes[kept.base]
    with index_path(path).open("r+b") as file:
        file.seek(offset + 20)
        file.write(bytes(8))
    assert index.start_for(kept.at)[1].line < base.position.line
    index.close()


def test_a_state_whose_base_is_not_there_is_passed_over(path: Path) -> None:
    index = open_index(open_session(path))
    kept, offset, size = index._keyframes[-1]
    index._keyframes[-1] = (msgspec.structs.replace(kept, base=len(index._keyframes)), offset, size)
    assert index.start_for(kept.at)[1].line < kept.position.line
    index.close()


def test_a_rare_base_does_not_put_off_the_next_state(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "KEYFRAME_RATIO", 1)
    size, writer = index_module.KEYFRAME_BYTES, IndexWriter(io.BytesIO(), b"")
    large = SessionState(session_id=random.Random(1).randbytes(size).hex())
    writer.keep(large, START, 0.0)
    writer.keep(large, START, 1.0)  # takes nearly nothing
    large.session_id = random.Random(2).randbytes(size).hex()
    writer.keep(large, START, 2.0)
    writer.pass_event(ev.Ticked(at=3.0), START, size)
    assert writer.wants_keyframe
