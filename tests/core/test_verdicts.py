"""What findings say beside their kind: an exact gain where the wall time tells it, a check, and whether waits come in bursts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from msgspec.structs import replace

from distmon.core import events as ev
from distmon.core.finding import why_no_gain
from distmon.core.fold import apply
from distmon.core.measures import warmup
from distmon.core.state import SessionState
from distmon.core.synthetic_faults import Cause, Trial, second_by_second
from distmon.core.verdicts import verdicts

STEP_NS = 10**8


def folded(events: Iterable[ev.AnyEvent]) -> SessionState:
    state = SessionState()
    for event in events:
        apply(state, event)
    return state


def batch(first: int, origin: float, durations: Sequence[int], rank: int = 0) -> ev.StepsRecorded:
    starts = [sum(durations[:k]) for k in range(len(durations))]
    return ev.StepsRecorded(
        at=origin + sum(durations) / 1e9, node="n", worker=f"w{rank}", rank=rank, generation=0, first_step=first, origin=origin,
        start_ns=starts, duration_ns=list(durations), samples=[32] * len(durations),
    )  # fmt: skip


def test_the_gain_without_warm_up_is_what_it_took_beyond_steady_steps() -> None:
    """Five steps of two seconds, then ten seconds of steady ones: the job is 20 s, 9.5 s of which are the warm-up's."""
    job = ev.JobStarted(at=0.0, job="j", command=["x"], np=1)
    steady = [STEP_NS + 10_000 * (step % 7) for step in range(100)]
    state = folded([job, batch(0, 0.0, [20 * STEP_NS] * 5), batch(5, 10.0, steady), ev.JobEnded(at=20.0, exit_code=0)])
    assert warmup(state.generations[0]).steps == 5
    (found,) = [v for v in verdicts(state) if v.kind == "warmup_dominated"]
    assert found.gain_of == "job" and found.gain_percent == pytest.approx((47.5, 47.5), abs=0.1)


def test_the_gain_without_evaluation_is_its_share_of_the_job() -> None:
    job = ev.JobStarted(at=0.0, job="j", command=["x"], np=1)
    span = ev.SpanRecorded(at=15.0, node="n", worker="w", rank=0, span="evaluation", started=10.0, duration_s=5.0)
    state = folded([job, batch(0, 0.0, [STEP_NS] * 100), span, ev.JobEnded(at=20.0, exit_code=0)])
    (found,) = [v for v in verdicts(state) if v.kind == "evaluation_dominated"]
    assert found.gain_of == "job" and found.gain_percent == pytest.approx((25.0, 25.0))


@pytest.mark.parametrize(("waits", "pattern"), [([STEP_NS // 4] * 40, "steady"), ([STEP_NS - 1, 0, 0, 0] * 10, "bursty")])
def test_a_wait_for_input_is_told_as_steady_or_bursty(waits: list[int | None], pattern: str) -> None:
    told = replace(batch(0, 0.0, [STEP_NS] * 40), input_wait_ns=waits)
    (found,) = [v for v in verdicts(folded([told])) if v.kind == "input_bound"]
    assert found.pattern == pattern and found.gain_of == "step"


@pytest.mark.parametrize(("waits", "pattern"), [([STEP_NS // 4] * 200, "steady"), ([STEP_NS - 1, 0, 0, 0] * 50, "bursty")])
def test_a_transfer_is_told_as_steady_or_bursty(waits: list[int | None], pattern: str) -> None:
    both = [replace(batch(0, 0.0, [STEP_NS] * 200, rank), exposed_communication_ns=waits) for rank in range(2)]
    (found,) = [v for v in verdicts(folded(both)) if v.kind == "communication_bound"]
    assert found.pattern == pattern


@pytest.mark.parametrize("cause", ["healthy", "stopped"])
def test_every_finding_says_how_to_check_it(cause: Cause) -> None:
    state = SessionState()
    for second in second_by_second(Trial(cause, ranks=2, steps=300)):
        for event in second:
            apply(state, event)
        assert all(v.check for v in verdicts(state))
    died = ev.WorkerExited(at=state.now, rank=1, host="node-1", local_rank=0, exit_code=1)
    apply(state, died)
    ended_by = "stall" if cause == "stopped" else "rank_died"
    assert ended_by in {v.kind for v in verdicts(state)} and all(v.check for v in verdicts(state))


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_job_is_said_to_end_with_a_rank_only_where_the_others_do_not_train_on(goes_on: bool) -> None:
    died = ev.WorkerExited(at=10.0, rank=1, host="h", local_rank=1, exit_code=1)
    later = [replace(batch(0, 12.5, [STEP_NS] * 5), generation=1)] * goes_on
    state = folded([ev.JobStarted(at=0.0, job="j", command=["x"], np=2), batch(0, 0.0, [STEP_NS] * 100), died, *later])
    (found,) = [v for v in verdicts(state) if v.kind == "rank_died"]
    assert found.evidence.endswith("the others train on without it" if goes_on else "the job ends with it")
    assert why_no_gain(found) == ("what it would add depends on how the job scales" if goes_on else "the job ends with it")
