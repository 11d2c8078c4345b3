"""What ranks wait for while another evaluates alone is no step: speeds, books and communication are those of all evaluating."""

import random
from dataclasses import replace

import msgspec
import pytest

from distmon.core import events as ev
from distmon.core.books import books
from distmon.core.communication import communication
from distmon.core.comparison import run_values
from distmon.core.fold import apply
from distmon.core.intervals import Interval
from distmon.core.measures import current_generation
from distmon.core.overall import rank_overalls, throughput_interval
from distmon.core.reconcile import run_figures
from distmon.core.state import SessionState
from distmon.core.steady import run_speed
from distmon.core.synthetic import Script, session
from distmon.core.waited import steady_throughput, waited_for_spans_s
from distmon.core.wall import wall_split
from distmon.replay.report.summarise import summarise

EVALUATES_S = 2.0
AFTER_STEP = 100


def job(*, alone: bool, after_step: int = AFTER_STEP) -> SessionState:
    """Two ranks; the evaluation after a step is of both, or of rank 0 while rank 1 waits in its next step."""
    state = SessionState()
    told: set[int] = set()
    for event in session(Script(ranks=2, nodes=1, seconds=30, warmup_steps=0)):
        if isinstance(event, ev.StepsRecorded) and event.first_step > after_step and event.rank not in told:
            told.add(event.rank)
            if event.rank == 0 or not alone:
                begun = event.origin + event.start_ns[0] / 1e9 - EVALUATES_S
                span = ev.SpanRecorded(
                    at=event.at, node="n0", worker="", rank=event.rank, span="evaluation", started=begun, duration_s=EVALUATES_S
                )
                apply(state, span)
            else:
                wait = round(EVALUATES_S * 1e9)
                assert event.exposed_communication_ns is not None
                longer = [event.duration_ns[0] + wait, *event.duration_ns[1:]]
                waits = [(event.exposed_communication_ns[0] or 0) + wait, *event.exposed_communication_ns[1:]]
                event = msgspec.structs.replace(event, duration_ns=longer, exposed_communication_ns=waits)
        apply(state, event)
    assert told == {0, 1}
    return state


def test_speed_books_and_communication_do_not_hold_the_wait_for_one_that_evaluates_alone() -> None:
    alone, all_of_them = job(alone=True), job(alone=False)
    generation = current_generation(alone)
    assert generation is not None
    assert waited_for_spans_s(alone, generation) == {"evaluation": {0: 0.0, 1: EVALUATES_S}, "checkpoint": {0: 0.0, 1: 0.0}}
    one, other = run_figures(alone), run_figures(all_of_them)
    assert one is not None and other is not None
    assert one.steady == pytest.approx(other.steady, rel=0.01)
    sent, usual = communication(alone), communication(all_of_them)
    assert sent is not None and usual is not None
    assert sent.step_s == pytest.approx(usual.step_s, rel=0.01) and sent.exposed_s == pytest.approx(usual.exposed_s, abs=1e-3)
    found, whole = books(alone), books(all_of_them)
    assert found is not None and whole is not None
    assert found.parts["evaluation"] == pytest.approx(whole.parts["evaluation"], rel=0.01)


def test_what_is_waited_for_in_steps_that_are_set_aside_is_no_part_of_those_that_count() -> None:
    early = job(alone=True, after_step=-1)
    generation = current_generation(early)
    assert generation is not None
    assert waited_for_spans_s(early, generation)["evaluation"] == {0: 0.0, 1: 0.0}
    assert steady_throughput(early).mean == pytest.approx(steady_throughput(job(alone=False)).mean, rel=0.01)


def test_one_that_saves_while_another_evaluates_is_not_waited_for_besides() -> None:
    state = job(alone=False)
    generation, span = current_generation(state), state.spans[-1]
    assert generation is not None
    state.spans[-1] = replace(span, span="checkpoint")
    totals = state.ranks[span.rank].span_totals
    totals["checkpoint"] = totals.pop("evaluation")
    found = waited_for_spans_s(state, generation)
    assert [seconds for waited in found.values() for seconds in waited.values()] == [0.0] * 4


def by_turns(*, whole: bool = False, again_at: int = 400) -> SessionState:
    """Two ranks of which one evaluates before steps 60, 120 and so on, by turns, or none does. Another
    generation begins with step `again_at`.
    """
    state, turn, begun = SessionState(), 0, 100.0
    apply(state, ev.JobStarted(at=begun - 1, job="j", command=["x"], np=2))
    apply(state, ev.RanksAssigned(at=begun - 1, generation=0, world_size=2, places=[]))
    scatter = random.Random(3)
    for number in range(400):
        takes, waits, evaluating = 0.1 * scatter.lognormvariate(0, 0.02), 0.0, -1
        if number and number % 60 == 0 and not whole:
            evaluating, waits, turn = turn, EVALUATES_S, 1 - turn
        for rank in range(2):
            own = waits if rank == evaluating else 0.0
            if own:
                at = begun + 40 * rank
                span = ev.SpanRecorded(
                    at=at + own, node="n0", worker=f"w{rank}", rank=rank, span="evaluation", started=at, duration_s=own
                )
                apply(state, span)
            step = ev.StepsRecorded(
                at=begun + waits + takes,
                node="n0",
                worker=f"w{rank}",
                rank=rank,
                generation=int(number >= again_at),
                first_step=number - again_at * (number >= again_at),
                # The clock of the other is 40 s ahead.
                origin=begun + own + 40 * rank,
                start_ns=[0],
                duration_ns=[round(1e9 * (takes + waits - own))],
                exposed_communication_ns=[round(1e9 * (0.03 + waits - own))],
                samples=[32],
            )
            apply(state, step)
        begun += takes + waits
    return state


def test_ranks_that_evaluate_by_turns_are_waited_for_as_one_that_always_does() -> None:
    turns, none = steady_throughput(by_turns()).mean, steady_throughput(by_turns(whole=True)).mean
    assert turns is not None and turns == pytest.approx(none, rel=0.001)


def test_the_interval_of_the_mean_speed_is_that_of_a_run_in_which_nobody_waits() -> None:
    found, calm = throughput_interval(by_turns()), throughput_interval(by_turns(whole=True))
    assert found is not None and found == pytest.approx(calm, rel=0.001)


def test_an_evaluation_before_the_first_step_is_counted_once() -> None:
    state = SessionState()
    apply(state, ev.JobStarted(at=100.0, job="j", command=["x"], np=1))
    apply(state, ev.SpanRecorded(at=103.0, node="n", worker="w", rank=0, span="evaluation", started=101.0, duration_s=2.0))
    step = {"first_step": 0, "origin": 103.0, "start_ns": [0], "duration_ns": [10**9]}
    apply(state, ev.StepsRecorded(at=104.0, node="n", worker="w", rank=0, generation=0, **step))  # type: ignore[arg-type]
    apply(state, ev.JobEnded(at=104.0, exit_code=0))
    wall, found = wall_split(state), books(state)
    assert wall is not None and wall.initialisation == pytest.approx(1.0) and wall.evaluation == pytest.approx(2.0)
    assert wall.unexplained == pytest.approx(0.0)
    assert found is not None and found.parts["initialisation"] == pytest.approx(1.0) and abs(found.unexplained_share) < 1e-9


def test_what_comes_after_the_last_step_is_waited_for_in_none() -> None:
    state = job(alone=False)
    generation = current_generation(state)
    assert generation is not None
    last = max(made.last_end or 0.0 for made in generation.ranks.values())
    apply(state, ev.SpanRecorded(at=last + 9, node="n0", worker="", rank=0, span="evaluation", started=last + 1, duration_s=7.0))
    assert waited_for_spans_s(state, generation)["evaluation"] == {0: 0.0, 1: 0.0}


def test_what_is_shown_of_the_mean_speed_is_what_speedups_are_made_of() -> None:
    alone, all_of_them = job(alone=True), job(alone=False)
    figures, speed = run_figures(alone), run_speed(alone)
    assert figures is not None and speed is not None
    shown = steady_throughput(alone).mean
    assert shown is not None
    assert shown == pytest.approx(figures.steady, rel=0.001) and shown == pytest.approx(speed.estimate, rel=0.001)
    assert shown == pytest.approx(steady_throughput(all_of_them).mean, rel=0.01)
    report = summarise(alone)
    assert report.throughput.mean_samples_per_s == shown
    low, high = report.throughput.ci95_samples_per_s or (0.0, 0.0)
    assert low <= shown <= high
    assert sum(rank.mean_samples_per_s or 0.0 for rank in report.ranks) == pytest.approx(shown, rel=0.01)
    mean = run_values(alone)["throughput mean"]
    assert (mean.estimate if isinstance(mean, Interval) else mean) == pytest.approx(shown)


def test_each_generation_is_handled_by_itself() -> None:
    """The same steps and evaluations, with new ranks' generation in their midst."""
    state, waits = by_turns(again_at=210), EVALUATES_S
    first, last = (state.generations[number] for number in (0, 1))
    found = [waited_for_spans_s(state, generation)["evaluation"] for generation in (first, last)]
    assert found == [pytest.approx({0: waits, 1: 2 * waits}), pytest.approx({0: 2 * waits, 1: waits})]
    calm = by_turns(whole=True, again_at=210)
    assert steady_throughput(state).mean == pytest.approx(steady_throughput(calm).mean, rel=0.001)
    for one, other in zip(rank_overalls(state), rank_overalls(calm), strict=True):
        assert one.throughput.mean == pytest.approx(other.throughput.mean, rel=0.001)
    held, usual = books(state), books(calm)
    assert held is not None and usual is not None
    assert held.parts["evaluation"] == pytest.approx(2 * 6 * waits)
    sent, usually = (sum(of.parts.get(name, 0.0) for name in ("exposed_communication", "straggler_wait")) for of in (held, usual))
    assert sent == pytest.approx(usually, rel=0.01)


def test_it_is_said_where_the_waits_of_several_generations_cannot_be_told() -> None:
    state = by_turns(again_at=210)
    assert any("in the last generation, " in note for note in summarise(state).notes)
    state.spans.extend([state.spans[-1]] * ((state.spans.maxlen or 0) - len(state.spans)))
    assert waited_for_spans_s(state, state.generations[1]) == {}
    assert any("evaluations and checkpoints are kept one by one" in note for note in summarise(state).notes)
    alone = by_turns()
    alone.spans.extend([alone.spans[-1]] * ((alone.spans.maxlen or 0) - len(alone.spans)))
    assert not any("evaluations and checkpoints are kept one by one" in note for note in summarise(alone).notes)
