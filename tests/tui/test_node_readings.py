"""A node's readings on screen: where they come from, how old they are, and whose limit the memory meets first."""

from __future__ import annotations

import pytest

from distmon.core.events import (
    ControlGroup,
    EngineReading,
    NetworkRate,
    NodeJoined,
    NodeSampled,
    PowerRail,
    Pressure,
    Temperature,
)
from distmon.core.fold import apply
from distmon.core.readings import memory_in_use, memory_percent
from distmon.core.state import SessionState
from distmon.tui.theme import PALETTES
from distmon.tui.view.facts import facts
from distmon.tui.view.node_readings import reading_lines
from distmon.tui.view.nodes import card_stamp

GIB = 1 << 30


def shown(sample: NodeSampled) -> list[str]:
    lines = reading_lines(sample, next(iter(PALETTES.values())))
    return [" ".join("".join(text for text, _ in line.pieces).split()) for line in lines]


def test_a_boards_readings_name_their_program_and_why_a_better_one_is_not_used() -> None:
    sample = NodeSampled(
        at=1.0,
        node="nano",
        interval_s=1.0,
        power_mode="MAXN",
        engines=[EngineReading(name="NVENC", on=False), EngineReading(name="EMC", utilization_percent=12.0, clock_mhz=1600.0)],
        power=[PowerRail(name="VDD_IN", watts=4.0, source="tegrastats"), PowerRail(name="VDD_CPU", watts=1.0, source="x")],
        sources={"engines": "tegrastats", "power": "tegrastats"},
        unavailable={"jtop": "jetson-stats is not installed"},
        age_s={"power_mode": 30.0, "power": 0.4},
    )
    assert shown(sample) == [
        "power mode MAXN 30s old",
        "engine NVENC off from tegrastats",
        "engine EMC 12% 1600 MHz",
        "power VDD_IN 4.0W from tegrastats",
        "power VDD_CPU 1.0W",
        "jtop – jetson-stats is not installed",
    ]


def test_an_old_value_says_its_age_once_for_all_that_were_read_with_it() -> None:
    temperatures = [Temperature(name=name, celsius=50.0) for name in ("one", "two")]
    sample = NodeSampled(at=1.0, node="n", interval_s=1.0, temperatures=temperatures, age_s={"temperatures": 7.0})
    assert shown(sample) == ["temp one 50°C 7s old", "temp two 50°C"]


def test_a_containers_limits_and_the_adapter_in_use_are_shown() -> None:
    group = ControlGroup(
        version=2,
        cores=4.0,
        cpu_percent=95.0,
        throttled_percent=20.0,
        memory_used_bytes=3 * GIB,
        memory_limit_bytes=4 * GIB,
        pressures=[Pressure(resource="memory", some_percent=9.0, full_percent=2.0)],
    )
    port = NetworkRate(name="mlx5_0/1", received_bytes_per_s=2.0 * GIB, sent_bytes_per_s=1.0 * GIB, used_by_training=True)
    assert shown(NodeSampled(at=1.0, node="n", interval_s=1.0, control_group=group, infiniband=[port])) == [
        "limit cores 4 95% used held back in 20% of the periods",
        "limit memory 3.0G/4.0G",
        "own memory wait some 9% all 2% of the last 10 s",
        "ib mlx5_0/1 ↓2.0G/s ↑1.0G/s used by training",
    ]


@pytest.mark.parametrize(("node_used", "percent", "of"), [(10 * GIB, 75.0, "control group"), (90 * GIB, 90.0, "node")])
def test_memory_is_of_the_limit_that_is_fuller(node_used: int, percent: float, of: str) -> None:
    group = ControlGroup(version=2, memory_used_bytes=3 * GIB, memory_limit_bytes=4 * GIB)
    sample = NodeSampled(
        at=1.0, node="n", interval_s=1.0, memory_used_bytes=node_used, memory_total_bytes=100 * GIB, control_group=group
    )
    memory = memory_in_use(sample)
    assert memory is not None and memory.of == of
    assert memory_percent(sample) == percent


def test_memory_that_nobody_tells_has_no_share() -> None:
    assert memory_percent(NodeSampled(at=1.0, node="n", interval_s=1.0)) is None


def test_a_card_is_written_anew_for_each_sample() -> None:
    """Python gives the memory of one that is gone to a later one."""
    state, stamps = SessionState(), list[object]()
    apply(state, NodeJoined(at=0.0, node="n", host="n", cores=1, memory_bytes=GIB, gpus=[], boot="b"))
    for second in range(1, 41):
        apply(state, NodeSampled(at=float(second), node="n", interval_s=1.0, cpu_percent=float(second)))
        if second % 2 == 0:
            stamps.append(card_stamp(facts(state), "n"))
    assert len(set(stamps)) == len(stamps)
