"""Sensors on trees of real machines' /proc and /sys."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from distmon.agent.sensors.amd_board import amd_sensor
from distmon.agent.sensors.base import Roots
from distmon.agent.sensors.cpu import CpuSensor
from distmon.agent.sensors.disks import DiskSensor
from distmon.agent.sensors.frequency import FrequencySensor
from distmon.agent.sensors.infiniband import InfinibandSensor
from distmon.agent.sensors.load import LoadSensor
from distmon.agent.sensors.memory import MemorySensor
from distmon.agent.sensors.network import NetworkSensor
from distmon.agent.sensors.power import RaplSensor
from distmon.agent.sensors.pressure import PressureSensor
from distmon.agent.sensors.processes import ProcessSensor
from distmon.agent.sensors.temperatures import TemperatureSensor
from distmon.core.events import PowerRail, Pressure, Temperature
from tests.agent.trees import real_tree

SECOND = 10**9


def test_proc_of_eight_cores(tmp_path: Path) -> None:
    roots = Roots(real_tree("proc-basic", tmp_path / "proc"), tmp_path / "sys")
    for name in ("sda", "nvme0n1", "mmcblk0", "dm-0"):
        (roots.sys / "block" / name).mkdir(parents=True)
    (roots.sys / "block/dm-0/slaves/sda").mkdir(parents=True)
    assert CpuSensor(roots).read(0).values["cores_percent"] == [None] * 8
    assert LoadSensor(roots).read(0).values == {"load_1m": 0.02}
    assert MemorySensor(roots).read(0).values["memory_total_bytes"] == 15666184 * 1024
    names = {"lo", "eth0", "docker0", "vethf345468"}
    assert {rate.name for rate in NetworkSensor(roots).read(0).values["networks"]} == names
    assert {disk.name for disk in DiskSensor(roots).read(0).values["disks"]} == {"sda", "nvme0n1", "mmcblk0"}
    processes = ProcessSensor(roots)
    processes.watch(26231, rank=0)
    (process,) = processes.read(0).values["processes"]
    assert (process.memory_bytes, process.threads) == (1981 * 4096, 1)


def test_pressure(tmp_path: Path) -> None:
    real_tree("proc-pressure", tmp_path / "proc")
    assert PressureSensor(Roots(tmp_path / "proc", tmp_path / "sys")).read(0).values["pressures"] == [
        Pressure(resource="cpu", some_percent=0.1),
        Pressure(resource="memory", some_percent=0.1, full_percent=0.2),
        Pressure(resource="io", some_percent=0.1, full_percent=0.2),
    ]


def test_clocks_of_four_cores_of_which_two_tell_them(tmp_path: Path) -> None:
    roots = Roots(tmp_path, real_tree("sys-cpufreq", tmp_path / "sys"))
    assert FrequencySensor(roots).read(0).values["cores_mhz"] == [1699.981, 1699.981, 8.0, 8.0]


def test_an_amd_gpu_without_its_monitor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    sensor = amd_sensor(Roots(tmp_path, real_tree("sys-drm-amdgpu", tmp_path / "sys")))
    assert sensor is not None
    (gpu,) = sensor.read(0).values["gpus"]
    assert (gpu.uuid, gpu.utilization_percent) == ("0123456789abcdef", 4)
    assert (gpu.memory_used_bytes, gpu.memory_total_bytes, gpu.sm_clock_mhz) == (1490378752, 8573157376, 852)
    assert gpu.power_w is None and "kernel" in gpu.unavailable["power_w"]


def test_infiniband_of_three_makers(tmp_path: Path) -> None:
    roots = Roots(tmp_path, real_tree("sys-infiniband", tmp_path / "sys"))
    sensor = InfinibandSensor(roots)
    sensor.read(0)
    counter = roots.sys / "class/infiniband/mlx4_0/ports/2/counters_ext/port_rcv_data_64"
    counter.chmod(0o644)
    counter.write_text("4632917\n")
    rates = {rate.name: rate.received_bytes_per_s for rate in sensor.read(SECOND).values["infiniband"]}
    assert rates == {"i40iw0/1": None, "mlx4_0/1": 0.0, "mlx4_0/2": 4000.0}


def test_power_of_a_package_holds_its_cores(tmp_path: Path) -> None:
    roots = Roots(tmp_path, real_tree("sys-powercap-rapl", tmp_path / "sys"))
    sensor = RaplSensor(roots)
    sensor.read(0)
    for zone, energy_uj in (("intel-rapl:0", 240_422_366_267 + 45_000_000), ("intel-rapl:0:0", 118_821_284_256 + 30_000_000)):
        counter = roots.sys / "class/powercap" / zone / "energy_uj"
        counter.chmod(0o644)
        counter.write_text(f"{energy_uj}\n")
    assert sensor.read(SECOND).values["power"] == [
        PowerRail(name="package-0", watts=45.0, source="rapl", energy_j=45.0),
        PowerRail(name="package-0/core", watts=30.0, source="rapl", energy_j=30.0, within="package-0"),
    ]


def test_temperatures_of_every_chip_under_a_name_of_its_own(tmp_path: Path) -> None:
    roots = Roots(tmp_path, real_tree("sys-hwmon", tmp_path / "sys"))
    found: list[Temperature] = TemperatureSensor(roots).read(0).values["temperatures"]
    names = [zone.name for zone in found]
    assert len(set(names)) == len(names)
    celsius = {zone.name: zone.celsius for zone in found}
    assert celsius["coretemp/Physical id 0"] == celsius["coretemp 2/Physical id 0"] == 55.0
    assert celsius["coretemp 2/Core 3"] == 50.0
