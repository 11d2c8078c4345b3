"""Which node this is, and what it has: the NodeJoined event."""

from __future__ import annotations

import os
import socket
import sys

from distmon.agent.sensors.base import REAL_ROOTS, Roots, read_text
from distmon.agent.sensors.cgroup import find_limits
from distmon.agent.sensors.memory import kilobytes
from distmon.core.events import NodeJoined


def node_name(roots: Roots = REAL_ROOTS) -> str:
    """Host name, boot id and network namespace: none of them comes with a disk image, and two containers differ."""
    boot = read_text(roots.proc / "sys/kernel/random/boot_id").replace("-", "")[:8]
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


def node_joined(node: str, boot: str, at: float, gpus: list[str], roots: Roots = REAL_ROOTS) -> NodeJoined:
    kernel = os.uname()
    return NodeJoined(
        at=at,
        node=node,
        host=host_name(),
        boot=boot,
        cores=available_cores(roots),
        memory_bytes=available_memory_bytes(roots),
        machine=kernel.machine,
        system=f"{kernel.sysname} {kernel.release}",
        agent_version=_own_version(),
        gpus=gpus,
    )


def available_cores(roots: Roots = REAL_ROOTS) -> int:
    """Cores that this process may use: its affinity, cut by its control group's quota and rounded up."""
    cores = len(os.sched_getaffinity(0))
    quota = find_limits(roots).cores
    return cores if quota is None else max(1, min(cores, -int(-quota // 1)))


def available_memory_bytes(roots: Roots = REAL_ROOTS) -> int | None:
    """The machine's memory, or what the control group's limit leaves of it."""
    total = kilobytes(read_text(roots.proc / "meminfo").encode(), b"MemTotal")
    limit = find_limits(roots).memory_bytes
    known = [size for size in (None if total is None else total * 1024, limit) if size is not None]
    return min(known, default=None)


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
