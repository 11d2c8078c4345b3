"""The two speedups and what lies between them."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from distmon.core.events import StepsRecorded
from distmon.core.fold import apply
from distmon.core.reconcile import RunFigures, reconcile, run_figures, why_no_figures
from distmon.core.state import SessionState
from distmon.core.synthetic import Script, session

positive = st.floats(1e-3, 1e6)


@given(st.lists(st.tuples(st.sampled_from([1, 2, 4, 8]), positive, st.integers(1, 10**9), positive), min_size=1, max_size=20))
def test_the_identity_holds_whatever_the_runs(found: list[tuple[int, float, int, float]]) -> None:
    runs = [RunFigures(ranks=n, wall_s=t, samples=w, steady_samples_per_s=v, parts_s={"steady": t}) for n, t, w, v in found]
    for row in reconcile(runs):
        product = row.work_factor * row.speed_factor * row.share_factor
        assert row.speedup_by_wall.estimate == pytest.approx(product, rel=1e-9)


def test_the_write_ups_labs_are_explained() -> None:
    """By speed the efficiency is above 0.94, by time below 0.4: start-up took what did not get faster."""
    one = RunFigures(ranks=1, wall_s=30 + 100, samples=10_000, steady_samples_per_s=100.0, parts_s={"launch": 30, "steady": 100})
    four = RunFigures(ranks=4, wall_s=60 + 26, samples=10_000, steady_samples_per_s=384.6, parts_s={"launch": 60, "steady": 26})
    row = reconcile([one, four])[1]
    assert row.efficiency_by_speed == pytest.approx(0.96, abs=0.01)
    assert row.efficiency_by_wall == pytest.approx(130 / 86 / 4)
    assert row.work_factor == 1.0 and row.speed_factor == pytest.approx(3.846)
    assert row.share_factor == pytest.approx((26 / 86) / (100 / 130), rel=1e-3)


def test_a_sessions_parts_add_up_to_its_wall_time() -> None:
    state = SessionState()
    for event in session(Script(ranks=4, nodes=2, seconds=60)):
        apply(state, event)
    found = run_figures(state)
    assert found is not None and found.ranks == 4
    assert math.fsum(found.parts_s.values()) == pytest.approx(found.wall_s, rel=1e-6)
    assert found.steady == pytest.approx(4 * 32 / 0.1, rel=0.01)
    assert {"steady compute", "steady exposed_communication", "steady input_wait"} <= set(found.parts_s)


def test_waiting_for_the_last_rank_is_told_from_communication() -> None:
    """One of four ranks is 30 ms late: the others wait for it, so that it is three quarters of 30 ms of the mean step."""
    state = SessionState()
    for event in session(Script(ranks=4, nodes=1, seconds=60, step_s=0.1, slow_rank=1, delay_s=0.03)):
        apply(state, event)
    found = run_figures(state)
    assert found is not None
    steps = found.samples / 4 / 32
    assert found.parts_s["steady straggler_wait"] / steps == pytest.approx(0.75 * 0.03, rel=0.15)
    assert math.fsum(found.parts_s.values()) == pytest.approx(found.wall_s, rel=1e-6)


def test_a_session_without_steps_has_no_figures() -> None:
    assert run_figures(SessionState()) is None


def test_repeated_runs_give_an_interval_between_runs() -> None:
    source = random.Random(1)
    runs = [
        RunFigures(ranks=n, wall_s=100 / n * source.gauss(1, 0.01), samples=1000, steady_samples_per_s=10.0 * n, parts_s={})
        for n in (1, 2)
        for _ in range(3)
    ]
    row = reconcile(runs)[1]
    assert row.speedup_by_wall.basis == "between runs" and row.speedup_by_wall.low < 2 < row.speedup_by_wall.high
    assert row.speedup_by_wall.high - row.speedup_by_wall.low < 0.3


def test_one_wall_time_stands_in_the_identity_and_in_the_split() -> None:
    """Runs of 40 and 90 s: their geometric mean is 60 s, and so is the sum of the parts."""
    runs = [
        RunFigures(ranks=1, wall_s=wall, samples=9, steady_samples_per_s=1.0, parts_s={"launch": wall / 4, "steady": 0.75 * wall})
        for wall in (40.0, 90.0)
    ]
    row = reconcile(runs)[0]
    assert row.wall_s.estimate == pytest.approx(60.0)
    assert row.parts_s == pytest.approx({"launch": 15.0, "steady": 45.0})


def test_steady_steps_without_a_sample_have_no_figures() -> None:
    """Only the warm-up's batches tell some: a speed of 0 has no logarithm."""
    state = SessionState()
    for event in session(Script(ranks=2, nodes=1, seconds=30)):
        if isinstance(event, StepsRecorded) and event.samples is not None and event.first_step > 0:
            event = replace(event, samples=[0] * len(event.samples))
        apply(state, event)
    assert run_figures(state) is None and why_no_figures(state) != ""
