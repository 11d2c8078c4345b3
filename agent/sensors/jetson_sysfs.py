"""A Jetson's power rails and GPU from the kernel's files, for when no program tells them: INA3221 monitors and devfreq."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from distmon.agent.sensors.base import KernelFile, Roots, read_text, why
from distmon.agent.sensors.jetson_programs import Answer
from distmon.core.formats.board import Fields, gpu_zone, integrated_gpu, power_rails

_MONITORS = ("ina3221", "ina238")
_UNUSED = ("", "NC", "sum of shunt voltages")
_GPU_DEVICE = re.compile(r"[0-9a-f]+\.(gpu|gp10b|gv11b|ga10b|gm20b|gpu-gpc-0)$|gpu-gpc-0$")
_NUMBER = re.compile(r"\d+")
_OLD_GPUS = ("devices/gpu.0", "devices/platform/gpu.0")
_LIST_AGAIN_NS = 60 * 10**9
_NO_LOAD = "the kernel shows no GPU load on this board"


class SysfsSource:
    """Its reads go over the board's I2C bus, which can be slow."""

    name = "sysfs"

    def __init__(self, roots: Roots) -> None:
        self._sys = roots.sys
        self._rails: dict[str, Callable[[], float]] = {}
        self._gpu: list[Path] = []
        self._zones: dict[str, KernelFile] = {}
        self._listed_ns: int | None = None

    def read(self, now_ns: int) -> Answer:
        if self._listed_ns is None or now_ns - self._listed_ns > _LIST_AGAIN_NS:
            self._list()
            self._listed_ns = now_ns
        if not self._rails and not self._gpu:
            return Answer(None, reason="the kernel shows neither INA3221 power rails nor a GPU")
        watts, reasons = self._watts()
        percent, mhz = self._load()
        gpu = integrated_gpu(percent, mhz, self._celsius(), _NO_LOAD)
        missing = {"power": "; ".join(reasons) or "the kernel shows no INA3221 power rails"} if reasons or not watts else {}
        return Answer(Fields({"power": power_rails(watts, "ina3221"), "gpus": [gpu]}, missing))

    def stop(self) -> None:
        """Nothing runs between its reads."""

    def _list(self) -> None:
        # Rails are soldered on: once found they stay, and so do the files that are held open for them.
        self._rails = self._rails or _find_rails(self._sys)
        self._gpu = _find_gpu(self._sys)
        zones = {read_text(path.parent / "type"): path for path in sorted(self._sys.glob("class/thermal/thermal_zone*/temp"))}
        zone = gpu_zone(zones.keys())
        for file in self._zones.values():
            file.close()
        self._zones = {} if zone is None else {zone: KernelFile(zones[zone])}

    def _watts(self) -> tuple[Mapping[str, float | None], list[str]]:
        watts: dict[str, float | None] = {}
        reasons: list[str] = []
        for name, read in self._rails.items():
            try:
                watts[name] = read()
            except (OSError, ValueError) as error:
                watts[name] = None
                reasons.append(f"{name}: {why(error)}")
        return watts, reasons

    def _load(self) -> tuple[float | None, float | None]:
        """(percent, MHz); the kernel's load is in thousandths, its clock in hertz."""
        loads = [_number(folder / name) for folder in self._gpu for name in ("load", "device/load")]
        clocks = [_number(folder / "cur_freq") for folder in self._gpu]
        load = next((value for value in loads if value is not None), None)
        clock = next((value for value in clocks if value is not None), None)
        return None if load is None else min(load / 10, 100.0), None if clock is None else clock / 1e6

    def _celsius(self) -> dict[str, float | None]:
        found: dict[str, float | None] = {}
        for name, file in self._zones.items():
            try:
                found[name] = int(file.read()) / 1000
            except (OSError, ValueError):
                found[name] = None
        return found


def _find_rails(sys: Path) -> dict[str, Callable[[], float]]:
    """Rail -> how its watts are read. A monitor's channel without a label is no rail that could be told from its whole."""
    rails: dict[str, Callable[[], float]] = {}
    for folder in sorted(sys.glob("class/hwmon/hwmon*")):
        if read_text(folder / "name") not in _MONITORS:
            continue
        for label in sorted(folder.glob("*_label")):
            name, channel = read_text(label), _NUMBER.search(label.name)
            found = _hwmon_power(folder, channel[0]) if channel else None
            if found is not None and name not in _UNUSED and name not in rails:
                rails[name] = found
    for label in sorted(sys.glob("bus/i2c/drivers/ina3221x/*/iio:device*/rail_name_*")):
        name, number = read_text(label), label.name.removeprefix("rail_name_")
        if name not in _UNUSED and name not in rails:
            rails[name] = _scaled(KernelFile(label.with_name(f"in_power{number}_input")), 1e3)
    return rails


def _hwmon_power(folder: Path, number: str) -> Callable[[], float] | None:
    """Of a channel: its power in microwatts where there is one, or else millivolts times milliamperes."""
    power = folder / f"power{number}_input"
    if power.exists():
        return _scaled(KernelFile(power), 1e6)
    volts, amperes = folder / f"in{number}_input", folder / f"curr{number}_input"
    if not volts.exists() or not amperes.exists():
        return None
    read_volts, read_amperes = _scaled(KernelFile(volts), 1e3), _scaled(KernelFile(amperes), 1e3)
    return lambda: round(read_volts() * read_amperes(), 6)


def _scaled(file: KernelFile, per_unit: float) -> Callable[[], float]:
    return lambda: int(file.read()) / per_unit


def _find_gpu(sys: Path) -> list[Path]:
    """Folders that may hold the GPU's load and clock."""
    scaled = [path for path in sorted(sys.glob("class/devfreq/*")) if _GPU_DEVICE.match(path.name)]
    return scaled + [sys / name for name in _OLD_GPUS if (sys / name / "load").exists()]


def _number(path: Path) -> int | None:
    text = read_text(path)
    return int(text) if text.isdigit() else None
