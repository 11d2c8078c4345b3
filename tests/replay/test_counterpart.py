"""The recording beside a session is at the moment that belongs to it, wherever that session goes."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from distmon.core.errors import DistmonError
from distmon.core.fold import apply
from distmon.core.side_by_side import LOCKS, Lock, side
from distmon.core.state import SessionState
from distmon.core.synthetic import Script, session
from distmon.replay.counterpart import Counterpart
from distmon.replay.recorder import Recorder

OURS = Script(ranks=2, nodes=1, seconds=60, step_s=0.25)
THEIRS = replace(OURS, step_s=0.3, seconds=70, seed=4)


@pytest.fixture
def counterpart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counterpart:
    monkeypatch.setattr("distmon.replay.index.KEYFRAME_BYTES", 8 << 10)
    monkeypatch.setattr("distmon.replay.index.KEYFRAME_RATIO", 0)
    path = tmp_path / "b.jsonl"
    with Recorder(path) as recorder:
        for event in session(THEIRS):
            recorder.write(event)
    return Counterpart(path)


def states(*seconds: float) -> list[SessionState]:
    found = []
    for until in seconds:
        state = SessionState()
        for event in session(OURS):
            if event.at <= OURS.start + until:
                apply(state, event)
        found.append(state)
    return found


@pytest.mark.parametrize("lock", LOCKS)
def test_it_is_where_the_other_is_forward_and_back(counterpart: Counterpart, lock: Lock) -> None:
    source = random.Random(3)
    times = [source.uniform(5, 55) for _ in range(5)] + [30.0, 31.0, 33.5, 60.0, 4.0]
    for state in states(*times):
        ours = side(state).standing
        found = counterpart.at(lock, ours)
        assert found is not None
        theirs = found.standing
        if lock == "time":
            assert theirs.time_s == pytest.approx(ours.time_s, abs=1.01)
        elif lock == "step":
            assert theirs.step == min(ours.step, counterpart.whole.end.standing.step)
        else:
            assert ours.epoch is not None and theirs.epoch is not None
            assert min(ours.epoch, counterpart.whole.end.standing.epoch or 0.0) == pytest.approx(theirs.epoch)
    counterpart.close()


def test_at_a_step_it_measures_the_same_however_it_came_there(counterpart: Counterpart) -> None:
    ours = side(states(30.0)[0]).standing
    played = at_once = counterpart.at("step", ours)
    assert at_once is not None and played is not None
    for step in (*range(ours.step - 9, ours.step), 5, *range(ours.step - 3, ours.step + 1)):
        played = counterpart.at("step", replace(ours, step=step))
        assert played is not None and played.standing.step == step
    assert played == at_once


def test_where_it_has_been_before_it_measures_the_same(counterpart: Counterpart) -> None:
    early, late = (side(state).standing for state in states(20.0, 50.0))
    first = counterpart.at("time", early)
    counterpart.at("time", late)
    assert counterpart.at("time", early) == first
    counterpart.close()


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("no\n")
    with pytest.raises(DistmonError, match="not a distmon session"):
        Counterpart(tmp_path / "x.jsonl")
