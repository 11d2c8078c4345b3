"""Memory and swap, from /proc/meminfo."""

from __future__ import annotations

from distmon.agent.sensors.base import KernelFile, Reading, Roots


class MemorySensor:
    fields: tuple[str, ...] = ("memory_used_bytes", "memory_total_bytes", "swap_used_bytes")

    def __init__(self, roots: Roots) -> None:
        self._file = KernelFile(roots.proc / "meminfo")

    def read(self, now_ns: int) -> Reading:
        kilobytes = parse_meminfo(self._file.read())
        total, available = kilobytes.get(b"MemTotal"), kilobytes.get(b"MemAvailable")
        swap, swap_free = kilobytes.get(b"SwapTotal"), kilobytes.get(b"SwapFree")
        values = {
            "memory_total_bytes": None if total is None else total * 1024,
            "memory_used_bytes": None if total is None or available is None else (total - available) * 1024,
            "swap_used_bytes": None if swap is None or swap_free is None else (swap - swap_free) * 1024,
        }
        return Reading(values, {name: "not in /proc/meminfo" for name, value in values.items() if value is None})


def parse_meminfo(text: bytes) -> dict[bytes, int]:
    """Name -> kB; lines of another form are passed over."""
    numbers: dict[bytes, int] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(b":")
        columns = rest.split()
        if columns and columns[0].isdigit():
            numbers[name] = int(columns[0])
    return numbers
