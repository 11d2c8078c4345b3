"""Control groups, versions 1 and 2: a container with 4 of 128 cores shows 4, and what it uses of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from distmon.agent.identity import available_memory_bytes, node_joined
from distmon.agent.sampler import Sampler
from distmon.agent.sensors.base import Reading, Roots
from distmon.agent.sensors.cgroup import ControlGroupSensor, find_limits
from distmon.core.events import ControlGroup, Pressure
from tests.agent.trees import write

SECOND = 10**9
GIB = 1 << 30


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    return Roots(tmp_path / "proc", tmp_path / "sys")


def cpu_stat(folder: Path, used_us: int, periods: int, throttled: int, throttled_us: int) -> None:
    text = f"usage_usec {used_us}\nuser_usec 1\nnr_periods {periods}\nnr_throttled {throttled}\nthrottled_usec {throttled_us}"
    write(folder / "cpu.stat", text + "\na line of a later kernel")


def container(roots: Roots) -> Path:
    """4 of 128 cores and 8 GiB, as a container with a namespace of its own sees them: its group is the root."""
    write(roots.proc / "stat", "\n".join(["cpu  0 0 0 0", *(f"cpu{core} 0 0 0 0" for core in range(128)), "intr 0"]))
    write(roots.proc / "meminfo", f"MemTotal: {GIB} kB\nMemAvailable: {GIB // 2} kB")
    write(roots.proc / "self/cgroup", "0::/")
    group = roots.sys / "fs/cgroup"
    write(group / "cpu.max", "400000 100000")
    write(group / "memory.max", 8 * GIB)
    write(group / "memory.current", 6 * GIB)
    write(group / "memory.stat", f"anon 1\ninactive_file {2 * GIB}")
    cpu_stat(group, 0, 0, 0, 0)
    return group


def test_a_container_shows_its_own_limits_beside_the_host_s_figures(roots: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    container(roots)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(128)))
    joined = node_joined("n", "b", 0.0, [], roots)
    assert (joined.cores, joined.memory_bytes) == (4, 8 * GIB)
    sample = Sampler("n", roots).sample(at=1.0)
    assert len(sample.cores_percent) == 128
    assert sample.memory_total_bytes == 1024 * GIB
    assert sample.control_group is not None
    assert sample.control_group.cores == 4.0


def test_use_of_the_limits_and_time_held_back(roots: Roots) -> None:
    group = container(roots)
    sensor = ControlGroupSensor(roots, lambda: None)
    first = sensor.read(0).values["control_group"]
    assert (first.cpu_percent, first.throttled_s, first.throttled_percent) == (None, None, None)
    cpu_stat(group, used_us=6_000_000, periods=20, throttled=5, throttled_us=700_000)
    assert sensor.read(2 * SECOND) == Reading(
        {
            "control_group": ControlGroup(
                version=2,
                cores=4.0,
                cpu_percent=75.0,
                throttled_s=0.7,
                throttled_percent=25.0,
                memory_used_bytes=4 * GIB,
                memory_limit_bytes=8 * GIB,
            )
        },
        {},
    )


def test_a_containers_own_pressure_is_told_beside_the_nodes(roots: Roots) -> None:
    group = container(roots)
    write(group / "memory.pressure", "some avg10=7.50 avg60=0.00 avg300=0.00 total=5\nfull avg10=2.25 avg60=0 avg300=0 total=1")
    sensor = ControlGroupSensor(roots, lambda: None)
    told = sensor.read(0).values["control_group"].pressures
    assert told == [Pressure(resource="memory", some_percent=7.5, full_percent=2.25)]


@pytest.mark.parametrize("used", ["cpu", "cpuacct"])
def test_version_1_with_use_beside_the_limit_or_in_a_hierarchy_of_its_own(roots: Roots, used: str) -> None:
    write(roots.proc / "self/cgroup", "4:memory:/docker/x\n2:cpu,cpuacct:/docker/x\n1:name=systemd:/docker/x")
    cpu, memory = roots.sys / "fs/cgroup/cpu", roots.sys / "fs/cgroup/memory"
    write(cpu / "cpu.cfs_quota_us", 150_000)
    write(cpu / "cpu.cfs_period_us", 100_000)
    write(memory / "memory.limit_in_bytes", GIB)
    write(memory / "memory.usage_in_bytes", GIB // 2)
    write(memory / "memory.stat", f"inactive_file 7\ntotal_inactive_file {GIB // 4}")
    write(roots.sys / "fs/cgroup" / used / "cpuacct.usage", 0)
    write(cpu / "cpu.stat", "nr_periods 0\nnr_throttled 0\nthrottled_time 0")
    sensor = ControlGroupSensor(roots, lambda: None)
    sensor.read(0)
    write(roots.sys / "fs/cgroup" / used / "cpuacct.usage", 750_000_000)
    write(cpu / "cpu.stat", "nr_periods 10\nnr_throttled 1\nthrottled_time 50000000")
    assert sensor.read(SECOND).values["control_group"] == ControlGroup(
        version=1,
        cores=1.5,
        cpu_percent=50.0,
        throttled_s=0.05,
        throttled_percent=10.0,
        memory_used_bytes=GIB // 4,
        memory_limit_bytes=GIB,
    )


@pytest.mark.parametrize("version", [1, 2])
def test_a_job_that_is_pinned_to_some_cores_shows_these_and_its_use_of_them(roots: Roots, version: int) -> None:
    write(roots.sys / "devices/system/cpu/online", "0-127")
    tree = roots.sys / "fs/cgroup"
    if version == 2:
        write(roots.proc / "self/cgroup", "0::/slurm/job_7/step_0")
        write(tree / "cpuset.cpus.effective", "0-127")
        write(tree / "slurm/job_7/cpuset.cpus.effective", "0-1,64,66")
        (tree / "slurm/job_7/step_0").mkdir()
        counter, unit = tree / "slurm/job_7/cpu.stat", "usage_usec {}"
    else:
        write(roots.proc / "self/cgroup", "3:cpuset:/slurm/job_7\n2:cpu,cpuacct:/\n4:memory:/")
        write(tree / "cpuset/cpuset.effective_cpus", "0-127")
        write(tree / "cpuset/slurm/job_7/cpuset.effective_cpus", "0-1,64,66")
        counter, unit = tree / "cpuacct/slurm/job_7/cpuacct.usage", "{}000"
    write(counter, unit.format(0))
    sensor = ControlGroupSensor(roots, lambda: None)
    sensor.read(0)
    write(counter, unit.format(3_000_000))
    group = sensor.read(SECOND).values["control_group"]
    assert (group.version, group.cores, group.cpu_percent, group.memory_limit_bytes) == (version, 4.0, 75.0, None)


@pytest.mark.parametrize("cores", ["0-127", "", "0-", "all", "5-3"])
def test_all_cores_or_no_list_of_them_is_no_limit(roots: Roots, cores: str) -> None:
    write(roots.proc / "self/cgroup", "0::/")
    write(roots.sys / "devices/system/cpu/online", "0-127")
    write(roots.sys / "fs/cgroup/cpuset.cpus.effective", cores)
    assert find_limits(roots).cores is None


@pytest.mark.parametrize("no_limit", ["max", "9223372036854771712", ""])
def test_no_limit_is_none_and_never_a_huge_number(roots: Roots, no_limit: str) -> None:
    write(roots.proc / "self/cgroup", "0::/")
    write(roots.sys / "fs/cgroup/memory.max", no_limit)
    reading = ControlGroupSensor(roots, lambda: None).read(0)
    assert reading.values == {"control_group": None}
    assert "whole node" in reading.unavailable["control_group"]


def test_the_quota_of_the_agent_s_own_service_binds_the_agent_alone(roots: Roots) -> None:
    write(roots.proc / "self/cgroup", "0::/system.slice/distmon-agent.service")
    write(roots.sys / "fs/cgroup/system.slice/distmon-agent.service/cpu.max", "10000 100000")
    write(roots.sys / "fs/cgroup/system.slice/distmon-agent.service/memory.max", 1 << 27)
    assert find_limits(roots).cores is None
    write(roots.proc / "meminfo", "MemTotal: 1000 kB")
    assert available_memory_bytes(roots) == 1000 * 1024


def test_a_rank_s_group_counts_once_a_rank_is_known(roots: Roots) -> None:
    write(roots.proc / "self/cgroup", "0::/system.slice/distmon-agent.service")
    write(roots.proc / "77/cgroup", "0::/job.slice/job-1.scope")
    write(roots.sys / "fs/cgroup/job.slice/cpu.max", "800000 100000")
    write(roots.sys / "fs/cgroup/job.slice/job-1.scope/cpu.max", "200000 100000")
    sampler = Sampler("n", roots)
    assert sampler.sample(at=0.0).control_group is None
    write(roots.proc / "77/stat", "77 (python) S" + " 1" * 30)
    sampler.processes.watch(77, rank=0)
    group = sampler.sample(at=1.0).control_group
    assert group is not None
    assert group.cores == 2.0


def test_counters_of_a_group_that_was_made_anew_are_unknown_and_not_negative(roots: Roots) -> None:
    group = container(roots)
    cpu_stat(group, 9_000_000, 90, 9, 900)
    sensor = ControlGroupSensor(roots, lambda: None)
    sensor.read(0)
    cpu_stat(group, 10, 1, 0, 0)
    again = sensor.read(SECOND).values["control_group"]
    assert (again.cpu_percent, again.throttled_s, again.throttled_percent) == (None, None, None)
