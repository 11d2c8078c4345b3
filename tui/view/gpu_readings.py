"""What a GPU tells beside its load, memory, power and temperature, as lines: what it has, then why it has no more."""

from __future__ import annotations

from collections.abc import Iterator

from distmon.core.events import GpuReading
from distmon.core.printable import clean
from distmon.tui.format import MISSING, age, percent, size, watts
from distmon.tui.theme import Palette
from distmon.tui.view.node_readings import OLD_S, field_line
from distmon.tui.widgets.line import Line

SHOWN_ELSEWHERE = ("all", "others", "utilization_percent", "memory_used_bytes", "memory_total_bytes", "power_w", "temperature_c")
"""Of these the GPU's own line gives the reasons."""
_ACTIVITY = (
    ("sm_active_percent", "SMs"),
    ("sm_occupancy_percent", "occupancy"),
    ("tensor_active_percent", "tensor cores"),
    ("dram_active_percent", "memory"),
)
_ERRORS = (
    ("ecc_corrected", "corrected"),
    ("ecc_uncorrected", "uncorrected"),
    ("retired_pages", "pages retired"),
    ("remapped_rows", "rows remapped"),
)


def gpu_name(gpu: GpuReading) -> str:
    """Its number, and that of the instance."""
    return f"gpu {gpu.index}" + ("" if gpu.instance is None else f".{gpu.instance}")


def gpu_lines(gpu: GpuReading, palette: Palette) -> list[Line]:
    """A line for each group of readings."""
    name = gpu_name(gpu)
    lines: list[Line] = []
    for group, field, words in _groups(gpu):
        line = field_line(palette, f"{name} {group}", "  ".join(words))
        seconds = gpu.age_s.get(field, 0.0)
        lines.append(line.add(f"  {age(seconds)} old", palette.style("muted")) if seconds >= OLD_S else line)
    for process in gpu.processes:
        rank = "" if process.rank is None else f"  rank {process.rank}"
        lines.append(field_line(palette, f"{name} used", f"pid {process.pid}{rank}  memory {size(process.memory_bytes)}"))
    absent = [f"{', '.join(fields)}: {reason}" for reason, fields in _reasons(gpu).items()]
    return lines + [field_line(palette, f"{name} {MISSING}", text, "muted") for text in absent]


def _groups(gpu: GpuReading) -> Iterator[tuple[str, str, list[str]]]:
    """(name, the field whose age is that of all, words); groups of which the GPU tells nothing are left out."""
    limits = [f"limit {watts(gpu.power_limit_w)}"] if gpu.power_limit_w is not None else []
    limits += [f"P{gpu.performance_state}"] if gpu.performance_state is not None else []
    limits += [f"fan {percent(gpu.fan_percent).strip()}"] if gpu.fan_percent is not None else []
    clocks = [(gpu.sm_clock_mhz, "SMs"), (gpu.memory_clock_mhz, "memory")]
    activity = [(getattr(gpu, field), name) for field, name in _ACTIVITY]
    bus = [
        ("pcie", gpu.pcie_received_bytes_per_s, gpu.pcie_sent_bytes_per_s),
        ("nvlink", gpu.nvlink_received_bytes_per_s, gpu.nvlink_sent_bytes_per_s),
    ]
    groups = (
        ("state", "power_limit_w", limits),
        ("clocks", "memory_clock_mhz", [f"{name} {clock:.0f} MHz" for clock, name in clocks if clock is not None]),
        ("busy", "sm_active_percent", [f"{name} {percent(value).strip()}" for value, name in activity if value is not None]),
        ("links", "pcie_sent_bytes_per_s", [f"{n} ↓{size(a)}/s ↑{size(b)}/s" for n, a, b in bus if (a, b) != (None, None)]),
        ("errors", "ecc_corrected", _errors(gpu)),
    )
    yield from (group for group in groups if group[2])


def _errors(gpu: GpuReading) -> list[str]:
    words = [f"{value} {name}" for field, name in _ERRORS if (value := getattr(gpu, field)) is not None]
    return words + ([f"Xid {gpu.last_xid}"] if gpu.last_xid is not None else [])


def _reasons(gpu: GpuReading) -> dict[str, list[str]]:
    """Reason -> fields without a value for it."""
    reasons: dict[str, list[str]] = {}
    for field, reason in gpu.unavailable.items():
        if field not in SHOWN_ELSEWHERE:
            reasons.setdefault(clean(reason), []).append(clean(field))
    return reasons
