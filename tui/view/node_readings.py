"""A node's readings as lines, but for cores, memory and GPUs: each with how old it is and which program gave it."""

from __future__ import annotations

from collections.abc import Iterator

from distmon.core.events import ControlGroup, GpuReading, NetworkRate, NodeSampled
from distmon.core.printable import clean
from distmon.tui.format import MISSING, age, fit, percent, size, watts
from distmon.tui.theme import Palette
from distmon.tui.widgets.line import Line

OLD_S = 1.0
"""A value of this age is no longer of this second, and says so."""


def field_line(palette: Palette, name: str, value: str, role: str = "text") -> Line:
    return Line([(fit(clean(name), 15) + " ", palette.style("muted")), (clean(value), palette.style(role))])


def reading_lines(sample: NodeSampled, palette: Palette) -> list[Line]:
    """What has no value has its reason beside it."""
    lines: list[Line] = []
    for field, rows in _fields(sample).items():
        told = provenance(sample, field)
        for row, (name, value) in enumerate(rows):
            line = field_line(palette, name, value)
            # Of many rows that were read together the first says it for all.
            lines.append(line.add("  " + clean(told), palette.style("muted")) if told and row == 0 else line)
    return lines + [field_line(palette, f"{name} {MISSING}", reason, "warn") for name, reason in sample.unavailable.items()]


def provenance(sample: NodeSampled, field: str) -> str:
    """Which program gave a field's value, and how long ago where that was not this second; empty for the kernel's, just read."""
    source, seconds = sample.sources.get(field, ""), sample.age_s.get(field, 0.0)
    return "  ".join([f"from {source}"] * bool(source) + [f"{age(seconds)} old"] * (seconds >= OLD_S))


def gpu_provenance(sample: NodeSampled, gpu: GpuReading) -> str:
    """The same of what a GPU's line shows; the program is named at the first one."""
    source = sample.sources.get("gpus", "") if gpu is sample.gpus[0] else ""
    seconds = max(gpu.age_s.get("all", 0.0), sample.age_s.get("gpus", 0.0))
    return "  ".join([f"from {source}"] * bool(source) + [f"{age(seconds)} old"] * (seconds >= OLD_S))


def _fields(sample: NodeSampled) -> dict[str, list[tuple[str, str]]]:
    """By field of NodeSampled: names and values of its rows."""
    return {
        "power_mode": [("power mode", sample.power_mode)] if sample.power_mode else [],
        "control_group": list(_group(sample.control_group)) if sample.control_group is not None else [],
        "pressures": [(f"wait {item.resource}", _waiting(item.some_percent, item.full_percent)) for item in sample.pressures],
        "networks": [(f"net {net.name}", _rates(net)) for net in sample.networks],
        "infiniband": [(f"ib {port.name}", _rates(port)) for port in sample.infiniband],
        "disks": [
            (
                f"disk {disk.name}",
                f"read {size(disk.read_bytes_per_s)}/s  written {size(disk.written_bytes_per_s)}/s"
                f"  busy {percent(disk.busy_percent).strip()}",
            )
            for disk in sample.disks
        ],
        "engines": [
            (
                f"engine {engine.name}",
                (percent(engine.utilization_percent).strip() if engine.on else "off")
                + ("" if engine.clock_mhz is None else f"  {engine.clock_mhz:.0f} MHz"),
            )
            for engine in sample.engines
        ],
        "power": [
            (f"power {rail.name}", watts(rail.watts) + (f"  within {rail.within}" if rail.within else ""))
            for rail in sample.power
        ],
        "temperatures": [(f"temp {item.name}", f"{item.celsius:.0f}°C") for item in sample.temperatures],
        "processes": [
            (
                f"rank {MISSING if process.rank is None else process.rank}",
                f"pid {process.pid}  cpu {percent(process.cpu_percent).strip()}"
                + (f"  without a core {percent(wait).strip()}" if (wait := process.run_queue_wait_percent) is not None else "")
                + f"  memory {size(process.memory_bytes)}",
            )
            for process in sample.processes
        ],
    }


def _rates(net: NetworkRate) -> str:
    return f"↓{size(net.received_bytes_per_s)}/s ↑{size(net.sent_bytes_per_s)}/s" + "  used by training" * net.used_by_training


def _waiting(some: float | None, full: float | None) -> str:
    return f"some {percent(some).strip()}  all {percent(full).strip()} of the last 10 s"


def _group(group: ControlGroup) -> Iterator[tuple[str, str]]:
    """The limits that a container or batch job runs under."""
    if group.cores is not None:
        held_back = f"  held back in {percent(group.throttled_percent).strip()} of the periods"
        yield "limit cores", f"{group.cores:g}  {percent(group.cpu_percent).strip()} used{held_back}"
    if group.memory_limit_bytes is not None:
        yield "limit memory", f"{size(group.memory_used_bytes)}/{size(group.memory_limit_bytes)}"
    for item in group.pressures:
        yield f"own {item.resource} wait", _waiting(item.some_percent, item.full_percent)
