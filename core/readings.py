"""What a node's last reading comes to: the few sums and shares that screens show of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from distmon.core.events import NodeSampled
from distmon.core.state import NodeState, SessionState, Strain

LOOPBACK = "lo"


@dataclass(slots=True, frozen=True)
class NetworkTotal:
    """Bytes per second over interfaces; `names` says which."""

    received_bytes_per_s: float | None
    sent_bytes_per_s: float | None
    names: tuple[str, ...]


@dataclass(slots=True, frozen=True)
class MemoryInUse:
    """Bytes; `of` is what they are of: the node, or the control group that limits the ranks on it."""

    used_bytes: int
    total_bytes: int
    of: str

    @property
    def percent(self) -> float:
        return 100 * self.used_bytes / self.total_bytes


def memory_in_use(sample: NodeSampled) -> MemoryInUse | None:
    """Where memory will run out first: of the node, or of a control group's limit, the one that is fuller."""
    group = sample.control_group
    found = [_in_use(sample.memory_used_bytes, sample.memory_total_bytes, "node")]
    if group is not None:
        found.append(_in_use(group.memory_used_bytes, group.memory_limit_bytes, "control group"))
    return max((memory for memory in found if memory is not None), key=lambda memory: memory.percent, default=None)


def memory_percent(sample: NodeSampled) -> float | None:
    """Memory in use as a share of all, 0 to 100: of the control group's limit where that is fuller than the node."""
    group = sample.control_group
    used, total = sample.memory_used_bytes, sample.memory_total_bytes
    found = 100 * used / total if used is not None and total else None
    if group is None or group.memory_used_bytes is None or not group.memory_limit_bytes:
        return found
    return max(100 * group.memory_used_bytes / group.memory_limit_bytes, found or 0.0)


def _in_use(used: int | None, total: int | None, of: str) -> MemoryInUse | None:
    return MemoryInUse(used, total, of) if used is not None and total else None


def strain_of(sample: NodeSampled) -> Strain:
    """What findings about the node rest on, of one reading: in as few steps as can be, as there may be a thousand nodes."""
    busy: list[float] = []
    throttled: tuple[tuple[int, str], ...] = ()
    for gpu in sample.gpus:
        if gpu.ranks and gpu.utilization_percent is not None:
            busy.append(gpu.utilization_percent)
        if gpu.throttle:
            throttled += tuple((gpu.index, reason) for reason in gpu.throttle)
    waits = None
    for pressure in sample.pressures:
        if pressure.resource == "memory":
            waits = pressure.some_percent
    mean = sum(busy) / len(busy) if busy else None
    queued = None
    for process in sample.processes:
        wait = process.run_queue_wait_percent
        if wait is not None and (queued is None or wait > queued):
            queued = wait
    return Strain(sample.cpu_percent, sample.load_1m, memory_percent(sample), waits, mean, throttled, queued)


def network_total(sample: NodeSampled) -> NetworkTotal:
    """The interfaces that training uses where that is known, or else all but loopback; loopback where there is no other."""
    used = [n for n in sample.networks if n.used_by_training]
    chosen = used or [n for n in sample.networks if n.name != LOOPBACK] or sample.networks
    return NetworkTotal(
        _sum(n.received_bytes_per_s for n in chosen),
        _sum(n.sent_bytes_per_s for n in chosen),
        tuple(n.name for n in chosen),
    )


def gpu_utilization_percent(sample: NodeSampled) -> float | None:
    """Mean over the GPUs that report it."""
    known = [gpu.utilization_percent for gpu in sample.gpus if gpu.utilization_percent is not None]
    return sum(known) / len(known) if known else None


def gpu_power_w(sample: NodeSampled) -> float | None:
    """Sum over the GPUs that report it."""
    return _sum(gpu.power_w for gpu in sample.gpus)


def cores_on(sample: NodeSampled) -> int:
    """Cores that are switched on; a core without a reading is off."""
    return sum(percent is not None for percent in sample.cores_percent)


def reading_age_s(state: SessionState, node: NodeState) -> float | None:
    """Seconds since anything came from the node; None where nothing ever did."""
    return None if node.last_heard <= 0 else max(state.now - node.last_heard, 0.0)


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
