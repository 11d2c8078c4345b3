"""Energy: counters, integrals, gaps, and sums that hold nothing twice."""

from __future__ import annotations

import random

import pytest

from distmon.core import events as ev
from distmon.core.energy import Energy, energy
from distmon.core.fold import apply
from distmon.core.state import SessionState


def sampled(at: float, watts: float | None = None, joules: float | None = None, interval_s: float = 1.0) -> ev.NodeSampled:
    rail = ev.PowerRail(name="package-0", watts=watts, source="rapl", energy_j=joules)
    return ev.NodeSampled(at=at, node="n", interval_s=interval_s, power=[rail])


def of(events: list[ev.NodeSampled], began: float = 0.0) -> Energy:
    state = SessionState()
    apply(state, ev.JobStarted(at=began, job="j", command=["x"], np=1))
    for event in events:
        apply(state, event)
    found = energy(state)
    assert found is not None
    return found


def test_a_gap_holds_no_energy() -> None:
    found = of([sampled(t, 50.0) for t in range(1, 61)] + [sampled(225 + t, 100.0) for t in range(1, 61)])
    assert (found.joules, found.watt_hours) == (9_000.0, 2.5)
    assert found.readings[0].seconds == 120
    assert found.measured_share == pytest.approx(120 / 285)
    assert found.peak_w == 100


def test_a_paused_agent_invents_no_energy_where_only_watts_are_known() -> None:
    """Its first sample after the pause tells the whole pause as its interval; a counter has counted through it."""
    paused = [(float(t), 50.0, 1.0) for t in range(1, 61)] + [(226.0, 100.0, 166.0)]
    watts = of([sampled(at, watts, interval_s=s) for at, watts, s in paused])
    assert watts.joules == 60 * 50 + 3 * 100
    assert watts.readings[0].seconds == 63
    counter = of([sampled(at, watts, joules=watts * s, interval_s=s) for at, watts, s in paused])
    assert counter.joules == 60 * 50 + 166 * 100


def test_a_counter_is_preferred_to_watts() -> None:
    found = of([sampled(t, 50.0, 70.0) for t in range(1, 11)])
    assert found.joules == 700
    assert found.readings[0].counted_share == 1
    assert found.error_j == pytest.approx(2 * 70 * 0.1)


def test_the_error_of_sampled_watts_holds_the_truth() -> None:
    hits = 0
    for seed in range(60):
        source, level, truth, samples = random.Random(seed), 60.0, 0.0, []
        for second in range(1, 121):
            change = source.random()
            after = source.uniform(40, 200) if source.random() < 0.3 else level
            truth += level * change + after * (1 - change)
            level = after
            samples.append(sampled(float(second), level))
        found = of(samples)
        hits += abs(found.joules - truth) <= found.error_j
    # The power at the end of a second stands for all of it: the error is one-sided in each step, and larger than that of a mean.
    assert hits >= 50


def test_a_rail_within_another_is_listed_and_not_added() -> None:
    state = SessionState()
    rails = [
        ev.PowerRail(name="VDD_IN", watts=10.0, source="ina"),
        ev.PowerRail(name="CPU", watts=4.0, source="ina", within="VDD_IN"),
    ]
    apply(state, ev.NodeSampled(at=1.0, node="n", interval_s=2.0, power=rails))
    found = energy(state)
    assert found is not None
    assert (found.joules, found.covers, len(found.readings)) == (20.0, "VDD_IN", 2)


def test_no_power_is_no_zero() -> None:
    state = SessionState()
    apply(state, ev.NodeSampled(at=1.0, node="n", interval_s=1.0))
    assert energy(state) is None


def test_useful_samples_and_a_price() -> None:
    state = SessionState()
    apply(state, ev.JobStarted(at=0.0, job="j", command=["x"], np=1))
    steps = ev.StepsRecorded(
        at=3_600.0, node="n", worker="w", rank=0, generation=0, first_step=0, origin=0.0,
        start_ns=[0], duration_ns=[10**9], samples=[1_000],
    )  # fmt: skip
    apply(state, steps)
    apply(state, sampled(3_600.0, 100.0, interval_s=3_600.0))
    found = energy(state, redone_samples=200)
    assert found is not None
    assert (found.per_sample_j, found.per_useful_sample_j) == (360.0, 450.0)
    assert found.cost_per_sample(2.0) == pytest.approx(0.002)


def test_energy_by_epoch_and_while_nothing_trains() -> None:
    state = SessionState()
    apply(state, ev.JobStarted(at=0.0, job="j", command=["x"], np=1))
    second_ns = 1_000_000_000
    for at in range(1, 61):
        if at in (21, 41):
            apply(state, ev.EpochStarted(at=at - 1.0, worker="w", rank=0, epoch=at // 20 - 1))
        if at > 20:
            step = ev.StepsRecorded(
                at=float(at),
                node="n",
                worker="w",
                rank=0,
                generation=0,
                first_step=at - 21,
                origin=at - 1.0,
                start_ns=[0],
                duration_ns=[second_ns],
                samples=[10],
                epoch=0 if at <= 40 else 1,
            )
            apply(state, step)
        apply(state, sampled(float(at), 10.0 if at <= 20 else 100.0 if at <= 40 else 50.0))
    found = energy(state)
    assert found is not None
    assert found.joules == 200 + 2_000 + 1_000
    assert found.idle_joules == 200
    assert [(e.epoch, e.joules, e.per_sample_j) for e in found.epochs] == [(0, 2_000, 10.0), (1, 1_000, 5.0)]
    assert found.epochs[0].error_j == pytest.approx(1.96 * 100 / 6**0.5)
