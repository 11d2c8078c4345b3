"""Limits of a control group (a container, a batch job) and its use of them; versions 1 and 2.

/proc/stat and /proc/meminfo tell the whole host also inside a container; what a rank may use, its group tells.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from distmon.agent.sensors.base import Reading, Roots, rate, read_text, whole_number
from distmon.agent.sensors.pressure import RESOURCES, parse
from distmon.core.events import ControlGroup, Pressure

_LOOK_AGAIN_NS = 30 * 10**9
_NO_LIMIT_BYTES = 1 << 60
"""Version 1 writes a number near 2**63 for no limit."""
_UNLIMITED = "no control group limits CPU or memory here: the whole node is open"


class Limits(NamedTuple):
    """The tightest limits on the way from a process's group to the root, and the folders of the groups that set them."""

    version: int
    cores: float | None
    cpu_folder: Path | None
    memory_bytes: int | None
    memory_folder: Path | None


def find_limits(roots: Roots, pid: int | None = None) -> Limits:
    """Of the process; without a pid, of this one, but not those of its own systemd service: they bind the agent alone."""
    groups = _groups(read_text(roots.proc / str(pid or "self") / "cgroup"))
    if pid is None:
        groups = {name: path.rpartition("/")[0] if path.endswith(".service") else path for name, path in groups.items()}
    tree = _tree(roots)
    version = 1 if "cpu" in groups or "memory" in groups else 2
    if version == 2:
        folders = _upwards(tree, groups.get("", "/"))
        cores = [(_quota_v2(folder), folder) for folder in folders]
        cores.append(_set_of_cores(roots, folders, "cpuset.cpus.effective"))
        memory = [(_bytes(folder / "memory.max"), folder) for folder in folders]
    else:
        folders = _upwards(tree / "cpu", groups.get("cpu", "/"))
        cores = [(_quota_v1(folder), folder) for folder in folders]
        count, folder = _set_of_cores(roots, _upwards(tree / "cpuset", groups.get("cpuset", "/")), "cpuset.effective_cpus")
        cores.append((count, tree / "cpu" / folder.relative_to(tree / "cpuset")))
        folders = _upwards(tree / "memory", groups.get("memory", "/"))
        memory = [(_bytes(folder / "memory.limit_in_bytes"), folder) for folder in folders]
    cores_limit = min(((limit, folder) for limit, folder in cores if limit is not None), default=(None, None))
    memory_limit = min(((limit, folder) for limit, folder in memory if limit is not None), default=(None, None))
    return Limits(version, *cores_limit, *memory_limit)


class ControlGroupSensor:
    """The group of a rank where one is known, or else this process's."""

    fields: tuple[str, ...] = ("control_group",)

    def __init__(self, roots: Roots, pid: Callable[[], int | None]) -> None:
        self._roots = roots
        self._pid = pid
        self._limits: Limits | None = None
        self._of: int | None = None
        self._looked_ns = 0
        self._last: _Use | None = None
        self._last_ns = 0

    def read(self, now_ns: int) -> Reading:
        pid = self._pid()
        if self._limits is None or pid != self._of or now_ns - self._looked_ns > _LOOK_AGAIN_NS:
            self._look(pid, now_ns)
        limits = self._limits
        if limits is None or (limits.cores is None and limits.memory_bytes is None):
            return Reading({"control_group": None}, {"control_group": _UNLIMITED})
        last, self._last = self._last, _use(_tree(self._roots), limits)
        interval_s = 0.0 if last is None else (now_ns - self._last_ns) / 1e9
        self._last_ns = now_ns
        own = _pressures(limits)
        return Reading({"control_group": _reading(limits, last, self._last, interval_s, own)}, {})

    def _look(self, pid: int | None, now_ns: int) -> None:
        limits = find_limits(self._roots, pid)
        if limits != self._limits:
            self._last = None
        self._limits, self._of, self._looked_ns = limits, pid, now_ns


class _Use(NamedTuple):
    """Counters of a group since it was made."""

    cpu_us: int | None
    throttled_us: int | None
    periods: int | None
    throttled_periods: int | None
    memory_bytes: int | None


def _use(tree: Path, limits: Limits) -> _Use:
    cpu, memory = limits.cpu_folder, limits.memory_folder
    stat = _pairs(read_text(cpu / "cpu.stat")) if cpu else {}
    if limits.version == 2:
        cpu_us, throttled_us = stat.get("usage_usec"), stat.get("throttled_usec")
        used = _used_bytes(memory, "memory.current", "inactive_file") if memory else None
    else:
        cpu_us = _thousandth(_cpu_ns_v1(tree, cpu)) if cpu else None
        throttled_us = _thousandth(stat.get("throttled_time"))
        used = _used_bytes(memory, "memory.usage_in_bytes", "total_inactive_file") if memory else None
    return _Use(cpu_us, throttled_us, stat.get("nr_periods"), stat.get("nr_throttled"), used)


def _reading(limits: Limits, last: _Use | None, now: _Use, interval_s: float, pressures: list[Pressure]) -> ControlGroup:
    cores_used, held_back, periods, throttled = (_rate(last, now, column, interval_s) for column in _COUNTERS)
    percent = None
    if cores_used is not None and limits.cores:
        percent = round(cores_used / 1e6 / limits.cores * 100, 2)
    return ControlGroup(
        version=limits.version,
        cores=limits.cores,
        cpu_percent=percent,
        throttled_s=None if held_back is None else round(held_back * interval_s / 1e6, 6),
        throttled_percent=None if throttled is None else round(100 * throttled / periods, 2) if periods else 0.0,
        memory_used_bytes=now.memory_bytes,
        memory_limit_bytes=limits.memory_bytes,
        pressures=pressures,
    )


def _pressures(limits: Limits) -> list[Pressure]:
    """Of the group that is limited; version 1 has none, and a kernel may keep them for the whole node only."""
    folder = limits.cpu_folder or limits.memory_folder
    texts = [(name, read_text(folder / f"{name}.pressure")) for name in RESOURCES] if folder and limits.version == 2 else []
    return [parse(name, text.encode()) for name, text in texts if text]


_COUNTERS = ("cpu_us", "throttled_us", "periods", "throttled_periods")


def _rate(last: _Use | None, now: _Use, column: str, interval_s: float) -> float | None:
    before, after = getattr(last, column, None), getattr(now, column)
    return None if after is None else rate(before, after, interval_s)


def _used_bytes(folder: Path, total: str, reclaimable: str) -> int | None:
    """Without the file cache that the kernel takes back before a limit bites."""
    used = _bytes(folder / total)
    return None if used is None else max(0, used - _pairs(read_text(folder / "memory.stat")).get(reclaimable, 0))


def _tree(roots: Roots) -> Path:
    return roots.sys / "fs" / "cgroup"


def _groups(text: str) -> dict[str, str]:
    """Controller -> path; the empty controller is version 2's."""
    pairs: dict[str, str] = {}
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        pairs.update(dict.fromkeys(controllers.split(","), path))
    return pairs


def _upwards(tree: Path, path: str) -> list[Path]:
    """The group's folder and all above it. In a container the path may name a group outside; then the tree's root is ours."""
    parts = [part for part in path.split("/") if part and part != ".."]
    return [tree.joinpath(*parts[:length]) for length in range(len(parts), -1, -1)]


def _quota_v2(folder: Path) -> float | None:
    columns = read_text(folder / "cpu.max").split()
    return int(columns[0]) / int(columns[1]) if len(columns) == 2 and columns[0].isdigit() else None


def _quota_v1(folder: Path) -> float | None:
    quota, period = _bytes(folder / "cpu.cfs_quota_us"), _bytes(folder / "cpu.cfs_period_us")
    return quota / period if quota and period else None


def _set_of_cores(roots: Roots, folders: list[Path], name: str) -> tuple[float | None, Path]:
    """How many cores the group may run on, where that is not all that are on, and the folder that says so: container engines
    and batch systems pin jobs. A group inside one that is pinned need not have the file."""
    folder = next((folder for folder in folders if (folder / name).exists()), folders[-1])
    allowed = _count(read_text(folder / name))
    return (float(allowed) if 0 < allowed < _count(read_text(roots.sys / "devices/system/cpu/online")) else None), folder


def _count(cores: str) -> int:
    """Of a list such as 0-3,8; 0 where it is none."""
    ends = [part.partition("-") for part in cores.split(",")]
    if not all(first.isdigit() and (last.isdigit() if dash else not last) for first, dash, last in ends):
        return 0
    return sum(int(last or first) - int(first) + 1 for first, _, last in ends)


def _bytes(path: Path) -> int | None:
    """None for no file, no limit ("max", -1) and no number."""
    number = whole_number(read_text(path).encode())
    return None if number is None or number >= _NO_LIMIT_BYTES else number


def _cpu_ns_v1(tree: Path, folder: Path) -> int | None:
    """CPU time of a group: in the same hierarchy as its limit on most machines, in one beside it on some."""
    own = _bytes(folder / "cpuacct.usage")
    beside = tree / "cpuacct" / folder.relative_to(tree / "cpu")
    return _bytes(beside / "cpuacct.usage") if own is None else own


def _thousandth(number: int | None) -> int | None:
    return None if number is None else number // 1000


def _pairs(text: str) -> dict[str, int]:
    """Lines of a name and a number; others are passed over."""
    columns = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in columns if len(pair) == 2 and pair[1].isdigit()}
