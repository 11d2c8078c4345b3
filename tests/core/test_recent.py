"""What ranks did lately: by second, over ranks, and who differs in what."""

from __future__ import annotations

import pytest

from distmon.core import events as ev
from distmon.core.fold import apply
from distmon.core.measures import RankRow, Split, rank_rows
from distmon.core.recent import METRICS, differences, recent
from distmon.core.state import SessionState
from distmon.core.synthetic import Script, session

SCRIPT = Script(ranks=8, nodes=2, seconds=30, slow_rank=5, delay_s=0.04)


@pytest.fixture(scope="module")
def state() -> SessionState:
    state = SessionState()
    for event in session(SCRIPT):
        if not isinstance(event, (ev.WorkerExited, ev.JobEnded, ev.SessionEnded)):
            apply(state, event)
    return state


@pytest.mark.parametrize("metric", METRICS)
def test_every_measure_has_a_row_of_seconds_for_every_rank(state: SessionState, metric: str) -> None:
    found = recent(state, metric)
    assert sorted(found.rows) == list(range(8))
    assert all(len(row) == found.seconds for row in found.rows.values())
    assert all(value is not None for value in found.rows[0][1:])


def test_the_late_rank_is_late_in_every_second_and_the_others_are_not(state: SessionState) -> None:
    found = recent(state, "late")
    assert all(value == pytest.approx(0.04, abs=0.003) for value in found.rows[5][2:])
    others = [value for rank, row in found.rows.items() if rank != 5 for value in row[2:] if value is not None]
    assert max(map(abs, others)) < 0.003


def test_the_band_holds_the_median_and_the_late_rank_is_its_edge(state: SessionState) -> None:
    for band in recent(state, "input_wait").band():
        if band is not None:
            low, middle, high = band
            assert low <= middle <= high
            assert middle == pytest.approx(0.002, abs=1e-6)
            assert high > 0.02


def test_who_differs_is_told_with_the_phase_and_by_how_much(state: SessionState) -> None:
    found = differences(rank_rows(state))
    assert found[5].phase == "input_wait", "that it waits less for the others comes of it"
    assert found[5].by_s == pytest.approx(0.04, abs=0.002)
    assert max(abs(found[rank].by_s) for rank in found if rank != 5) < 0.002


USUAL = Split(1.1, 0.002, 0.05, 1.0, 0.004, 0.044)


@pytest.mark.parametrize(
    ("late", "phase", "by_s"),
    [
        (USUAL._replace(input_wait=1.002, exposed_communication=0.0), "input_wait", 1.0),
        (USUAL._replace(input_wait=0.602, compute=0.45, exposed_communication=0.0), "input_wait", 0.6),
        (USUAL._replace(rest=1.044, exposed_communication=0.0), "rest", 1.0),
        (USUAL._replace(step_s=1.6, exposed_communication=1.5), "exposed_communication", 0.5),
        (USUAL._replace(step_s=0.5, input_wait=0.402, exposed_communication=0.0), "exposed_communication", -1.0),
        (USUAL._replace(input_wait=0.402, exposed_communication=1.5), "exposed_communication", 0.5),
    ],
)
def test_a_late_rank_is_named_by_what_makes_it_late(late: Split, phase: str, by_s: float) -> None:
    """Steps are as long as those of the rank that is late; the others wait for it in the collective."""
    found = differences(RankRow(r, "", None, 1, 0, "training", late if r == 7 else USUAL, 0.0, None, {}) for r in range(8))
    assert found[7].phase == phase and found[7].by_s == pytest.approx(by_s)
    assert not any(found[rank].by_s for rank in range(7))


def test_a_step_of_several_seconds_fills_them_all() -> None:
    state = SessionState()
    batch = ev.StepsRecorded(
        at=14.0, node="n", worker="w", rank=0, generation=0, first_step=0, origin=10.0, start_ns=[0], duration_ns=[4 * 10**9]
    )
    apply(state, batch)
    found = recent(state, "step")
    assert (found.start, found.rows[0]) == (10, [4.0] * 5)
    assert found.limit == ""


def test_why_there_is_no_more_is_told(state: SessionState) -> None:
    assert recent(state, "step").limit == ""
    for step_s, limit, seconds in ((0.1, "steps", range(25, 29)), (1.0, "seconds", range(120, 121))):
        long = SessionState()
        for event in session(Script(ranks=2, nodes=1, seconds=200, step_s=step_s)):
            apply(long, event)
        found = recent(long, "step")
        assert found.limit == limit and found.seconds in seconds


def test_nothing_is_told_before_the_first_step() -> None:
    assert recent(SessionState(), "step").seconds == 0
    assert differences([]) == {}
