"""A node's GPUs in its details: which ranks, how sure that is, and why a value is missing."""

from __future__ import annotations

import re

from distmon.core.events import GpuProcess, GpuReading, NodeSampled
from distmon.core.fold import apply
from distmon.core.state import SessionState
from distmon.tui.theme import palette_named
from distmon.tui.view import node_page
from distmon.tui.view.facts import facts
from distmon.tui.view.nodes import detail


def shown(sample: NodeSampled) -> list[str]:
    state = SessionState()
    apply(state, sample)
    return ["".join(text for text, _ in line.pieces) for line in detail(facts(state), "n", palette_named("distmon-dark"), 200)]


def lines_of(*gpus: GpuReading) -> list[str]:
    """The one line of each."""
    lines = shown(NodeSampled(at=1.0, node="n", interval_s=1.0, gpus=list(gpus)))
    return [text for text in lines if re.match(r"gpu [\d.]+  ", text)]


def test_ranks_are_shown_with_their_doubt() -> None:
    doubt = "uncertain: 2 GPU models"
    (line,) = lines_of(GpuReading(index=1, name="A6000", utilization_percent=40.0, ranks=[0, 3], notes={"ranks": doubt}))
    assert "rank 0,3" in line
    assert "ranks: uncertain: 2 GPU models" in line


def test_reasons_are_given_for_what_the_line_shows_alone() -> None:
    absent = {"power_w": "this GPU does not report it", "nvlink_sent_bytes_per_s": "no such link"}
    (line,) = lines_of(GpuReading(index=0, unavailable=absent))
    assert "power_w – this GPU does not report it" in line
    assert "nvlink" not in line


def test_a_lost_gpu_and_a_mig_instance() -> None:
    lost = GpuReading(index=2, name="A10", state="lost", unavailable={"all": "it has fallen off the bus"})
    first, second = lines_of(lost, GpuReading(index=0, instance=7, name="MIG 1g.10gb"))
    assert "lost" in first
    assert "it has fallen off the bus" in first
    assert second.startswith("gpu 0.7")


def test_all_that_a_gpu_tells_is_in_its_node_s_details_with_its_age() -> None:
    gpu = GpuReading(
        index=1, power_limit_w=700.0, performance_state=0, fan_percent=55.0, sm_clock_mhz=1980.0, memory_clock_mhz=3201.0,
        sm_active_percent=80.5, sm_occupancy_percent=25.0, tensor_active_percent=40.0, dram_active_percent=33.0,
        pcie_received_bytes_per_s=2048.0, pcie_sent_bytes_per_s=1024.0, ecc_corrected=3, ecc_uncorrected=0,
        retired_pages=1, remapped_rows=2, last_xid=31,
        processes=[GpuProcess(pid=4711, memory_bytes=5 << 30, rank=2), GpuProcess(pid=9)],
        unavailable={"nvlink_sent_bytes_per_s": "no link", "nvlink_received_bytes_per_s": "no link", "energy_j": "no counter"},
        age_s={"power_limit_w": 3.0, "ecc_corrected": 3.0},
    )  # fmt: skip
    lines = shown(NodeSampled(at=1.0, node="n", interval_s=1.0, gpus=[gpu], sources={"gpus": "nvml"}))
    assert "from nvml" in next(line for line in lines if line.startswith("gpu 1  "))
    assert [" ".join(line.split()) for line in lines if re.match(r"gpu 1 \S", line)] == [
        "gpu 1 state limit 700W P0 fan 55% 3s old",
        "gpu 1 clocks SMs 1980 MHz memory 3201 MHz",
        "gpu 1 busy SMs 80% occupancy 25% tensor cores 40% memory 33%",
        "gpu 1 links pcie ↓2.0K/s ↑1.0K/s",
        "gpu 1 errors 3 corrected 0 uncorrected 1 pages retired 2 rows remapped Xid 31 3s old",
        "gpu 1 used pid 4711 rank 2 memory 5.0G",
        "gpu 1 used pid 9 memory –",
        "gpu 1 – nvlink_sent_bytes_per_s, nvlink_received_bytes_per_s: no link",
        "gpu 1 – energy_j: no counter",
    ]


def test_a_reading_of_an_earlier_second_says_so() -> None:
    held_up = GpuReading(index=0, utilization_percent=90.0, age_s={"all": 1.5})
    sample = NodeSampled(
        at=1.0, node="n", interval_s=1.0, cpu_percent=5.0, load_1m=2.0, gpus=[held_up], cores_percent=[50.0, None],
        cores_mhz=[1800.0, None], swap_used_bytes=1 << 30, swap_total_bytes=8 << 30,
        sources={"cpu_percent": "tegrastats"}, age_s={"load_1m": 4.0, "cores_mhz": 7.0},
    )  # fmt: skip
    lines = [" ".join(line.split()) for line in shown(sample)]
    assert lines[1].endswith("5% from tegrastats load 2.00 4s old")
    assert "swap 1.0G/8.0G" in lines[3]
    assert "1s old" in next(line for line in lines if line.startswith("gpu 0"))
    state = SessionState()
    apply(state, sample)
    node = state.nodes["n"]
    assert ("1s old", "bad") in node_page.gpu_cells(node_page.gpu_keys(node), (0, -1))
    _, describe = node_page.core_heat(node)
    assert [describe(core) for core in (0, 1)] == ["core 0: 50% at 1800 MHz 7s ago", "core 1: off"]
