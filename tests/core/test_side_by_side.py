"""Two sessions side by side: what makes the difference is named, and moments that belong together are found."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from distmon.core import events as ev
from distmon.core.fold import apply
from distmon.core.side_by_side import (
    LOCKS,
    MEASURES,
    Landmarks,
    Standing,
    curve,
    difference_words,
    landmarks,
    place,
    rows_of,
    side,
    standing,
)
from distmon.core.state import SessionState
from distmon.core.synthetic import Script, session

BASE = Script(ranks=4, nodes=2, seconds=40, gpus_per_node=1)


def state_of(script: Script, *more: ev.AnyEvent) -> SessionState:
    state = SessionState()
    for event in (*session(script), *more):
        apply(state, event)
    return state


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (replace(BASE, slow_rank=3, delay_s=0.02, seed=2), ["slower", "wait for the last rank (rank 3 late in its input)"]),
        (replace(BASE, step_s=0.12, seed=2), ["slower", "forward and backward"]),
        (replace(BASE, step_s=0.08, seed=2), ["faster", "forward and backward"]),
        (replace(BASE, ranks=2, seed=2), ["slower", "it has 2 ranks, A 4"]),
        (replace(BASE, samples=64, seed=2), ["faster", "256 samples a step, A 128"]),
        (replace(BASE, seed=2), ["no difference shown"]),
    ],
)
def test_what_makes_the_difference_is_said_in_words(other: Script, says: list[str]) -> None:
    words = difference_words(side(state_of(BASE)), side(state_of(other)))
    for part in says:
        assert part in words, words


def test_a_larger_batch_is_not_explained_by_its_longer_steps() -> None:
    words = difference_words(side(state_of(BASE)), side(state_of(replace(BASE, samples=64, step_s=0.12, seed=2))))
    assert "faster: 256 samples a step, A 128" in words and "ms" not in words


def test_the_slow_side_is_named_whichever_it_is() -> None:
    slow = side(state_of(replace(BASE, slow_rank=1, delay_s=0.02)))
    words = difference_words(slow, side(state_of(BASE)))
    assert "faster" in words and "A: rank 1 late in its input" in words


def test_the_percentage_is_that_of_the_speeds_and_the_parts_add_up() -> None:
    a, b = side(state_of(BASE)), side(state_of(replace(BASE, slow_rank=3, delay_s=0.02)))
    rows = {row.measure.name: row for row in rows_of(a, b)}
    change = rows["throughput"].percent
    assert change is not None and change == pytest.approx(100 * (0.1 / 0.12 - 1), abs=1.5)
    assert f"{abs(change):.0f}%" in difference_words(a, b)
    phases = [rows[name].difference or 0.0 for name in ("input_wait", "compute", "exposed_communication", "optimizer", "rest")]
    assert sum(phases) == pytest.approx(0.02, abs=1e-3)
    assert rows["latest rank"].b == pytest.approx(0.02, rel=0.1) and (b.latest, b.late[0][0]) == (3, 3)
    assert rows["communication share"].percent is None


def test_before_there_is_anything_to_compare_it_says_so() -> None:
    assert "too few steps" in difference_words(side(SessionState()), side(state_of(BASE)))
    assert rows_of(side(SessionState()), side(SessionState())) == []
    # Under 50 steps nothing says how well a speed is known.
    short = side(state_of(replace(BASE, seconds=5, step_s=0.2, seed=2)))
    assert short.speed is not None and "too few steps" in difference_words(side(state_of(BASE)), short)


def test_loss_is_the_last_that_the_lowest_rank_logged() -> None:
    losses = [ev.MetricsLogged(at=BASE.start + 42 + i, worker="w0", rank=0, epoch=i, values={"loss": 2.0 - i}) for i in range(2)]
    other = ev.MetricsLogged(at=BASE.start + 45, worker="w1", rank=1, epoch=1, values={"loss": 9.0})
    rows = rows_of(side(state_of(BASE)), side(state_of(BASE, *losses, other)))
    assert [(row.a, row.b, row.difference) for row in rows if row.measure.name == "loss"] == [(None, 1.0, None)]
    assert [row.measure for row in rows] == [m for m in MEASURES if m.name in {row.measure.name for row in rows}]


def test_moments_are_found_by_step_time_and_epoch() -> None:
    marks = Landmarks(1000.0, None, {0: (1010.0, 1030.0), 1: (1030.0, 1050.0)})
    assert place("time", Standing(5, 12.5, None), marks) == ("at", 1012.5)
    assert place("step", Standing(5, 12.5, None), marks) == ("step", 5.0)
    assert place("epoch", Standing(5, 12.5, None), marks) is None
    assert place("epoch", Standing(5, 12.5, 1.25), marks) == ("at", 1035.0)
    assert place("epoch", Standing(5, 12.5, 7.0), marks) == ("at", 1050.0)
    assert place("epoch", Standing(5, 12.5, 1.25), replace(marks, steps_per_epoch=40)) == ("step", 50.0)


def test_curves_run_along_the_axis_that_locks() -> None:
    state = state_of(BASE)
    last = standing(state)
    for lock, end in zip(LOCKS, (last.step, last.time_s, last.epoch), strict=True):
        points = curve(state, lock)
        assert end is not None and 0.9 * end < points[-1][0] <= end
        assert [x for x, _ in points] == sorted(x for x, _ in points)
        assert points[-3][1] == pytest.approx(4 * 32 / 0.1, rel=0.1)
    assert landmarks(state).job_started == BASE.start


def test_a_session_without_epochs_has_no_place_by_epoch() -> None:
    state = SessionState()
    for event in session(BASE):
        if not isinstance(event, ev.ProgressDeclared):
            apply(state, structs.replace(event, epoch=None) if isinstance(event, ev.StepsRecorded) else event)
    assert standing(state).epoch is None and curve(state, "epoch") == []
