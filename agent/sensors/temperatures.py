"""Temperatures of the kernel's hardware monitors, or of its thermal zones where there are none."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from msgspec import Raw

from distmon.agent.machine_code import native
from distmon.agent.sensors.base import KernelFile, Reading, Roots, numbers_at_once, packed_map, packed_parts, read_text
from distmon.core.events import Temperature

_SWITCHED_OFF_C = -100.0
"""Sensors that are off report something like -256."""
_LIST_AGAIN_NS = 60 * 10**9
_DIGITS = re.compile(r"(\d+)")


class TemperatureSensor:
    fields: tuple[str, ...] = ("temperatures",)

    def __init__(self, roots: Roots) -> None:
        self._class = roots.sys / "class"
        self._files: list[tuple[str, KernelFile]] = []
        self._heads: list[bytes] = []
        """What stands before the number of each in msgpack."""
        self._listed_ns: int | None = None

    def read(self, now_ns: int) -> Reading:
        if self._listed_ns is None or now_ns - self._listed_ns > _LIST_AGAIN_NS:
            self._list()
            self._listed_ns = now_ns
        numbers = numbers_at_once([file for _, file in self._files])
        values = [_celsius(file, number) for (_, file), number in zip(self._files, numbers, strict=True)]
        pairs = zip(self._files, values, strict=True)
        found = [Temperature(name=name, celsius=value) for (name, _), value in pairs if value is not None]
        return Reading({"temperatures": found}, {} if found else {"temperatures": "this machine shows no temperature sensors"})

    def packed(self, now_ns: int) -> Reading:
        """As `read`, in machine code where that was built and all of them tell something."""
        if native is not None and self._files and self._listed_ns is not None and now_ns - self._listed_ns <= _LIST_AGAIN_NS:
            found = native.thousandths([file.fd for _, file in self._files], self._heads)
            if found is not None:
                return Reading({"temperatures": Raw(found)}, {})
        return self.read(now_ns)

    def _list(self) -> None:
        for _, file in self._files:
            file.close()
        inputs = _monitors(self._class / "hwmon") or _zones(self._class / "thermal")
        self._files = [(name, KernelFile(path)) for name, path in inputs]
        self._heads = [packed_map(2) + packed_parts("name", name, "celsius") for name, _ in inputs]


def _monitors(folder: Path) -> list[tuple[str, Path]]:
    """Chip and label of each input. Old drivers keep name and inputs beside the class's folder, in the device's."""
    found: list[tuple[str, Path]] = []
    chips: Counter[str] = Counter()
    for monitor in sorted(folder.glob("hwmon*"), key=_by_number):
        inputs = sorted([*monitor.glob("temp*_input"), *monitor.glob("device/temp*_input")], key=_by_number)
        if inputs:
            chip = read_text(monitor / "name") or read_text(monitor / "device" / "name") or monitor.name
            chips[chip] += 1
            labels = [read_text(path.with_name(path.name.replace("_input", "_label"))) for path in inputs]
            names = [label or path.name.removesuffix("_input") for label, path in zip(labels, inputs, strict=True)]
            found += zip((f"{_numbered(chip, chips[chip])}/{name}" for name in _distinct(names)), inputs, strict=True)
    return found


def _zones(folder: Path) -> list[tuple[str, Path]]:
    paths = sorted(folder.glob("thermal_zone*/temp"), key=_by_number)
    return list(zip(_distinct([read_text(path.parent / "type") or path.parent.name for path in paths]), paths, strict=True))


def _distinct(names: list[str]) -> list[str]:
    """The second of a name gets a 2 after it, and so on."""
    seen: Counter[str] = Counter()
    distinct: list[str] = []
    for name in names:
        seen[name] += 1
        distinct.append(_numbered(name, seen[name]))
    return distinct


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name} {number}"


def _by_number(path: Path) -> list[tuple[int, str]]:
    """hwmon10 after hwmon9: as people count."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in _DIGITS.split(str(path))]


def _celsius(file: KernelFile, thousandths: int | None) -> float | None:
    """None for a sensor that gives no value now, which is usual for single ones."""
    try:
        value = (int(file.read()) if thousandths is None else thousandths) / 1000
    except (OSError, ValueError):
        return None
    return value if value > _SWITCHED_OFF_C else None
