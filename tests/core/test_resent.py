"""What is told twice, not at all, or cannot be true."""

import json

import pytest

from distmon.core import codec, measures
from distmon.core import events as ev
from distmon.core.fold import apply
from distmon.core.state import SessionState
from distmon.core.synthetic import Script, session
from distmon.core.verdicts import verdicts
from distmon.core.warmup import find_warmup


def fold(events: list[ev.AnyEvent]) -> SessionState:
    state = SessionState()
    for event in events:
        apply(state, event)
    return state


def batch(first: int, count: int, *, worker: str = "w") -> ev.StepsRecorded:
    ms = 1_000_000
    return ev.StepsRecorded(
        at=100.0,
        node="n",
        worker=worker,
        rank=0,
        generation=0,
        first_step=first,
        origin=10.0 + first * 0.001,
        start_ns=[i * ms for i in range(count)],
        duration_ns=[ms] * count,
        input_wait_ns=list(range(first, first + count)),
        samples=[8] * count,
    )


@pytest.mark.parametrize("again", [(0, 10), (0, 25), (5, 3), (9, 16), (20, 5)])
def test_steps_told_again_count_once(again: tuple[int, int]) -> None:
    """An agent that was killed and started again reads the rings from their start."""
    once = fold([batch(0, 25)])
    twice = fold([batch(0, 20), batch(*again), batch(20, 5)])
    for state in (once, twice):
        assert measures.steps(state) == 25
        assert measures.samples(state) == 200
    assert once.generations[0].ranks[0].totals == twice.generations[0].ranks[0].totals
    assert once.history == twice.history


def test_another_worker_of_the_same_rank_is_no_repetition() -> None:
    state = fold([batch(0, 20), batch(0, 20, worker="v")])
    assert state.generations[0].ranks[0].totals.steps == 40


def test_spans_told_again_count_once() -> None:
    span = ev.SpanRecorded(at=1.0, node="n", worker="w", rank=0, span="evaluation", started=1.0, duration_s=2.0)
    later = ev.SpanRecorded(at=9.0, node="n", worker="w", rank=0, span="evaluation", started=9.0, duration_s=1.0)
    state = fold([span, later, span, later])
    assert state.ranks[0].span_totals["evaluation"] == 3.0
    assert len(state.spans) == 2


def test_a_node_that_falls_silent_is_told_once_and_when_it_comes_back() -> None:
    sample = [ev.NodeSampled(at=float(t), node="n", interval_s=1.0) for t in (1, 2, 40)]
    state = fold([ev.NodeJoined(at=0.0, node="n", host="h"), *sample[:2], *(ev.Ticked(at=float(t)) for t in range(3, 40))])
    assert [entry.text for entry in state.log if "nothing heard" in entry.text] == [
        "nothing heard from node h for 9 s: its agent or the way to it is gone"
    ]
    assert state.nodes["n"].lost_since == 2.0
    apply(state, sample[2])
    assert state.nodes["n"].silences == [(2.0, 40.0)]
    assert state.nodes["n"].lost_since is None
    assert "is back after 38 s" in state.log[-1].text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("duration_ns", [2**62]),
        ("samples", [-1]),
        ("samples", [10**18]),
        ("first_step", -1),
        ("rank", 2**70),
        ("origin", 1e308),
        ("at", -5.0),
        ("start_ns", [0, 1]),
        ("compute_ns", []),
    ],
)
def test_numbers_that_cannot_be_are_no_event(field: str, value: object) -> None:
    good = {"kind": "steps_recorded", "at": 1.0, "node": "n", "worker": "w", "rank": 0, "generation": 0, "first_step": 0}
    good |= {"origin": 1.0, "start_ns": [0], "duration_ns": [5], "samples": [8], "compute_ns": [3]}

    assert isinstance(codec.decode_json(json.dumps(good).encode()), ev.StepsRecorded)
    with pytest.raises(codec.BadEvent):
        codec.decode_json(json.dumps(good | {field: value}).encode())


def test_a_step_that_compiles_stays_out_of_the_means_of_a_restless_run() -> None:
    series = [12.0] + [0.1] * 30 + [0.2] * 30
    found = find_warmup(series)
    assert (found.shape, found.steps, found.leading_steps) == ("no_steady_state", None, 1) or found.steps == 1


def test_a_late_rank_is_not_sold_as_communication_of_all() -> None:
    state = fold(list(session(Script(ranks=2, seconds=20, slow_rank=1, delay_s=0.05))))
    found = {v.kind: v for v in verdicts(state)}
    assert found["straggler"].rank == 1
    if (bound := found.get("communication_bound")) is not None:
        assert bound.gain_percent is not None
        assert bound.gain_percent[1] < 40
    assert "input_bound" not in found
