"""What holds for Jetson boards whichever program reads them: which power rail holds which, and what is no measurement."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from distmon.core.events import GpuReading, PowerRail, Temperature

SENSOR_OFF_C = -100.0
"""A sensor that is off reads -256."""
_WHOLE_BOARD = ("VDD_MUX", "VDD_IN", "POM_5V_IN", "VIN")
"""Rails that feed everything else, the outermost first: the carrier's input, the module's, the Nano's, Thor's."""
_NESTED = {"VDDQ_VDD2_1V8AO": "VIN_SYS_5V0"}
"""AGX Orin's memory hangs on its 5 V rail. That board, AGX Xavier, and Thor without VIN have no rail for the whole: their outer
rails add up to it."""
_NOT_OF_A_BOARD = "no program tells it of a board's GPU"
_SHARES_MEMORY = "it shares the node's memory"
_FIXED_C = {"PMIC": (50.0, 100.0)}
"""The power controller's zone holds a number that the driver made up."""


class Fields(NamedTuple):
    """A board's part of a NodeSampled: fields with their values, and fields without one with the reason."""

    values: dict[str, Any]
    unavailable: dict[str, str]


def holder(name: str, names: Collection[str]) -> str:
    """The rail among `names` that already contains the power of this one; empty for an outer one."""
    whole = next((rail for rail in _WHOLE_BOARD if rail in names), "")
    if whole:
        return "" if name == whole else whole
    nested = _NESTED.get(name, "")
    return nested if nested in names else ""


def power_rails(watts: Mapping[str, float | None], source: str) -> list[PowerRail]:
    """Rails with what each lies within, so that a sum counts nothing twice."""
    return [PowerRail(name=name, watts=value, source=source, within=holder(name, watts.keys())) for name, value in watts.items()]


def mislabelled(watts: Mapping[str, float | None]) -> list[tuple[str, str]]:
    """(part, whole) where a part draws more than what should hold it: some carriers have their rails' names swapped."""
    found = []
    for name, value in watts.items():
        whole = holder(name, watts.keys())
        limit = watts.get(whole)
        if value is not None and limit is not None and value > limit:
            found.append((name, whole))
    return found


def doubt(part: str, whole: str) -> str:
    """What to say of a pair that `mislabelled` finds."""
    return f"{part} draws more than {whole}, which should hold it: the rails' names may be swapped, the board's power is doubtful"


def is_measured(zone: str, celsius: float | None) -> bool:
    """Whether a thermal zone's value is a reading: sensors may be off, and one zone holds a constant."""
    return celsius is not None and celsius > SENSOR_OFF_C and celsius not in _FIXED_C.get(zone, ())


def gpu_zone(zones: Collection[str]) -> str | None:
    """The name of the GPU's own zone; its spelling differs between releases (GPU, gpu, gpu-thermal, GPU-therm)."""
    return next((zone for zone in zones if zone.lower().removesuffix("-thermal").removesuffix("-therm") == "gpu"), None)


def temperatures(zones: Mapping[str, float | None]) -> tuple[list[Temperature], str]:
    """What was measured, and of the other zones why not."""
    found = {zone: value for zone, value in zones.items() if value is not None and is_measured(zone, value)}
    off = [zone for zone, value in zones.items() if value is None or value <= SENSOR_OFF_C]
    fixed = [zone for zone in zones if zone not in off and zone not in found]
    reasons = [f"switched off: {', '.join(off)}"] * bool(off) + [f"a constant and no reading: {', '.join(fixed)}"] * bool(fixed)
    return [Temperature(name=zone, celsius=value) for zone, value in found.items()], "; ".join(reasons)


def integrated_gpu(
    percent: float | None, clock_mhz: float | None, zones: Mapping[str, float | None], why_no_load: str, name: str = ""
) -> GpuReading:
    """A board's one GPU. Its power is in the rails, so that it has none of its own here."""
    missing = {"memory_used_bytes": _SHARES_MEMORY, "power_w": "it is part of the board's power rails", "others": _NOT_OF_A_BOARD}
    if percent is None:
        missing["utilization_percent"] = why_no_load
    zone = gpu_zone(zones.keys())
    celsius = zones[zone] if zone is not None else None
    if not is_measured(zone or "", celsius):
        missing["temperature_c"] = "it has no temperature zone of its own" if zone is None else "its sensor is switched off"
        celsius = None
    return GpuReading(
        index=0,
        name=name or "integrated GPU",
        utilization_percent=percent,
        sm_clock_mhz=clock_mhz,
        temperature_c=celsius,
        unavailable=missing,
    )


def is_integrated(gpu: GpuReading) -> bool:
    """Whether it is a board's, as `integrated_gpu` tells it."""
    return gpu.unavailable.get("memory_used_bytes") == _SHARES_MEMORY


def mean_of_cores(percents: list[float | None]) -> float | None:
    """Over the cores that are on; None where none is."""
    known = [percent for percent in percents if percent is not None]
    return round(sum(known) / len(known), 2) if known else None
