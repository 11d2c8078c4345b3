"""A line of tegrastats as fields of a NodeSampled."""

from __future__ import annotations

from distmon.core.events import EngineReading
from distmon.core.formats.board import Fields, integrated_gpu, mean_of_cores, power_rails, temperatures
from distmon.core.formats.tegrastats import Load, TegrastatsLine

SOURCE = "tegrastats"
_CORES_OFF = "every core is off"
_NO_CORES = "tegrastats printed no cores"
_NO_RAILS = "tegrastats printed no power rails"
_NO_LOAD = "tegrastats prints no GPU load on this board"
_NO_GPU = "tegrastats printed no GPU; older releases do so only for root"


def node_fields(line: TegrastatsLine) -> Fields:
    """Everything that the line tells about its board."""
    percents: list[float | None] = [core.percent for core in line.cores]
    clocks: list[float | None] = [core.clock_mhz for core in line.cores]
    zones, no_zone = temperatures(line.temperatures_c)
    busy = mean_of_cores(percents)
    missing = {} if busy is not None else {"cpu_percent": _CORES_OFF if line.cores else _NO_CORES}
    if no_zone:
        missing["temperatures"] = no_zone
    if not line.rails:
        missing["power"] = _NO_RAILS
    gpu = line.gpu or Load()
    values = {
        "cpu_percent": busy,
        "cores_percent": percents,
        "cores_mhz": clocks,
        "power": power_rails({rail.name: rail.milliwatts / 1000 for rail in line.rails}, SOURCE),
        "temperatures": zones,
        "gpus": [integrated_gpu(gpu.percent, gpu.clock_mhz, line.temperatures_c, _NO_LOAD if line.gpu else _NO_GPU)],
        "engines": _engines(line),
    }
    return Fields(values, missing)


def memory_fields(line: TegrastatsLine) -> Fields:
    """Memory, for where the kernel's own figures cannot be asked."""
    if line.ram is None:
        return Fields({}, {"memory_used_bytes": "tegrastats printed no memory"})
    swap = {"swap_used_bytes": line.swap.used_bytes} if line.swap else {}
    return Fields({"memory_used_bytes": line.ram.used_bytes, "memory_total_bytes": line.ram.total_bytes} | swap, {})


def _engines(line: TegrastatsLine) -> list[EngineReading]:
    named = ({"EMC": line.memory_controller} if line.memory_controller else {}) | line.engines
    return [
        EngineReading(name=name, utilization_percent=load.percent, clock_mhz=load.clock_mhz, on=load.on)
        for name, load in named.items()
    ]
