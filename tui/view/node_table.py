"""The nodes as rows of figures, and their GPUs as heat."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from distmon.core.events import GpuReading, NodeSampled
from distmon.core.fold import node_power_w
from distmon.core.readings import gpu_utilization_percent, memory_percent, network_total, reading_age_s
from distmon.core.state import NodeState
from distmon.tui.format import MISSING, age, compact, percent, size, watts
from distmon.tui.view.facts import Facts
from distmon.tui.view.filters import read_filter
from distmon.tui.view.measures import UnitMeasure, whole
from distmon.tui.view.nodes import is_troubled, label_of, listed, name_of, state_of
from distmon.tui.view.words import node_state
from distmon.tui.widgets.heatmap import HeatData
from distmon.tui.widgets.rows import Cell
from distmon.tui.widgets.table import Column

Unit = tuple[str, int, int]
"""A GPU: its node's key, its index and its instance (-1: all of it); index -1 is the node itself, which has no GPU."""

COLUMNS = (
    Column("node", "node", 12, "left", grow=3, widest=28, ends=True),
    Column("state", "state", 7, "left", importance=1),
    Column("ranks", "ranks", 5, importance=5),
    Column("cpu", "cpu", 4, importance=2),
    Column("memory", "mem", 4, importance=3),
    Column("gpu", "gpu", 4, importance=2),
    Column("gpu_memory", "gmem", 4, importance=6),
    Column("power", "power", 6, importance=4, grow=1, widest=9),
    Column("temperature", "°C", 4, importance=7),
    Column("received", "↓ B/s", 6, importance=8, grow=1, widest=9),
    Column("sent", "↑ B/s", 6, importance=9, grow=1, widest=9),
    Column("load", "load", 5, importance=10),
    Column("age", "age", 4, importance=11),
)
FIELDS = tuple(column.key for column in COLUMNS)
"""What a filter can ask of a node."""
SORTS = ("node", "state", "cpu", "gpu", "memory", "gpu_memory", "power", "temperature", "received", "sent", "load", "ranks")


def figures(facts: Facts, ranks: Mapping[str, list[int]], node: NodeState) -> dict[str, float | int | str | None]:
    """A node's columns as values: percentages, watts, degrees, bytes per second."""
    sample = node.sample
    values: dict[str, float | int | str | None] = dict.fromkeys(column.key for column in COLUMNS)
    values.update(node=name_of(node), state=state_of(facts, node), ranks=len(ranks.get(node.node, ())))
    values["age"] = reading_age_s(facts.state, node)
    if sample is not None:
        net = network_total(sample)
        values.update(
            cpu=sample.cpu_percent, memory=memory_percent(sample), gpu=gpu_utilization_percent(sample),
            gpu_memory=gpu_memory_percent(sample), power=node_power_w(sample), temperature=hottest(sample),
            received=net.received_bytes_per_s, sent=net.sent_bytes_per_s, load=sample.load_1m,
        )  # fmt: skip
    return values


_UNITS = {"power": "power_w", "temperature": "temperature_c", "age": "age_s"}
_UNITS |= {name: f"{name}_percent" for name in ("cpu", "memory", "gpu", "gpu_memory")}
_UNITS |= {name: f"{name}_bytes_per_s" for name in ("received", "sent")}


FILE_NAMES = [_UNITS.get(name, name) for name in FIELDS]
"""Of the figures of a node, in a file."""


def with_units(facts: Facts, keys: Sequence[str]) -> list[dict[str, object]]:
    """The figures of nodes for a file, with their units in the names."""
    ranks = ranks_by_node(facts)
    found = (figures(facts, ranks, facts.state.nodes[key]) for key in keys)
    return [{_UNITS.get(name, name): value for name, value in row.items()} for row in found]


def gpu_memory_percent(sample: NodeSampled) -> float | None:
    """Memory in use over all GPUs that report it."""
    known = [
        (gpu.memory_used_bytes, gpu.memory_total_bytes)
        for gpu in sample.gpus
        if gpu.memory_used_bytes is not None and gpu.memory_total_bytes
    ]
    return 100 * sum(used for used, _ in known) / sum(total for _, total in known) if known else None


def hottest(sample: NodeSampled) -> float | None:
    """The highest temperature of the node, GPUs included."""
    found = [zone.celsius for zone in sample.temperatures]
    return max(found + [gpu.temperature_c for gpu in sample.gpus if gpu.temperature_c is not None], default=None)


def is_problem(facts: Facts, key: str) -> bool:
    """Whether a node needs a look."""
    return state_of(facts, facts.state.nodes[key]) not in ("live", "starting", "left")


def ranks_by_node(facts: Facts) -> dict[str, list[int]]:
    """By the node whose agent hears the rank; before one does, by the host, which the launcher may call by another name."""
    by_host = {node.host: key for key, node in facts.state.nodes.items()}
    found: dict[str, list[int]] = {}
    for rank, row in facts.ranks.items():
        known = facts.state.ranks.get(rank)
        key = known.identity.node if known is not None and known.identity is not None else by_host.get(row.host)
        if key is not None:
            found.setdefault(key, []).append(rank)
    return found


def ordered(facts: Facts, column: str, descending: bool, text: str, *, problems: bool = False) -> list[str]:
    """The keys of the nodes that pass the filter, by a column; those without a value come last either way."""
    wanted = read_filter(text, FIELDS)
    nodes = [node for node in listed(facts) if not problems or is_problem(facts, node.node)]
    nodes.sort(key=lambda node: (name_of(node), node.node), reverse=column == "node" and descending)
    if column == "node" and not wanted:
        return [node.node for node in nodes]  # what needs no figures does not pay for them
    ranks = ranks_by_node(facts)
    found = {node.node: figures(facts, ranks, node) for node in nodes}
    rows = {key: values for key, values in found.items() if wanted.passes(values)}
    keys = list(rows)
    if column == "node":
        return keys
    known = [key for key in keys if rows[key][column] is not None]
    known.sort(key=lambda key: rows[key][column], reverse=descending)  # type: ignore[arg-type,return-value]
    return known + [key for key in keys if rows[key][column] is None]


def cells(facts: Facts, ranks: Mapping[str, list[int]], key: str) -> Sequence[Cell]:
    """One cell per column."""
    node = facts.state.nodes[key]
    values = figures(facts, ranks, node)
    state = str(values["state"])
    glyph, role = node_state(state)
    words: dict[str, Callable[[float | None], str]] = {
        "cpu": percent, "memory": percent, "gpu": percent, "gpu_memory": percent, "power": watts, "temperature": whole,
        "received": size, "sent": size, "load": compact, "age": age, "ranks": whole,
    }  # fmt: skip
    texts = [(words[c.key](values[c.key]), "text") for c in COLUMNS[2:]]  # type: ignore[arg-type]
    stale = "muted" if state in ("lost", "left") else "text"
    return ((label_of(facts, node), stale), (f"{glyph} {state}"[:7], role), *texts)


def heat(facts: Facts, measure: UnitMeasure, keys: Sequence[str]) -> tuple[HeatData[Unit], Callable[[Unit], str]]:
    """Every GPU of these nodes, grouped by node; a node without GPUs is one cell of its own reading."""
    units: list[Unit] = []
    values: list[float | None] = []
    groups: list[tuple[str, int]] = []
    troubled: set[Unit] = set()
    for key in keys:
        node = facts.state.nodes[key]
        bad = state_of(facts, node) in ("lost", "stale")
        gpus = node.sample.gpus if node.sample is not None and measure.name not in ("cpu", "load") else []
        found = [((key, gpu.index, -1 if gpu.instance is None else gpu.instance), measure.of_gpu(gpu), gpu) for gpu in gpus]
        for unit, value, gpu in found:
            units.append(unit)
            values.append(value)
            if bad or is_troubled(gpu):
                troubled.add(unit)
        if not found:
            units.append((key, -1, -1))
            values.append(measure.of_node(node))
            if bad:
                troubled.add((key, -1, -1))
        groups.append((name_of(node), max(len(found), 1)))

    def describe(unit: Unit) -> str:
        return _unit_words(facts, measure, unit)

    return HeatData(units, values, groups, measure.scale(values), frozenset(troubled), measure.figure, facts.host_label), describe


def heat_words(measure: UnitMeasure, units: Sequence[Unit]) -> tuple[str, Sequence[Cell]]:
    """The title of the heat map of these units, and its caption: what they are, and how many."""
    gpus = sum(index >= 0 for _, index, _ in units)
    counted = ((gpus, "GPU"), (len(units) - gpus, "node"))
    counts = [f"{number:,} {one}{'s' * (number != 1)}" for number, one in counted if number]
    title = measure.title if gpus else measure.of_nodes or measure.title
    return "every GPU" if gpus else "every node", [(title, "accent"), (" · " * bool(counts) + ", ".join(counts), "muted")]


def _unit_words(facts: Facts, measure: UnitMeasure, unit: Unit) -> str:
    node = facts.state.nodes.get(unit[0])
    if node is None:
        return f"{unit[0]} is gone"
    state = state_of(facts, node)
    gpu = gpu_of(node, unit)
    if gpu is None:
        value = f"{measure.of_nodes or measure.title} {measure.words(measure.of_node(node))} {measure.unit}"
        return f"{label_of(facts, node)}: {value}, {state}"
    name = f"gpu {gpu.index}" + ("" if gpu.instance is None else f".{gpu.instance}")
    ranks = f", rank {','.join(map(str, gpu.ranks))}" if gpu.ranks else ""
    trouble = ", ".join([*([gpu.state] if gpu.state != "ok" else []), *gpu.throttle]) or state
    where = f"{label_of(facts, node)} {name}"
    return f"{where}: {measure.title} {measure.words(measure.of_gpu(gpu))} {measure.unit}{ranks}, {trouble}"


def gpu_of(node: NodeState, unit: Unit) -> GpuReading | None:
    """The GPU that a unit names."""
    gpus = node.sample.gpus if node.sample is not None else []
    return next((g for g in gpus if (g.index, -1 if g.instance is None else g.instance) == unit[1:]), None)


def name_words(facts: Facts, key: str) -> str:
    node = facts.state.nodes.get(key)
    return name_of(node) if node is not None else MISSING
