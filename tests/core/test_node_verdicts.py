"""Findings about nodes: they come and go once where a reading wanders about its threshold, and stay when the job is over."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from distmon.core import events as ev
from distmon.core.finding import Verdict, why_no_gain
from distmon.core.fold import apply
from distmon.core.hysteresis import Thresholds, mean_holds
from distmon.core.node_verdicts import node_verdicts
from distmon.core.state import SessionState
from distmon.core.verdicts import troubles
from distmon.replay.keyframe import decode_state, encode_state
from distmon.replay.report.summarise import summarise

CORES = 8
WELL: dict[str, Any] = {"cpu_percent": 60.0, "load_1m": 4.0, "memory_used_bytes": 6 << 30, "memory_total_bytes": 16 << 30}


def gpu(**of: Any) -> ev.GpuReading:
    return ev.GpuReading(**{"index": 0, "utilization_percent": 90.0, "ranks": [0], **of})


def session(readings: Iterable[dict[str, Any]]) -> Iterator[ev.AnyEvent]:
    """A node that is read every second."""
    yield ev.JobStarted(at=0.0, job="j", command=["x"], np=1)
    yield ev.NodeJoined(at=0.0, node="n", host="h", cores=CORES, memory_bytes=16 << 30)
    for second, reading in enumerate(readings, 1):
        yield ev.NodeSampled(at=float(second), node="n", interval_s=1.0, **{**WELL, **reading})


def looks(readings: Iterable[dict[str, Any]]) -> list[list[str]]:
    """The kinds that are found after each reading."""
    state, found = SessionState(), []
    for event in session(readings):
        apply(state, event)
        if isinstance(event, ev.NodeSampled):
            found.append([verdict.kind for verdict in node_verdicts(state)])
    return found


WANDERING: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "cpu_oversubscribed": ({"cpu_percent": 96.0, "load_1m": 12.1}, {"cpu_percent": 94.0, "load_1m": 11.9}),
    "memory_pressure": ({"memory_used_bytes": int(15.4 * 2**30)}, {"memory_used_bytes": int(15.1 * 2**30)}),
    "gpu_starved": (
        {"cpu_percent": 100.0, "gpus": [gpu(utilization_percent=48.0)]},
        {"cpu_percent": 100.0, "gpus": [gpu(utilization_percent=52.0)]},
    ),
    "thermal_throttling": ({"gpus": [gpu(throttle=["hot (driver)"])]}, {"gpus": [gpu()]}),
    "power_throttling": ({"gpus": [gpu(throttle=["power cap"])]}, {"gpus": [gpu()]}),
}


@pytest.mark.parametrize("kind", WANDERING)
def test_a_reading_that_wanders_about_its_threshold_is_one_finding(kind: str) -> None:
    above, below = WANDERING[kind]
    held = [kind in kinds for kinds in looks([(above, below)[second % 2] for second in range(200)])]
    assert held[-1] and sum(a != b for a, b in pairwise(held)) <= 1


@pytest.mark.parametrize("kind", WANDERING)
def test_a_finding_goes_within_seconds_of_its_cause(kind: str) -> None:
    above, _ = WANDERING[kind]
    found = looks([above] * 30 + [{}] * 10)
    assert kind in found[29] and not found[-1]


def test_a_finding_does_not_come_with_one_reading_of_the_look_back() -> None:
    """Which reading is the oldest that is looked at must not matter."""
    wandering = [96.0 if n % 6 == 0 else 93.0 for n in range(120)]
    at = Thresholds(on=95.0, off=90.0)
    assert not any(mean_holds(reversed(wandering[:end][-60:]), 5, at) for end in range(5, 121))


def test_readings_that_are_missing_are_left_out_of_the_mean() -> None:
    at = Thresholds(on=95.0, off=90.0)
    assert mean_holds(iter([None, 99.0, None, 98.0, None]), 5, at)
    assert not mean_holds(iter([None] * 9), 5, at) and not mean_holds(iter([]), 5, at)


def test_gpus_of_one_node_are_told_in_one_finding() -> None:
    state = SessionState()
    hot = [gpu(index=index, throttle=["hot (driver)"] if index else []) for index in range(4)]
    for event in session([{"gpus": hot}] * 6):
        apply(state, event)
    (found,) = node_verdicts(state)
    assert node_verdicts(decode_state(encode_state(state))) == [found]
    assert found.text == "GPU 1 of h is throttled: hot (driver)" and found.evidence.endswith("so is GPU 2, 3")


def test_readings_of_before_a_silence_say_nothing_of_what_is_after() -> None:
    state, short = SessionState(), {"memory_used_bytes": 16 << 30}
    for event in session([short] * 6):
        apply(state, event)
    assert [verdict.kind for verdict in node_verdicts(state)] == ["memory_pressure"]
    apply(state, ev.NodeSampled(at=600.0, node="n", interval_s=594.0, **WELL))
    assert not node_verdicts(state)


def test_tasks_that_wait_for_memory_while_a_checkpoint_is_saved_are_no_finding() -> None:
    def waits(percent: float) -> dict[str, Any]:
        return {"pressures": [ev.Pressure(resource="memory", some_percent=percent)]}

    saved = [20 * 0.905**second for second in range(40)]
    assert not any(looks([waits(percent) for percent in saved * 5]))
    assert looks([waits(12.0)] * 30)[-1] == ["memory_pressure"]
    quiet = [waits(1.0)] * 40
    assert looks([*quiet, *[waits(35.0)] * 4])[-1] == looks([*quiet, *[waits(12.0)] * 30])[-1] == ["memory_pressure"]


FULL: dict[str, Any] = {"cpu_percent": 99.0, "load_1m": 20.0, "gpus": [gpu(utilization_percent=30.0)]}


def training(input_s: float = 0.002, later_s: float = 0.1, **of: Any) -> list[str]:
    """What is found where cores are full from second 20 on, and a step takes longer from there on."""
    state = SessionState()
    apply(state, ev.RanksAssigned(at=0.0, generation=0, world_size=1, places=[ev.RankPlace(rank=0, host="h", local_rank=0)]))
    for second, event in enumerate(session([WELL] * 20 + [{**FULL, **of}] * 40), -1):
        apply(state, event)
        if second > 0:
            ns, wait = round((later_s if second > 20 else 0.1) * 1e9), round((input_s if second > 20 else 0.002) * 1e9)
            apply(state, ev.StepsRecorded(
                at=second, node="n", worker="w", rank=0, generation=0, first_step=10 * second - 10, origin=second - 1.0,
                start_ns=[i * ns for i in range(10)], duration_ns=[ns + i % 3 * 1_000_000 for i in range(10)],
                input_wait_ns=[wait] * 10, compute_ns=[ns // 2] * 10, samples=[1] * 10,
            ))  # fmt: skip
    return [verdict.kind for verdict in node_verdicts(state)]


def test_full_cores_that_do_no_harm_are_no_finding() -> None:
    """What loads data may fill them: the steps neither wait for it nor take longer."""
    assert not training()


def test_full_cores_that_do_harm_are_one() -> None:
    assert training(input_s=0.012) == ["cpu_oversubscribed", "gpu_starved"]
    assert training(later_s=0.12) == ["cpu_oversubscribed"]
    own = [ev.ProcessReading(pid=1, rank=0, cpu_percent=700.0, memory_bytes=None)]
    assert training(processes=own) == ["cpu_oversubscribed"]


def waiting(*percents: float | None) -> dict[str, Any]:
    """What is read of ranks that wait for a core."""
    return {
        "processes": [
            ev.ProcessReading(pid=rank + 1, rank=rank, cpu_percent=50.0, memory_bytes=None, run_queue_wait_percent=wait)
            for rank, wait in enumerate(percents)
        ]
    }


def trains(waits: list[dict[str, Any]], first_step_s: int = 0) -> list[list[Verdict]]:
    """What is found each second of a job whose steps are as long as its first, whatever it lacks."""
    state, found = SessionState(), []
    apply(state, ev.RanksAssigned(at=0.0, generation=0, world_size=1, places=[ev.RankPlace(rank=0, host="h", local_rank=0)]))
    for event in session(waits):
        apply(state, event)
        if isinstance(event, ev.NodeSampled):
            second = int(event.at) - first_step_s
            if second > 0:
                apply(state, ev.StepsRecorded(
                    at=event.at, node="n", worker="w", rank=0, generation=0, first_step=10 * second - 10, origin=event.at - 1.0,
                    start_ns=[i * 10**8 for i in range(10)], duration_ns=[10**8 - i % 3 * 10**6 for i in range(10)],
                    input_wait_ns=[0] * 10, compute_ns=[5 * 10**7] * 10, samples=[1] * 10,
                ))  # fmt: skip
            found.append(node_verdicts(state))
    return found


def test_a_job_that_lacks_cores_from_its_first_step_on_is_told_so() -> None:
    """Its steps have nothing to be held against: what tells it is how long its ranks wait for a core."""
    full = {"cpu_percent": 100.0, "load_1m": 20.0}
    assert not trains([full] * 60)[-1]
    (found,) = trains([{**full, **waiting(30.0, 45.0, None)}] * 60)[-1]
    assert (found.kind, found.text) == ("cpu_oversubscribed", "h has more to run than cores: load 20.0 on 8 cores")
    assert found.evidence.startswith("of its 2 ranks")
    assert "no core 45 % of the last 10 s; now rank 1 45 %, rank 0 30 %; CPU 100 %" in found.evidence
    (pinned,) = trains([waiting(30.0)] * 60)[-1]
    assert pinned.text == "h has ranks that wait for a core: load 4.0 on 8 cores"
    assert "of its rank" not in pinned.evidence and "no core 30 % of the last 10 s; now rank 0 30 %" in pinned.evidence


def test_waits_for_a_core_before_the_first_step_are_no_finding() -> None:
    """All ranks import their modules at the same time; what was then does not keep a finding either."""
    assert not any(trains([waiting(90.0)] * 30 + [waiting(16.0)] * 30, first_step_s=30))
    assert trains([waiting(90.0)] * 30 + [waiting(25.0)] * 30, first_step_s=30)[-1]


def test_a_few_seconds_without_a_core_are_no_finding() -> None:
    now_and_then = [waiting(100.0 if second % 10 in (3, 4) else 8.0) for second in range(120)]
    assert not any(trains(now_and_then))


def test_ranks_that_are_ahead_of_their_gpus_may_wait_for_a_core() -> None:
    ahead, behind = ({"gpus": [gpu(utilization_percent=percent)], **waiting(40.0)} for percent in (97.0, 70.0))
    assert not any(trains([ahead] * 60))
    assert [verdict.kind for verdict in trains([behind] * 60)[-1]] == ["cpu_oversubscribed"]


def steps(second: int) -> ev.StepsRecorded:
    return ev.StepsRecorded(
        at=second + 1.0, node="n", worker="w", rank=0, generation=0, first_step=second, origin=float(second),
        start_ns=[0], duration_ns=[10**9], samples=[1],
    )  # fmt: skip


def test_what_a_node_said_until_the_last_step_holds_at_the_end_of_the_job() -> None:
    """Agents leave before their job is told to have ended."""
    state, short = SessionState(), {"memory_used_bytes": 16 << 30}
    for event in [*session([short] * 6), *map(steps, range(6)), ev.NodeLeft(at=6.1, node="n"), ev.JobEnded(at=6.2, exit_code=0)]:
        apply(state, event)
    assert [verdict.kind for verdict in node_verdicts(state)] == ["memory_pressure"]


def test_a_node_that_left_while_others_train_on_is_no_matter() -> None:
    state, short = SessionState(), {"memory_used_bytes": 16 << 30}
    for event in [*session([short] * 6), *map(steps, range(6)), ev.NodeLeft(at=6.1, node="n"), steps(6)]:
        apply(state, event)
    assert not node_verdicts(state)


COLLECTIVE_NS = 5_000_000
NODES = {"h": "n", "localhost": "n"}
"""Host, as the launcher calls it -> node."""


def trained(late_ns: dict[int, int], hosts: list[str], input_ns: int = 0, count: int = 120) -> list[ev.AnyEvent]:
    """Steps of ranks that need 100 ms of their own, and some of them more: the others wait for the last in allreduce."""
    source = random.Random(1)
    events: list[ev.AnyEvent] = [
        ev.WorkerIdentified(
            at=0.5, worker=f"w{rank}", node=NODES.get(host, host), rank=rank, size=len(hosts), local_rank=0, host=host, pid=1
        )
        for rank, host in enumerate(hosts)
    ]
    own = [
        [100_000_000 + late_ns.get(rank, 0) + source.randrange(200_000) for rank in range(len(hosts))] for _ in range(count)
    ]
    ends = [max(row) + COLLECTIVE_NS for row in own]
    for rank, host in enumerate(hosts):
        events.append(
            ev.StepsRecorded(
                at=20.0,
                node=NODES.get(host, host),
                worker=f"w{rank}",
                rank=rank,
                generation=0,
                first_step=0,
                origin=1.0,
                start_ns=[sum(ends[:i]) for i in range(count)],
                duration_ns=ends,
                samples=[8] * count,
                input_wait_ns=[input_ns] * count,
                compute_ns=[row[rank] - input_ns for row in own],
                exposed_communication_ns=[end - row[rank] for end, row in zip(ends, own, strict=True)],
                optimizer_ns=[0] * count,
            )
        )
    return events


def found_with(readings: dict[str, Any], steps_of: list[ev.AnyEvent], kind: str) -> Verdict:
    """Of the node on host h, which is read for six seconds after the steps."""
    state = SessionState()
    first, second, *rest = session([readings] * 6)
    for event in [first, second, *steps_of, *rest]:
        apply(state, event)
    return next(verdict for verdict in troubles(state, in_full=True) if verdict.kind == kind)


SHORT = {"memory_used_bytes": 16 << 30}


def test_a_nodes_gain_is_what_its_ranks_are_late_by() -> None:
    found = found_with(SHORT, trained({0: 20_000_000, 1: 20_000_000}, ["h", "h", "b", "b"]), "memory_pressure")
    assert found.gain_percent == pytest.approx((16, 16), abs=0.3)  # 20 of 125 ms
    assert why_no_gain(found) == ""


def test_a_node_that_the_launcher_calls_otherwise_has_its_ranks() -> None:
    found = found_with(SHORT, trained({0: 20_000_000, 1: 20_000_000}, ["localhost", "localhost", "b", "b"]), "memory_pressure")
    assert found.gain_percent == pytest.approx((16, 16), abs=0.3)


def test_a_node_that_is_strained_and_not_late_gains_about_nothing() -> None:
    found = found_with(SHORT, trained({}, ["h", "h", "b", "b"]), "memory_pressure")
    assert found.gain_percent is not None and found.gain_percent[1] < 0.5


def test_of_a_throttled_gpu_its_own_rank_is_compared_with_those_beside_it() -> None:
    gpus = [gpu(index=index, throttle=["hot (driver)"] * (index == 1), ranks=[index]) for index in range(2)]
    found = found_with({"gpus": gpus}, trained({1: 20_000_000}, ["h", "h"]), "thermal_throttling")
    assert found.gain_percent == pytest.approx((16, 16), abs=0.3)


def test_where_all_ranks_are_on_such_nodes_the_finding_says_that_there_is_none_to_compare_with() -> None:
    found = found_with(SHORT, trained({0: 20_000_000}, ["h", "h"]), "memory_pressure")
    assert found.gain_percent is None and "none elsewhere to compare" in why_no_gain(found)
    alone = found_with(SHORT, [], "memory_pressure")
    assert alone.gain_percent is None and why_no_gain(alone) == "no rank has reported a step"
    other = found_with(SHORT, trained({}, ["b", "b"]), "memory_pressure")
    assert "none of the ranks" in why_no_gain(other)


def test_gpus_that_starve_everywhere_would_gain_the_wait_for_input() -> None:
    readings = {"cpu_percent": 100.0, "gpus": [gpu(utilization_percent=30.0, ranks=[0, 1])]}
    found = found_with(readings, trained({}, ["h", "h"], input_ns=42_000_000), "gpu_starved")
    assert found.gain_percent == pytest.approx((40, 40), abs=0.3)


def test_every_finding_has_a_gain_or_says_why_not() -> None:
    state = SessionState()
    for event in [*session([SHORT] * 6), *trained({0: 20_000_000, 1: 20_000_000}, ["h", "h", "b", "b"])]:
        apply(state, event)
    told = summarise(state).verdicts
    assert told and all((verdict.gain_percent is None) == bool(verdict.no_gain) for verdict in told)
    slow = next(verdict for verdict in told if verdict.kind == "slow_node")
    assert slow.gain_percent == pytest.approx((15, 17), abs=0.3)
