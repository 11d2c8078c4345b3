"""What was found in a generation, kept until its next step: several measures of one moment rest on the same sums.

Only speed depends on what is kept. It is safe to look from several threads: what was handed out is never changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from distmon.core.steps import Generation, JobSeries

T = TypeVar("T")
_MOST = 4
"""Generations of which something is kept: those that were looked at last."""


@dataclass(slots=True, frozen=True, eq=False)
class _Kept:
    series: JobSeries
    """Stands for the generation: holding that would keep all of its steps alive."""
    told: int
    found: dict[tuple[object, int], Any] = field(default_factory=dict)


_kept: dict[int, _Kept] = {}


def once(generation: Generation, make: Callable[[Generation, int], T], count: int) -> T:
    """`make(generation, count)`, made once for as long as no step is added; not to be changed. It rests on nothing else."""
    series = generation.series
    known = _kept.get(id(series))
    if known is None or known.series is not series or known.told != generation.told:
        known = _Kept(series, generation.told)
        _kept.pop(id(series), None)
        for old in list(_kept)[: len(_kept) + 1 - _MOST]:
            _kept.pop(old, None)
        _kept[id(series)] = known
    key = make, count
    if key not in known.found:
        known.found[key] = make(generation, count)
    found: T = known.found[key]
    return found
