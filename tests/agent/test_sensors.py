"""Each sensor against trees of files that look like the kernel's, played reading by reading."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distmon.agent.identity import available_cores
from distmon.agent.sampler import Sampler
from distmon.agent.sensors import Source
from distmon.agent.sensors.base import REAL_ROOTS, Reading, Roots, Sensor, why
from distmon.agent.sensors.cpu import CpuSensor, parse
from distmon.agent.sensors.disks import DiskSensor
from distmon.agent.sensors.load import LoadSensor
from distmon.agent.sensors.memory import MemorySensor
from distmon.agent.sensors.network import NetworkSensor
from distmon.agent.sensors.power import RaplSensor
from distmon.agent.sensors.processes import ProcessSensor
from distmon.agent.sensors.temperatures import TemperatureSensor
from distmon.core.events import DiskRate, NetworkRate, PowerRail, Temperature

SECOND = 10**9


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    return Roots(tmp_path / "proc", tmp_path / "sys")


def write(path: Path, text: object) -> None:
    """In place, as the kernel's files change: under the descriptor that a sensor holds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


# --- cpu ------------------------------------------------------------------------------------------------------------


def stat(*cores: tuple[int, int, int]) -> str:
    """(number, busy, idle) per core that is on, with a first line that sums them and what follows in the real file."""
    lines = [f"cpu  {sum(core[1] for core in cores)} 0 0 {sum(core[2] for core in cores)} 0 0 0 0 0 0"]
    lines += [f"cpu{number} {busy} 0 0 {idle} 0 0 0 0 0 0" for number, busy, idle in cores]
    return "\n".join([*lines, "intr 1 2 3", "ctxt 5", "a line of a later kernel"])


def test_cpu_first_reading_is_absent_and_not_zero(roots: Roots) -> None:
    write(roots.proc / "stat", stat((0, 50, 50)))
    reading = CpuSensor(roots).read(0)
    assert reading.values == {"cpu_percent": None, "cores_percent": [None]}
    assert "cpu_percent" in reading.unavailable


def test_cpu_percentages_and_a_core_that_is_off(roots: Roots) -> None:
    sensor = CpuSensor(roots)
    write(roots.proc / "stat", stat((0, 0, 0), (1, 0, 0), (3, 0, 0)))
    sensor.read(0)
    write(roots.proc / "stat", stat((0, 100, 0), (3, 25, 75)))
    assert sensor.read(SECOND).values == {"cpu_percent": 62.5, "cores_percent": [100.0, None, None, 25.0]}


def test_cpu_counters_that_step_back_stay_within_bounds(roots: Roots) -> None:
    sensor = CpuSensor(roots)
    write(roots.proc / "stat", stat((0, 0, 1000)))
    sensor.read(0)
    write(roots.proc / "stat", stat((0, 100, 999)))
    assert sensor.read(SECOND).values["cpu_percent"] == 100.0


def test_cpu_guest_time_is_not_counted_twice(roots: Roots) -> None:
    sensor = CpuSensor(roots)
    write(roots.proc / "stat", "cpu  0 0 0 0 0 0 0 0 0 0")
    sensor.read(0)
    write(roots.proc / "stat", "cpu  50 0 0 50 0 0 0 0 50 0")
    assert sensor.read(SECOND).values["cpu_percent"] == 50.0


@given(lines=st.lists(st.lists(st.integers(0, 2**63 - 1), min_size=3, max_size=12), max_size=9))
def test_cpu_lines_of_any_length_are_read_the_same_by_both_ways(lines: list[list[int]]) -> None:
    """A line that JSON cannot hold sends all of them the slow way."""
    rows = [" ".join(map(str, line)) for line in lines]
    text = "\n".join([f"cpu  {' '.join(['1'] * 10)}", *(f"cpu{core} {row}" for core, row in enumerate(rows))]).encode()
    expected = {core: (sum(line[3:5]), sum(line[:8])) for core, line in enumerate(lines) if len(line) > 3}
    assert parse(text) == parse(text + b"\ncpufoo 1 2 3 4") == {-1: (2, 8), **expected}


# --- memory and load ------------------------------------------------------------------------------------------------


def test_memory_in_bytes(roots: Roots) -> None:
    write(
        roots.proc / "meminfo",
        "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 400 kB\nSwapTotal: 50 kB\nSwapFree: 20 kB\nOdd line\nHuge: x kB",
    )
    assert MemorySensor(roots).read(0) == Reading(
        {"memory_total_bytes": 1_024_000, "memory_used_bytes": 614_400, "swap_used_bytes": 30_720, "swap_total_bytes": 51_200}, {}
    )


def test_memory_that_the_kernel_does_not_tell_is_absent(roots: Roots) -> None:
    write(roots.proc / "meminfo", "MemTotal: 1000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB")
    reading = MemorySensor(roots).read(0)
    assert reading.values["memory_used_bytes"] is None
    assert list(reading.unavailable) == ["memory_used_bytes"]


def test_load(roots: Roots) -> None:
    write(roots.proc / "loadavg", "1.25 2 3 1/300 4711")
    assert LoadSensor(roots).read(0).values == {"load_1m": 1.25}


# --- network and disks ----------------------------------------------------------------------------------------------


def net(**counters: tuple[int, int]) -> str:
    head = "Inter-|   Receive  |  Transmit\n face |bytes packets errs\n"
    return head + "\n".join(f"{name}:{got} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0" for name, (got, sent) in counters.items())


def test_network_rates_over_the_real_interval(roots: Roots) -> None:
    sensor = NetworkSensor(roots)
    sensor.used_by_training = frozenset({"ib0"})
    write(roots.proc / "net/dev", net(eth0=(1000, 0), ib0=(0, 0), veth1=(0, 0)))
    assert all(rate.received_bytes_per_s is None for rate in sensor.read(0).values["networks"])
    write(roots.proc / "net/dev", net(eth0=(5000, 100), ib0=(0, 0), veth1=(0, 0)))
    assert sensor.read(2 * SECOND).values["networks"] == [
        NetworkRate(name="ib0", received_bytes_per_s=0.0, sent_bytes_per_s=0.0, used_by_training=True),
        NetworkRate(name="eth0", received_bytes_per_s=2000.0, sent_bytes_per_s=50.0),
    ]


def test_network_counter_that_starts_over_and_an_interface_that_is_new_are_absent(roots: Roots) -> None:
    sensor = NetworkSensor(roots)
    write(roots.proc / "net/dev", net(eth0=(5000, 5000)))
    sensor.read(0)
    write(roots.proc / "net/dev", net(eth0=(10, 6000), eth1=(7, 7)))
    assert sensor.read(SECOND).values["networks"] == [
        NetworkRate(name="eth0", received_bytes_per_s=None, sent_bytes_per_s=1000.0),
        NetworkRate(name="eth1", received_bytes_per_s=None, sent_bytes_per_s=None),
    ]


def test_disks_are_whole_devices(roots: Roots) -> None:
    for name in ("sda", "loop0", "cciss!c0d0"):
        (roots.sys / "block" / name).mkdir(parents=True)
    sensor = DiskSensor(roots)
    line = "8 0 {name} 1 0 {read} 0 1 0 {written} 0 0 {busy} 0 0 0 0 0"
    write(roots.proc / "diskstats", line.format(name="sda", read=0, written=0, busy=0))
    sensor.read(0)
    text = [line.format(name=name, read=4, written=2, busy=250) for name in ("sda", "sda1", "loop0", "cciss/c0d0")]
    write(roots.proc / "diskstats", "\n".join(text))
    assert sensor.read(SECOND).values["disks"] == [
        DiskRate(name="sda", read_bytes_per_s=2048.0, written_bytes_per_s=1024.0, busy_percent=25.0),
        DiskRate(name="cciss/c0d0", read_bytes_per_s=None, written_bytes_per_s=None),
    ]


# --- power ----------------------------------------------------------------------------------------------------------


def zone(roots: Roots, folder: str, name: str, energy_uj: int, range_uj: int = 262_143_328_850) -> Path:
    path = roots.sys / "class/powercap" / folder
    write(path / "name", name)
    write(path / "max_energy_range_uj", range_uj)
    write(path / "energy_uj", energy_uj)
    return path


def test_rapl_says_what_lies_within_what(roots: Roots) -> None:
    (roots.sys / "class/powercap/intel-rapl").mkdir(parents=True)
    package = zone(roots, "intel-rapl:0", "package-0", 0)
    core = zone(roots, "intel-rapl:0:0", "core", 0)
    zone(roots, "intel-rapl:0:1", "dram", 5)
    zone(roots, "intel-rapl-mmio:0", "package-0", 0)
    sensor = RaplSensor(roots)
    assert [rail.watts for rail in sensor.read(0).values["power"]] == [None, None, None]
    write(package / "energy_uj", 30_000_000)
    write(core / "energy_uj", 20_000_000)
    assert sensor.read(2 * SECOND).values["power"] == [
        PowerRail(name="package-0", watts=15.0, source="rapl", energy_j=30.0),
        PowerRail(name="package-0/core", watts=10.0, source="rapl", energy_j=20.0, within="package-0"),
        PowerRail(name="package-0/dram", watts=0.0, source="rapl", energy_j=0.0),
    ]


def test_rapl_platform_holds_packages_and_memory(roots: Roots) -> None:
    zone(roots, "intel-rapl:0", "package-0", 0)
    zone(roots, "intel-rapl:0:0", "dram", 0)
    zone(roots, "intel-rapl:1", "psys", 0)
    rails = RaplSensor(roots).read(0).values["power"]
    assert [(rail.name, rail.within) for rail in rails] == [
        ("package-0", "psys"),
        ("package-0/dram", "psys"),
        ("psys", ""),
    ]


def test_rapl_counter_that_wraps_once(roots: Roots) -> None:
    package = zone(roots, "intel-rapl:0", "package-0", 65_000_000_000, range_uj=65_532_610_987)
    sensor = RaplSensor(roots)
    sensor.read(0)
    write(package / "energy_uj", 100_000_000)
    assert sensor.read(10 * SECOND).values["power"][0].energy_j == pytest.approx(632.610987)


def test_rapl_after_a_pause_in_which_it_may_have_wrapped_more_is_unknown(roots: Roots) -> None:
    package = zone(roots, "intel-rapl:0", "package-0", 0, range_uj=65_532_610_987)
    sensor = RaplSensor(roots)
    sensor.read(0)
    write(package / "energy_uj", 100_000_000)
    assert sensor.read(60 * SECOND).values["power"][0].watts is None


def test_rapl_counter_that_stands_still_is_no_zero(roots: Roots) -> None:
    zone(roots, "intel-rapl:0", "package-0", 5)
    sensor = RaplSensor(roots)
    sensor.read(0)
    assert sensor.read(SECOND) == Reading({"power": []}, {"power": "package-0: its counter stands still"})


def test_rapl_absent(roots: Roots) -> None:
    assert RaplSensor(roots).read(0).unavailable == {"power": "this machine has no RAPL energy counters"}


def test_rapl_zone_that_cannot_be_read_leaves_the_others(roots: Roots) -> None:
    zone(roots, "intel-rapl:0", "package-0", 5)
    (zone(roots, "intel-rapl:1", "package-1", 5) / "energy_uj").unlink()
    reading = RaplSensor(roots).read(0)
    assert [rail.name for rail in reading.values["power"]] == ["package-0"]
    assert reading.unavailable["power"].startswith("package-1: No such file")


def test_a_file_for_root_only_is_told_as_such() -> None:
    error = PermissionError(13, "Permission denied", "/sys/class/powercap/intel-rapl:0/energy_uj")
    assert why(error) == "not readable: /sys/class/powercap/intel-rapl:0/energy_uj"


# --- temperatures ---------------------------------------------------------------------------------------------------


def test_temperatures_of_monitors_without_those_that_are_off(roots: Roots) -> None:
    chip = roots.sys / "class/hwmon/hwmon0"
    write(chip / "name", "coretemp")
    write(chip / "temp1_input", 54000)
    write(chip / "temp1_label", "Package id 0")
    write(chip / "temp2_input", -256000)
    write(chip / "temp3_input", "")
    write(roots.sys / "class/thermal/thermal_zone0/temp", 30000)
    reading = TemperatureSensor(roots).read(0)
    assert reading == Reading({"temperatures": [Temperature(name="coretemp/Package id 0", celsius=54.0)]}, {})


def test_temperatures_of_zones_where_there_are_no_monitors(roots: Roots) -> None:
    write(roots.sys / "class/thermal/thermal_zone0/temp", 30500)
    write(roots.sys / "class/thermal/thermal_zone0/type", "CPU-therm")
    assert TemperatureSensor(roots).read(0).values["temperatures"] == [Temperature(name="CPU-therm", celsius=30.5)]


# --- processes ------------------------------------------------------------------------------------------------------


def process_stat(user: int, system: int) -> str:
    columns = ["S", *"1234567890", user, system, 0, 0, 20, 0, 9, 0, 4242, 10_000, 100]
    return "77 (a ) name (x)) " + " ".join(map(str, columns)) + " 0 0"


def test_a_rank_s_process_whatever_its_name(roots: Roots) -> None:
    sensor = ProcessSensor(roots)
    sensor.watch(77, rank=3)
    write(roots.proc / "77/stat", process_stat(100, 0))
    assert sensor.read(0).values["processes"][0].cpu_percent is None
    write(roots.proc / "77/stat", process_stat(150, 50))
    (reading,) = sensor.read(2 * SECOND).values["processes"]
    assert (reading.pid, reading.rank, reading.threads) == (77, 3, 9)
    assert reading.cpu_percent == pytest.approx(100 * 100 / os.sysconf("SC_CLK_TCK") / 2)
    assert reading.memory_bytes == 100 * os.sysconf("SC_PAGE_SIZE")


def test_how_long_a_rank_waits_for_a_core(roots: Roots) -> None:
    """A kernel that does not count it says 0 of all, or has no such file."""
    sensor = ProcessSensor(roots)
    for pid, ran, waited in ((77, 10**9, 10**9), (78, 0, 0)):
        sensor.watch(pid, rank=pid)
        write(roots.proc / f"{pid}/stat", process_stat(0, 0))
        write(roots.proc / f"{pid}/schedstat", f"{ran} {waited} 5")
    sensor.watch(79, rank=79)
    write(roots.proc / "79/stat", process_stat(0, 0))
    assert [process.run_queue_wait_percent for process in sensor.read(0).values["processes"]] == [None] * 3
    write(roots.proc / "77/schedstat", f"{2 * 10**9} {int(1.5 * 10**9)} 9")
    assert [process.run_queue_wait_percent for process in sensor.read(2 * SECOND).values["processes"]] == [25.0, None, None]


def test_a_rank_that_shares_its_core_waits_for_it() -> None:
    """This machine's kernel: two processes that only spin on one core have it in turns."""
    core = min(os.sched_getaffinity(0))
    spin = f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
    spinners = [subprocess.Popen([sys.executable, "-S", "-c", spin]) for _ in range(2)]
    sensor = ProcessSensor(REAL_ROOTS)
    try:
        for rank, spinner in enumerate(spinners):
            sensor.watch(spinner.pid, rank)
        begun = time.monotonic_ns()
        sensor.read(begun)
        deadline, waits = begun + 20 * SECOND, [0.0]
        while time.monotonic_ns() < deadline and min(waits) < 20:
            time.sleep(0.5)
            waits = [process.run_queue_wait_percent or 0.0 for process in sensor.read(time.monotonic_ns()).values["processes"]]
        assert min(waits) >= 20
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


def test_a_process_that_is_gone_is_dropped(roots: Roots) -> None:
    sensor = ProcessSensor(roots)
    sensor.watch(78, rank=0)
    assert sensor.read(0) == Reading({"processes": []}, {})


# --- control groups -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "file", "text", "cores"),
    [
        ("0::/a/b", "a/cpu.max", "150000 100000", 2),
        ("0::/a/b", "a/b/cpu.max", "max 100000", None),
        ("0::/../../outside", "cpu.max", "50000 100000", 1),
        ("4:cpu,cpuacct:/docker/x", "cpu/docker/x/cpu.cfs_quota_us", "100000", 1),
        ("4:cpu,cpuacct:/docker/x", "cpu/docker/x/cpu.cfs_quota_us", "-1", None),
    ],
)
def test_cores_within_the_control_group_s_quota(roots: Roots, group: str, file: str, text: str, cores: int | None) -> None:
    write(roots.proc / "self/cgroup", group)
    write(roots.sys / "fs/cgroup" / file, text)
    write((roots.sys / "fs/cgroup" / file).with_name("cpu.cfs_period_us"), 100000)
    own = len(os.sched_getaffinity(0))
    assert available_cores(roots) == (own if cores is None else min(own, cores))


# --- the sampler ----------------------------------------------------------------------------------------------------


class Broken:
    fields: tuple[str, ...] = ("load_1m",)

    def read(self, now_ns: int) -> Reading:
        raise OSError(5, "Input/output error", "/proc/loadavg")


class Hanging:
    """Answers its first read, then waits to be let go."""

    fields: tuple[str, ...] = ("temperatures",)

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.reads = 0

    def read(self, now_ns: int) -> Reading:
        self.reads += 1
        if self.reads > 1:
            self.let_go.wait(30)
        return Reading({"temperatures": [Temperature(name="t", celsius=float(self.reads))]}, {})


def source(sensor: Sensor, *, may_block: bool = False) -> Source:
    return Source("test", lambda roots: sensor, may_block)


def test_a_failing_sensor_is_absent_with_its_reason_and_the_others_go_on(roots: Roots) -> None:
    write(roots.proc / "net/dev", net(eth0=(1, 1)))
    sample = Sampler("n", roots, [source(Broken()), source(MemorySensor(roots))]).sample(at=1.0)
    assert sample.unavailable["load_1m"] == "Input/output error: /proc/loadavg"
    assert sample.unavailable["memory_total_bytes"].startswith("No such file")
    assert [network.name for network in sample.networks] == ["eth0"]


def test_a_hanging_sensor_gives_its_last_values_with_their_age_then_none(roots: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    write(roots.proc / "net/dev", net(eth0=(1, 1)))
    hanging = Hanging()
    sampler = Sampler("n", roots, [source(hanging, may_block=True)])
    assert sampler.sample(at=1.0).age_s == {}
    stale = sampler.sample(at=2.0)
    assert [temperature.celsius for temperature in stale.temperatures] == [1.0]
    assert stale.age_s["temperatures"] > 0
    monkeypatch.setattr("distmon.agent.sampler._OLDEST_SHOWN_S", 0.0)
    gone = sampler.sample(at=3.0)
    assert gone.temperatures == []
    assert gone.unavailable["temperatures"].startswith("no answer for")
    assert hanging.reads == 2
    hanging.let_go.set()
    while hanging.reads < 3:
        last = sampler.sample(at=4.0)
    assert [temperature.celsius for temperature in last.temperatures] == [3.0]
