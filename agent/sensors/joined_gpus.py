"""GPUs of two sources: of two makers, or a Jetson's one, which NVML sees too on newer boards, where it tells little."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from distmon.core.events import GpuReading
from distmon.core.formats.board import is_integrated

_FIELDS = tuple(name for name in GpuReading.__struct_fields__ if name not in ("index", "instance", "unavailable"))
_IN_THE_RAILS = ("power_w", "power_limit_w", "energy_j")


def joined_gpus(first: list[GpuReading], second: list[GpuReading]) -> list[GpuReading]:
    """All GPUs of both, no number twice: those of another maker are numbered on. Of a board's own one, where both have it by
    its number, the first one's values, and the second's where it has none."""
    board = {gpu.index: gpu for gpu in second if is_integrated(gpu)}
    joined = [_joined(gpu, board.pop(gpu.index, None) if gpu.instance is None else None) for gpu in first]
    taken = max(gpu.index for gpu in first) + 1
    return [*joined, *board.values(), *(replace(gpu, index=taken + gpu.index) for gpu in second if not is_integrated(gpu))]


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
