"""AMD GPUs from the kernel's files: what the amdgpu driver shows to everybody."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from distmon.agent.sensors.base import KernelFile, Roots, read_text
from distmon.core.events import GpuReading

_AMD = "0x1002"
_CARD = re.compile(r"card(\d+)$")
_CURRENT = re.compile(rb"^\d+: *(\d+)Mhz \*", re.MULTILINE)
_ABSENT = "the kernel does not tell it of this GPU"
_FILES = {
    "utilization_percent": ("gpu_busy_percent", 1.0),
    "memory_used_bytes": ("mem_info_vram_used", 1.0),
    "memory_total_bytes": ("mem_info_vram_total", 1.0),
    "power_w": ("hwmon/power1_average", 1e-6),
    "power_limit_w": ("hwmon/power1_cap", 1e-6),
    "temperature_c": ("hwmon/temp1_input", 1e-3),
    "sm_clock_mhz": ("hwmon/freq1_input", 1e-6),
    "memory_clock_mhz": ("hwmon/freq2_input", 1e-6),
}
"""Field -> file, and what its number is multiplied by."""
_OTHERWISE = {
    "power_w": ("hwmon/power1_input", 1e-6),
    "sm_clock_mhz": ("pp_dpm_sclk", 1.0),
    "memory_clock_mhz": ("pp_dpm_mclk", 1.0),
}
"""Where a GPU lacks the first: newer ones measure instant power, and containers may hide the monitor."""
_IN_THE_PACKAGE = "it is part of the processor, whose power its package's counter has"
_WHOLE = ("memory_used_bytes", "memory_total_bytes")


def find_cards(roots: Roots) -> list[Card]:
    """By their place on the PCI bus, which is how AMD's tools number them."""
    folders = [entry for entry in (roots.sys / "class/drm").glob("card*") if _CARD.match(entry.name)]
    devices = [entry / "device" for entry in folders if read_text(entry / "device/vendor") == _AMD]
    found = sorted((device for device in devices if (device / "mem_info_vram_total").exists()), key=_place)
    counted = os.access(roots.sys / "class/powercap/intel-rapl:0/energy_uj", os.R_OK)
    return [Card(index, device, package_counted=counted) for index, device in enumerate(found)]


class Card:
    """One GPU's folder, its files held open."""

    def __init__(self, index: int, device: Path, *, package_counted: bool) -> None:
        """`package_counted`: the power of the processor's package is read as well (`power.RaplSensor`)."""
        self._index = index
        self._uuid = read_text(device / "unique_id")
        self._name = read_text(device / "product_name") or f"AMD GPU {read_text(device / 'device')}".strip()
        monitor = next(iter(sorted(device.glob("hwmon/hwmon*"))), device / "hwmon/none")
        self._sources = {
            field: [_source(device, monitor, *place) for place in (first, _OTHERWISE.get(field)) if place is not None]
            for field, first in _FILES.items()
        }
        # The driver shows the voltage of a north bridge of GPUs that are part of a processor, and of no others.
        self._in_package = package_counted and (monitor / "in1_input").exists()

    def read(self) -> GpuReading:
        found = {field: _first(ways) for field, ways in self._sources.items()}
        if self._in_package:
            found["power_w"] = None
        values: dict[str, Any] = {field: value for field, value in found.items() if value is not None}
        values |= {field: int(values[field]) for field in _WHOLE if field in values}
        missing = {field: _ABSENT for field in found if field not in values}
        if self._in_package:
            missing["power_w"] = _IN_THE_PACKAGE
        state = "ok"
        if not values:
            state, missing = "lost", {"all": "its files are gone"}
        return GpuReading(index=self._index, uuid=self._uuid, name=self._name, state=state, **values, unavailable=missing)


def _source(device: Path, monitor: Path, name: str, by: float) -> tuple[KernelFile, float]:
    return KernelFile(monitor / name.removeprefix("hwmon/") if name.startswith("hwmon/") else device / name), by


def _first(ways: list[tuple[KernelFile, float]]) -> float | None:
    return next((value for file, by in ways if (value := _value(file, by)) is not None), None)


def _value(file: KernelFile, by: float) -> float | None:
    """A number, or the marked line of a table of clocks."""
    try:
        text = file.read()
    except OSError:
        return None
    marked = _CURRENT.search(text)
    text = marked[1] if marked else text.strip()
    return round(int(text) * by, 3) if text.isdigit() else None


def _place(device: Path) -> tuple[str, int, str]:
    """The PCI address that the folder is a link to."""
    name = Path(os.path.realpath(device)).name
    card = _CARD.match(device.parent.name)
    return (name if ":" in name else "", int(card[1]) if card else 0, name)
