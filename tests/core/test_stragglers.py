"""Late ranks, slow links and what they cost, on seeded jobs whose fault is known."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable

import pytest

from distmon.core import events as ev
from distmon.core import measures
from distmon.core.arrivals import FIRST_STEPS
from distmon.core.fold import apply
from distmon.core.sequential import Noise, step_growth
from distmon.core.state import SessionState
from distmon.core.synthetic_faults import Cause, Trial, second_by_second
from distmon.core.verdicts import Verdict, cannot_tell, verdicts


def told(trial: Trial, every_second: bool = True) -> tuple[list[Verdict], dict[int, int], SessionState]:
    """(the last verdicts, rank -> step at which it was first named, the state)."""
    state, last = SessionState(), list[Verdict]()
    named: dict[int, int] = {}
    for events in second_by_second(trial):
        for event in events:
            apply(state, event)
        if every_second:
            last = verdicts(state)
        for verdict in last:
            if verdict.kind == "straggler" and verdict.rank is not None:
                named.setdefault(verdict.rank, measures.steps(state))
    return last if every_second else verdicts(state), named, state


@pytest.mark.parametrize("ranks", [2, 4, 16])
@pytest.mark.parametrize(("size", "within"), [(0.02, 150), (0.08, 25)])
def test_a_small_delay_is_named_in_time_and_no_victim_ever(ranks: int, size: float, within: int) -> None:
    for seed in range(2 if ranks < 16 else 1):
        cause: Cause = "input" if seed % 2 else "compute"
        trial = Trial(cause, ranks=ranks, rank=ranks - 1, size=size, onset=150, steps=310 + 2 * within, seed=seed)
        last, named, _ = told(trial)
        assert set(named) == {trial.rank}
        # Verdicts are looked at once a second, ten steps.
        assert named[trial.rank] - trial.onset <= within + 10
        assert (last[0].kind, last[0].rank, last[0].phase) in trial.expected()


@pytest.mark.parametrize("ranks", [65, 200])
def test_a_delay_is_named_as_soon_among_many_ranks(ranks: int) -> None:
    trial = Trial("input", ranks=ranks, rank=ranks - 1, size=0.08, onset=150, steps=190, seed=3)
    _, named, _ = told(trial)
    assert set(named) == {trial.rank}
    assert named[trial.rank] - trial.onset <= 25 + 10


class Job:
    """Steps of 80 ms of compute and the delays that are wanted, of all ranks together, told ten by ten."""

    def __init__(self, ranks: int, seed: int = 0, stalls: float = 0.03) -> None:
        self.ranks, self.source, self.stalls = ranks, random.Random(seed), stalls
        self.state, self.at, self.steps = SessionState(), 100.0, 0
        self.named: dict[int, int] = {}

    def run(self, steps: int, delay_ms: Callable[[int, int], float]) -> list[Verdict]:
        """`delay_ms` of (rank, step) is in the rank's input."""
        for first in range(self.steps, self.steps + steps, 10):
            self._ten(first, delay_ms)
            for verdict in verdicts(self.state):
                if verdict.kind == "straggler" and verdict.rank is not None:
                    self.named.setdefault(verdict.rank, first + 10)
        self.steps += steps
        return [v for v in verdicts(self.state) if v.kind == "straggler" and v.pattern != "transient"]

    def _ten(self, first: int, delay_ms: Callable[[int, int], float]) -> None:
        inputs = [[1 + delay_ms(rank, step) for rank in range(self.ranks)] for step in range(first, first + 10)]
        computes = [[80 * self.source.lognormvariate(0, 0.02) for _ in row] for row in inputs]
        for row in computes:
            row[self.source.randrange(self.ranks)] += 30.0 * (self.source.random() < self.stalls)
        ready = [[a + b for a, b in zip(*rows, strict=True)] for rows in zip(inputs, computes, strict=True)]
        durations = [round(1e6 * (max(row) + 3)) for row in ready]
        starts = [sum(durations[:i]) for i in range(10)]
        begun, self.at = self.at, self.at + sum(durations) / 1e9
        for rank in range(self.ranks):
            event = ev.StepsRecorded(
                at=self.at,
                node="n0",
                worker=f"w{rank}",
                rank=rank,
                generation=0,
                first_step=first,
                origin=begun,
                start_ns=starts,
                duration_ns=durations,
                exposed_communication_ns=[d - round(1e6 * row[rank]) for d, row in zip(durations, ready, strict=True)],
                input_wait_ns=[round(1e6 * row[rank]) for row in inputs],
                compute_ns=[round(1e6 * row[rank]) for row in computes],
            )
            apply(self.state, event)


@pytest.mark.parametrize(("ranks", "period", "within"), [(2, 10, 500), (4, 10, 150), (4, 20, 300), (8, 25, 800)])
def test_a_rank_that_is_late_in_bursts_is_named_and_no_other(ranks: int, period: int, within: int) -> None:
    job = Job(ranks)
    (late,) = job.run(1_000, lambda rank, step: 100.0 * (rank == 1 and step % period == 0))
    assert (late.rank, late.phase, late.pattern) == (1, "input_wait", "bursty")
    assert set(job.named) == {1} and job.named[1] <= within


def test_bursts_that_have_ended_are_no_lateness_of_now() -> None:
    job = Job(4)
    assert job.run(400, lambda rank, step: 100.0 * (rank == 1 and step % 10 == 0))
    assert job.run(200, lambda rank, step: 0.0) == []


@pytest.mark.parametrize("ranks", [2, 4, 16])
def test_stalls_that_strike_all_ranks_alike_name_nobody(ranks: int) -> None:
    job = Job(ranks, seed=8, stalls=0.2)
    assert job.run(2_000, lambda rank, step: 0.0) == []
    assert job.named == {}


@pytest.mark.parametrize("ranks", [2, 4, 16])
def test_a_rank_that_is_very_late_from_the_first_step_on_is_named_before_the_noise_is_known_well(ranks: int) -> None:
    job = Job(ranks)
    (late,) = job.run(40, lambda rank, step: 35.0 * (rank == 1))
    assert (late.rank, late.phase) == (1, "input_wait")


@pytest.mark.parametrize("ranks", [2, 4, 64, 65, 200])
def test_a_rank_that_is_late_from_the_first_step_on_is_named_after_70_steps_and_never_said_to_be_nothing(ranks: int) -> None:
    state, named, untold = SessionState(), 0, list[str]()
    for events in second_by_second(Trial("input", ranks=ranks, rank=ranks - 1, size=0.08, onset=0, steps=90, seed=3)):
        for event in events:
            apply(state, event)
        found = verdicts(state)
        assert {(verdict.kind, verdict.rank) for verdict in found} <= {("straggler", ranks - 1)}
        untold += cannot_tell(state) if 32 <= measures.steps(state) < FIRST_STEPS and not found else []
        named = named or measures.steps(state) * bool(found)
    assert 0 < named <= FIRST_STEPS + 10 and FIRST_STEPS == 70
    assert untold and untold[0].startswith(f"rank {ranks - 1} has come late by ")
    assert all(text.endswith("% of the step so far: to say that it is takes 70 steps") for text in untold)


@pytest.mark.parametrize("ranks", [2, 4, 64, 200])
def test_a_healthy_job_is_said_to_be_one_as_soon_as_before(ranks: int) -> None:
    for seed in range(5 if ranks < 64 else 1):
        last, _, state = told(Trial("healthy", ranks=ranks, steps=40, seed=seed), every_second=False)
        assert [verdict.kind for verdict in last] == ["compute_bound"] and cannot_tell(state) == []


@pytest.mark.parametrize(
    "delays",
    [{0: 30.0, 2: 15.0}, {0: 20.0, 2: 20.0}, {0: 30.0, 1: 20.0, 2: 10.0}, {1: 25.0}],
    ids=["two", "alike", "three", "one"],
)
def test_the_lateness_that_is_told_is_in_its_own_interval_and_that_of_the_delay(delays: dict[int, float]) -> None:
    job = Job(4 if len(delays) < 3 else 6, stalls=0.0)
    found = job.run(400, lambda rank, step: delays.get(rank, 0.0) * (step >= 200))
    assert {v.rank for v in found} == set(delays)
    for late in found:
        assert late.rank is not None
        told_ms = float(late.text.split("late by ")[1].split(" ms")[0])
        low, high = map(float, late.evidence.split("interval ")[1].split(" ms")[0].split(" to "))
        assert low - 0.1 <= told_ms <= high + 0.1
        assert told_ms == pytest.approx(delays[late.rank], abs=2.5)  # the last of many on time comes a little later than they do
        if len(delays) > 1:
            part = float(late.evidence.split("; ")[1].split("%")[0]) / 100
            assert part == pytest.approx(delays[late.rank] / sum(delays.values()), abs=0.05)
    rows = {row.rank: row.lateness_s for row in measures.rank_rows(job.state)}
    for rank, delay in delays.items():
        assert rows[rank] == pytest.approx(delay / 1e3, abs=0.003)


def test_a_lateness_is_told_from_its_begin_on() -> None:
    job = Job(2)
    (late,) = job.run(240, lambda rank, step: 25.0 * (rank == 1 and step >= 200))
    assert "in step 200 to 239" in late.evidence
    assert float(late.text.split("late by ")[1].split(" ms")[0]) == pytest.approx(25.0, abs=2.0)


def test_two_late_ranks_are_both_named_with_their_shares() -> None:
    trial = Trial("two_ranks", rank=1, other=3, size=0.06)
    last, named, _ = told(trial)
    assert set(named) == {1, 3}
    assert {(v.rank, v.phase) for v in last if v.kind == "straggler"} == {(1, "compute"), (3, "input_wait")}
    said = [v.evidence for v in last if v.kind == "straggler"]
    parts = [int(text.split("; ")[1].split("%")[0]) for text in said]
    assert all(abs(part - 50) <= 10 for part in parts)


def test_a_slow_link_is_no_slow_rank() -> None:
    last, named, _ = told(Trial("send", size=0.05))
    assert named == {}
    assert last[0].kind == "slow_network"
    assert last[0].gain_percent is not None
    assert last[0].gain_percent[0] <= 5 / 1.05 <= last[0].gain_percent[1]


def test_waits_that_are_unseen_at_first_are_nothing_to_hold_later_ones_against() -> None:
    """The state was left with a division by zero."""
    state = SessionState()
    for first in range(0, 1200, 10):
        for rank in (0, 1):
            told = ev.StepsRecorded(
                at=1e9 + first / 10,
                node="n",
                worker=f"w{rank}",
                rank=rank,
                generation=0,
                first_step=first,
                origin=1e9 + first / 10 - 1,
                start_ns=list(range(0, 10**9, 10**8)),
                duration_ns=[10**8] * 10,
                exposed_communication_ns=[10**6 + rank] * 10 if first >= 600 else None,
            )
            apply(state, told)
    arrivals = state.generations[0].arrivals
    assert (arrivals.blocks, arrivals.weighed) == (240, 120) and arrivals.usual_step_ns == pytest.approx(1e8)


@pytest.mark.parametrize("after_s", [0.07, 0.055])
def test_a_compute_that_gets_faster_is_no_slow_network(after_s: float) -> None:
    """The transfer is a larger share of the step then, and as long as it was."""
    state = SessionState()
    source, first, begun = random.Random(1), 0, 0.0
    for second in range(60):
        compute = 0.095 if second < 40 else after_s
        waits = [round(5e6 * source.lognormvariate(0, 0.1)) for _ in range(10)]
        durations = [round(1e9 * compute * source.lognormvariate(0, 0.02)) + wait for wait in waits]
        starts = [sum(durations[:i]) for i in range(10)]
        begun, ended = begun + sum(durations) / 1e9, begun
        for rank in (0, 1):
            told = ev.StepsRecorded(
                at=begun,
                node=f"n{rank}",
                worker=f"w{rank}",
                rank=rank,
                generation=0,
                first_step=first,
                origin=ended,
                start_ns=starts,
                duration_ns=durations,
                exposed_communication_ns=[*waits],
            )
            apply(state, told)
        first += 10
        assert not [v for v in verdicts(state) if v.kind == "slow_network"]
    assert state.generations[0].arrivals.blocks > 40


@pytest.mark.parametrize(
    ("megabytes", "named"), [((50, 55, 60, 400), "node-003"), ((50, 55, 60, 120), ""), ((50, 55, None, 60), "")]
)
def test_the_host_that_carries_other_traffic_is_named(megabytes: tuple[float | None, ...], named: str) -> None:
    _, _, state = told(Trial("send", size=0.05, ranks=4))
    for node, rate in enumerate(megabytes):
        host, half = f"node-{node:03d}", None if rate is None else rate * 5e5
        networks = [ev.NetworkRate(name="eth0", received_bytes_per_s=half, sent_bytes_per_s=half)]
        apply(state, ev.WorkerStarted(at=state.now, host=host, local_rank=0, rank=node, pid=1 + node))
        apply(state, ev.NodeJoined(at=state.now, node=f"n{node}", host=host, cores=8, memory_bytes=1 << 30))
        apply(state, ev.NodeSampled(at=state.now, node=f"n{node}", interval_s=1.0, networks=networks))
    found = next(v for v in verdicts(state) if v.kind == "slow_network")
    assert found.host == named
    assert ("node-003 moves 7.3 times what the other hosts do" in found.text) is bool(named)


def test_a_healthy_job_is_left_alone() -> None:
    last, named, state = told(Trial("healthy", ranks=8, steps=1_000))
    assert named == {}
    assert [v.kind for v in last] == ["compute_bound"]
    assert cannot_tell(state) == []


def test_the_noise_of_very_many_ranks_is_told_by_some_of_them() -> None:
    source, noise = random.Random(1), Noise()
    for _ in range(40):
        noise.add(array("d", [source.gauss(0, 0.01) for _ in range(4_000)]))
    # The median of the absolute difference of two normal values is 0.9539 of their deviation.
    assert noise.near == pytest.approx(0.009539, rel=0.05)


def test_a_lateness_that_ends_is_told_as_past() -> None:
    _, _, state = told(Trial("compute", rank=2, size=0.1, onset=100, steps=310))
    late = verdicts(state)[0]
    assert (late.kind, late.rank, late.pattern) == ("straggler", 2, "steady")
    shift = state.generations[0].arrivals.ranks[2].late
    while shift.named:
        ended = shift.add(0.0, [-1.0] * len(shift.evidence), 12.0, (300, 304))
    assert ended


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("who", [0, 1])
@pytest.mark.parametrize(("size", "within"), [(2.5, 150), (8.0, 25)])
def test_a_lateness_that_was_there_before_hides_none_of_later(ranks: int, who: int, size: float, within: int) -> None:
    job = Job(ranks, seed=3)
    assert job.run(220, lambda rank, step: 20.0 * (rank == 1 and step >= 200))
    assert job.run(110, lambda rank, step: 0.0) == []
    job.named = {}
    assert [late.rank for late in job.run(160, lambda rank, step: size * (rank == who))] == [who]
    assert job.named[who] - 330 <= within + 10


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
@pytest.mark.parametrize("steps", [20, 40, 100])
def test_a_lateness_that_has_ended_is_told_as_past_soon_after(ranks: int, steps: int) -> None:
    job = Job(ranks, seed=2)
    (late,) = job.run(200 + steps, lambda rank, step: 40.0 * (rank == 1 and step >= 200))
    assert late.rank == 1
    assert job.run(40, lambda rank, step: 0.0) == []
    episodes = job.state.generations[0].arrivals.episodes
    assert [(e.rank, e.first_step, e.last_step) for e in episodes] == [(1, 200, 199 + steps)]
    assert episodes[0].share == pytest.approx(40 / 127, rel=0.1)


@pytest.mark.parametrize("seed", range(3))
def test_what_was_late_before_is_not_told_of_the_same_steps_as_now(seed: int) -> None:
    """A rank that gets late for good when another's lateness ends holds up single steps alone as well."""
    job = Job(4, seed=seed)
    found = job.run(600, lambda rank, step: 20.0 * ((rank == 0 and 200 <= step < 260) or (rank == 1 and step >= 260)))
    assert [(late.rank, "late before" in late.evidence) for late in found] == [(1, False)]
    found = job.run(100, lambda rank, step: 20.0 * (rank == 0))
    assert [late.rank for late in found] == [0] and found[0].evidence.endswith("; late before in step 200 to 259")


def test_the_gain_that_is_told_comes_true() -> None:
    hits = 0
    for seed in range(5):
        trial = Trial("compute", size=0.06, onset=50, steps=350, seed=seed)
        last, _, state = told(trial, every_second=False)
        gain = next(v.gain_percent for v in last if v.kind == "straggler")
        assert gain is not None
        hits += gain[0] - 0.3 <= measured_gain(trial, state) <= gain[1] + 0.3
    assert hits >= 4


@pytest.mark.parametrize(("more_ms", "reaches"), [(0.0, (9, 11.5)), (3.0, (12, 15)), (60.0, (11, 13))])
def test_the_gain_reaches_up_to_what_the_step_grew_by_at_most_to_twice_the_lateness(
    more_ms: float, reaches: tuple[float, float]
) -> None:
    job = Job(2, stalls=0.0)
    (late,) = job.run(300, lambda rank, step: (more_ms + 9.0 * (rank == 1)) * (step >= 150))
    assert (late.rank, job.state.generations[0].arrivals.ranks[1].late.since) == (1, 150)
    assert late.gain_percent is not None
    assert late.gain_percent[0] < 100 * 9 / (91 + more_ms)
    assert reaches[0] <= late.gain_percent[1] <= reaches[1]


@pytest.mark.parametrize("stalls", [0, 3])
def test_what_a_step_grew_by_is_told_whatever_stalls_do(stalls: int) -> None:
    source, inside = random.Random(7), 0
    for _ in range(400):
        before = [100 + source.gauss(0, 2) for _ in range(30)]
        since = [105 + source.gauss(0, 2) for _ in range(40)]
        for place in range(stalls):
            since[10 * place] += 300
        growth = step_growth(before, since)
        assert growth is not None
        inside += growth[0] <= 5 / 105 <= growth[1]
    assert inside >= 0.9 * 400


def test_too_few_blocks_tell_no_growth() -> None:
    assert step_growth([100.0] * 30, [105.0] * 5) is None
    assert step_growth([100.0] * 5, [105.0] * 30) is None


def measured_gain(trial: Trial, state: SessionState) -> float:
    """Percent of the step that taking the fault away saves, over the last 250 steps of the same run without it."""
    _, _, healthy = told(trial.healthy(), every_second=False)
    slow, fast = (sum(measures.step_series(s.generations[0])[0][-250:]) for s in (state, healthy))
    return 100 * (1 - fast / slow)


def test_what_cannot_be_told_is_said() -> None:
    state = SessionState()
    assert cannot_tell(state) == ["no rank has reported a step"]
    for steps, are in ((1, "1 step is"), (10, "10 steps are")):
        _, _, state = told(Trial("healthy", steps=steps), every_second=False)
        assert cannot_tell(state) == [f"{are} too few to say what holds the job back: it takes 32"]
