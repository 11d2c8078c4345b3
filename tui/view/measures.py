"""The measures that heat maps and charts of ranks and nodes can show: their names, values, units and scales."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from distmon.core.events import GpuReading
from distmon.core.fold import node_power_w
from distmon.core.measures import RankRow
from distmon.core.readings import memory_percent
from distmon.core.state import NodeState
from distmon.tui.format import MISSING, compact, milliseconds, watts
from distmon.tui.view.words import PHASE_NAMES
from distmon.tui.widgets.heat import Scale, steady_scale


@dataclass(frozen=True)
class RankMeasure:
    """A measure of a rank's recent steps, in seconds."""

    name: str
    title: str
    value: Callable[[RankRow], float | None]
    ramp: str

    @property
    def figure(self) -> str:
        """What a file calls it, with its unit."""
        return f"{self.name}_s"

    def scale(self, values: Iterable[float | None]) -> Scale:
        return steady_scale([value for value in values if value is not None], milliseconds, "ms", self.ramp)


def _phase(name: str) -> Callable[[RankRow], float | None]:
    return lambda row: row.recent.phase(name) if row.recent else None


RANK_MEASURES: tuple[RankMeasure, ...] = (
    RankMeasure("late", "late", lambda row: row.lateness_s, "hot"),
    RankMeasure("step", "step time", lambda row: row.recent.step_s if row.recent else None, "cool"),
    *(RankMeasure(name, words, _phase(name), "hot" if name == "input_wait" else "cool") for name, words in PHASE_NAMES.items()),
)


@dataclass(frozen=True)
class UnitMeasure:
    """A measure of a GPU, or of a whole node where it has no GPUs. `top` is the end of its scale; 0 follows the values."""

    name: str
    title: str
    of_gpu: Callable[[GpuReading], float | None]
    of_node: Callable[[NodeState], float | None]
    words: Callable[[float | None], str]
    unit: str
    top: float
    ramp: str = "cool"
    lowest: bool = False
    of_nodes: str = ""
    """Its title where no cell is a GPU's, if that is another one."""

    @property
    def figure(self) -> str:
        """What a file calls it, with its unit."""
        return self.name + {"%": "_percent", "°C": "_c", "": ""}[self.unit] + "_w" * (self.words is watts)

    def scale(self, values: Iterable[float | None]) -> Scale:
        if self.top:
            return Scale(0.0, self.top, self.words, self.unit, self.ramp, self.lowest)
        return steady_scale([value for value in values if value is not None], self.words, self.unit, self.ramp)


def whole(value: float | None) -> str:
    return MISSING if value is None else f"{value:.0f}"


def _gpu_memory(gpu: GpuReading) -> float | None:
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    return None if used is None or not total else 100 * used / total


def _hottest(node: NodeState) -> float | None:
    return max((zone.celsius for zone in node.sample.temperatures), default=None) if node.sample else None


UNIT_MEASURES: tuple[UnitMeasure, ...] = (
    UnitMeasure(
        "utilization", "utilisation", lambda gpu: gpu.utilization_percent,
        lambda node: node.sample.cpu_percent if node.sample else None, whole, "%", 100.0, lowest=True, of_nodes="CPU utilisation",
    ),
    UnitMeasure(
        "power", "power", lambda gpu: gpu.power_w, lambda node: node_power_w(node.sample) if node.sample else None,
        watts, "", 0.0,
    ),
    UnitMeasure(
        "memory", "memory", _gpu_memory, lambda node: memory_percent(node.sample) if node.sample else None, whole, "%", 100.0,
    ),
    UnitMeasure("temperature", "temperature", lambda gpu: gpu.temperature_c, _hottest, whole, "°C", 100.0, "hot"),
    UnitMeasure(
        "cpu", "CPU", lambda gpu: None, lambda node: node.sample.cpu_percent if node.sample else None, whole, "%", 100.0,
    ),
    UnitMeasure(
        "load", "load", lambda gpu: None, lambda node: node.sample.load_1m if node.sample else None, compact, "", 0.0, "hot",
    ),
)  # fmt: skip
