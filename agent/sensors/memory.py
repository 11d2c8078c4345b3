"""Memory and swap, from /proc/meminfo."""

from __future__ import annotations

from distmon.agent.machine_code import native
from distmon.agent.sensors.base import KernelFile, Reading, Roots


class MemorySensor:
    fields: tuple[str, ...] = ("memory_used_bytes", "memory_total_bytes", "swap_used_bytes", "swap_total_bytes")

    def __init__(self, roots: Roots) -> None:
        self._file = KernelFile(roots.proc / "meminfo")

    def read(self, now_ns: int) -> Reading:
        text = self._file.read()
        total, available = kilobytes(text, b"MemTotal"), kilobytes(text, b"MemAvailable")
        swap, swap_free = kilobytes(text, b"SwapTotal"), kilobytes(text, b"SwapFree")
        values = {
            "memory_total_bytes": None if total is None else total * 1024,
            "memory_used_bytes": None if total is None or available is None else (total - available) * 1024,
            "swap_total_bytes": None if swap is None else swap * 1024,
            "swap_used_bytes": None if swap is None or swap_free is None else (swap - swap_free) * 1024,
        }
        return Reading(values, {name: "not in /proc/meminfo" for name, value in values.items() if value is None})

    def packed(self, now_ns: int) -> Reading:
        """As `read`, in machine code where that was built."""
        numbers = native.memory_bytes(self._file.fd) if native is not None else None
        return self.read(now_ns) if numbers is None else Reading(dict(zip(self.fields, numbers, strict=True)), {})


def kilobytes(meminfo: bytes, name: bytes) -> int | None:
    """One line's number; None where there is no such line. Most of the text's fifty lines are never looked at."""
    start = 0 if meminfo.startswith(name + b":") else meminfo.find(b"\n" + name + b":") + 1
    if start == 0 and not meminfo.startswith(name + b":"):
        return None
    begin = start + len(name) + 1
    columns = meminfo[begin : begin + 40].split(None, 1)
    return int(columns[0]) if columns and columns[0].isdigit() else None
