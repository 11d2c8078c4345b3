"""Rank-seconds that close, and what communication costs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from distmon.core import events as ev
from distmon.core.books import books
from distmon.core.communication import communication, explanation, size_words
from distmon.core.fold import apply
from distmon.core.measures import current_generation, rolling_throughput, steps_set_aside, warmup
from distmon.core.state import SessionState
from distmon.core.synthetic import Script, session
from distmon.core.synthetic_faults import Trial, second_by_second
from distmon.core.wall import wall_split
from distmon.replay.paths import demo_session
from distmon.replay.session_file import load_state

ELASTIC = Path(__file__).parents[2] / "docs" / "tour" / "elastic.jsonl.zst"


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


def test_the_books_of_a_real_elastic_run_close_and_agree_with_its_wall_time() -> None:
    """Rank 1 was killed, was away for 5.8 s, and came back in a new worker."""
    state, _ = load_state(ELASTIC)
    wall, found = wall_split(state), books(state)
    assert wall is not None and wall.launch and wall.rendezvous and wall.initialisation and wall.restart and found is not None
    assert abs(found.unexplained_share) <= 0.005
    assert found.parts["launch"] == pytest.approx(2 * wall.launch, rel=0.01)
    assert found.parts["initialisation"] == pytest.approx(2 * (wall.rendezvous + wall.initialisation), rel=0.01)
    assert found.parts["absent"] == pytest.approx(state.elastic.rounds[2].at - state.elastic.rounds[1].at)
    assert found.parts["restart"] == pytest.approx(2 * wall.restart, rel=0.01)


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


@pytest.mark.parametrize(("seconds", "ends"), [(3, "What follows from that takes 32 steps to say."), (10, "shifts the ratio.")])
def test_what_communication_means_is_not_said_of_a_few_steps(seconds: int, ends: str) -> None:
    state = SessionState()
    for event in session(Script(ranks=2, nodes=1, seconds=seconds, warmup_steps=0)):
        apply(state, event)
    found = communication(state)
    assert found is not None and found.exposed_share > 0.3 and explanation(found).endswith(ends)


@pytest.mark.parametrize(
    ("size", "said"), [(920, "920 bytes"), (4_200, "4.2 kB"), (8_940_000, "8.9 MB"), (3_200_000_000, "3.2 GB"), (0, "0 bytes")]
)
def test_gradients_of_any_size_have_the_unit_that_suits_them(size: int, said: str) -> None:
    assert size_words(size) == said


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


def test_a_broadcast_within_the_first_step_is_counted_once() -> None:
    state = SessionState()
    apply(state, ev.JobStarted(at=100.0, job="j", command=["x"], np=1))
    apply(state, ev.WorkerStarted(at=101.0, host="h", local_rank=0, rank=0, pid=1))
    # The first step is of several micro-batches, from 104 to 107.5, and of that 1 s is cut out.
    apply(state, ev.SpanRecorded(at=110.0, node="n", worker="w", rank=0, span="sync", started=106.0, duration_s=1.0))
    for number, begun in enumerate((105.0, 107.5)):
        step = {"first_step": number, "origin": begun, "start_ns": [0], "duration_ns": [2_500_000_000]}
        apply(state, ev.StepsRecorded(at=begun + 2.5, node="n", worker="w", rank=0, generation=0, **step))  # type: ignore[arg-type]
    apply(state, ev.JobEnded(at=111.0, exit_code=0))
    wall, found = wall_split(state), books(state)
    assert wall is not None and found is not None
    assert wall.initialisation == found.parts["initialisation"] == pytest.approx(4.0)
    assert wall.unexplained == pytest.approx(0.0)
    assert found.unexplained_share == pytest.approx(0.0)


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


def resized(*sizes: int, launcher: bool) -> SessionState:
    """A job whose world has each of the sizes for 10 s of training, with a pause of 4 s after each but the last.

    Ranks that come anew have a worker of their own. `launcher`: it tells of each rendezvous, a second after the last step.
    """
    state, at = SessionState(), 103.0
    apply(state, ev.JobStarted(at=100.0, job="j", command=["x"], np=sizes[0], elastic=launcher))
    for generation, size in enumerate(sizes):
        places = [ev.RankPlace(rank=rank, host="h", local_rank=rank) for rank in range(size)]
        if launcher:
            apply(state, ev.RanksAssigned(at=at - 3, generation=generation, world_size=size, places=places))
        for rank in range(sizes[generation - 1] if generation else 0, size):
            apply(state, ev.WorkerStarted(at=at - 2, host="h", local_rank=rank, rank=rank, pid=generation, generation=generation))
        for rank in range(size):
            step = {"first_step": 0, "origin": at, "start_ns": [i * 10**9 for i in range(10)], "duration_ns": [10**9] * 10}
            worker = f"{rank}-{generation}"
            apply(state, ev.StepsRecorded(at=at + 10, node="n", worker=worker, rank=rank, generation=generation, **step))  # type: ignore[arg-type]
        at += 14
    apply(state, ev.JobEnded(at=at - 3, exit_code=0))
    return state


@pytest.mark.parametrize("launcher", [False, True])
def test_a_rank_that_a_smaller_generation_lacks_is_absent_and_not_restarting(launcher: bool) -> None:
    state = resized(4, 2, 2, 4, launcher=launcher)
    wall, found = wall_split(state), books(state)
    assert wall is not None and found is not None and wall.launch is not None and wall.initialisation is not None
    assert wall.restart == pytest.approx(12.0)
    away = 28.0 if launcher else 24.0  # of two ranks: between two rendezvous, or from the first step without them to the last
    assert found.parts["absent"] == pytest.approx(2 * away)
    assert found.parts["restart"] == pytest.approx(2 * 12.0 + 2 * (32.0 - away))
    assert found.parts["launch"] == pytest.approx(4 * wall.launch), "a replaced worker's first start counts, not its successor's"
    assert found.parts["initialisation"] == pytest.approx(4 * wall.initialisation)
    assert found.parts["tail"] == pytest.approx(4 * 1.0)
    assert found.parts["unexplained"] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(("sizes", "absent"), [((2, 4), 2 * 14.0), ((4, 2), 2 * 14.0)])
def test_a_rank_is_absent_before_a_job_grows_to_it_and_after_it_shrinks(sizes: tuple[int, ...], absent: float) -> None:
    found = books(resized(*sizes, launcher=True))
    assert found is not None
    assert found.parts["absent"] == pytest.approx(absent)
    assert found.parts["unexplained"] == pytest.approx(0.0, abs=1e-6)


def test_what_follows_the_last_step_is_no_tail_where_the_end_was_not_recorded() -> None:
    state = SessionState()
    for event in session(Script(ranks=4, seconds=30)):
        if event.at < 1_700_000_020.5:
            apply(state, event)
    apply(state, ev.Ticked(at=1_700_000_020.9))
    wall, found = wall_split(state), books(state)
    assert wall is not None and found is not None
    assert wall.tail == 0.0 and not found.parts.get("tail")
    assert found.parts["unexplained"] == pytest.approx(4 * wall.unexplained, rel=0.1) and wall.unexplained > 0.3


def test_without_a_steady_state_what_means_leave_out_is_warm_up_in_both_books() -> None:
    """Two slow first steps of a job whose step time comes and goes."""
    state = SessionState()
    for event in session(Script(ranks=2, nodes=1, seconds=40, warmup_steps=0)):
        if isinstance(event, ev.StepsRecorded):
            numbers = range(event.first_step, event.first_step + len(event.duration_ns))
            longer = [ns * (30 if n < 2 else 1 + n // 60 % 2) for n, ns in zip(numbers, event.duration_ns, strict=True)]
            event = msgspec.structs.replace(event, duration_ns=[round(ns) for ns in longer])
        apply(state, event)
    generation, found, wall = current_generation(state), books(state), wall_split(state)
    assert generation is not None and found is not None and wall is not None
    assert warmup(generation).steps is None and steps_set_aside(generation) > 0
    assert wall.warmup is not None and wall.warmup > 1
    assert found.parts["warmup"] == pytest.approx(2 * wall.warmup, rel=0.01)
