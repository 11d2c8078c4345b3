"""Sums of steps: they add up to the same, and the state knows that single steps are not in them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import ValidationError, convert

from distmon.core import batches
from distmon.core.batches import told_by
from distmon.core.codec import decode_batch, decode_json, encode_batch, encode_json
from distmon.core.events import NodeStepsSummed, StepsRecorded
from distmon.core.fold import apply
from distmon.core.measures import current_generation
from distmon.core.state import SessionState
from distmon.core.step_sums import summed

COLUMNS = ("duration_ns", "input_wait_ns", "compute_ns", "exposed_communication_ns", "optimizer_ns", "samples")
NS = st.integers(0, 6 * 10**9)


@st.composite
def told(draw: st.DrawFn) -> StepsRecorded:
    count = draw(st.integers(1, 12))
    durations = draw(st.lists(NS, min_size=count, max_size=count))
    starts = [sum(durations[:place]) for place in range(count)]
    column = st.none() | st.lists(st.none() | NS, min_size=count, max_size=count)
    return StepsRecorded(
        at=1e9 + 20,
        stream="n/b/ranks",
        seq=7,
        node="n",
        worker="w",
        rank=3,
        generation=0,
        first_step=draw(st.integers(0, 1000)),
        origin=1e9,
        start_ns=starts,
        duration_ns=durations,
        input_wait_ns=draw(column),
        compute_ns=draw(column),
        exposed_communication_ns=draw(column),
        optimizer_ns=draw(column),
        samples=draw(column),
        epoch=2,
    )


@settings(max_examples=200, deadline=None)
@given(told())
def test_sums_add_up_to_the_steps_wherever_each_was_measured(event: StepsRecorded) -> None:
    sums = summed(event)
    assert sums is not None and (sums.stream, sums.seq, sums.at) == (event.stream, event.seq, event.at)
    again = decode_json(encode_json(sums))
    assert again == sums and decode_batch(encode_batch([sums])) == ([sums], [])
    [(rank, worker, batch)] = told_by(sums)
    [(_, _, full)] = told_by(event)
    assert (rank, worker, batch.first_step, batch.steps) == (3, "w", full.first_step, full.steps)
    assert abs(batch.begin - full.begin) < 1e-6 and abs(batch.end - full.end) < 1e-6
    for name in COLUMNS:
        values = full.column(name)
        column = batch.column(name)
        if values is None or None in values:
            assert column is None or set(column) == {None}
        else:
            assert sum(value or 0 for value in column or ()) == sum(value or 0 for value in values)


def steps(first: int, durations: list[int]) -> StepsRecorded:
    return StepsRecorded(
        at=1e9 + first,
        node="n",
        worker="w",
        rank=0,
        generation=0,
        first_step=first,
        origin=1e9 + first,
        start_ns=[sum(durations[:place]) for place in range(len(durations))],
        duration_ns=durations,
        samples=[32] * len(durations),
    )


def test_the_state_counts_what_was_summed_and_keeps_it_out_of_quantiles() -> None:
    state = SessionState()
    apply(state, steps(0, [10**8] * 10))
    sums = summed(steps(10, [10**8] * 9 + [10**9]))
    assert sums is not None
    apply(state, sums)
    generation = current_generation(state)
    assert generation is not None
    rank = generation.ranks[0]
    assert (rank.sums[:3], rank.last_step, rank.summed_steps) == ((20, 29 * 10**8, 640), 19, 10)
    assert rank.durations.quantile(1.0) == 10**8 and state.summed_nodes == {"n"}
    apply(state, sums)  # told once more
    assert rank.sums[0] == 20
    apply(state, steps(20, [10**8] * 10))
    assert (rank.sums[0], rank.last_step, state.summed_nodes) == (30, 29, set())


@pytest.mark.parametrize(
    "damage",
    [
        {"counts": [0]},
        {"counts": [10**9]},
        {"ranks": [0, 1]},
        {"sums": {"duration_ns": [None]}},
        {"sums": {"duration_ns": [-1]}},
        {"sums": {"start_ns": [1]}},
        {"sums": {}},
        {"span_ns": [-1]},
    ],
)
def test_sums_that_do_not_belong_together_are_refused(damage: dict[str, object]) -> None:
    good: dict[str, object] = {
        "at": 1.0,
        "node": "n",
        "generation": 0,
        "origin": 1.0,
        "workers": ["w"],
        "ranks": [0],
        "first_steps": [0],
        "counts": [3],
        "start_ns": [0],
        "span_ns": [5],
        "sums": {"duration_ns": [6]},
    }
    convert(good, NodeStepsSummed)
    with pytest.raises(ValidationError):
        convert({**good, **damage}, NodeStepsSummed)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 40), *[st.integers(0, 1 << 34)] * 8), min_size=1, max_size=4), st.booleans())
def test_machine_code_spreads_sums_as_python_does(rows: list[tuple[int, ...]], all_known: bool) -> None:
    counts, starts, spans, *known = (list(column) for column in zip(*rows, strict=True))
    sums: list[list[int | None]] = [*known]
    if not all_known:
        sums[2][0] = None
    event = NodeStepsSummed(
        at=1e9,
        node="n",
        generation=0,
        origin=1e9,
        workers=[str(place) for place in range(len(rows))],
        ranks=list(range(len(rows))),
        first_steps=[0] * len(rows),
        counts=counts,
        start_ns=starts,
        span_ns=spans,
        sums=dict(zip(COLUMNS, sums, strict=True)),
    )
    with pytest.MonkeyPatch.context() as patch:
        compiled = told_by(event)
        patch.setattr(batches, "compiled_fold", None)
        plain = told_by(event)
    assert [told[:2] for told in compiled] == [told[:2] for told in plain]
    for (*_, batch), (*_, expected) in zip(compiled, plain, strict=True):
        assert batch[:5] == expected[:5] and list(batch.numbers) == list(expected.numbers)
