"""A session's nodes and workers over its whole time, for plots: what the state forgets. Bounded in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

from distmon.core import events as ev
from distmon.core.fold import node_power_w

POINTS = 400
"""Of one series at most; past them neighbours merge."""
NODES = 16
"""Nodes of which series are kept, the first that were heard of; the others are counted."""
_FIRST_WIDTH_S = 0.1
_GAP_WIDTHS = 3.0

Points = list[tuple[float, float | None]]
"""(seconds since the epoch, value); None where the line must break because nothing was measured."""


@dataclass(slots=True)
class Binned:
    """Means by time of a value, in bins that widen as more come."""

    width_s: float = _FIRST_WIDTH_S
    bins: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Number of the bin since the epoch -> (sum of value x seconds, seconds)."""

    def add(self, at: float, value: float | None, interval_s: float) -> None:
        """A value that held for the `interval_s` before `at`."""
        if value is None or interval_s <= 0:
            return
        self._put(int((at - interval_s / 2) / self.width_s), value * interval_s, interval_s)
        while len(self.bins) > POINTS:
            self.width_s *= 2
            before, self.bins = self.bins, {}
            for number, (total, seconds) in before.items():
                self._put(number // 2, total, seconds)

    def points(self) -> Points:
        """In order of time, with a break in every gap."""
        numbers = sorted(self.bins)
        usual = median([b - a for a, b in pairwise(numbers)] or [1])
        found: Points = []
        for index, number in enumerate(numbers):
            if index and number - numbers[index - 1] > _GAP_WIDTHS * usual:
                found.append(((numbers[index - 1] + 1.5) * self.width_s, None))
            total, seconds = self.bins[number]
            found.append(((number + 0.5) * self.width_s, total / seconds))
        return found

    def _put(self, number: int, total: float, seconds: float) -> None:
        known = self.bins.get(number)
        self.bins[number] = (total, seconds) if known is None else (known[0] + total, known[1] + seconds)


@dataclass(slots=True)
class GpuTimeline:
    name: str = ""
    utilization_percent: Binned = field(default_factory=Binned)
    power_w: Binned = field(default_factory=Binned)


@dataclass(slots=True)
class NodeTimeline:
    """One node's readings over time. `power_w` is the sum of the rails and GPUs that lie within no other rail."""

    host: str
    cpu_percent: Binned = field(default_factory=Binned)
    power_w: Binned = field(default_factory=Binned)
    rails: dict[str, Binned] = field(default_factory=dict)
    gpus: dict[int, GpuTimeline] = field(default_factory=dict)


@dataclass(slots=True)
class Timeline:
    """Nodes by their id, and the host of each worker. `left_out` are nodes past the limit."""

    nodes: dict[str, NodeTimeline] = field(default_factory=dict)
    left_out: set[str] = field(default_factory=set)
    hosts: dict[str, str] = field(default_factory=dict)

    def add(self, event: ev.AnyEvent) -> None:
        """Takes what it needs of an event, in the order of the session."""
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)


def _node(timeline: Timeline, name: str) -> NodeTimeline | None:
    if (node := timeline.nodes.get(name)) is None and name not in timeline.left_out:
        if len(timeline.nodes) >= NODES:
            timeline.left_out.add(name)
            return None
        node = timeline.nodes[name] = NodeTimeline(name)
    return node


def _node_joined(timeline: Timeline, event: ev.NodeJoined) -> None:
    if (node := _node(timeline, event.node)) is not None:
        node.host = event.host or node.host


def _node_sampled(timeline: Timeline, event: ev.NodeSampled) -> None:
    if (node := _node(timeline, event.node)) is None:
        return
    at, interval = event.at, event.interval_s
    node.cpu_percent.add(at, event.cpu_percent, interval)
    node.power_w.add(at, node_power_w(event), interval)
    for rail in event.power:
        node.rails.setdefault(rail.name, Binned()).add(at, rail.watts, interval)
    for gpu in event.gpus:
        if gpu.instance is None:
            known = node.gpus.setdefault(gpu.index, GpuTimeline())
            known.name = gpu.name or known.name
            known.utilization_percent.add(at, gpu.utilization_percent, interval)
            known.power_w.add(at, gpu.power_w, interval)


def _worker_identified(timeline: Timeline, event: ev.WorkerIdentified) -> None:
    timeline.hosts[event.worker] = event.host


_HANDLERS: dict[type, Callable[[Timeline, Any], None]] = {
    ev.NodeJoined: _node_joined,
    ev.NodeSampled: _node_sampled,
    ev.WorkerIdentified: _worker_identified,
}
