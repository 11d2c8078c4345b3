"""CPU use of the node and of each core, from /proc/stat."""

from __future__ import annotations

import re

from distmon.agent.sensors.base import KernelFile, Reading, Roots

_NOT_YET = "no time has passed on the kernel's counters"
_LINE = re.compile(rb"^cpu(\d*) +(\d+) (\d+) (\d+) (\d+)(?: (\d+) (\d+) (\d+))?(?: (\d+))?", re.MULTILINE)
"""Of all or of one core: user, nice, system, idle, I/O wait, interrupts, soft interrupts, stolen. Guest time, which
follows, is already in user and nice."""


class CpuSensor:
    fields: tuple[str, ...] = ("cpu_percent", "cores_percent")

    def __init__(self, roots: Roots) -> None:
        self._file = KernelFile(roots.proc / "stat")
        self._last: dict[int, tuple[int, int]] = {}

    def read(self, now_ns: int) -> Reading:
        last, self._last = self._last, _parse(self._file.read())
        total = _busy_percent(last.get(-1), self._last.get(-1))
        count = max((core for core in self._last), default=-1) + 1
        cores = [_busy_percent(last.get(core), self._last.get(core)) for core in range(count)]
        missing = {"cpu_percent": _NOT_YET} if total is None else {}
        return Reading({"cpu_percent": total, "cores_percent": cores}, missing)


def _parse(text: bytes) -> dict[int, tuple[int, int]]:
    """Core, or -1 for all -> (idle, total) in clock ticks. Cores that are off have no line."""
    counters: dict[int, tuple[int, int]] = {}
    # What follows the cores' lines is one of thousands of numbers on a large machine.
    end = text.find(b"\nintr")
    for core, *columns in _LINE.findall(text, 0, end if end >= 0 else len(text)):
        ticks = [int(column or 0) for column in columns]
        counters[int(core or -1)] = (ticks[3] + ticks[4], sum(ticks))
    return counters


def _busy_percent(before: tuple[int, int] | None, after: tuple[int, int] | None) -> float | None:
    if before is None or after is None:
        return None
    total = after[1] - before[1]
    if total <= 0:
        return None
    # The kernel's idle and I/O wait counters can step back by a tick.
    return round(min(100.0, max(0.0, 100.0 * (1 - (after[0] - before[0]) / total))), 2)
