"""Steps of several workers told in one event are the same steps, and fold to the same numbers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distmon.agent.together import together
from distmon.core import codec, measures
from distmon.core import events as ev
from distmon.core.batches import single_events
from distmon.core.fold import apply
from distmon.core.state import SessionState
from distmon.core.step_table import COLUMNS, StepTable, UInt32s
from distmon.core.steps import HISTORY_COLUMNS
from distmon.core.verdicts import verdicts

NS = st.integers(0, 10**9)


def batch(
    worker: int, first: int, durations: list[int], *, epoch: int | None = None, samples: int | None = 32
) -> ev.StepsRecorded:
    count = len(durations)
    return ev.StepsRecorded(
        at=1000.0 + first / 10,
        node="n",
        worker=f"w{worker}",
        rank=worker,
        generation=0,
        first_step=first,
        origin=1000.0 + first / 10 + worker / 1000,
        start_ns=[i * 100_000_000 for i in range(count)],
        duration_ns=durations,
        compute_ns=[duration // 2 for duration in durations],
        exposed_communication_ns=[duration // 4 for duration in durations],
        samples=None if samples is None else [samples] * count,
        epoch=epoch,
    )


def fold(events: list[ev.AnyEvent]) -> SessionState:
    state = SessionState()
    for event in events:
        apply(state, event)
    return state


def steps(events: list[ev.AnyEvent]) -> dict[int, list[tuple[object, ...]]]:
    """By rank, in the order in which they are told."""
    found: dict[int, list[tuple[object, ...]]] = {}
    for event in events:
        for one in single_events(event):
            begun = [one.origin + start / 1e9 for start in one.start_ns]
            columns = one.compute_ns or [None] * len(begun), one.exposed_communication_ns or [None] * len(begun)
            for i, start in enumerate(begun):
                row = (one.first_step + i, one.epoch, round(start, 5), one.duration_ns[i], columns[0][i], columns[1][i])
                found.setdefault(one.rank, []).append(row)
    return found


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_the_same_steps_in_the_same_order(data: st.DataObject) -> None:
    flushes: list[list[ev.StepsRecorded]] = []
    for worker in range(data.draw(st.integers(1, 5))):
        first, flush = data.draw(st.integers(0, 3)), []
        for epoch in sorted(data.draw(st.sets(st.integers(0, 3), max_size=3))):
            durations = data.draw(st.lists(st.integers(1, 5 * 10**9), min_size=1, max_size=6))
            flush.append(batch(worker, first, durations, epoch=epoch, samples=data.draw(st.sampled_from([None, 32]))))
            first += len(durations)
        flushes.append(flush)
    found: list[ev.AnyEvent] = list(together(flushes))
    assert steps(found) == steps([event for flush in flushes for event in flush])
    for event in found:
        assert codec.decode_json(codec.encode_json(event)) == event
        assert codec.decode_batch(codec.encode_batch([event])) == ([event], [])


@given(st.lists(st.lists(NS.filter(bool), min_size=10, max_size=10), min_size=2, max_size=6), st.integers(0, 2))
@settings(max_examples=30, deadline=None)
def test_the_fold_knows_no_difference(seconds: list[list[int]], late: int) -> None:
    """Also where a worker is a step behind at times."""
    begun = ev.RanksAssigned(at=999.0, generation=0, world_size=3, places=[])
    apart: list[ev.AnyEvent] = [begun]
    joined: list[ev.AnyEvent] = [begun]
    for second, durations in enumerate(seconds):
        cuts = [10 * second + (0 if second == 0 else -(worker == late)) for worker in range(3)]
        ends = [10 * second + 10 - (worker == late) for worker in range(3)]
        flushes = [[batch(w, cuts[w], (durations * 2)[: ends[w] - cuts[w]])] for w in range(3)]
        apart += [event for flush in flushes for event in flush]
        joined += together(flushes)
    assert all(isinstance(event, ev.NodeStepsRecorded) for event in joined[1:])
    one, other = fold(apart), fold(joined)
    assert measures.rank_rows(one) == measures.rank_rows(other)
    assert one.generations[0].series == other.generations[0].series
    assert one.generations[0].arrivals == other.generations[0].arrivals
    assert verdicts(one) == verdicts(other)
    assert measures.session_mean_throughput(one) == pytest.approx(measures.session_mean_throughput(other), rel=1e-6)
    assert one.history is not None and other.history is not None
    for name in HISTORY_COLUMNS:
        assert sum(one.history.column(name)) == pytest.approx(sum(other.history.column(name)))


def table(*counts: int, columns: tuple[str, ...] = (COLUMNS[0], COLUMNS[-1])) -> StepTable:
    return StepTable(columns, counts, UInt32s("I", range(sum(counts) * len(columns))))


def test_a_table_is_bytes_on_the_wire_and_lists_in_a_file() -> None:
    event = ev.NodeStepsRecorded(
        at=2.0, node="n", generation=0, origin=1.0, workers=["a", "b"], ranks=[0, 1], first_steps=[0, 4], table=table(2, 1)
    )
    line = codec.encode_json(event)
    assert b'"table":{"duration_ns":[[0,1],[4]],"start_ns":[[2,3],[5]]}' in line
    assert codec.decode_json(line) == event
    assert codec.decode_batch(codec.encode_batch([event])) == ([event], [])


@pytest.mark.parametrize(
    ("good", "broken"),
    [
        (b'[[0,1],[4]],"start', b'[[0,1],[4,4]],"start'),
        (b'[[0,1],[4]],"start', b'[[0,1]],"start'),
        (b'[[0,1],[4]],"start', b'[[0,-1],[4]],"start'),
        (b'[[0,1],[4]],"start', b'[[0,4294967296],[4]],"start'),
        (b'"duration_ns":', b'"of_later_ns":'),
        (b'"workers":["a","b"]', b'"workers":["a"]'),
        (b'{"duration_ns":[[0,1],[4]],"start_ns":[[2,3],[5]]}', b"{}"),
    ],
)
def test_a_broken_table_is_no_event(good: bytes, broken: bytes) -> None:
    event = ev.NodeStepsRecorded(
        at=2.0, node="n", generation=0, origin=1.0, workers=["a", "b"], ranks=[0, 1], first_steps=[0, 4], table=table(2, 1)
    )
    line = codec.encode_json(event)
    assert good in line
    with pytest.raises(codec.BadEvent):
        codec.decode_json(line.replace(good, broken))


@given(st.binary(max_size=40), st.integers(0, 200), st.integers(0, 255))
def test_a_packed_table_with_bytes_changed_is_an_event_or_refused(extra: bytes, position: int, value: int) -> None:
    event = ev.NodeStepsRecorded(
        at=2.0, node="n", generation=0, origin=1.0, workers=["a", "b"], ranks=[0, 1], first_steps=[0, 4], table=table(2, 1)
    )
    body = bytearray(codec.encode_batch([event]))
    body[position % len(body)] = value
    try:
        events, _ = codec.decode_batch(bytes(body) + extra)
    except codec.BadEvent:
        return
    state = SessionState()
    for found in events:
        apply(state, found)
