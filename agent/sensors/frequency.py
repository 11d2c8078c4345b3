"""Clock of each core, from cpufreq under /sys/devices/system/cpu."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Raw

from distmon.agent.machine_code import native
from distmon.agent.sensors.base import KernelFile, Reading, Roots, whole_numbers

_LIST_AGAIN_NS = 60 * 10**9
_ABSENT = "this machine does not tell its cores' clocks (most virtual ones do not)"


class FrequencySensor:
    fields: tuple[str, ...] = ("cores_mhz",)

    def __init__(self, roots: Roots) -> None:
        self._folder = roots.sys / "devices" / "system" / "cpu"
        self._files: list[KernelFile] = []
        self._listed_ns: int | None = None

    def read(self, now_ns: int) -> Reading:
        if self._listed_ns is None or now_ns - self._listed_ns > _LIST_AGAIN_NS:
            self._list()
            self._listed_ns = now_ns
        # None for a core that is off, or whose driver does not know.
        clocks = [kilohertz / 1000 if kilohertz else None for kilohertz in whole_numbers(self._files)]
        if not any(clocks):
            return Reading({"cores_mhz": []}, {"cores_mhz": _ABSENT})
        return Reading({"cores_mhz": clocks}, {})

    def packed(self, now_ns: int) -> Reading:
        """As `read`, in machine code where that was built and all cores are on."""
        if native is not None and self._files and self._listed_ns is not None and now_ns - self._listed_ns <= _LIST_AGAIN_NS:
            clocks = native.thousandths([file.fd for file in self._files], [b""] * len(self._files))
            if clocks is not None:
                return Reading({"cores_mhz": Raw(clocks)}, {})
        return self.read(now_ns)

    def _list(self) -> None:
        for file in self._files:
            file.close()
        self._files = [KernelFile(path) for path in _paths(self._folder)]


def _paths(folder: Path) -> list[Path]:
    """One for each core by its number, off or on."""
    try:
        names = os.listdir(folder)  # noqa: PTH208
    except OSError:
        return []
    cores = [int(name[3:]) for name in names if name.startswith("cpu") and name[3:].isdecimal()]
    return [folder / f"cpu{core}" / "cpufreq" / "scaling_cur_freq" for core in range(max(cores, default=-1) + 1)]
