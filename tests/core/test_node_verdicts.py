"""Findings about nodes: they come and go once where a reading wanders about its threshold, and stay when the job is over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from distmon.core import events as ev
from distmon.core.fold import apply
from distmon.core.hysteresis import Thresholds, mean_holds
from distmon.core.node_verdicts import node_verdicts
from distmon.core.state import SessionState
from distmon.replay.keyframe import decode_state, encode_state

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
