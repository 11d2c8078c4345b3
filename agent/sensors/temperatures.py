"""Temperatures of the kernel's hardware monitors, or of its thermal zones where there are none."""

from __future__ import annotations

from pathlib import Path

from distmon.agent.sensors.base import KernelFile, Reading, Roots
from distmon.core.events import Temperature

_SWITCHED_OFF_C = -100.0
"""Sensors that are off report something like -256."""
_LIST_AGAIN_NS = 60 * 10**9


class TemperatureSensor:
    fields: tuple[str, ...] = ("temperatures",)

    def __init__(self, roots: Roots) -> None:
        self._class = roots.sys / "class"
        self._files: list[tuple[str, KernelFile]] = []
        self._listed_ns: int | None = None

    def read(self, now_ns: int) -> Reading:
        if self._listed_ns is None or now_ns - self._listed_ns > _LIST_AGAIN_NS:
            self._list()
            self._listed_ns = now_ns
        found = [Temperature(name=name, celsius=value) for name, file in self._files if (value := _celsius(file)) is not None]
        return Reading({"temperatures": found}, {} if found else {"temperatures": "this machine shows no temperature sensors"})

    def _list(self) -> None:
        for _, file in self._files:
            file.close()
        inputs = _monitors(self._class / "hwmon") or _zones(self._class / "thermal")
        self._files = [(name, KernelFile(path)) for name, path in inputs]


def _monitors(folder: Path) -> list[tuple[str, Path]]:
    found: list[tuple[str, Path]] = []
    for path in sorted(folder.glob("hwmon*/temp*_input")):
        chip = _text(path.parent / "name") or path.parent.name
        label = _text(path.with_name(path.name.replace("_input", "_label"))) or path.name.removesuffix("_input")
        found.append((f"{chip}/{label}", path))
    return found


def _zones(folder: Path) -> list[tuple[str, Path]]:
    return [(_text(path.parent / "type") or path.parent.name, path) for path in sorted(folder.glob("thermal_zone*/temp"))]


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _celsius(file: KernelFile) -> float | None:
    """None for a sensor that gives no value now, which is usual for single ones."""
    try:
        value = int(file.read()) / 1000
    except (OSError, ValueError):
        return None
    return value if value > _SWITCHED_OFF_C else None
