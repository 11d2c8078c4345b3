"""Clocks, pressure, InfiniBand, disks, temperatures and power: the traps of each, on trees of files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from distmon.agent.sampler import Sampler
from distmon.agent.sensors.base import Reading, Roots
from distmon.agent.sensors.cpu import CpuSensor
from distmon.agent.sensors.disks import DiskSensor
from distmon.agent.sensors.frequency import FrequencySensor
from distmon.agent.sensors.infiniband import InfinibandSensor
from distmon.agent.sensors.memory import MemorySensor
from distmon.agent.sensors.network import NetworkSensor
from distmon.agent.sensors.power import RaplSensor
from distmon.agent.sensors.pressure import PressureSensor
from distmon.agent.sensors.processes import ProcessSensor
from distmon.agent.sensors.temperatures import TemperatureSensor
from distmon.core.events import NetworkRate, Pressure
from tests.agent.trees import write

SECOND = 10**9


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    return Roots(tmp_path / "proc", tmp_path / "sys")


# --- cores ----------------------------------------------------------------------------------------------------------


def test_clocks_by_the_core_s_number_with_none_for_one_that_is_off(roots: Roots) -> None:
    cpu = roots.sys / "devices/system/cpu"
    write(cpu / "cpu0/cpufreq/scaling_cur_freq", 1_800_000)
    (cpu / "cpu1").mkdir()
    write(cpu / "cpu10/cpufreq/scaling_cur_freq", 2_400_123)
    write(cpu / "cpufreq/policy0/scaling_cur_freq", 1)
    sensor = FrequencySensor(roots)
    assert sensor.read(0).values["cores_mhz"] == [1800.0, *[None] * 9, 2400.123]
    write(cpu / "cpu0/cpufreq/scaling_cur_freq", "<unknown>")
    assert sensor.read(SECOND).values["cores_mhz"] == [*[None] * 10, 2400.123]
    (cpu / "cpu10/cpufreq/scaling_cur_freq").unlink()
    write(cpu / "cpu1/cpufreq/scaling_cur_freq", 900_000)
    assert sensor.read(100 * SECOND).values["cores_mhz"] == [None, 900.0, *[None] * 9]


def test_a_machine_without_clocks_says_so(roots: Roots) -> None:
    reading = FrequencySensor(roots).read(0)
    assert reading.values == {"cores_mhz": []}
    assert "clocks" in reading.unavailable["cores_mhz"]


def test_two_readers_do_not_take_each_other_s_interval(roots: Roots) -> None:
    one, other = CpuSensor(roots), CpuSensor(roots)
    write(roots.proc / "stat", "cpu  0 0 0 0")
    one.read(0)
    other.read(0)
    write(roots.proc / "stat", "cpu  50 0 0 50")
    other.read(SECOND)
    write(roots.proc / "stat", "cpu  50 0 0 150")
    assert one.read(2 * SECOND).values["cpu_percent"] == 25.0
    assert other.read(2 * SECOND).values["cpu_percent"] == 0.0


# --- pressure -------------------------------------------------------------------------------------------------------


def test_pressure_with_and_without_a_full_line(roots: Roots) -> None:
    write(roots.proc / "pressure/cpu", "some avg10=1.50 avg60=2.00 avg300=3.85 total=15")
    both = "some avg10=0.10 avg60=2.00 avg300=3.85 total=15\nfull avg10=0.20 avg60=3.00 avg300=4.95 total=25\nirq new=1"
    write(roots.proc / "pressure/io", both)
    assert PressureSensor(roots).read(0) == Reading(
        {
            "pressures": [
                Pressure(resource="cpu", some_percent=1.5),
                Pressure(resource="io", some_percent=0.1, full_percent=0.2),
            ]
        },
        {},
    )


def test_a_kernel_without_pressure_says_how_to_get_it(roots: Roots) -> None:
    assert "psi=1" in PressureSensor(roots).read(0).unavailable["pressures"]


# --- InfiniBand, interfaces, disks ----------------------------------------------------------------------------------


def port(roots: Roots, name: str, received: object, sent: object) -> None:
    counters = roots.sys / "class/infiniband" / name / "counters"
    write(counters / "port_rcv_data", received)
    write(counters / "port_xmit_data", sent)


def test_infiniband_counts_words_of_four_bytes(roots: Roots) -> None:
    port(roots, "mlx5_0/ports/1", 1000, 50)
    sensor = InfinibandSensor(roots)
    assert sensor.read(0).values["infiniband"][0].received_bytes_per_s is None
    port(roots, "mlx5_0/ports/1", 2000, 50)
    assert sensor.read(2 * SECOND).values["infiniband"] == [
        NetworkRate(name="mlx5_0/1", received_bytes_per_s=2000.0, sent_bytes_per_s=0.0)
    ]


@pytest.mark.parametrize("at", ["ports/1/gid_attrs/ndevs/0", "device/net/ib0/dev_port"], ids=["addresses", "old kernel"])
def test_the_port_under_the_interface_of_the_training_is_marked(roots: Roots, at: str) -> None:
    for adapter, interface in (("mlx5_0", "ib0"), ("mlx5_1", "ib1")):
        port(roots, f"{adapter}/ports/1", 1000, 50)
        write(roots.sys / "class/infiniband" / adapter / at.replace("ib0", interface), interface)
    sampler = Sampler("n", roots, [])
    assert not any(rate.used_by_training for rate in sampler.sample(1.0).infiniband)
    sampler.network.used_by_training = frozenset({"ib1"})
    marked = [rate.name for rate in sampler.sample(2.0).infiniband if rate.used_by_training]
    assert marked == ["mlx5_1/1"]


def test_infiniband_counters_that_are_a_remark_or_stuck_are_absent(roots: Roots) -> None:
    port(roots, "hfi1_0/ports/1", 2**32 - 1, 7)
    port(roots, "i40iw0/ports/1", "N/A (no PMA)", "N/A (no PMA)")
    sensor = InfinibandSensor(roots)
    sensor.read(0)
    reading = sensor.read(SECOND)
    assert [(rate.name, rate.received_bytes_per_s, rate.sent_bytes_per_s) for rate in reading.values["infiniband"]] == [
        ("hfi1_0/1", None, 0.0),
        ("i40iw0/1", None, None),
    ]
    assert reading.unavailable == {"infiniband": "i40iw0/1: no counters"}


def test_a_device_that_vanishes_and_comes_back_takes_nothing_along(roots: Roots) -> None:
    head = "Inter-| Receive\n face |bytes\n"
    line = "{}: {} 0 0 0 0 0 0 0 0 0"
    sensor = NetworkSensor(roots)
    names: list[list[tuple[str, float | None]]] = []
    for text in (f"{line.format('eth0', 5)}\n{line.format('usb0', 900)}", line.format("eth0", 6), line.format("usb0", 3)):
        write(roots.proc / "net/dev", head + text)
        names.append([(rate.name, rate.received_bytes_per_s) for rate in sensor.read(len(names) * SECOND).values["networks"]])
    assert names == [[("usb0", None), ("eth0", None)], [("eth0", 1.0)], [("usb0", None)]]


def test_lines_that_no_kernel_wrote_before_are_passed_over(roots: Roots) -> None:
    write(roots.proc / "net/dev", "eth0: many 1 2 3 4 5 6 7 8\neth1: 1 0 0 0 0 0 0 0 2 0 extra\nwhat: is this")
    assert [rate.name for rate in NetworkSensor(roots).read(0).values["networks"]] == ["eth1"]
    (roots.sys / "block/sda").mkdir(parents=True)
    (roots.sys / "block/sdb").mkdir()
    write(roots.proc / "diskstats", "8 0 sda 1 0 ? 0 1 0 2 0 0 3\n8 16 sdb 1 0 2 0 1 0 2 0 0 3 0 0 0 0 0 0 new 7\nodd")
    assert [disk.name for disk in DiskSensor(roots).read(0).values["disks"]] == ["sdb"]
    write(roots.proc / "stat", "cpu  1 0 0 1\ncpufoo 1 2 3 4\ncpu0 x 0 0 1\ncpu1 1 0 0 1\n\nintr 1")
    assert CpuSensor(roots).read(0).values["cores_percent"] == [None, None]
    write(roots.proc / "meminfo", "Mem: what\nMemTotal: 10 kB\nMemAvailable: 4 pages")
    assert MemorySensor(roots).read(0).values["memory_total_bytes"] == 10240


def test_a_machine_without_disks_or_traffic_says_so(roots: Roots) -> None:
    (roots.sys / "block").mkdir(parents=True)
    write(roots.proc / "diskstats", "")
    write(roots.proc / "net/dev", "lo: 0 0 0 0 0 0 0 0 0 0")
    assert DiskSensor(roots).read(0) == Reading({"disks": []}, {"disks": "the kernel shows no disk here"})
    assert NetworkSensor(roots).read(0) == Reading({"networks": []}, {"networks": "no interface has carried a byte"})


def test_a_disk_on_other_disks_is_not_counted_twice(roots: Roots) -> None:
    (roots.sys / "block/nvme0n1/slaves").mkdir(parents=True)
    (roots.sys / "block/md0/slaves/nvme0n1").mkdir(parents=True)
    write(roots.proc / "diskstats", "\n".join(f"8 0 {name} 1 0 2 0 1 0 2 0 0 3" for name in ("nvme0n1", "md0")))
    assert [disk.name for disk in DiskSensor(roots).read(0).values["disks"]] == ["nvme0n1"]


def test_one_process_that_cannot_be_read_leaves_the_others(roots: Roots) -> None:
    sensor = ProcessSensor(roots)
    for pid in (5, 6):
        sensor.watch(pid, rank=pid - 5)
    write(roots.proc / "5/stat", "5 (cut off) S 1")
    write(roots.proc / "6/stat", "6 (python) S" + " 1" * 30)
    reading = sensor.read(0)
    assert [process.pid for process in reading.values["processes"]] == [6]
    assert reading.unavailable["processes"].startswith("process 5: ")


# --- temperatures ---------------------------------------------------------------------------------------------------


def test_temperatures_have_distinct_names(roots: Roots) -> None:
    for chip, number in (("hwmon2", 40), ("hwmon10", 50)):
        folder = roots.sys / "class/hwmon" / chip
        write(folder / "name", "coretemp")
        for i in (1, 2):
            write(folder / f"temp{i}_input", (number + i) * 1000)
            write(folder / f"temp{i}_label", "Core 0")
    old = roots.sys / "class/hwmon/hwmon11/device"
    write(old / "name", "applesmc")
    write(old / "temp10_input", 30000)
    write(old / "temp9_input", 31000)
    found = {zone.name: zone.celsius for zone in TemperatureSensor(roots).read(0).values["temperatures"]}
    assert found == {
        "coretemp/Core 0": 41.0,
        "coretemp/Core 0 2": 42.0,
        "coretemp 2/Core 0": 51.0,
        "coretemp 2/Core 0 2": 52.0,
        "applesmc/temp9": 31.0,
        "applesmc/temp10": 30.0,
    }


def test_thermal_zones_of_one_type_are_numbered(roots: Roots) -> None:
    for zone in (0, 1):
        write(roots.sys / f"class/thermal/thermal_zone{zone}/temp", 30000 + zone)
        write(roots.sys / f"class/thermal/thermal_zone{zone}/type", "acpitz")
    assert [zone.name for zone in TemperatureSensor(roots).read(0).values["temperatures"]] == ["acpitz", "acpitz 2"]


# --- power ----------------------------------------------------------------------------------------------------------


def zone(roots: Roots, folder: str, name: str, energy_uj: int, range_uj: object = 262_143_328_850) -> Path:
    path = roots.sys / "class/powercap" / folder
    write(path / "name", name)
    write(path / "max_energy_range_uj", range_uj)
    write(path / "energy_uj", energy_uj)
    return path


def test_rapl_counter_that_was_reset_is_unknown_and_not_62_kilowatts(roots: Roots) -> None:
    package = zone(roots, "intel-rapl:0", "package-0", 200_000_000_000)
    sensor = RaplSensor(roots)
    sensor.read(0)
    write(package / "energy_uj", 1000)
    rail = sensor.read(SECOND).values["power"][0]
    assert (rail.watts, rail.energy_j) == (None, None)
    write(package / "energy_uj", 90_001_000)
    assert sensor.read(2 * SECOND).values["power"][0].watts == 90.0


def test_rapl_without_a_known_range_counts_but_does_not_guess_at_a_wrap(roots: Roots) -> None:
    package = zone(roots, "intel-rapl:0", "package-0", 1_000_000, range_uj="")
    sensor = RaplSensor(roots)
    watts = []
    for second, energy_uj in enumerate((1_000_000, 51_000_000, 3_000_000)):
        write(package / "energy_uj", energy_uj)
        watts.append(sensor.read(second * SECOND).values["power"][0].watts)
    assert watts == [None, 50.0, None]


def test_rapl_for_root_only_says_what_opens_it(roots: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    zone(roots, "intel-rapl:0", "package-0", 5)
    real_open = os.open

    def for_root_only(path: str | Path, flags: int) -> int:
        if Path(path).name == "energy_uj":
            raise PermissionError(13, "Permission denied", str(path))
        return real_open(path, flags)

    monkeypatch.setattr(os, "open", for_root_only)
    reading = RaplSensor(roots).read(0)
    assert reading.values == {}
    assert all(word in reading.unavailable["power"] for word in ("only root", "udev", "packaging/70-distmon-rapl.rules"))


def test_rapl_two_packages_of_amd_each_with_its_cores(roots: Roots) -> None:
    for package in (0, 1):
        zone(roots, f"intel-rapl:{package}", f"package-{package}", 0)
        zone(roots, f"intel-rapl:{package}:0", "core", 0)
    rails = RaplSensor(roots).read(0).values["power"]
    assert [rail.name for rail in rails if not rail.within] == ["package-0", "package-1"]
    assert {rail.name: rail.within for rail in rails if rail.within} == {
        "package-0/core": "package-0",
        "package-1/core": "package-1",
    }
