"""CPU package power from RAPL's energy counters (Intel and AMD), under /sys/class/powercap."""

from __future__ import annotations

import os
from pathlib import Path

from distmon.agent.sensors.base import KernelFile, Reading, Roots, why
from distmon.core.events import PowerRail

_INSIDE_PACKAGE = ("core", "uncore")
_PLATFORM = "psys"
_MOST_WATTS = 2000
"""No package draws more; after a pause in which the counter may have wrapped more than once, the energy is unknown."""


class _Zone:
    """One counter, in microjoules, that starts over at `range_uj`."""

    def __init__(self, folder: Path, name: str, within: str, whole: bool) -> None:
        self.name = name
        self.within = within
        self.whole = whole
        """A package or the platform, which always draws something."""
        self.range_uj = int((folder / "max_energy_range_uj").read_bytes())
        self._file = KernelFile(folder / "energy_uj")
        self._last_uj: int | None = None
        self._last_ns = 0

    def read(self, now_ns: int) -> PowerRail:
        now_uj = int(self._file.read())
        last_uj, elapsed_ns = self._last_uj, now_ns - self._last_ns
        self._last_uj, self._last_ns = now_uj, now_ns
        if self.whole and now_uj == last_uj:
            raise ValueError("its counter stands still")
        joules = None if last_uj is None else _energy_j(last_uj, now_uj, self.range_uj, elapsed_ns / 1e9)
        watts = None if joules is None else round(joules * 1e9 / elapsed_ns, 3)
        return PowerRail(name=self.name, watts=watts, source="rapl", energy_j=joules, within=self.within)


class RaplSensor:
    fields: tuple[str, ...] = ("power",)

    def __init__(self, roots: Roots) -> None:
        self._folder = roots.sys / "class" / "powercap"
        self._zones: list[_Zone] | None = None

    def read(self, now_ns: int) -> Reading:
        if self._zones is None:
            self._zones = _find_zones(self._folder)
        if not self._zones:
            return Reading({}, {"power": "this machine has no RAPL energy counters"})
        rails: list[PowerRail] = []
        reasons: list[str] = []
        for zone in self._zones:
            try:
                rails.append(zone.read(now_ns))
            except (OSError, ValueError) as error:
                reasons.append(f"{zone.name}: {why(error)}")
        return Reading({"power": rails}, {"power": "; ".join(reasons)} if reasons else {})


def _find_zones(folder: Path) -> list[_Zone]:
    """Packages and what is under them. A package that a second driver (intel-rapl-mmio) shows as well counts once."""
    if not folder.is_dir():
        return []
    names = {entry: _name(folder / entry) for entry in sorted(os.listdir(folder)) if entry.startswith("intel-rapl:")}  # noqa: PTH208
    platform = _PLATFORM if _PLATFORM in names.values() else ""
    zones: list[_Zone] = []
    for entry, part in names.items():
        package = names.get(entry.rpartition(":")[0])
        if package is None:
            zones.append(_Zone(folder / entry, part, "" if part == platform else platform, whole=True))
        else:
            # DRAM hangs under its package in the tree, but the package's counter does not hold it.
            within = package if part in _INSIDE_PACKAGE else platform
            zones.append(_Zone(folder / entry, f"{package}/{part}", within, whole=False))
    return zones


def _name(folder: Path) -> str:
    return (folder / "name").read_text(errors="replace").strip()


def _energy_j(before_uj: int, after_uj: int, range_uj: int, elapsed_s: float) -> float | None:
    """Joules between two readings; None when the counter may have started over more than once."""
    if elapsed_s <= 0 or elapsed_s * _MOST_WATTS * 1e6 >= range_uj:
        return None
    if after_uj < before_uj:
        after_uj += range_uj
    return (after_uj - before_uj) / 1e6
