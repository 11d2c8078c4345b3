"""Which node this is, and what it has: the NodeJoined event."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from distmon.agent.sensors.base import REAL_ROOTS, Roots
from distmon.agent.sensors.memory import kilobytes
from distmon.core.events import NodeJoined


def node_name(roots: Roots = REAL_ROOTS) -> str:
    """Host name, boot id and network namespace: none of them comes with a disk image, and two containers differ."""
    boot = _line(roots.proc / "sys/kernel/random/boot_id").replace("-", "")[:8]
    try:
        namespace = (roots.proc / "self/ns/net").stat().st_ino & 0xFFFF
    except OSError:
        namespace = 0
    return f"{host_name()}-{boot or '0'}{namespace:04x}"


def host_name() -> str:
    """The kernel takes any bytes for it; what is not UTF-8 is replaced."""
    return socket.gethostname().encode("utf-8", "replace").decode()


def new_boot() -> str:
    """Names one run of an agent."""
    return os.urandom(6).hex()


def node_joined(node: str, boot: str, at: float, roots: Roots = REAL_ROOTS) -> NodeJoined:
    kernel = os.uname()
    return NodeJoined(
        at=at,
        node=node,
        host=host_name(),
        boot=boot,
        cores=available_cores(roots),
        memory_bytes=_memory_bytes(roots),
        machine=kernel.machine,
        system=f"{kernel.sysname} {kernel.release}",
        agent_version=_own_version(),
    )


def available_cores(roots: Roots = REAL_ROOTS) -> int:
    """Cores that this process may use: its affinity, cut by its control group's quota and rounded up."""
    cores = len(os.sched_getaffinity(0))
    quota = _cgroup_quota(roots)
    return cores if quota is None else max(1, min(cores, -int(-quota // 1)))


def _cgroup_quota(roots: Roots) -> float | None:
    """Cores by quota, of control groups v2 or v1, the least along the path to the root; None without a limit."""
    groups = dict(_cgroup_lines(_read(roots.proc / "self/cgroup")))
    tree = roots.sys / "fs/cgroup"
    quotas = [_quota_v2(folder) for folder in _upwards(tree, groups.get("", "/"))]
    quotas += [_quota_v1(folder) for folder in _upwards(tree / "cpu", groups.get("cpu", "/"))]
    return min((quota for quota in quotas if quota is not None), default=None)


def _cgroup_lines(text: str) -> list[tuple[str, str]]:
    """Controller -> path; the empty controller is v2's."""
    pairs: list[tuple[str, str]] = []
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        pairs.extend((controller, path) for controller in controllers.split(","))
    return pairs


def _upwards(tree: Path, path: str) -> list[Path]:
    """The group's folder and all above it. In a container the path may name a group outside; then the tree's root is ours."""
    parts = [part for part in path.split("/") if part and part != ".."]
    return [tree.joinpath(*parts[:length]) for length in range(len(parts), -1, -1)]


def _quota_v2(folder: Path) -> float | None:
    columns = _line(folder / "cpu.max").split()
    return int(columns[0]) / int(columns[1]) if len(columns) == 2 and columns[0].isdigit() else None


def _quota_v1(folder: Path) -> float | None:
    quota, period = _line(folder / "cpu.cfs_quota_us"), _line(folder / "cpu.cfs_period_us")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


def _memory_bytes(roots: Roots) -> int | None:
    total = kilobytes(_read(roots.proc / "meminfo").encode(), b"MemTotal")
    return None if total is None else total * 1024


def _own_version() -> str:
    """From the name of the installed metadata's folder; importlib.metadata would cost a fifth of the start."""
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")  # noqa: PTH208
        except OSError:
            continue
        for name in names:
            if name.startswith("distmon-") and name.endswith(".dist-info"):
                return name.removeprefix("distmon-").removesuffix(".dist-info")
    return ""


def _line(path: Path) -> str:
    return _read(path).strip()


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
