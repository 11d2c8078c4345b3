"""NVIDIA GPUs through the real binding, against a stub of the driver's library that plays scenarios."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from distmon.agent.sampler import Sampler
from distmon.agent.sensors import Source, nvidia_crew, nvidia_fast, nvidia_library
from distmon.agent.sensors.base import Reading, Roots
from distmon.agent.sensors.nvidia import NvidiaSensor
from distmon.core.events import AnyEvent, GpuProcess, GpuReading, NodeJoined, NodeSampled, NoticeGiven
from distmon.core.fold import node_power_w
from distmon.probe.ring import RingWriter
from distmon.wire.subscription import Subscription
from tests.stubs.nvml.scenario import GIB, LIBRARY, LIBRARY_ITSELF, Scenario, build, case_scenario, preload, uuid

CASE = Path(__file__).parents[1] / "data/cases/HW-05"
SECOND = 10**9
PATIENT_S = 20.0
"""Healthy stubs answer at once; a busy machine may not."""
HASTY_S = 1.0
"""For scenarios in which a GPU does not answer at all."""

NO_LOG = Path("/nonexistent")

Play = Callable[..., "Player"]


class Player:
    """A sensor that is read once a second of the scenario's time; with `packed` as for a sample that is sent on."""

    def __init__(self, scenario: Scenario, sensor: NvidiaSensor, packed: bool) -> None:
        self.scenario, self.sensor, self.packed = scenario, sensor, packed
        self.second = -1
        self.notices: list[str] = []
        self.made_in_machine_code = 0

    def read(self, tick: int | None = None) -> Reading:
        """At the next second, or at that of `tick`."""
        self.second = self.second + 1 if tick is None else tick
        self.scenario.go_to(self.second)
        reading = self._packed(self.second * SECOND) if self.packed else self.sensor.read(self.second * SECOND)
        self.notices += [notice.text for notice in reading.notices]
        return reading

    def _packed(self, now_ns: int) -> Reading:
        if not self.sensor.may_block():
            self.sensor.begin(now_ns)
        reading = self.sensor.packed(now_ns)
        gpus = reading.values["gpus"]
        if isinstance(gpus, msgspec.Raw):
            self.made_in_machine_code += 1
            values = msgspec.msgpack.decode(gpus, type=list[GpuReading])
            assert msgspec.msgpack.encode(values) == bytes(gpus)
            return msgspec.structs.replace(reading, values={**reading.values, "gpus": values})
        self.sensor.shown(gpus)
        return reading

    def gpus(self, tick: int | None = None) -> list[GpuReading]:
        gpus: list[GpuReading] = self.read(tick).values["gpus"]
        return gpus

    def settle(self) -> None:
        """Until the slow things are read that were due."""
        for crew in self.sensor._crews:
            while crew._orders != crew._through:
                threading.Event().wait(0.001)

    def until(self, found: Callable[[list[GpuReading]], bool]) -> list[GpuReading]:
        """Reads second by second; a thread that was held needs a moment of real time to be back."""
        gpus = self.gpus()
        while not found(gpus):
            gpus = self.gpus()
        return gpus


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def stub(library: Path) -> ctypes.CDLL:
    return preload(library)


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    return Scenario(tmp_path / "scenario")


@pytest.fixture(params=["read", "packed"])
def play(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, stub: ctypes.CDLL, library: Path, tmp_path: Path
) -> Iterator[Play]:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library.parent))
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:  1000 kB\nMemFree: 10 kB\nMemAvailable: 600 kB\n")
    sensors: list[NvidiaSensor] = []

    def start(scenario: Scenario, answer_within_s: float = PATIENT_S, kernel_log: Path = NO_LOG) -> Player:
        monkeypatch.setenv("DISTMON_STUB_NVML", str(scenario.path))
        sensors.append(NvidiaSensor(Roots(tmp_path / "proc", tmp_path / "sys"), answer_within_s, kernel_log))
        return Player(scenario, sensors[-1], request.param == "packed")

    yield start
    for sensor in sensors:
        sensor.close()


# --- case HW-05 -----------------------------------------------------------------------------------------------------


def test_case_hw_05_a_lost_gpu_does_not_take_the_others_along(tmp_path: Path, play: Play) -> None:
    expected: dict[str, Any] = json.loads((CASE / "expected.json").read_text())
    case: dict[str, Any] = json.loads((CASE / "nvml.json").read_text())
    player = play(case_scenario(case, tmp_path / "scenario"), PATIENT_S)
    samples = [
        NodeSampled(at=float(tick), node="n", interval_s=1.0, gpus=player.gpus(tick))
        for tick in range(expected["published_ticks"])
    ]
    for tick, sample in enumerate(samples):
        assert [gpu.index for gpu in sample.gpus] == [0, 1, 2, 3]
        assert [gpu.uuid for gpu in sample.gpus] == [device["uuid"] for device in case["devices"]]
        with_values = [gpu.index for gpu in sample.gpus if gpu.utilization_percent is not None]
        assert with_values == expected["gpus_with_values"]["t0-3" if tick < 4 else "t4-9"]
    for sample in samples[expected["gpu2_state_from"] :]:
        lost = sample.gpus[2]
        assert lost.state == "lost"
        assert lost.unavailable == {"all": "it has fallen off the bus"}
        values = (lost.utilization_percent, lost.memory_used_bytes, lost.memory_total_bytes, lost.power_w, lost.temperature_c)
        assert values == (None,) * 5
        assert sample.gpus[3].temperature_c == 68
    assert node_power_w(samples[3]) == pytest.approx(expected["node_power_w_at_t3"])
    assert node_power_w(samples[9]) == pytest.approx(expected["node_power_w_at_t9"])
    assert player.notices == ["GPU 2 (NVIDIA GeForce RTX 3090): lost: it has fallen off the bus"]
    assert len(player.notices) == expected["lost_events"]


# --- values ---------------------------------------------------------------------------------------------------------


def test_values_of_a_gpu_and_what_it_does_not_have(scenario: Scenario, play: Play) -> None:
    scenario.add_gpu(0)
    scenario.answer(0, "reasons", 0x4 | 0x20 | 0x1)
    scenario.answer(0, "ecc.1", 7)
    scenario.answer(0, "retired.0", 2)
    scenario.answer(0, "retired.1", 1)
    scenario.answer(0, "remapped", 3, 1, 0, 0)
    scenario.answer(0, "processes", 4711, 5 * GIB)
    player = play(scenario, PATIENT_S)
    player.read()
    (gpu,) = player.gpus()
    assert (gpu.index, gpu.uuid, gpu.name, gpu.state) == (0, uuid(0), "NVIDIA Stub 3090", "ok")
    assert (gpu.utilization_percent, gpu.temperature_c, gpu.fan_percent) == (90, 65, 55)
    assert (gpu.memory_used_bytes, gpu.memory_total_bytes) == (20 * GIB, 24 * GIB)
    assert (gpu.power_w, gpu.power_limit_w, gpu.energy_j) == (200, 350, 0)
    assert (gpu.sm_clock_mhz, gpu.memory_clock_mhz, gpu.performance_state) == (1695, 9751, 2)
    assert gpu.throttle == ["power cap", "hot (driver)"]
    assert (gpu.ecc_uncorrected, gpu.retired_pages, gpu.remapped_rows) == (7, 3, 4)
    assert gpu.processes == [GpuProcess(pid=4711, memory_bytes=5 * GIB)]
    absent = {
        *("ecc_corrected", "last_xid", "nvlink_received_bytes_per_s", "nvlink_sent_bytes_per_s"),
        *("pcie_received_bytes_per_s", "pcie_sent_bytes_per_s"),
        *("sm_active_percent", "sm_occupancy_percent", "tensor_active_percent", "dram_active_percent"),
    }
    assert gpu.unavailable == dict.fromkeys(absent, "this GPU does not report it")
    assert gpu.ecc_corrected is None
    assert gpu.age_s["power_limit_w"] == 1.0
    assert "power_w" not in gpu.age_s


def test_without_machine_code_the_values_are_the_same(scenario: Scenario, play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario.add_gpu(0)
    scenario.answer(0, "reasons", 0x24, tick=0)
    scenario.answer(0, "energy_mj", error="NotSupported")
    scenario.answer(0, "power_mw", error="Unknown")
    player = play(scenario)
    player.gpus()
    (found,) = player.gpus()
    assert found.throttle == ["power cap", "hot (driver)"] and found.unavailable["power_w"]
    with monkeypatch.context() as patched:
        patched.setattr(nvidia_fast, "native", None)
        (expected,) = player.gpus()
    assert msgspec.structs.replace(found, age_s={}) == msgspec.structs.replace(expected, age_s={})


def test_one_sample_alone_has_the_rates_too(scenario: Scenario, play: Play, tmp_path: Path) -> None:
    scenario.add_gpu(0, "NVIDIA H100")
    scenario.answer(0, "gpm_support", 1)
    scenario.answer(0, "gpm", 2, 805)
    scenario.answer(0, "field.138", 7)
    sensor = play(scenario).sensor
    sampler = Sampler("n", Roots(tmp_path / "proc", tmp_path / "sys"), [Source("nvidia", lambda roots: sensor, may_block=True)])
    sampler.prime()
    sampler.settle(60.0, best=True)
    (gpu,) = sampler.sample(1.0).gpus
    assert (gpu.sm_active_percent, gpu.nvlink_sent_bytes_per_s, gpu.energy_j) == (80.5, 0.0, 0.0)


def test_what_a_gpu_does_not_support_is_asked_once(scenario: Scenario, play: Play, stub: ctypes.CDLL) -> None:
    stub.stub_calls_made.restype = ctypes.c_ulonglong
    scenario.answer(LIBRARY_ITSELF, "count", 1)
    scenario.answer(0, "uuid", uuid(0))
    scenario.answer(0, "name", "NVIDIA Stub")
    scenario.answer(0, "util", 5, 0)
    player = play(scenario, PATIENT_S)
    for _ in range(3):
        player.gpus()  # by now both slow readings of the first seconds are there as well
    made = stub.stub_calls_made()
    (gpu,) = player.gpus()
    assert stub.stub_calls_made() - made == 1  # its load
    assert gpu.utilization_percent == 5
    assert gpu.power_w is None
    assert gpu.unavailable["power_w"] == "this GPU does not report it"


def test_a_call_that_fails_now_and_then_costs_only_its_value(scenario: Scenario, play: Play) -> None:
    scenario.add_gpu(0)
    scenario.answer(0, "power_mw", tick=1, error="Unknown")
    scenario.answer(0, "power_mw", 150_000, tick=2)
    player = play(scenario, PATIENT_S)
    readings = [player.gpus(tick)[0] for tick in range(3)]
    assert [gpu.power_w for gpu in readings] == [200, None, 150]
    assert "power_w" in readings[1].unavailable
    assert [gpu.state for gpu in readings] == ["ok"] * 3
    assert player.notices == []


def test_a_gpu_that_shares_the_systems_memory_says_so(scenario: Scenario, play: Play) -> None:
    scenario.add_gpu(0, "NVIDIA GB10")
    scenario.answer(0, "mem", error="NotSupported")
    (gpu,) = play(scenario, PATIENT_S).gpus()
    assert (gpu.memory_used_bytes, gpu.memory_total_bytes) == (400 * 1024, 1000 * 1024)
    assert gpu.notes["memory_used_bytes"] == "system memory, which this GPU shares"
    assert "memory_used_bytes" not in gpu.unavailable


def test_a_gpu_whose_memory_may_not_be_asked_does_not_show_the_systems(scenario: Scenario, play: Play) -> None:
    scenario.add_gpu(0, "NVIDIA H100")
    scenario.answer(0, "mem", error="NoPermission")
    (gpu,) = play(scenario, PATIENT_S).gpus()
    assert (gpu.memory_used_bytes, gpu.memory_total_bytes, gpu.notes) == (None, None, {})
    assert gpu.unavailable["memory_used_bytes"] == "no permission to read it"


def test_every_value_that_is_absent_has_its_reason_from_the_first_reading_on(scenario: Scenario, play: Play) -> None:
    scenario.add_gpu(0)
    scenario.answer(0, "pstate", 32)  # NVML's word for unknown
    scenario.add_gpu(1, "NVIDIA H100")
    scenario.answer(1, "gpm_support", 1)
    scenario.answer(1, "gpm", 2, 805, 3, 250)
    scenario.answer(1, "energy_mj", tick=6, error="Unknown")
    split(scenario, 2)
    player = play(scenario, PATIENT_S)
    for tick in (0, 1, 5, 6, 7):
        for gpu in player.gpus(tick):
            measures = [name for name in gpu.__struct_fields__ if name not in ("instance", "last_xid")]
            absent = {name for name in measures if getattr(gpu, name) is None}
            assert absent <= gpu.unavailable.keys() or "others" in gpu.unavailable, (tick, gpu)


def test_memory_in_use_is_without_the_drivers_own_where_the_driver_can_tell(scenario: Scenario, play: Play) -> None:
    for index in (0, 1):
        scenario.add_gpu(index)
        scenario.answer(index, "mem", 24 * GIB, 20 * GIB, GIB)
    scenario.answer(1, "mem_v2", error="FunctionNotFound")
    new, old = play(scenario, PATIENT_S).gpus()
    assert (new.memory_used_bytes, new.memory_total_bytes) == (20 * GIB, 24 * GIB)
    assert (old.memory_used_bytes, old.memory_total_bytes) == (21 * GIB, 24 * GIB)


def test_energy_is_the_counters_and_never_negative_nor_of_two_samples(scenario: Scenario, play: Play) -> None:
    scenario.add_gpu(0)
    for tick, millijoules in enumerate((1_000_000, 1_250_000, 40_000, 290_000)):
        scenario.answer(0, "energy_mj", millijoules, tick=tick)
    scenario.answer(0, "energy_mj", tick=4, error="Unknown")
    scenario.answer(0, "energy_mj", 790_000, tick=5)
    player = play(scenario, PATIENT_S)
    assert [player.gpus(tick)[0].energy_j for tick in range(6)] == [None, 250.0, None, 250.0, None, None]


def test_use_right_after_the_driver_was_loaded_is_doubted(scenario: Scenario, play: Play) -> None:
    scenario.add_gpu(0)
    scenario.answer(0, "energy_mj", 150_000)
    scenario.answer(0, "energy_mj", 5_000_000, tick=2)
    player = play(scenario, PATIENT_S)
    (fresh,), (later,) = player.gpus(1), player.gpus(2)
    assert "driver was loaded" in fresh.notes["utilization_percent"] and "utilization_percent" not in later.notes


def test_rates_of_links_come_from_counters_and_those_of_the_bus_from_watching_it(scenario: Scenario, play: Play) -> None:
    scenario.add_gpu(0)
    for tick, seconds in ((0, 0), (3, 5)):
        # The bus's own counters of 32 bits have started over here, 47 times: from them it would look idle.
        scenario.answer(0, "field.198", 1000 + 10 * seconds, tick=tick)
        scenario.answer(0, "field.197", 1000 + 10 * seconds, tick=tick)
        scenario.answer(0, "field.139", 3 * seconds, tick=tick)
        scenario.answer(0, "field.138", 4 * seconds, tick=tick)
    scenario.answer(0, "pcie.0", 20)
    scenario.answer(0, "pcie.1", 40_000_000)
    player = play(scenario, PATIENT_S)
    player.read(0)
    assert "counter" in player.gpus(1)[0].unavailable["nvlink_sent_bytes_per_s"]
    assert player.gpus(2)[0].nvlink_sent_bytes_per_s == 0.0  # the second slow reading comes at once
    player.read(6)
    (gpu,) = player.gpus(7)
    assert (gpu.nvlink_received_bytes_per_s, gpu.nvlink_sent_bytes_per_s) == (3 * 1024, 4 * 1024)
    assert (gpu.pcie_received_bytes_per_s, gpu.pcie_sent_bytes_per_s) == (40e9, 20_000)
    assert gpu.age_s["pcie_sent_bytes_per_s"] == 1.0


@pytest.mark.parametrize(("within_s", "at_once"), [(60.0, True), (0.0, False)])
def test_gpus_are_asked_slow_things_at_one_wake_up_where_that_is_quick(
    scenario: Scenario, play: Play, monkeypatch: pytest.MonkeyPatch, within_s: float, at_once: bool
) -> None:
    monkeypatch.setattr(nvidia_crew, "_SLOW_WITHIN_S", within_s)
    for gpu in range(4):
        scenario.add_gpu(gpu)
    player = play(scenario, PATIENT_S)
    for second in range(9):
        gpus = player.gpus(second)
    assert (len({gpu.age_s["power_limit_w"] for gpu in gpus}) == 1) == at_once


def test_what_gpus_say_in_the_usual_way_and_what_they_say_besides(scenario: Scenario, play: Play) -> None:
    for gpu in range(3):
        scenario.add_gpu(gpu)
    for tick in range(2, 30):
        scenario.answer(1, "energy_mj", 1_000_000 + 1500 * tick, tick=tick)
        scenario.answer(2, "util", tick, 40, tick=tick)
    scenario.answer(0, "reasons", 0x4, tick=8)
    scenario.answer(0, "reasons", 0, tick=9)
    scenario.answer(0, "energy_mj", 700_000, tick=15)
    scenario.answer(0, "energy_mj", 599_999, tick=23)
    scenario.answer(0, "energy_mj", 600_000, tick=25)
    scenario.answer(1, "fan", 66, tick=18)
    player = play(scenario)
    ages: list[float] = []
    for tick in range(30):
        gpus = player.gpus(tick)
        assert [gpu.state for gpu in gpus] == ["ok"] * 3 and [gpu.index for gpu in gpus] == [0, 1, 2]
        assert gpus[0].throttle == (["power cap"] if tick == 8 else [])
        assert gpus[2].utilization_percent == (tick if tick > 1 else 92)
        assert gpus[1].energy_j == (None if tick == 0 else 0.0 if tick == 1 else 3.0 if tick == 2 else 1.5)
        assert ("energy_j" in gpus[0].unavailable) == (tick in (0, 15, 23))
        assert ("utilization_percent" in gpus[0].notes) == (tick in (23, 24))
        ages.append(max(gpus[0].age_s.values(), default=0.0))
        player.settle()
    assert max(ages) == 5.0 and ages[-10:].count(1.0) == 2
    assert gpus[1].fan_percent == 66 and gpus[0].fan_percent == 55
    if player.packed:
        # The others: the first, those with something out of the ordinary, and those after a slow reading that told something new.
        assert player.made_in_machine_code >= 18
    else:
        assert player.made_in_machine_code == 0


def split(scenario: Scenario, index: int) -> None:
    """A GPU in two MIG instances, 7 and 9, each with a process."""
    scenario.add_gpu(index, "NVIDIA H100")
    scenario.answer(index, "util", error="NotSupported")
    scenario.answer(index, "mig", 1, 1)
    scenario.answer(index, "mig_max", 7)
    scenario.answer(index, "mig_devices", 100, 101)
    scenario.answer(index, "processes", 10, GIB, 11, GIB, 12, GIB)
    for device, number in ((100, 7), (101, 9)):
        scenario.answer(device, "uuid", f"MIG-{number}")
        scenario.answer(device, "name", "NVIDIA H100 MIG 1g.10gb")
        scenario.answer(device, "instance", number)
        scenario.answer(device, "mem", 10 * GIB, number * GIB)
        scenario.answer(device, "processes", device - 90, GIB)


def test_an_instance_that_may_not_be_asked_costs_neither_the_others_nor_the_gpu(scenario: Scenario, play: Play) -> None:
    split(scenario, 0)
    scenario.answer(100, "instance", error="NoPermission")
    scenario.answer(101, "mem", error="NoPermission")
    player = play(scenario, PATIENT_S)
    player.read()
    player.read()
    whole, ninth = player.gpus()
    assert (whole.power_limit_w, ninth.instance, ninth.memory_used_bytes) == (350, 9, None)
    assert ninth.unavailable["memory_used_bytes"] == "no permission to read it"


def test_mig_instances_follow_their_gpu_with_their_own_memory_and_processes(scenario: Scenario, play: Play) -> None:
    split(scenario, 0)
    player = play(scenario, PATIENT_S)
    player.read()
    player.read()
    gpus = player.gpus()
    assert [(gpu.index, gpu.instance, gpu.uuid) for gpu in gpus] == [(0, None, uuid(0)), (0, 7, "MIG-7"), (0, 9, "MIG-9")]
    assert [gpu.memory_used_bytes for gpu in gpus] == [20 * GIB, 7 * GIB, 9 * GIB]
    assert [[process.pid for process in gpu.processes] for gpu in gpus] == [[12], [10], [11]]
    assert gpus[0].utilization_percent is None
    assert gpus[1].unavailable == {"others": "not reported for a MIG instance"}


def test_activity_of_the_parts_comes_from_gpm_where_a_gpu_has_it(scenario: Scenario, play: Play) -> None:
    for gpu in range(2):
        scenario.add_gpu(gpu, "NVIDIA H100")
        scenario.answer(gpu, "gpm_support", 1 - gpu)
    scenario.answer(0, "gpm", 2, 805, 3, 250, 5, 400, 10, 333, 1, 990)
    scenario.answer(0, "util", 100, 0, tick=4)
    scenario.answer(0, "gpm", 2, 0, tick=4)
    player = play(scenario, PATIENT_S)
    player.read(0)
    first = player.gpus(1)[0]
    assert first.sm_active_percent is None and "twice" in first.unavailable["sm_active_percent"]
    hopper, older = player.gpus(2)
    parts = (hopper.sm_active_percent, hopper.sm_occupancy_percent, hopper.tensor_active_percent, hopper.dram_active_percent)
    assert parts == (80.5, 25.0, 40.0, 33.3)
    assert hopper.utilization_percent == 90.0
    assert hopper.age_s["sm_active_percent"] == 1.0
    assert "sm_active_percent" not in hopper.notes
    player.read(6)
    assert "doubtful" in player.gpus(7)[0].notes["sm_active_percent"]
    assert older.sm_active_percent is None and "Hopper" in older.unavailable["sm_active_percent"]


def test_a_mig_instance_has_its_own_utilization_where_gpm_tells_it(scenario: Scenario, play: Play) -> None:
    scenario.add_gpu(0, "NVIDIA H100")
    scenario.answer(0, "gpm_support", 1)
    scenario.answer(0, "mig", 1, 1)
    scenario.answer(0, "mig_max", 7)
    scenario.answer(0, "mig_devices", 100, 101)
    for device, number in ((100, 7), (101, 9)):
        scenario.answer(device, "uuid", f"MIG-{number}")
        scenario.answer(device, "name", "NVIDIA H100 MIG 1g.10gb")
        scenario.answer(device, "instance", number)
        scenario.answer(device, "gpm", 1, 10 * number, 2, 5 * number)
    player = play(scenario, PATIENT_S)
    for second in (0, 1):
        player.read(second)
    whole, seventh, ninth = player.gpus(2)
    assert [(gpu.utilization_percent, gpu.sm_active_percent) for gpu in (seventh, ninth)] == [(7.0, 3.5), (9.0, 4.5)]
    assert seventh.age_s == {"sm_active_percent": 1.0, "utilization_percent": 1.0}
    assert "instances" in whole.unavailable["sm_active_percent"]


def test_each_xid_is_told_once_and_shown(scenario: Scenario, play: Play) -> None:
    scenario.add_gpu(0)
    scenario.answer(0, "events")
    for tick, code in ((2, 31), (8, 31), (14, 63)):
        scenario.answer(0, "xid", code, tick=tick)
    player = play(scenario, PATIENT_S)
    shown = [player.gpus(tick)[0].last_xid for tick in (0, 1, 6, 7, 12, 13, 18, 19)]
    assert (shown[0], shown[-1]) == (None, 63)
    assert [text.partition("reports ")[2] for text in player.notices] == ["Xid 31; see dmesg", "Xid 63; see dmesg"]


# --- what goes wrong ------------------------------------------------------------------------------------------------


def test_without_events_the_kernels_log_tells_the_xids(scenario: Scenario, play: Play, tmp_path: Path) -> None:
    for gpu in range(2):
        scenario.add_gpu(gpu)
        scenario.answer(gpu, "pci", 0, 0x41 + gpu, 0)
    log = tmp_path / "kmsg"
    log.write_text("4,1,1,-;NVRM: Xid (PCI:0000:41:00): 31, of long ago\n")
    player = play(scenario, PATIENT_S, log)
    player.read()
    player.read()
    with log.open("a") as file:
        file.write("6,2,2,-;usb 1-1: new device\n SUBSYSTEM=usb\n")
        file.write("4,3,3,-;NVRM: Xid (PCI:0000:42:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n")
        file.write("4,4,4,-;NVRM: Xid (PCI:0000:42:00): 79, again\n4,5,5,-;NVRM: Xid (PCI:zz): what is this\n")
    player.read()  # the log is read every other second
    gpus = player.gpus()
    assert [gpu.last_xid for gpu in gpus] == [None, 79]
    assert "kernel's log" in gpus[1].notes["last_xid"] and "last_xid" not in gpus[1].unavailable
    assert player.notices == ["GPU 1 (NVIDIA Stub 3090): the NVIDIA driver reports Xid 79; see dmesg"]


def test_a_call_that_hangs_holds_up_its_own_gpu_alone_until_it_returns(scenario: Scenario, play: Play) -> None:
    for index in range(3):
        scenario.add_gpu(index)
    scenario.silence(1, "temp", 4, 70, tick=1)
    player = play(scenario, HASTY_S)
    player.read(0)
    for tick in (1, 2, 3):
        gpus = player.gpus(tick)
        assert [gpu.utilization_percent for gpu in (gpus[0], gpus[2])] == [90, 92]
        if tick == 1:
            assert (gpus[1].state, gpus[1].age_s["all"]) == ("ok", 1.0)
        else:
            assert (gpus[1].state, gpus[1].power_w) == ("silent", None)
            assert gpus[1].unavailable["all"].startswith("its driver call has not returned for")
    assert player.until(lambda gpus: gpus[1].state == "ok")[1].temperature_c == 70
    assert [text.partition(": ")[2].partition(" for")[0] for text in player.notices] == [
        "silent: its driver call has not returned",
        "can be read again",
    ]


def test_gpus_that_take_long_are_all_read_once_there_are_threads_enough(scenario: Scenario, play: Play) -> None:
    for index in range(3):
        scenario.add_gpu(index)
        scenario.silence(index, "temp", 2, 50 + index, tick=1)
    player = play(scenario, HASTY_S)
    player.read(0)
    player.read(1)
    player.read(1)
    gpus = player.until(lambda gpus: all(gpu.temperature_c not in (None, 65 + gpu.index) for gpu in gpus))
    assert [gpu.temperature_c for gpu in gpus] == [50, 51, 52]
    names = [thread.name for thread in threading.enumerate()]
    assert names.count("nvidia") >= 3


def test_a_lost_gpu_that_comes_back_is_found_by_its_uuid(scenario: Scenario, play: Play) -> None:
    scenario.add_gpu(0)
    scenario.add_gpu(1)
    scenario.answer(1, "util", tick=1, error="GpuIsLost")
    scenario.answer(1, "handle", tick=1, error="GpuIsLost")
    scenario.answer(1, "util", 11, 0, tick=6)
    scenario.answer(1, "handle", tick=6)
    player = play(scenario, PATIENT_S)
    states = [player.gpus(tick)[1].state for tick in range(12)]
    assert states[:6] == ["ok"] + ["lost"] * 5
    assert states[-1] == "ok"
    assert len(player.notices) == 2


@pytest.mark.parametrize("machine_code", [True, False])
def test_a_gpu_that_cannot_be_reached_at_the_start_is_found_once_it_can(
    scenario: Scenario, play: Play, monkeypatch: pytest.MonkeyPatch, machine_code: bool
) -> None:
    if not machine_code:
        monkeypatch.setattr("distmon.agent.sensors.nvidia.native", None)
        monkeypatch.setattr("distmon.agent.sensors.nvidia_crew.native", None)
    for index in range(3):
        scenario.add_gpu(index)
    scenario.answer(1, "handle", error="GpuIsLost")
    scenario.answer(1, "handle", tick=5)
    player = play(scenario, PATIENT_S)
    readings = [player.gpus(tick) for tick in range(12)]
    assert [(gpu.state, gpu.uuid) for gpu in readings[-1]] == [("ok", uuid(index)) for index in range(3)]
    assert [gpu.temperature_c for gpu in readings[-1]] == [65, 66, 67]
    assert all(gpus[0].state == gpus[2].state == "ok" for gpus in readings)
    assert [gpus[1].state for gpus in readings] == ["lost"] * 8 + ["ok"] * 4  # asked at 1, 2, 4 and 8
    assert player.notices == [
        "GPU 1 (unknown): lost: it has fallen off the bus",
        "GPU 1 (NVIDIA Stub 3090): can be read again",
    ]


def test_a_driver_that_goes_away_is_asked_again_less_and_less_often(scenario: Scenario, play: Play) -> None:
    scenario.add_gpu(0)
    scenario.add_gpu(1)
    for index in (0, 1):
        for call in ("util", "mem", "temp", "power_mw", "energy_mj", "clock.1", "clock.2", "reasons", "pstate"):
            scenario.answer(index, call, tick=1, error="Unknown")
            scenario.answer(index, call, 1000, 500, tick=6)
    scenario.answer(LIBRARY_ITSELF, "init", tick=1, error="DriverNotLoaded")
    scenario.answer(LIBRARY_ITSELF, "init", tick=6)
    player = play(scenario, PATIENT_S)
    readings = [player.gpus(tick) for tick in range(10)]
    assert [[gpu.uuid for gpu in gpus] for gpus in readings] == [[uuid(0), uuid(1)]] * 10
    assert [gpus[0].state for gpus in readings] == ["ok"] + ["unreadable"] * 7 + ["ok"] * 2  # asked at 2, 4 and 8
    assert readings[3][1].unavailable == {"all": "the NVIDIA driver is not loaded"}
    assert len(player.notices) == 2
    assert player.notices[0].startswith("all 2 GPUs: unreadable: the NVIDIA driver gives no reason")
    assert player.notices[1] == "all 2 GPUs: can be read again"


def test_a_gpu_that_comes_to_a_driver_without_any_is_found(scenario: Scenario, play: Play) -> None:
    scenario.add_gpu(0)
    scenario.answer(LIBRARY_ITSELF, "count", 0)
    scenario.answer(LIBRARY_ITSELF, "count", 1, tick=3)
    player = play(scenario, PATIENT_S)
    reading = player.read(0)
    assert (reading.values, reading.unavailable) == ({"gpus": []}, {"gpus": "the NVIDIA driver shows no GPU"})
    seen = [len(player.gpus(tick)) for tick in range(1, 12)]
    assert seen[:2] == [0, 0] and seen[-1] == 1
    assert player.notices == []


def test_after_a_new_start_of_the_driver_a_gpu_keeps_its_row(scenario: Scenario, play: Play) -> None:
    for index in range(3):
        scenario.add_gpu(index)
        scenario.answer(index, "util", tick=1, error="GpuIsLost")
    scenario.answer(LIBRARY_ITSELF, "count", 2, tick=1)
    for call, values in (("uuid", (uuid(2),)), ("util", (77, 0)), ("power_mw", (99_000,))):
        scenario.answer(1, call, *values, tick=2)
    scenario.answer(0, "util", 55, 0, tick=2)
    player = play(scenario, PATIENT_S)
    player.read(0)
    assert [gpu.state for gpu in player.gpus(1)] == ["lost"] * 3
    gpus = player.gpus(3)
    assert [(gpu.index, gpu.uuid, gpu.state) for gpu in gpus] == [(0, uuid(0), "ok"), (1, uuid(1), "lost"), (2, uuid(2), "ok")]
    assert gpus[2].power_w == 99


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("DriverNotLoaded", "the NVIDIA driver is not loaded"),
        ("LibRmVersionMismatch", "differ in version"),
        ("Unknown", "a container may have lost its GPUs"),
        ("NoPermission", "no permission"),
    ],
)
def test_a_driver_that_never_answered_is_a_reason_and_no_rows(scenario: Scenario, play: Play, error: str, words: str) -> None:
    scenario.answer(LIBRARY_ITSELF, "init", error=error)
    with pytest.raises(nvidia_library.DriverError, match=words):
        play(scenario, PATIENT_S).read()


def test_a_machine_without_the_library_never_loads_the_binding(tmp_path: Path) -> None:
    code = (
        "import sys; from distmon.agent.sampler import Sampler; from distmon.agent.sensors import nvidia_library\n"
        "nvidia_library.is_present = lambda: False\n"
        "sampler = Sampler('n'); sampler.prime(); sample = sampler.sample(1.0)\n"
        "assert 'no NVIDIA driver on this machine' in sample.unavailable['gpus'], sample.unavailable\n"
        "assert 'ctypes' not in sys.modules and 'pynvml' not in sys.modules, 'loaded'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_update_of_the_driver_is_followed_by_loading_the_new_library(tmp_path: Path, scenario: Scenario) -> None:
    scenario.add_gpu(0)
    library = build(tmp_path / "lib", "-DSTUB_OF_AN_OLD_DRIVER")
    new = build(tmp_path / "new")
    code = (
        "import os; from distmon.agent.sensors.base import REAL_ROOTS; from distmon.agent.sensors import nvidia, nvidia_library\n"
        "sensor = nvidia.NvidiaSensor(REAL_ROOTS, 20.0)\n"
        "try: sensor.read(0); raise SystemExit('no mismatch')\n"
        "except nvidia_library.DriverError as error: assert 'differ in version' in str(error), error\n"
        f"os.replace({str(new)!r}, {str(library)!r})\n"
        "(gpu,) = sensor.read(10**9).values['gpus']\n"
        "assert gpu.temperature_c == 65, gpu\n"
    )
    environment = os.environ | {"LD_LIBRARY_PATH": str(library.parent), "DISTMON_STUB_NVML": str(scenario.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def test_the_library_is_found_without_loading_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia_library, "_CACHE", tmp_path / "none")
    monkeypatch.setattr(nvidia_library, "_FOLDERS", ())
    monkeypatch.setenv("LD_LIBRARY_PATH", f":{tmp_path}")
    assert not nvidia_library.is_present()
    (tmp_path / LIBRARY).touch()
    assert nvidia_library.is_present()


# --- the agent ------------------------------------------------------------------------------------------------------


def test_an_agent_publishes_its_gpus_with_their_ranks_and_one_notice_of_a_loss(
    tmp_path: Path, library: Path, scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario.add_gpu(0)
    scenario.add_gpu(1)
    for call in ("util", "power_mw", "temp", "handle"):
        scenario.answer(1, call, tick=1, error="GpuIsLost")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library.parent))
    monkeypatch.setenv("DISTMON_STUB_NVML", str(scenario.path))
    rings = tmp_path / "rings"
    rings.mkdir(mode=0o700)
    ring = RingWriter.create(str(rings))
    ring.message({"type": "identity", "rank": 5, "local_rank": 0, "visible_devices": {"CUDA_VISIBLE_DEVICES": "0"}})
    address = f"ipc://{tmp_path}/agent.sock"
    command = [sys.executable, "-m", "distmon.agent.main", "--listen", address, "--rate", "10", "--rings", str(rings)]
    subscription = Subscription([address])
    with subprocess.Popen(command) as agent:
        try:
            events = _until(subscription, lambda event: isinstance(event, NodeJoined) and len(event.gpus) == 2)
            _until(subscription, lambda event: isinstance(event, NodeSampled) and [g.ranks for g in event.gpus] == [[5], []])
            events += _until(subscription, lambda event: isinstance(event, NodeSampled) and _states(event) == ["ok", "ok"])
            scenario.go_to(1)
            events += _until(subscription, lambda event: isinstance(event, NoticeGiven))
            events += _until(subscription, lambda event: isinstance(event, NodeSampled) and _states(event) == ["ok", "lost"])
        finally:
            agent.terminate()
            ring.close()
            subscription.close()
    notices = [event.text.partition(": ")[2] for event in events if isinstance(event, NoticeGiven)]
    assert notices == ["GPU 1 (NVIDIA Stub 3090): lost: it has fallen off the bus"]


def _states(sample: NodeSampled) -> list[str]:
    return [gpu.state for gpu in sample.gpus]


def _until(subscription: Subscription, found: Callable[[AnyEvent], bool]) -> list[AnyEvent]:
    """What comes up to an event that is looked for; the test's own time limit ends a wait in vain."""
    events: list[AnyEvent] = []
    while not (events and found(events[-1])):
        for event in subscription.poll(0.1):
            events.append(event)
            if found(event):
                break
    return events
