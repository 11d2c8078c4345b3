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


def trained(state: SessionState, at: float, epoch: int | None, samples: int = 16) -> None:
    """A step of one second that ends `at`, of one rank."""
    step = ev.StepsRecorded(
        at=at, node="n", worker="w", rank=0, generation=0, first_step=int(at) - 1, origin=at - 1.0,
        start_ns=[0], duration_ns=[10**9], samples=[samples], epoch=epoch,
    )  # fmt: skip
    apply(state, step)


def two_epochs(*, told: bool, steps_late: bool, unmeasured: range = range(0)) -> SessionState:
    """Two epochs of 25 s, then two minutes in which nothing trains, all at 100 W."""
    state = SessionState()
    apply(state, ev.JobStarted(at=0.0, job="j", command=["x"], np=1))
    for at in range(1, 171):
        if told and at in (1, 26):
            apply(state, ev.EpochStarted(at=at - 1.0, worker="w", rank=0, epoch=at // 25))
        if at <= 50 and not steps_late:
            trained(state, float(at), (at - 1) // 25)
        if at not in unmeasured:
            apply(state, sampled(float(at), 100.0))
        if at <= 50 and steps_late:
            trained(state, float(at), (at - 1) // 25)
    apply(state, ev.JobEnded(at=170.0, exit_code=0, reason="finished"))
    return state


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("steps_late", [True, False])
def test_an_epoch_ends_with_its_last_step(told: bool, steps_late: bool) -> None:
    found = energy(two_epochs(told=told, steps_late=steps_late))
    assert found is not None
    assert [(e.epoch, e.joules, e.per_sample_j) for e in found.epochs] == [(0, 2_500, 6.25), (1, 2_500, 6.25)]
    assert not found.no_epoch


def test_the_last_epoch_of_a_job_that_ends_at_once_has_all_that_was_measured() -> None:
    state = SessionState()
    for at in range(1, 21):
        apply(state, sampled(float(at), 100.0))
        trained(state, float(at), 0)
    found = energy(state)
    assert found is not None and [e.joules for e in found.epochs] == [2_000]


def test_joules_of_a_part_of_the_time_are_not_divided_by_all_samples() -> None:
    found = energy(two_epochs(told=True, steps_late=False, unmeasured=range(30, 121)))
    assert found is not None
    assert found.measured_share == pytest.approx(79 / 170)
    assert found.per_sample_j is None and found.per_useful_sample_j is None
    assert [(e.epoch, e.per_sample_j) for e in found.epochs] == [(0, 6.25)]
    assert found.no_epoch == {1: "power was measured for 4 of its 25 s"}


def test_an_epoch_that_began_before_power_was_measured_says_so() -> None:
    found = energy(two_epochs(told=False, steps_late=False, unmeasured=range(11)))
    assert found is not None and [e.epoch for e in found.epochs] == [1]
    assert found.no_epoch == {0: "power was not measured when it began"}


def test_the_energy_of_epochs_of_nodes_that_are_read_in_turns_adds_up() -> None:
    """A hundred nodes, each at its own moment of the second: what is kept stays small, and says what all of them took."""
    state = SessionState()
    for at in range(1, 41):
        for node in range(100):
            rail = ev.PowerRail(name="p", watts=1.0, source="rapl")
            apply(state, ev.NodeSampled(at=at - 1 + (node + 1) / 100, node=f"n{node}", interval_s=1.0, power=[rail]))
        trained(state, float(at), (at - 1) // 20)
    found = energy(state)
    assert found is not None
    assert [e.joules for e in found.epochs] == pytest.approx([2_000, 2_000], rel=0.03)


def two_nodes(*, elastic: bool) -> Energy:
    """The second node is read from the middle of a job of 40 s on."""
    state = SessionState()
    apply(state, ev.JobStarted(at=0.0, job="j", command=["x"], np=1, elastic=elastic))
    if elastic:
        apply(state, ev.RanksAssigned(at=0.0, generation=0, world_size=1, places=[]))
    for at in range(1, 41):
        for node in ("n", "m")[: 1 + (at > 20)]:
            rail = ev.PowerRail(name="p", watts=10.0, source="rapl")
            apply(state, ev.NodeSampled(at=float(at), node=node, interval_s=1.0, power=[rail]))
        trained(state, float(at), (at - 1) // 20)
    found = energy(state)
    assert found is not None
    return found


def test_a_host_that_joins_an_elastic_job_leaves_no_gap_before_and_a_late_agent_does() -> None:
    joined, late = two_nodes(elastic=True), two_nodes(elastic=False)
    assert joined.measured_share == 1.0 and joined.per_sample_j == pytest.approx(600 / 640)
    assert [e.joules for e in joined.epochs] == [200, 400]
    assert late.measured_share == 0.75 and late.per_sample_j is None
    assert [e.epoch for e in late.epochs] == [1] and late.no_epoch == {0: "power was measured for 10 of its 20 s"}
