"""Means of a node's cores, zones and rails over time."""

from __future__ import annotations

from distmon.core.events import GpuReading, NodeSampled, PowerRail, Temperature
from distmon.core.fold import apply
from distmon.core.measures import NodeMeans, node_means
from distmon.core.state import SessionState


def means(*samples: NodeSampled) -> NodeMeans:
    state = SessionState()
    for sample in samples:
        apply(state, sample)
    return node_means(state.nodes["n"])


def sample(at: float, interval_s: float, **values: object) -> NodeSampled:
    return NodeSampled(at=at, node="n", interval_s=interval_s, **values)  # type: ignore[arg-type]


def test_a_cores_mean_is_over_the_time_that_it_was_on() -> None:
    found = means(
        sample(1, 1, cores_percent=[10.0, 50.0, None]),
        sample(4, 3, cores_percent=[30.0, None, None]),
        sample(5, 1, cores_percent=[]),
    )
    assert found.cores == [25.0, 50.0, None]


def test_a_zones_mean_and_highest() -> None:
    found = means(
        sample(1, 1, temperatures=[Temperature(name="gpu", celsius=40.0)]),
        sample(4, 3, temperatures=[Temperature(name="gpu", celsius=60.0), Temperature(name="cpu", celsius=-5.0)]),
    )
    assert found.temperatures == [("cpu", -5.0, -5.0), ("gpu", 55.0, 60.0)]


def rails(**watts: float) -> list[PowerRail]:
    within = "VDD_IN" if "VDD_IN" in watts else ""
    return [PowerRail(name=name, watts=w, source="s", within="" if name == "VDD_IN" else within) for name, w in watts.items()]


def test_a_boards_power_holds_its_rails_once() -> None:
    found = means(sample(1, 1, power=rails(VDD_SOC=2.0, VDD_IN=5.0)), sample(2, 1, power=rails(VDD_SOC=4.0, VDD_IN=9.0)))
    assert found.rails == [("VDD_IN", 7.0), ("VDD_SOC", 3.0)]
    assert (found.power_w, found.energy_j, found.energy_covers) == (7.0, 14.0, "VDD_IN")


def test_a_rail_that_turns_out_to_lie_within_another_is_not_added() -> None:
    found = means(sample(1, 1, power=rails(VDD_SOC=2.0)), sample(2, 1, power=rails(VDD_SOC=4.0, VDD_IN=9.0)))
    assert (found.power_w, found.energy_covers) == (9.0, "VDD_IN")


def test_a_gpus_mean_is_of_the_whole_gpu_and_not_of_its_instances() -> None:
    whole = GpuReading(index=0, name="H100", utilization_percent=50.0, power_w=400.0)
    instance = GpuReading(index=0, instance=7, name="MIG 1g.10gb", utilization_percent=100.0)
    found = means(sample(1, 1, gpus=[whole, instance]))
    assert found.gpus == [(0, "H100", 50.0, 400.0)]
