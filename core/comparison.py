"""Runs of one job against runs of another: what differs, by how much, and whether that is more than how runs differ anyway."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from distmon.core.intervals import MIN_RUNS, Interval, median_interval, over_runs, rate_interval, ratio
from distmon.core.measures import (
    current_generation,
    elapsed,
    samples,
    session_mean_throughput,
    step_series,
    step_split,
    steps_set_aside,
    warmup,
)
from distmon.core.quantiles import median
from distmon.core.state import SessionState
from distmon.core.summary import summary

Verdict = Literal["higher", "lower", "no difference shown", "not told"]
UNITS = {
    "throughput median": "samples/s",
    "throughput mean": "samples/s",
    "session mean": "samples/s",
    "steady step, median": "s",
    "duration": "s",
    "warm-up": "s",
    "steady step": "s",
    "step, input_wait": "s",
    "step, compute": "s",
    "step, exposed_communication": "s",
    "step, optimizer": "s",
    "step, rest": "s",
    "energy": "J",
    "energy per sample": "J",
}
"""What is compared, the most telling first: a median is steadier than a mean, which a few stalls move."""

_MARGIN = 1.05
"""Widens intervals before 1 is looked for in them: Student's t is exact for normal scatter alone, and 5 % is the limit."""

RunValues = Mapping[str, Interval | float]
"""Measure -> its value in one run, with an interval where the run itself tells how well it is known."""


class Effect(Struct, frozen=True, kw_only=True):
    """One measure. Intervals of 95 %; `ratio` is other / base. `between runs` only with three runs or more of each."""

    name: str
    unit: str
    base: Interval
    other: Interval
    ratio: Interval
    verdict: Verdict


def run_values(state: SessionState) -> dict[str, Interval | float]:
    """What a session measured; what it did not is left out."""
    found: dict[str, Interval | float | None] = {"duration": elapsed(state), "session mean": session_mean_throughput(state)}
    trained, joules = samples(state), summary(state).energy_j
    found["energy"] = joules
    if trained and joules is not None:
        found["energy per sample"] = joules / trained
    generation = current_generation(state)
    if generation is not None:
        found["warm-up"] = warmup(generation).duration_s
        width, cut = generation.series.width, steps_set_aside(generation) // generation.series.width
        durations, counts = (column[cut:] for column in step_series(generation))
        found |= _steps(durations, counts if generation.series.sampled else None, width)
    split = step_split(generation)
    if split is not None:
        found["steady step"] = split.step_s
        found |= {name: split.phase(name.removeprefix("step, ")) for name in UNITS if name.startswith("step, ")}
    return {name: value for name in UNITS if (value := found.get(name)) is not None and _positive(value)}


def _steps(durations: Sequence[float], counts: Sequence[float] | None, width: int) -> dict[str, Interval | float | None]:
    """Medians and means of steps after warm-up; entries of `width` merged steps carry no interval."""
    if not durations:
        return {}
    exact = width == 1
    found: dict[str, Interval | float | None] = {
        "steady step, median": (median_interval(durations) if exact else None) or median(durations)
    }
    if counts is not None and all(d > 0 for d in durations):
        rates = [c / (d * width) for c, d in zip(counts, durations, strict=True)]
        found["throughput median"] = (median_interval(rates) if exact else None) or median(rates)
        mean = sum(counts) / (sum(durations) * width)
        found["throughput mean"] = (rate_interval(counts, durations) if exact else None) or mean
    return found


def _positive(value: Interval | float) -> bool:
    return (value.low if isinstance(value, Interval) else value) > 0


def compare_runs(base: Sequence[RunValues], other: Sequence[RunValues]) -> list[Effect]:
    """Every measure that all runs of both sides have."""
    runs = [*base, *other]
    return [
        _effect(name, over_runs([run[name] for run in base]), over_runs([run[name] for run in other]))
        for name in UNITS
        if runs and all(name in run for run in runs)
    ]


def _effect(name: str, base: Interval, other: Interval) -> Effect:
    found = ratio(base, other)
    return Effect(name=name, unit=UNITS[name], base=base, other=other, ratio=found, verdict=_verdict(found))


def _verdict(found: Interval) -> Verdict:
    """Runs that were not repeated tell at most that even they show no difference."""
    nearest = found.low if found.estimate > 1 else found.high
    if not found.excludes(1.0) or abs(math.log(nearest / found.estimate)) * _MARGIN >= abs(math.log(found.estimate)):
        return "no difference shown"
    if found.basis != "between runs" or found.runs < MIN_RUNS:
        return "not told"
    return "higher" if found.estimate > 1 else "lower"
