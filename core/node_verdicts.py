"""What the nodes' own readings say: too much to run, too little memory, clocks held down, GPUs that wait."""

from __future__ import annotations

from collections.abc import Iterator

from distmon.core.events import NodeSampled
from distmon.core.finding import Verdict
from distmon.core.state import NodeState, SessionState

BUSY_PERCENT = 95.0
_LOAD_PER_CORE = 1.5
MEMORY_WAIT_PERCENT = 10.0
MEMORY_USED = 0.95
STARVED_PERCENT = 50.0
_HOT = ("hot", "thermal", "hardware slowdown")
_CAPPED = ("power",)
HELD = ("thermal_throttling", "power_throttling")
"""Kinds that make the ranks of a node late, and so come before what they do."""
CLOCK_S = 1.0
CLOCK_SET_TOLD_S = 60.0


def node_verdicts(state: SessionState) -> list[Verdict]:
    """Each kind once, of the first node that shows it, and of how many more."""
    found: dict[str, list[Verdict]] = {}
    for node in state.nodes.values():
        if node.sample is None or node.left_at is not None or node.lost_since is not None:
            continue
        for verdict in _of(node, node.sample):
            found.setdefault(verdict.kind, []).append(verdict)
    return [_joined(same) for same in found.values()]


def clock_skew(state: SessionState) -> Verdict | None:
    """A node's clock is far from the viewer's, or was set a moment ago; nothing that is measured depends on it."""
    found = max((_skew(state, node) for node in state.nodes.values() if node.left_at is None), key=_size, default=None)
    if found is None or _size(found) < CLOCK_S:
        return None
    node, seconds, set_now = found
    words = f"was set by {seconds:+.1f} s" if set_now else f"is {abs(seconds):,.1f} s {'ahead' if seconds > 0 else 'behind'}"
    return Verdict(
        kind="clock_skew",
        text=f"the clock of {node.host or node.node} {words}; its times are shown on this machine's",
        evidence=(
            "the agent sees the wall clock against the steady one"
            if set_now
            else f"by request and reply, within {(node.clock_round_trip_s or 0.0) / 2:.3f} s"
        ),
        try_first="set it: chronyc makestep, or timedatectl set-ntp true; files and logs of that node are stamped otherwise",
        check="the difference in the node's details falls below a second",
        host=node.host,
    )


_Skew = tuple[NodeState, float, bool]
"""A node, by how many seconds its clock is ahead or was set, and whether it is the latter."""


def _skew(state: SessionState, node: NodeState) -> _Skew:
    if node.clock_set_at is not None and state.now - node.clock_set_at <= CLOCK_SET_TOLD_S:
        return node, node.clock_set_by_s, True
    return node, -state.clock_offsets.get(node.node, 0.0), False


def _size(skew: _Skew) -> float:
    return abs(skew[1])


def _joined(same: list[Verdict]) -> Verdict:
    first, more = same[0], len(same) - 1
    if not more:
        return first
    evidence = f"{first.evidence}; {more} more node{'s' * (more > 1)} alike"
    return Verdict(
        kind=first.kind, text=first.text, evidence=evidence, try_first=first.try_first, check=first.check, host=first.host
    )


def _of(node: NodeState, sample: NodeSampled) -> Iterator[Verdict]:
    if (busy := _oversubscribed(node, sample)) is not None:
        yield busy
    if (short := _memory(node, sample)) is not None:
        yield short
    yield from _throttled(node, sample)
    if (starved := _starved(node, sample)) is not None:
        yield starved


def _oversubscribed(node: NodeState, sample: NodeSampled) -> Verdict | None:
    cores = node.joined.cores if node.joined else None
    if not cores or sample.cpu_percent is None or sample.load_1m is None:
        return None
    if sample.cpu_percent < BUSY_PERCENT or sample.load_1m <= _LOAD_PER_CORE * cores:
        return None
    return Verdict(
        kind="cpu_oversubscribed",
        text=f"{node.host} has more to run than cores: load {sample.load_1m:.1f} on {cores} cores",
        evidence=f"CPU {sample.cpu_percent:.0f} %",
        try_first="fewer ranks or threads per rank (OMP_NUM_THREADS), or move what else runs there",
        check="the node's load falls to its number of cores",
        host=node.host,
    )


def _memory(node: NodeState, sample: NodeSampled) -> Verdict | None:
    """Tasks wait for memory, or nearly all of what may be used is; the file cache does not count as used."""
    waits = next((p.some_percent for p in sample.pressures if p.resource == "memory"), None)
    used, total = sample.memory_used_bytes, sample.memory_total_bytes
    group = sample.control_group
    if group is not None and group.memory_limit_bytes:
        used, total = group.memory_used_bytes, group.memory_limit_bytes
    full = used is not None and bool(total) and used >= MEMORY_USED * (total or 0)
    if not full and (waits is None or waits < MEMORY_WAIT_PERCENT):
        return None
    parts = [f"{used / 2**30:.1f} of {total / 2**30:.1f} GiB used"] if used is not None and total else []
    parts += [f"tasks waited for memory {waits:.0f} % of the last ten seconds"] if waits is not None else []
    return Verdict(
        kind="memory_pressure",
        text=f"{node.host} runs out of memory",
        evidence="; ".join(parts),
        try_first="fewer loader workers or a smaller batch, before the kernel ends a process",
        check="the node's memory and its pressure in the agent's readings",
        host=node.host,
    )


def _throttled(node: NodeState, sample: NodeSampled) -> Iterator[Verdict]:
    for gpu in sample.gpus:
        for kind, words in (("thermal_throttling", _HOT), ("power_throttling", _CAPPED)):
            said = [reason for reason in gpu.throttle if any(word in reason for word in words)]
            if said:
                heat = "" if gpu.temperature_c is None else f"; {gpu.temperature_c:.0f} °C"
                power = "" if gpu.power_w is None else f"; {gpu.power_w:.0f} W"
                yield Verdict(
                    kind=kind,
                    text=f"GPU {gpu.index} of {node.host} is throttled: {', '.join(said)}",
                    evidence=f"the driver's own reason{heat}{power}",
                    try_first=(
                        "cooling, or a lower power limit"
                        if kind == "thermal_throttling"
                        else "the power limit (nvidia-smi -pl), or the supply"
                    ),
                    check="the driver gives no reason any more, and the clocks rise",
                    host=node.host,
                )


def _starved(node: NodeState, sample: NodeSampled) -> Verdict | None:
    """The node's GPUs rest while its cores are full: what feeds them is the limit."""
    known = [gpu.utilization_percent for gpu in sample.gpus if gpu.ranks and gpu.utilization_percent is not None]
    if not known or sample.cpu_percent is None or sample.cpu_percent < BUSY_PERCENT:
        return None
    mean = sum(known) / len(known)
    if mean >= STARVED_PERCENT:
        return None
    return Verdict(
        kind="gpu_starved",
        text=f"the GPUs of {node.host} are busy {mean:.0f} % of the time while its cores are full",
        evidence=f"CPU {sample.cpu_percent:.0f} %; {len(known)} GPUs with ranks",
        try_first="move decoding and augmentation to the GPU, or use fewer, faster loader workers",
        check="GPU utilisation rises while samples/s do",
        host=node.host,
    )
