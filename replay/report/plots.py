"""What the plots of a session show, as plain series: times in seconds since the session's start, names already cleaned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from distmon.core.measures import ALL_PHASES, bin_s, trained_between
from distmon.core.printable import clean
from distmon.core.state import SessionState
from distmon.core.timeline import Binned, NodeTimeline, Timeline

POINTS = 600
"""Of one line at most."""

Points = list[tuple[float, float | None]]


@dataclass(frozen=True, slots=True)
class Line:
    """One named line of a plot."""

    name: str
    points: Points


@dataclass(frozen=True, slots=True)
class NodePlots:
    """One node's lines: loads in percent, powers in watts."""

    name: str
    loads: list[Line]
    powers: list[Line]


@dataclass(frozen=True, slots=True)
class Lane:
    """A rank's steps in one generation, on the host that it ran on."""

    host: str
    rank: int
    generation: int
    from_s: float
    to_s: float


@dataclass(frozen=True, slots=True)
class Mark:
    """A change of who takes part."""

    at_s: float
    kind: str
    host: str


@dataclass(frozen=True, slots=True)
class Plots:
    throughput: Points = field(default_factory=list)
    step_s: Points = field(default_factory=list)
    phases: list[Line] = field(default_factory=list)
    """Seconds of each phase in a mean step."""
    nodes: list[NodePlots] = field(default_factory=list)
    lanes: list[Lane] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    left_out: int = 0
    """Nodes that are not drawn."""


def plots(state: SessionState, timeline: Timeline) -> Plots:
    """Everything there is to draw of a session."""
    begun = state.job.started.at if state.job.started else state.started or 0.0
    names = _names(list(timeline.nodes.values()))
    return Plots(
        throughput=_rate(state, begun),
        step_s=_per_step(state, begun, "step"),
        phases=[line for line in _phases(state, begun) if any(value for _, value in line.points)],
        nodes=[_node(name, node, begun) for name, node in zip(names, timeline.nodes.values(), strict=True)],
        lanes=_lanes(state, timeline, begun),
        marks=[Mark(change.at - begun, change.change, clean(change.host)) for change in state.membership],
        left_out=len(timeline.left_out),
    )


def _names(nodes: list[NodeTimeline]) -> list[str]:
    """Host names, told apart where several nodes have the same."""
    hosts = [clean(node.host) for node in nodes]
    return [host if hosts.count(host) == 1 else f"{host} ({number})" for number, host in enumerate(hosts, 1)]


def _bins(state: SessionState) -> tuple[int, float, float]:
    """(how many bins of the history make one point, their seconds, the time of the first bin)."""
    history = state.history
    if history is None:
        return 1, 1.0, 0.0
    merged = -(-len(history.column("steps")) // POINTS) or 1
    return merged, merged * history.width_s, float(history.origin)


def _merged(values: Sequence[float], merged: int) -> list[float]:
    return [sum(values[start : start + merged]) for start in range(0, len(values), merged)]


def _rate(state: SessionState, begun: float) -> Points:
    """Samples per second; the first and the last bin, which the job filled in part, are left out where there are others."""
    generations = [g for g in state.generations.values() if g.ranks]
    if state.history is None or any(not g.sampled for g in generations):
        return []
    merged, width, origin = _bins(state)
    values = _merged(state.history.column("samples"), merged)
    filled = [index for index, value in enumerate(values) if value]
    inner = range(filled[0] + 1, filled[-1]) if len(filled) > 2 else filled
    trained = trained_between(state)
    lefts = [(index, origin + index * width) for index in inner]
    return [(left + width / 2 - begun, values[index] / bin_s(left, left + width, *trained)) for index, left in lefts]


def _per_step(state: SessionState, begun: float, column: str) -> Points:
    """Seconds of a column in a mean step of its bin; None where no step was done."""
    if state.history is None:
        return []
    merged, width, origin = _bins(state)
    steps = _merged(state.history.column("steps"), merged)
    values = _merged(state.history.column(column), merged)
    known = [index for index, count in enumerate(steps) if count]
    if not known:
        return []
    return [
        (origin - begun + (index + 0.5) * width, values[index] / steps[index] if steps[index] else None)
        for index in range(known[0], known[-1] + 1)
    ]


def _phases(state: SessionState, begun: float) -> list[Line]:
    return [Line(name, _per_step(state, begun, name)) for name in ALL_PHASES]


def _node(name: str, node: NodeTimeline, begun: float) -> NodePlots:
    several = len(node.gpus) > 1
    gpus = [(f"GPU {index}" if several else "GPU", gpu) for index, gpu in sorted(node.gpus.items())]
    loads = [("CPU", node.cpu_percent), *((label, gpu.utilization_percent) for label, gpu in gpus)]
    powers = [*((clean(rail), series) for rail, series in node.rails.items()), *((label, gpu.power_w) for label, gpu in gpus)]
    if len(powers) > 1:
        powers.insert(0, ("total", node.power_w))
    return NodePlots(name, _lines(loads, begun), _lines(powers, begun))


def _lines(series: list[tuple[str, Binned]], begun: float) -> list[Line]:
    return [Line(name, [(at - begun, value) for at, value in binned.points()]) for name, binned in series if binned.bins]


def _lanes(state: SessionState, timeline: Timeline, begun: float) -> list[Lane]:
    """Only where the ranks changed: one generation of one size needs no picture."""
    generations = [g for _, g in sorted(state.generations.items()) if g.ranks]
    if len(generations) < 2 and not state.membership:
        return []
    return [
        Lane(clean(timeline.hosts.get(steps.worker, "?")), number, generation.number, first - begun, last - begun)
        for generation in generations
        for number, steps in sorted(generation.ranks.items())
        if (first := steps.first_start) is not None and (last := steps.last_end) is not None
    ]
