"""A large node's /proc and /sys as a tree of files whose counters move: 64 cores, two packages, ranks and other processes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

TICKS_PER_S = 100
_FIRST = 10**9
"""Counters start here: they keep their number of digits, so that files can be rewritten in place under a reader."""


class HostTree:
    """`move` takes the counters one second on."""

    def __init__(self, folder: Path, ranks: Iterable[int], others: int, cores: int = 64) -> None:
        self.proc, self.sys = folder / "proc", folder / "sys"
        self._cores = cores
        self._ranks = list(ranks)
        self._second = 0
        self._descriptors: dict[Path, int] = {}
        self._fixed_files()
        for pid in range(100_000, 100_000 + others):
            self._write(self.proc / str(pid) / "stat", _process(pid, 1))
        self.move()

    def move(self) -> None:
        self._second += 1
        count = _FIRST + self._second * TICKS_PER_S // 2
        cores = [f"cpu{core} {count} 0 0 {count + core} 0 0 0 0 0 0" for core in range(self._cores)]
        interrupts = "intr 123456789 " + " ".join(["0"] * 2000)
        self._write(self.proc / "stat", "\n".join([f"cpu  {count} 0 0 {count} 0 0 0 0 0 0", *cores, interrupts, "ctxt 1"]))
        words = _FIRST + self._second * 1_000_000
        self._write(self.proc / "net/dev", "Inter-|\n face |\n" + "\n".join(_interface(name, words) for name in _INTERFACES))
        self._write(self.proc / "diskstats", "\n".join(_disk(name, words) for name in _DISKS))
        for pid in self._ranks:
            self._write(self.proc / str(pid) / "stat", _process(pid, count))
        for package in (0, 1):
            for zone in ("", ":0"):
                energy_uj = 10 * _FIRST + self._second * 150_000_000
                self._write(self.sys / f"class/powercap/intel-rapl:{package}{zone}/energy_uj", energy_uj)
        for adapter in range(2):
            counters = self.sys / f"class/infiniband/mlx5_{adapter}/ports/1/counters"
            self._write(counters / "port_rcv_data", words)
            self._write(counters / "port_xmit_data", words)

    def close(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)

    def _fixed_files(self) -> None:
        self._write(self.proc / "loadavg", "16.10 15.90 15.80 17/4711 99999")
        names = ["MemTotal", "MemFree", "MemAvailable", "Buffers", "Cached", *(f"Kind{i}" for i in range(40))]
        lines = [f"{name}:  {800_000_000 - i} kB" for i, name in enumerate([*names, "SwapTotal", "SwapFree"])]
        self._write(self.proc / "meminfo", "\n".join(lines))
        for resource in ("cpu", "memory", "io"):
            line = "avg10=0.10 avg60=2.00 avg300=3.85 total=15"
            self._write(self.proc / "pressure" / resource, f"some {line}\nfull {line}")
        self._write(self.proc / "self/cgroup", "0::/system.slice/distmon-agent.service")
        for core in range(self._cores):
            self._write(self.sys / f"devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq", 2_450_000 + core)
        for package in (0, 1):
            folder = self.sys / "class/powercap"
            for zone, name in (("", f"package-{package}"), (":0", "dram")):
                self._write(folder / f"intel-rapl:{package}{zone}/name", name)
                self._write(folder / f"intel-rapl:{package}{zone}/max_energy_range_uj", 262_143_328_850)
            chip = self.sys / f"class/hwmon/hwmon{package}"
            self._write(chip / "name", "coretemp")
            for i in range(1, self._cores // 2 + 2):
                self._write(chip / f"temp{i}_input", 40_000 + 100 * i)
                self._write(chip / f"temp{i}_label", f"Core {i - 2}" if i > 1 else f"Package id {package}")
        for name in _DISKS:
            (self.sys / "block" / name).mkdir(parents=True)

    def _write(self, path: Path, text: object) -> None:
        descriptor = self._descriptors.get(path)
        if descriptor is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")
            if not path.parts[-2].isdecimal() or path.parts[-2] in map(str, self._ranks):
                self._descriptors[path] = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        else:
            os.pwrite(descriptor, f"{text}\n".encode(), 0)


_INTERFACES = ("lo", "eth0", "eth1", "ib0", "ib1", "docker0", *(f"veth{i}" for i in range(10)))
_DISKS = tuple(f"nvme{i}n1" for i in range(8))


def _interface(name: str, count: int) -> str:
    return f"{name}: {count} 1 0 0 0 0 0 0 {count} 1 0 0 0 0 0 0"


def _disk(name: str, count: int) -> str:
    return f"259 0 {name} 1 0 {count} 0 1 0 {count} 0 0 {count} 0 0 0 0 0"


def _process(pid: int, ticks: int) -> str:
    """The 52 columns of /proc/PID/stat."""
    columns = ["R", *["1"] * 10, ticks, ticks, 0, 0, 20, 0, 40, 0, 4242, 10**10, 10**6, *["0"] * 28]
    return f"{pid} (python3) " + " ".join(map(str, columns))
