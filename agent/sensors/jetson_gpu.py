"""A Jetson's GPU as two sources see it: NVML, which newer boards have and which tells little there, and the board's sensors."""

from __future__ import annotations

from typing import Any

from msgspec.structs import fields, replace

from distmon.core.events import GpuReading

_FIELDS = tuple(field.name for field in fields(GpuReading) if field.name not in ("index", "instance", "unavailable"))
_IN_THE_RAILS = ("power_w", "power_limit_w", "energy_j")


def joined_gpus(first: list[GpuReading], second: list[GpuReading]) -> list[GpuReading]:
    """All GPUs of both; of one that both have (by its number) the first one's values, and the second's where it has none."""
    others = {(gpu.index, gpu.instance): gpu for gpu in second}
    joined = [_joined(gpu, others.pop((gpu.index, gpu.instance), None)) for gpu in first]
    return joined + list(others.values())


def _joined(gpu: GpuReading, other: GpuReading | None) -> GpuReading:
    if other is None:
        return gpu
    values: dict[str, Any] = {name: _known(getattr(gpu, name), getattr(other, name)) for name in _FIELDS}
    if "power_w" in other.unavailable:
        # The board counts it in its rails.
        values |= dict.fromkeys(_IN_THE_RAILS)
    reasons = gpu.unavailable | other.unavailable
    missing = {name: reason for name, reason in reasons.items() if values.get(name) is None}
    return replace(gpu, **values, unavailable=missing)


def _known(first: Any, second: Any) -> Any:
    return second if first is None or first in ("", [], {}) else first
