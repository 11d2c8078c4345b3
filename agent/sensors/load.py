"""Load average, from /proc/loadavg."""

from __future__ import annotations

from distmon.agent.sensors.base import KernelFile, Reading, Roots


class LoadSensor:
    fields: tuple[str, ...] = ("load_1m",)

    def __init__(self, roots: Roots) -> None:
        self._file = KernelFile(roots.proc / "loadavg")

    def read(self, now_ns: int) -> Reading:
        return Reading({"load_1m": float(self._file.read().split(None, 1)[0])}, {})
