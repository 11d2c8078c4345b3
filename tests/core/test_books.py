"""Rank-seconds that close, and what communication costs."""

from __future__ import annotations

import pytest

from distmon.core import events as ev
from distmon.core.books import books
from distmon.core.communication import communication, explanation
from distmon.core.fold import apply
from distmon.core.measures import rolling_throughput
from distmon.core.state import SessionState
from distmon.core.synthetic import Script, session
from distmon.core.synthetic_faults import Trial, second_by_second
from distmon.core.wall import wall_split
from distmon.replay.paths import demo_session
from distmon.replay.session_file import load_state


def told(trial: Trial) -> SessionState:
    state = SessionState()
    for events in second_by_second(trial):
        for event in events:
            apply(state, event)
    return state


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_the_books_close(ranks: int) -> None:
    state = SessionState()
    for event in session(Script(ranks=ranks, nodes=1, seconds=30, slow_rank=0, delay_s=0.01)):
        apply(state, event)
    found = books(state)
    assert found is not None
    assert sum(found.parts.values()) == pytest.approx(found.total, rel=1e-9)
    assert abs(found.unexplained_share) <= 0.005
    assert found.parts["launch"] == pytest.approx(0.5 * ranks)


def test_the_books_of_a_real_run_close() -> None:
    state, _ = load_state(demo_session())
    found = books(state)
    assert found is not None
    assert abs(found.unexplained_share) <= 0.02


def test_waiting_for_a_late_rank_is_told_from_the_transfer() -> None:
    calm, late = (communication(told(Trial(cause, ranks=4, size=0.1, onset=0, steps=300))) for cause in ("healthy", "compute"))
    assert calm is not None and late is not None
    assert calm.transfer_s and calm.waiting_s and late.transfer_s and late.waiting_s
    assert late.transfer_s == pytest.approx(calm.transfer_s, rel=0.1)
    # Three of four ranks wait 10 ms for the fourth; what they waited for one another before is within that.
    assert 0.005 <= late.waiting_s - calm.waiting_s <= 0.0075
    assert late.bus_bytes_per_s is None
    assert "one rank waiting" not in explanation(calm)


def test_bandwidth_is_of_the_transfer_alone() -> None:
    state = told(Trial("healthy", ranks=4, steps=200))
    apply(state, ev.ModelDescribed(at=state.now, worker="w0", rank=0, parameters=25_000_000, gradient_bytes=10**8, tensors=161))
    found = communication(state)
    assert found is not None and found.transfer_s is not None and found.algorithm_bytes_per_s is not None
    assert found.algorithm_bytes_per_s == pytest.approx(1e8 / found.transfer_s)
    assert found.bus_bytes_per_s == pytest.approx(1.5 * found.algorithm_bytes_per_s)
    assert "100.0 MB" in explanation(found)


def test_one_rank_has_no_communication() -> None:
    assert communication(told(Trial("healthy", ranks=1, steps=50))) is None


def test_a_broadcast_between_two_steps_belongs_to_initialisation() -> None:
    state = SessionState()
    apply(state, ev.JobStarted(at=100.0, job="j", command=["x"], np=1))
    apply(state, ev.WorkerStarted(at=101.0, host="h", local_rank=0, rank=0, pid=1))
    for begun, seconds in ((103.0, 1.0), (108.5, 0.5), (108.0, 1.5)):  # before the first step; one within another
        apply(state, ev.SpanRecorded(at=110.0, node="n", worker="w", rank=0, span="sync", started=begun, duration_s=seconds))
    for number, begun in enumerate((105.0, 110.0)):
        step = {"first_step": number, "origin": begun, "start_ns": [0], "duration_ns": [2_500_000_000]}
        apply(state, ev.StepsRecorded(at=begun + 2.5, node="n", worker="w", rank=0, generation=0, **step))  # type: ignore[arg-type]
    apply(state, ev.JobEnded(at=113.0, exit_code=0))
    wall, found = wall_split(state), books(state)
    assert wall is not None and found is not None
    assert wall.initialisation == pytest.approx(4.0 + 1.5)
    assert found.parts["initialisation"] == pytest.approx(4.0 + 1.5)
    assert wall.unexplained == pytest.approx(1.0)  # from 107.5 to 108, and from 109.5 to 110


def test_warm_up_that_one_generation_knows_is_not_lost_where_another_does_not() -> None:
    state = SessionState()
    apply(state, ev.JobStarted(at=100.0, job="j", command=["x"], np=1))
    at = 101.0
    for generation, durations in enumerate(([3.0, 2.0, *[0.1] * 100], [0.1] * 3)):
        starts = [sum(durations[:i]) for i in range(len(durations))]
        apply(
            state,
            ev.StepsRecorded(
                at=at + sum(durations),
                node="n",
                worker="w",
                rank=0,
                generation=generation,
                first_step=0,
                origin=at,
                start_ns=[round(s * 1e9) for s in starts],
                duration_ns=[round(d * 1e9) for d in durations],
            ),
        )
        at += sum(durations)
    apply(state, ev.JobEnded(at=at, exit_code=0))
    wall = wall_split(state)
    assert wall is not None and wall.warmup is not None and wall.steady is not None
    assert wall.warmup == pytest.approx(5.0, abs=0.11)
    assert wall.warmup + wall.steady == pytest.approx(5.0 + 10.3)
    assert wall.unexplained == pytest.approx(0.0, abs=1e-6)


def test_the_rolling_speed_of_a_short_run_counts_what_lies_in_seconds_that_were_not_full() -> None:
    state = SessionState()
    apply(state, ev.JobStarted(at=100.0, job="j", command=["x"], np=1))
    step = {"first_step": 0, "origin": 101.5, "start_ns": [0, 100_000_000, 200_000_000], "duration_ns": [100_000_000] * 3}
    apply(state, ev.StepsRecorded(at=102.0, node="n", worker="w", rank=0, generation=0, samples=[32] * 3, **step))  # type: ignore[arg-type]
    assert rolling_throughput(state) == pytest.approx(320.0)


def test_what_allreduce_is_of_is_not_said_where_its_size_is_unknown() -> None:
    state = told(Trial("healthy", ranks=4, steps=200))
    found = communication(state)
    assert found is not None and " ms for allreduce," in explanation(found) and "for that" not in explanation(found)
