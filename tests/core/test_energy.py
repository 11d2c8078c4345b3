"""Energy: counters, integrals, gaps, and sums that hold nothing twice."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from distmon.core import events as ev
from distmon.core.energy import Energy, energy
from distmon.core.energy_trail import KEEP_S, EnergyTrail
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
        assert found.error_j is not None
        hits += abs(found.joules - truth) <= found.error_j
    # The power at the end of a second stands for all of it: the error is one-sided in each step, and larger than that of a mean.
    assert hits >= 50


@pytest.mark.parametrize("readings", [3, 5])
def test_the_error_of_few_readings_holds_the_truth(readings: int) -> None:
    """Power that has nothing to do with itself a moment ago: what a reading says of the time before it is badly known."""
    hits = 0
    for seed in range(300):
        source = random.Random(seed)
        power = [[source.uniform(100, 300) for _ in range(50)] for _ in range(readings)]
        found = of([sampled(float(at), second[-1]) for at, second in enumerate(power, 1)])
        assert found.error_j is not None
        hits += abs(found.joules - sum(map(sum, power)) / 50) <= found.error_j
    assert hits >= 0.93 * 300


def test_two_readings_tell_no_error() -> None:
    assert of([sampled(1.0, 100.0), sampled(2.0, 300.0)]).error_j is None


def test_steps_whose_samples_are_not_known_are_taken_to_be_as_the_others() -> None:
    state = SessionState()
    apply(state, ev.JobStarted(at=0.0, job="j", command=["x"], np=1))
    step = {"first_step": 0, "origin": 0.0, "start_ns": [10**9 * s for s in range(100)], "duration_ns": [10**9] * 100}
    samples = [None if number % 25 == 0 else 10 for number in range(100)]
    apply(state, ev.StepsRecorded(at=100.0, node="n", worker="w", rank=0, generation=0, samples=samples, **step))  # type: ignore[arg-type]
    for at in range(1, 101):
        apply(state, sampled(float(at), 50.0))
    found = energy(state, redone_samples=100)
    assert found is not None
    assert (found.per_sample_j, found.per_useful_sample_j) == pytest.approx((5.0, 5_000 / 900))
    assert found.cost_per_sample(36.0) == pytest.approx(1 / 1_000)


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
    # A change of 90 W at its start and of 50 W at its end, each at any moment between two readings.
    assert found.epochs[0].error_j == pytest.approx(1.96 * (90**2 / 6 + 50**2 / 6 + 90**2 / 12) ** 0.5)


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
    assert found.no_epoch == {1: "power was measured for 16 % of its time"}


def test_an_epoch_that_began_before_power_was_measured_says_how_much_of_it_was() -> None:
    found = energy(two_epochs(told=False, steps_late=False, unmeasured=range(11)))
    assert found is not None and [e.epoch for e in found.epochs] == [1]
    assert found.no_epoch == {0: "power was measured for 60 % of its time"}


def test_the_energy_of_epochs_of_nodes_that_are_read_in_turns_adds_up() -> None:
    """A hundred nodes, each at its own moment of the second: what is kept stays small, and says what all of them took."""
    state = SessionState()
    for at in range(1, 42):
        for node in range(100):
            rail = ev.PowerRail(name="p", watts=1.0, source="rapl")
            apply(state, ev.NodeSampled(at=at - 1 + (node + 1) / 100, node=f"n{node}", interval_s=1.0, power=[rail]))
        if at <= 40:
            trained(state, float(at), (at - 1) // 20)
    found = energy(state)
    assert found is not None
    assert [e.joules for e in found.epochs] == pytest.approx([2_000, 2_000], rel=1e-4)


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
    assert [e.epoch for e in late.epochs] == [1] and late.no_epoch == {0: "power was measured for 50 % of its time"}


def steps(begin: float, ends: list[float], epoch: int, first: int = 0) -> list[ev.StepsRecorded]:
    """Steps of one rank, one behind the other, each told when it ends."""
    return [
        ev.StepsRecorded(
            at=end, node="n", worker="w", rank=0, generation=0, first_step=first + number, origin=start,
            start_ns=[0], duration_ns=[round((end - start) * 1e9)], samples=[1], epoch=epoch,
        )
        for number, (start, end) in enumerate(pairwise([begin, *ends]))
    ]  # fmt: skip


def folded(events: list[ev.StepsRecorded | ev.NodeSampled], ended: float) -> SessionState:
    state = SessionState()
    apply(state, ev.JobStarted(at=0.0, job="j", command=["x"], np=1))
    for event in sorted(events, key=lambda event: event.at):
        apply(state, event)
    apply(state, ev.JobEnded(at=ended, exit_code=0, reason="finished"))
    return state


@pytest.mark.parametrize("step_s", [5.0, 40.0, 400.0])
def test_of_long_steps_all_is_trained_and_no_epoch_is_lost(step_s: float) -> None:
    """A reading may come hundreds of times before the step that it belongs to is told."""
    first, second = ([step_s * k for k in range(1, 4)], [step_s * k for k in range(4, 7)])
    told = steps(0.0, first, 0) + steps(first[-1], second, 1, first=3)
    end = second[-1] + 20
    found = energy(folded([*told, *(sampled(float(t), 100.0) for t in range(1, int(end) + 1))], end))
    assert found is not None and not found.no_epoch
    assert [e.joules for e in found.epochs] == pytest.approx([300 * step_s] * 2)
    assert found.idle_joules == pytest.approx(2_000)


def test_a_first_step_that_compiles_is_training() -> None:
    told = steps(2.0, [8.0, *(8 + k / 4 for k in range(1, 89))], 0)
    found = energy(folded([*told, *(sampled(float(t), 100.0) for t in range(1, 36))], 35.0))
    assert found is not None
    assert [e.joules for e in found.epochs] == pytest.approx([2_800])
    assert found.idle_joules == pytest.approx(700)  # two seconds before, five after


def test_the_pauses_between_steps_of_a_batch_that_is_told_late_are_not_training() -> None:
    step = ev.StepsRecorded(
        at=30.0, node="n", worker="w", rank=0, generation=0, first_step=0, origin=0.0,
        start_ns=[0, 20 * 10**9], duration_ns=[10**10] * 2, samples=[1, 1], epoch=0,
    )  # fmt: skip
    found = energy(folded([step, *(sampled(float(t), 100.0) for t in range(1, 31))], 30.0))
    assert found is not None and found.idle_joules == pytest.approx(1_000)


def test_what_was_spent_since_the_last_step_of_a_job_that_runs_may_be_of_the_next() -> None:
    state = SessionState()
    for at in range(1, 31):
        apply(state, sampled(float(at), 100.0))
        if at == 10:
            trained(state, 10.0, 0)
    found = energy(state)
    assert found is not None and found.idle_joules == pytest.approx(900)


def test_of_readings_that_come_every_ten_seconds_long_epochs_are_told_and_short_ones_are_too_short() -> None:
    ends, told = [float(k) for k in range(1, 201)], list[ev.StepsRecorded | ev.NodeSampled]()
    for epoch, (begin, end) in enumerate(pairwise([0, 63, 67, 71, 74, 137, 200])):
        told += steps(float(begin), ends[begin:end], epoch, first=begin)
    found = energy(folded([*told, *(sampled(float(t), 100.0, 1_000.0, interval_s=10.0) for t in range(10, 201, 10))], 200.0))
    assert found is not None and found.no_epoch == dict.fromkeys((1, 2, 3), "it is too short for readings every 10.0 s")
    assert [e.joules for e in found.epochs] == pytest.approx([6_300] * 3, rel=0.001)


def test_a_quarter_of_an_epoch_that_was_not_measured_is_no_rounding() -> None:
    """Two nodes, one without power for half of an epoch of six seconds."""
    events: list[ev.StepsRecorded | ev.NodeSampled] = [*steps(0.0, [1.0 * k for k in range(1, 7)], 0)]
    events += steps(6.0, [1.0 * k for k in range(7, 13)], 1, first=6)
    for at in range(1, 13):
        for node in ("n", "m"):
            if node == "n" or not 6 < at <= 9:
                rail = ev.PowerRail(name="p", watts=10.0, source="rapl")
                events.append(ev.NodeSampled(at=float(at), node=node, interval_s=1.0, power=[rail]))
    found = energy(folded(events, 12.0))
    assert found is not None
    assert [e.epoch for e in found.epochs] == [0] and found.no_epoch == {1: "power was measured for 75 % of its time"}


@pytest.mark.parametrize("apart", [0.0, 0.1])
def test_an_epoch_that_begins_within_a_reading_has_its_share_of_every_node(apart: float) -> None:
    events: list[ev.StepsRecorded | ev.NodeSampled] = [
        *steps(0.5, [0.5 + k / 2 for k in range(1, 20)], 0), *steps(10.0, [10 + k / 2 for k in range(1, 22)], 1, first=19)
    ]  # fmt: skip
    for at in range(1, 24):
        for node in range(8):
            rail = ev.PowerRail(name="p", watts=100.0, source="rapl", energy_j=100.0)
            events.append(ev.NodeSampled(at=at - 0.3 + node * apart, node=f"n{node}", interval_s=1.0, power=[rail]))
    found = energy(folded(events, 23.0))
    assert found is not None
    assert [e.joules for e in found.epochs] == pytest.approx([7_600, 8_400], rel=0.001)
    assert all(e.error_j is not None and 0 < e.error_j < 0.03 * e.joules for e in found.epochs)


def _counted(work: Callable[[float], float], at: float) -> ev.NodeSampled:
    return sampled(at, work(at) - work(at - 1), work(at) - work(at - 1))


def _watts(work: Callable[[float], float], at: float) -> ev.NodeSampled:
    return sampled(at, (work(at) - work(at - 1e-6)) / 1e-6)


@pytest.mark.parametrize("reading", [_counted, _watts])
def test_the_error_of_an_epoch_holds_the_truth_where_power_changes_with_the_epochs(
    reading: Callable[[Callable[[float], float], float], ev.NodeSampled],
) -> None:
    """Epochs of 10 and 100 W in turns, that begin at any moment of a second."""
    hits = count = 0
    for seed in range(12):
        source, edges, told = random.Random(seed), [2.5], list[ev.StepsRecorded | ev.NodeSampled]()
        for epoch in range(8):
            edges.append(edges[-1] + source.uniform(8, 30))
            cuts = [edges[-2] + (edges[-1] - edges[-2]) * k / 20 for k in range(1, 21)]
            told += steps(edges[-2], cuts, epoch, first=20 * epoch)

        def work(until: float, edges: list[float] = edges) -> float:
            spans = list(pairwise(edges))
            return sum((100 if k % 2 else 10) * max(min(until, b) - a, 0.0) for k, (a, b) in enumerate(spans))

        end = int(edges[-1]) + 3
        found = energy(folded([*told, *(reading(work, float(t)) for t in range(1, end + 1))], float(end)))
        assert found is not None
        for told_of in found.epochs:
            truth = (100 if told_of.epoch % 2 else 10) * (edges[told_of.epoch + 1] - edges[told_of.epoch])
            assert told_of.error_j is not None
            hits += abs(told_of.joules - truth) <= told_of.error_j
            count += 1
    assert count >= 80 and hits >= 0.93 * count


@pytest.mark.parametrize("jump_j", [-5e5, 1e7])
def test_a_counter_that_was_set_anew_gives_way_to_the_watts_beside_it(jump_j: float) -> None:
    told = steps(0.0, [1.0 * k for k in range(1, 41)], 0)
    found = energy(folded([*told, *(sampled(float(t), 60.0, jump_j if t == 20 else 60.0) for t in range(1, 41))], 40.0))
    assert found is not None
    assert (found.joules, found.peak_w, [round(e.joules) for e in found.epochs]) == (2_400, 60, [2_400])
    assert found.readings[0].counted_share == pytest.approx(39 / 40)
    alone = energy(folded([sampled(1.0, None, 60.0), sampled(2.0, None, -5e5)], 2.0))
    assert alone is not None and (alone.joules, alone.measured_share) == (60, 0.5)


def test_the_error_of_watts_that_were_read_once_is_not_known() -> None:
    once = of([sampled(1.0, 50.0)])
    assert (once.joules, once.error_j, once.readings[0].error_j) == (50, None, None)
    assert of([sampled(1.0, 50.0, 50.0)]).error_j == pytest.approx(2 * 50 * 0.1)  # a counter knows its joules


def test_a_gauge_that_says_the_same_each_time_does_not_know_its_error() -> None:
    told: list[ev.StepsRecorded | ev.NodeSampled] = [*steps(0.0, [1.0 * k for k in range(1, 31)], 0)]
    found = energy(folded([*told, *(sampled(float(t), 50.0) for t in range(1, 31))], 30.0))
    assert found is not None
    assert (found.error_j, found.readings[0].error_j) == (None, None)
    assert [(e.joules, e.error_j) for e in found.epochs] == [(1_500, None)]


def busy_by_turns(source: random.Random) -> list[float]:
    """By 20 ms: steps of about 100 ms, 150 W in the larger part of each and 60 W in the other."""
    powers: list[float] = []
    while len(powers) < 120 * 50:
        powers += [150.0] * source.randint(2, 4) + [60.0] * source.randint(1, 3)
    return powers


def wandering(source: random.Random) -> list[float]:
    """Around 100 W, with a memory of a fifth of a second."""
    powers, watts = list[float](), 0.0
    for _ in range(120 * 50):
        watts = 0.9 * watts + source.gauss(0.0, 6.5)
        powers.append(100.0 + watts)
    return powers


def rising(source: random.Random) -> list[float]:
    return [50.0 + (0.02 + 0.001 * source.random()) * k for k in range(120 * 50)]


@pytest.mark.parametrize("power", [busy_by_turns, wandering, rising])
def test_the_error_of_sampled_watts_holds_what_the_power_did_between_them(power: Callable[[random.Random], list[float]]) -> None:
    hits, widths = 0, 0.0
    for seed in range(60):
        powers = power(random.Random(seed))[: 120 * 50]
        found = of([sampled(float(t), powers[50 * t - 1]) for t in range(1, 121)])
        assert found.error_j is not None
        hits += abs(found.joules - sum(powers) / 50) <= found.error_j
        widths += found.error_j / found.joules
    assert hits >= 55 and widths / 60 < 0.12


def test_a_node_that_tells_late_has_its_energy_in_the_time_that_it_is_of() -> None:
    told, late = steps(0.0, [1.0 * k for k in range(1, 61)], 0), list[ev.NodeSampled]()
    for at in range(1, 61):
        rail = ev.PowerRail(name="p", watts=10.0 if at <= 30 else 50.0, source="rapl")
        late.append(ev.NodeSampled(at=float(at), node="m", interval_s=1.0, power=[rail]))
    state, delay = SessionState(), int(KEEP_S) - 2
    apply(state, ev.JobStarted(at=0.0, job="j", command=["x"], np=1))
    for at in range(60 + delay):
        if at < 60:
            apply(state, sampled(at + 1.0, 100.0))
            apply(state, told[at] if at < 30 else steps(at + 0.0, [at + 1.0], 1, first=at)[0])
        if at >= delay:
            apply(state, late[at - delay])
    found = energy(state)
    assert found is not None
    assert [e.joules for e in found.epochs] == pytest.approx([30 * 110, 30 * 150])


def test_the_trail_of_a_day_without_steps_takes_little_room_and_is_fine_again_after() -> None:
    trail = EnergyTrail()
    for at in range(0, 86_400, 10):
        trail.add(at + 10.0, 10.0, 1_000.0, 10.0, 0.0)
    assert len(trail.cells) <= 5 * 1_024
    assert trail.idle(ended=True) == pytest.approx(8_640_000)
    coarse = trail.spent(43_200.0)
    assert coarse is not None and coarse.joules == pytest.approx(4_320_000)
    trail.train(80_000.0, 86_400.0)
    trail.drop_before(86_390.0)
    assert trail.width_s == 0.25 and len(trail.cells) <= 5 * 1_024
    assert trail.idle(ended=True) == pytest.approx(8_000_000, rel=1e-3) and trail.all_seconds == pytest.approx(86_400)
    assert trail.spent(43_200.0) is None
