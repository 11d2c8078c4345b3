"""What holds for Jetson boards whichever program reads them: which power rail holds which, and what is no measurement."""

from __future__ import annotations

from collections.abc import Collection

from distmon.core.events import PowerRail

SENSOR_OFF_C = -100.0
"""A sensor that is off reads -256."""
_WHOLE_BOARD = ("VDD_MUX", "VDD_IN", "POM_5V_IN", "VIN")
"""Rails that feed everything else, the outermost first: the carrier's input, the module's, the Nano's, Thor's."""
_NESTED = {"VDDQ_VDD2_1V8AO": "VIN_SYS_5V0"}
"""AGX Orin's memory hangs on its 5 V rail. That board, AGX Xavier, and Thor without VIN have no rail for the whole: their outer
rails add up to it."""
_FIXED_C = {"PMIC": (50.0, 100.0)}
"""The power controller's zone holds a number that the driver made up."""


def holder(name: str, names: Collection[str]) -> str:
    """The rail among `names` that already contains the power of this one; empty for an outer one."""
    whole = next((rail for rail in _WHOLE_BOARD if rail in names), "")
    if whole:
        return "" if name == whole else whole
    nested = _NESTED.get(name, "")
    return nested if nested in names else ""


def power_rails(watts: dict[str, float | None], source: str) -> list[PowerRail]:
    """Rails with what each lies within, so that a sum counts nothing twice."""
    return [PowerRail(name=name, watts=value, source=source, within=holder(name, watts)) for name, value in watts.items()]


def mislabelled(watts: dict[str, float | None]) -> list[tuple[str, str]]:
    """(part, whole) where a part draws more than what should hold it: some carriers have their rails' names swapped."""
    found = []
    for name, value in watts.items():
        whole = holder(name, watts)
        limit = watts.get(whole)
        if value is not None and limit is not None and value > limit:
            found.append((name, whole))
    return found


def is_measured(zone: str, celsius: float | None) -> bool:
    """Whether a thermal zone's value is a reading: sensors may be off, and one zone holds a constant."""
    return celsius is not None and celsius > SENSOR_OFF_C and celsius not in _FIXED_C.get(zone, ())


def gpu_zone(zones: Collection[str]) -> str | None:
    """The name of the GPU's own zone; its spelling differs between releases (GPU, gpu, gpu-thermal, GPU-therm)."""
    return next((zone for zone in zones if zone.lower().removesuffix("-thermal").removesuffix("-therm") == "gpu"), None)
