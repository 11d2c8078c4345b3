"""CPU package power from RAPL's energy counters (Intel and AMD), under /sys/class/powercap."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Raw

from distmon.agent.machine_code import native
from distmon.agent.sensors.base import (
    KernelFile,
    Reading,
    Roots,
    as_row,
    numbers_at_once,
    packed_map,
    packed_parts,
    read_text,
    whole_number,
    why,
)
from distmon.core.events import PowerRail

_INSIDE_PACKAGE = ("core", "uncore")
_PLATFORM = "psys"
_MOST_WATTS = 2000
"""No package draws more; after a pause in which the counter may have wrapped more than once, the energy is unknown."""
_LIST_AGAIN_NS = 60 * 10**9
_ROW = 5
"""Numbers of a zone for machine code."""
_ROOT_ONLY = (
    "only root may read the energy counters; the udev rule packaging/70-distmon-rapl.rules opens them to an agent in the group"
    " distmon"
)


class _Zone:
    """One counter, in microjoules, that starts over at `range_uj` (None where the driver does not say)."""

    def __init__(self, folder: Path, name: str, within: str, whole: bool) -> None:
        self.name = name
        self.within = within
        self.whole = whole
        """A package or the platform, which always draws something."""
        self.range_uj = whole_number(read_text(folder / "max_energy_range_uj").encode())
        self.file = KernelFile(folder / "energy_uj")
        self.last_uj: int | None = None
        self.last_ns = 0

    def read(self, now_ns: int, now_uj: int | None) -> PowerRail:
        """`now_uj` is None where the file has not been read yet."""
        now_uj = int(self.file.read()) if now_uj is None else now_uj
        last_uj, elapsed_ns = self.last_uj, now_ns - self.last_ns
        self.last_uj, self.last_ns = now_uj, now_ns
        if self.whole and now_uj == last_uj:
            raise ValueError("its counter stands still")
        joules = None if last_uj is None else _energy_j(last_uj, now_uj, self.range_uj, elapsed_ns / 1e9)
        watts = None if joules is None else round(joules * 1e9 / elapsed_ns, 3)
        return PowerRail(name=self.name, watts=watts, source="rapl", energy_j=joules, within=self.within)

    def row(self) -> tuple[int | None, ...]:
        """For machine code: its descriptor, the last count and when, where it starts over, and `whole`."""
        return self.file.fd, self.last_uj, self.last_ns, -1 if self.range_uj is None else self.range_uj, self.whole

    def frame(self) -> tuple[bytes, bytes]:
        """What stands before its watts, and after its joules, in msgpack."""
        head = packed_parts("name", self.name, "watts")
        return packed_map(5 if self.within else 4) + head, packed_parts("within", self.within) if self.within else b""


class RaplSensor:
    fields: tuple[str, ...] = ("power",)

    def __init__(self, roots: Roots) -> None:
        self._folder = roots.sys / "class" / "powercap"
        self._zones: list[_Zone] = []
        self._listed_ns: int | None = None
        self._rows = b""
        """`row` of each zone for machine code, as of its last reading; empty after `read`."""
        self._frames: list[tuple[bytes, bytes]] = []

    def read(self, now_ns: int) -> Reading:
        if self._rows:
            numbers, self._rows = memoryview(self._rows).cast("q").tolist(), b""
            for zone, last_uj, last_ns in zip(self._zones, numbers[1::_ROW], numbers[2::_ROW], strict=True):
                zone.last_uj, zone.last_ns = last_uj, last_ns
        if not self._zones and (self._listed_ns is None or now_ns - self._listed_ns > _LIST_AGAIN_NS):
            self._zones, self._listed_ns = _find_zones(self._folder), now_ns
        if not self._zones:
            return Reading({}, {"power": "this machine has no RAPL energy counters"})
        rails: list[PowerRail] = []
        reasons: list[str] = []
        at_once = numbers_at_once([zone.file for zone in self._zones])
        for zone, now_uj in zip(self._zones, at_once, strict=True):
            try:
                rails.append(zone.read(now_ns, now_uj))
            except PermissionError:
                return Reading({}, {"power": _ROOT_ONLY})
            except (OSError, ValueError) as error:
                reasons.append(f"{zone.name}: {why(error)}")
        return Reading({"power": rails}, {"power": "; ".join(reasons)} if reasons else {})

    def packed(self, now_ns: int) -> Reading:
        """As `read`, in machine code where that was built and each zone has counted on."""
        if native is None or not self._zones:
            return self.read(now_ns)
        if not self._rows:
            self._rows = as_row([number for zone in self._zones for number in zone.row()])
            self._frames = [zone.frame() for zone in self._zones]
        if not self._rows:
            return self.read(now_ns)
        found = native.rail_readings(self._rows, self._frames, now_ns, _MOST_WATTS)
        if found is None:
            return self.read(now_ns)
        self._rows, rails = found
        return Reading({"power": Raw(rails)}, {})


def _find_zones(folder: Path) -> list[_Zone]:
    """Packages and what is under them. A package that a second driver (intel-rapl-mmio) shows as well counts once."""
    if not folder.is_dir():
        return []
    entries = sorted(entry for entry in os.listdir(folder) if entry.startswith("intel-rapl:"))  # noqa: PTH208
    names = {entry: name for entry in entries if (name := read_text(folder / entry / "name"))}
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


def _energy_j(before_uj: int, after_uj: int, range_uj: int | None, elapsed_s: float) -> float | None:
    """Joules between two readings; None when the counter may have started over more than once, or was reset."""
    most_uj = elapsed_s * _MOST_WATTS * 1e6
    if elapsed_s <= 0 or (range_uj is not None and most_uj >= range_uj):
        return None
    if after_uj < before_uj:
        after_uj += range_uj or 0
    return (after_uj - before_uj) / 1e6 if 0 <= after_uj - before_uj <= most_uj else None
