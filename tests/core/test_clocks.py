"""Clocks that differ between nodes, and clocks that are set (case RR-07)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distmon.core import events as ev
from distmon.core.clocks import aligned, certain_offset, moved, note_offset, time_of
from distmon.core.events import AnyEvent, ClockOffsetEstimated, GpuReading, NodeSampled, SpanRecorded, StepsRecorded, Ticked
from distmon.core.fold import apply
from distmon.core.state import LOST_S, SessionState
from distmon.wire.clock import SteadyClock

CASE = Path(__file__).parents[1] / "data" / "cases" / "RR-07"
HOUR = 3600.0
BEGUN = 1_700_000_000.0


def steps(node: str, rank: int, origin: float) -> StepsRecorded:
    """A second of ten steps."""
    starts = list(range(0, 10**9, 10**8))
    return StepsRecorded(
        at=origin + 1,
        stream=f"{node}/b/ranks",
        node=node,
        worker=f"{node}/{rank}",
        rank=rank,
        generation=0,
        first_step=int(origin % 1000) * 10,
        origin=origin,
        start_ns=starts,
        duration_ns=[10**8] * 10,
        samples=[32] * 10,
    )


def estimate(node: str, offset_s: float, round_trip_s: float = 0.001, at: float = BEGUN) -> ClockOffsetEstimated:
    return ClockOffsetEstimated(at=at, node=node, offset_s=offset_s, round_trip_s=round_trip_s)


def folded(events: list[AnyEvent]) -> SessionState:
    state = SessionState()
    for event in events:
        apply(state, event)
    return state


@pytest.mark.parametrize("ahead_s", [HOUR, -HOUR, 0.25])
def test_a_nodes_times_are_moved_to_the_viewers_clock(ahead_s: float) -> None:
    events: list[AnyEvent] = [Ticked(at=BEGUN), estimate("b", -ahead_s)]
    for second in range(20):
        origin = BEGUN + second
        events += [steps("a", 0, origin), steps("b", 1, origin + ahead_s), Ticked(at=origin + 1)]
    state = folded(events)
    assert state.now == pytest.approx(BEGUN + 20)
    generation = state.generations[0]
    assert generation.ranks[1].last_end == pytest.approx(generation.ranks[0].last_end)
    assert state.history is not None
    assert state.history.between("samples", BEGUN, BEGUN + 20) == pytest.approx(20 * 2 * 320)
    assert all(node.lost_since is None for node in state.nodes.values())
    assert sum("clock of b differs" in line.text for line in state.log) == 1


def test_an_estimate_within_its_error_moves_nothing() -> None:
    assert certain_offset(estimate("n", 0.04, round_trip_s=0.1)) is None
    assert certain_offset(estimate("n", 0.001, round_trip_s=0.0)) is None
    assert certain_offset(estimate("n", -0.06, round_trip_s=0.1)) == -0.06
    state = folded([estimate("n", 5.0), estimate("n", 0.0), steps("n", 0, BEGUN)])
    assert state.generations[0].ranks[0].first_start == BEGUN


def test_every_time_of_an_event_moves() -> None:
    span = SpanRecorded(at=9.0, node="n", worker="w", rank=0, span="checkpoint", started=8.0, duration_s=1.0)
    assert moved(span, 2.0) == SpanRecorded(
        at=11.0, node="n", worker="w", rank=0, span="checkpoint", started=10.0, duration_s=1.0
    )
    assert moved(span, -10.0).at == 0.0


def test_a_node_that_is_ahead_is_lost_when_it_is_silent_and_not_before() -> None:
    state = folded([Ticked(at=BEGUN), estimate("b", -HOUR), steps("b", 0, BEGUN + HOUR), Ticked(at=BEGUN + 5)])
    assert state.nodes["b"].lost_since is None
    apply(state, Ticked(at=BEGUN + 2 + LOST_S))
    assert state.nodes["b"].lost_since is not None


def test_rr07_a_set_clock_neither_reorders_nor_makes_negative_times() -> None:
    """The agent's clock through a gap and a step back by one hour, as the case has them."""
    expected = json.loads((CASE / "expected.json").read_text())
    records = [json.loads(line) for line in (CASE / "gap.jsonl").read_text().splitlines()]
    timed = [record for record in records if "mono" in record]
    now = {"mono": 0, "wall": 0}
    now.update((name, round(timed[0][name] * 1e9)) for name in now)
    clock = SteadyClock(lambda: now["mono"], lambda: now["wall"])
    events: list[AnyEvent] = []
    last_sample: float | None = None
    stepped_s = 0.0
    for record in timed:
        now.update((name, round(record[name] * 1e9)) for name in ("mono", "wall"))
        at = clock.now()
        if (step := clock.step("node-a")) is not None:
            events.append(step)
            stepped_s += step.by_s
        if record["kind"] == "sample":
            # A gap is longer than any sample's interval: the agent that comes again begins anew.
            interval = 0.0 if last_sample is None or at - last_sample > 10 else at - last_sample
            last_sample = at
            gpus = [GpuReading(index=gpu["i"], power_w=gpu["power_w"]) for gpu in record["gpus"]]
            events.append(NodeSampled(at=at, node="node-a", interval_s=interval, gpus=gpus))
        elif record["kind"] == "step":
            events.append(
                StepsRecorded(
                    at=at,
                    node="node-a",
                    worker=record["worker"],
                    rank=record["rank"],
                    generation=0,
                    first_step=record["step"],
                    origin=at - 2,
                    start_ns=[0],
                    duration_ns=[2 * 10**9],
                    samples=[record["samples"]],
                )
            )
    assert stepped_s == pytest.approx(-HOUR)
    times = [event.at for event in events]
    assert times == sorted(times)
    assert times[-1] - times[0] == pytest.approx(expected["duration_s"], abs=2)
    state = SessionState()
    for event in events:
        apply(state, Ticked(at=event.at))
        apply(state, event)
    means = state.nodes["node-a"].gpus[0]
    assert means.joules == pytest.approx(expected["energy_j"], rel=0.05)
    assert means.power_s == pytest.approx(expected["covered_s"], rel=0.05)
    ((silent_from, silent_to),) = state.nodes["node-a"].silences
    assert silent_to - silent_from == pytest.approx(expected["gap_s"], abs=6)
    rank = state.generations[0].ranks[0]
    assert (rank.totals.steps, rank.last_step) == (60, 60)
    assert state.history is not None
    assert state.history.between("samples", silent_from + 5, silent_to - 5) == 0


def test_a_recordings_events_are_on_the_viewers_clock_from_the_estimate_on() -> None:
    offsets: dict[str, float] = {}
    late = ev.NodeSampled(at=1030.0, stream="n/1", node="n", interval_s=1.0)
    other = ev.NodeSampled(at=1001.0, stream="m/1", node="m", interval_s=1.0)
    assert time_of(late, offsets) == 1030.0
    note_offset(ev.ClockOffsetEstimated(at=1000.0, node="n", offset_s=-30.0, round_trip_s=0.001), offsets)
    assert (time_of(late, offsets), time_of(other, offsets), aligned(late, offsets).at) == (1000.0, 1001.0, 1000.0)
    note_offset(ev.ClockOffsetEstimated(at=1001.0, node="n", offset_s=0.0, round_trip_s=0.001), offsets)
    assert time_of(late, offsets) == 1030.0
