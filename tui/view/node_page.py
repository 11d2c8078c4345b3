"""One node in full: its GPUs, processes and cores as tables and heat, its readings as lines, its last minutes as charts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from msgspec import to_builtins

from distmon.core.events import GpuReading, ProcessReading
from distmon.core.printable import clean
from distmon.core.state import NodeState
from distmon.tui.format import MISSING, age, percent, size, watts
from distmon.tui.theme import Palette
from distmon.tui.view.chart import TimeView, events_of
from distmon.tui.view.facts import Facts
from distmon.tui.view.listing import flat
from distmon.tui.view.measures import whole
from distmon.tui.view.node_readings import OLD_S
from distmon.tui.view.node_table import ranks_by_node
from distmon.tui.view.ranks import state_of as rank_word
from distmon.tui.view.words import rank_state
from distmon.tui.widgets.chart import ChartData, Series
from distmon.tui.widgets.heat import Scale
from distmon.tui.widgets.heatmap import HeatData
from distmon.tui.widgets.line import Line
from distmon.tui.widgets.rows import Cell
from distmon.tui.widgets.table import Column

GPU_COLUMNS = (
    Column("device", "gpu", 5, "left", figure="index"),
    Column("utilization", "util", 4, importance=1, figure="utilization_percent"),
    Column("memory", "memory", 12, importance=2, figure="memory_used_bytes"),
    Column("power", "power", 12, importance=3, figure="power_w"),
    Column("temperature", "°C", 4, importance=4, figure="temperature_c"),
    Column("clock", "MHz", 5, importance=7, figure="sm_clock_mhz"),
    Column("fan", "fan", 4, importance=9, figure="fan_percent"),
    Column("pcie", "pcie B/s", 8, importance=10, figure="pcie_received_bytes_per_s"),
    Column("nvlink", "nvlink", 8, importance=11, figure="nvlink_received_bytes_per_s"),
    Column("ranks", "ranks", 6, "left", importance=5),
    Column("state", "state", 12, "left", importance=6, grow=3, widest=60),
    Column("name", "name", 12, "left", importance=8, grow=2, widest=32),
)
PROCESS_COLUMNS = (
    Column("rank", "rank", 5),
    Column("pid", "pid", 8, importance=2),
    Column("state", "state", 11, "left", importance=1),
    Column("cpu", "cpu", 5, importance=3, figure="cpu_percent"),
    Column("waits", "no core", 7, importance=7, figure="run_queue_wait_percent"),
    Column("memory", "memory", 7, importance=4, figure="memory_bytes"),
    Column("threads", "threads", 7, importance=6),
    Column("step", "step", 7, importance=5, grow=1, widest=12),
)
GpuKey = tuple[int, int]


def gpu_keys(node: NodeState) -> dict[GpuKey, GpuReading]:
    """GPUs and their instances (-1: the whole GPU)."""
    gpus = node.sample.gpus if node.sample is not None else []
    return {(gpu.index, -1 if gpu.instance is None else gpu.instance): gpu for gpu in gpus}


def gpu_cells(gpus: dict[GpuKey, GpuReading], key: GpuKey) -> Sequence[Cell]:
    gpu = gpus[key]
    old_s = gpu.age_s.get("all", 0.0)
    stale = [f"{age(old_s)} old"] * (old_s >= OLD_S)
    trouble = ", ".join([*([gpu.state] if gpu.state != "ok" else []), *stale, *gpu.throttle])
    reasons = ", ".join(f"{name} {MISSING} {reason}" for name, reason in gpu.unavailable.items())
    rates = [_both(gpu.pcie_received_bytes_per_s, gpu.pcie_sent_bytes_per_s)]
    rates.append(_both(gpu.nvlink_received_bytes_per_s, gpu.nvlink_sent_bytes_per_s))
    return (
        (f"{gpu.index}" + ("" if gpu.instance is None else f".{gpu.instance}"), "text"),
        (percent(gpu.utilization_percent), "text"),
        (f"{size(gpu.memory_used_bytes)}/{size(gpu.memory_total_bytes)}", "text"),
        (watts(gpu.power_w) + (f"/{watts(gpu.power_limit_w)}" if gpu.power_limit_w else ""), "text"),
        (whole(gpu.temperature_c), "text"),
        (whole(gpu.sm_clock_mhz), "text"),
        (percent(gpu.fan_percent), "text"),
        (size(rates[0]), "text"),
        (size(rates[1]), "text"),
        (",".join(map(str, gpu.ranks)) or MISSING, "text"),
        (clean(trouble or reasons) or "ok", "bad" if trouble else "warn" if reasons else "text"),
        (clean(gpu.name), "muted"),
    )


def _both(a: float | None, b: float | None) -> float | None:
    known = [value for value in (a, b) if value is not None]
    return sum(known) if known else None


def process_keys(facts: Facts, node: NodeState) -> dict[int, ProcessReading | None]:
    """By rank: what the agent read of its process; None for a rank of this node of which nothing was read."""
    found: dict[int, ProcessReading | None] = dict.fromkeys(ranks_by_node(facts).get(node.node, ()))
    for process in node.sample.processes if node.sample is not None else []:
        if process.rank is not None:
            found[process.rank] = process
    return dict(sorted(found.items()))


def process_cells(facts: Facts, processes: dict[int, ProcessReading | None], rank: int) -> Sequence[Cell]:
    process, row = processes[rank], facts.ranks.get(rank)
    state = rank_word(facts, row) if row is not None else MISSING
    glyph, role = rank_state(state)
    pid = process.pid if process is not None else row.pid if row is not None else None
    return (
        (str(rank), "text"),
        (str(pid) if pid is not None else MISSING, "text"),
        (f"{glyph} {clean(state)}", role),
        (percent(process.cpu_percent if process else None, 5), "text"),
        (percent(process.run_queue_wait_percent if process else None, 5), "text"),
        (size(process.memory_bytes if process else None), "text"),
        (whole(process.threads if process else None), "text"),
        (f"{row.step:,}" if row is not None and row.step is not None else MISSING, "text"),
    )


def gpu_records(gpus: dict[GpuKey, GpuReading]) -> dict[GpuKey, dict[str, object]]:
    """All that was read of each, for a file."""
    return {key: to_builtins(gpu) for key, gpu in gpus.items()}


def process_records(facts: Facts, processes: dict[int, ProcessReading | None]) -> dict[int, dict[str, object]]:
    """What was read of each process, with its rank's state and step."""
    found: dict[int, dict[str, object]] = {}
    for rank, process in processes.items():
        row = facts.ranks.get(rank)
        known = {"pid": row.pid, "state": rank_word(facts, row), "step": row.step} if row is not None else {}
        found[rank] = {"rank": rank, **known, **(to_builtins(process) if process is not None else {})}
    return found


def reading_records(node: NodeState) -> list[dict[str, object]]:
    """Every value of the last sample by its path, which ends in its unit."""
    sample = to_builtins(node.sample) if node.sample is not None else {}
    return [{"reading": name, "value": value} for name, value in flat(sample)]


def core_heat(node: NodeState) -> tuple[HeatData[int], Callable[[int], str]]:
    """Each core by its load; one that is off has no value."""
    sample = node.sample
    percents = sample.cores_percent if sample is not None else []
    clocks = sample.cores_mhz if sample is not None else []
    any_on = any(load is not None for load in percents)
    clock_s = sample.age_s.get("cores_mhz", 0.0) if sample is not None else 0.0
    clock_age = f" {age(clock_s)} ago" if clock_s >= OLD_S else ""

    def describe(core: int) -> str:
        clock = clocks[core] if core < len(clocks) else None
        load = percents[core] if core < len(percents) else None
        words = percent(load).strip() if load is not None or not any_on else "off"
        return f"core {core}: {words}" + (f" at {clock:.0f} MHz{clock_age}" if clock is not None else "")

    row = 16
    groups = [(f"from {first}", min(row, len(percents) - first)) for first in range(0, len(percents), row)]
    return HeatData(range(len(percents)), percents, groups, Scale(0.0, 100.0, whole, "%"), figure="load_percent"), describe


def load_chart(facts: Facts, node: NodeState, view: TimeView) -> ChartData:
    """CPU and mean GPU utilisation of the last minutes, in percent."""
    series = [_series("cpu", node.cpu_history, "series0")]
    if node.gpu_history:
        series.insert(0, _series("gpu", node.gpu_history, "series1"))
    caption = (*((f"{s.label} ", s.role) for s in series), ("%", "muted"))
    return replace(_history_chart(facts, series, view, caption), highest=100.0, figure="percent")


def power_chart(facts: Facts, node: NodeState, view: TimeView) -> ChartData:
    """Power of the last minutes, in watts."""
    series = _series("power", node.power_history, "series2")
    return replace(_history_chart(facts, [series], view, (("W", "muted"),)), figure="power_w")


def _series(label: str, history: Sequence[tuple[float, float | None]], role: str) -> Series:
    return Series(label, [at for at, _ in history], [value for _, value in history], role)


def _history_chart(facts: Facts, series: list[Series], view: TimeView, caption: tuple[tuple[str, str], ...]) -> ChartData:
    return ChartData(
        series=tuple(series),
        events=events_of(facts),
        origin=facts.origin,
        now=facts.state.now,
        window_s=view.window_s,
        end=view.end,
        cross=view.cross,
        log=view.log,
        words=whole,
        caption=caption,
        empty="no reading yet",
    )


def nothing_lines(palette: Palette, width: int, height: int) -> list[Line]:
    return [Line([("no node has reported yet", palette.style("muted"))])]
