"""Runs of one job against runs of another: what differs, by how much, and whether that is more than how runs differ anyway."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from distmon.core.energy import energy
from distmon.core.intervals import (
    MIN_RUNS,
    Interval,
    median_interval,
    over_runs,
    ratio,
    student,
    student_point,
    student_tail,
)
from distmon.core.measures import (
    current_generation,
    elapsed,
    session_mean_throughput,
    step_series,
    step_split,
    steps_set_aside,
    warmup,
)
from distmon.core.quantiles import median
from distmon.core.state import SessionState
from distmon.core.summary import summary
from distmon.core.waited import steady_speed

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

OF_STEPS = ("throughput median", "throughput mean", "steady step, median")
"""What one run of enough steps tells an interval of; of all else it has one value."""

_MARGIN = 1.05
"""Widens intervals before 1 is looked for in them: Student's t is exact for normal scatter alone."""
_LIMIT = 0.05
"""Of comparisons of equals, so many may call any measure different."""
_HEADLINE = 0.95
"""The share of the limit that the first measure has to itself; the others have the rest between them, and all once it differs."""
_POWER = 0.8

RunValues = Mapping[str, Interval | float]
"""Measure -> its value in one run, with an interval where the run itself tells how well it is known."""


class Effect(Struct, frozen=True, kw_only=True):
    """One measure. Intervals of 95 %; `ratio` is other / base. `between runs` only with three runs or more of each.

    The verdicts of all measures are made together: a single interval may leave out 1 where none is called different.
    """

    name: str
    unit: str
    base: Interval
    other: Interval
    ratio: Interval
    verdict: Verdict


def run_values(state: SessionState) -> dict[str, Interval | float]:
    """What a session measured; what it did not is left out, and so are the joules of a part of its time."""
    found: dict[str, Interval | float | None] = {"duration": elapsed(state), "session mean": session_mean_throughput(state)}
    used = energy(state)
    if used is not None and used.nearly_all and summary(state).energy_j is not None:
        found["energy"], found["energy per sample"] = used.joules, used.per_sample_j
    generation = current_generation(state)
    if generation is not None:
        found["warm-up"] = warmup(generation).duration_s
        width, cut = generation.series.width, steps_set_aside(generation) // generation.series.width
        durations, counts = (column[cut:] for column in step_series(generation))
        if width == 1:
            found |= _medians(durations, counts if generation.sampled else None)
        if generation.sampled:
            found["throughput mean"] = steady_speed(state, generation)
    split = step_split(generation)
    if split is not None:
        found["steady step"] = split.step_s
        found |= {name: split.phase(name.removeprefix("step, ")) for name in UNITS if name.startswith("step, ")}
    return {name: value for name in UNITS if (value := found.get(name)) is not None and _positive(value)}


def _medians(durations: Sequence[float], counts: Sequence[float] | None) -> dict[str, Interval | float | None]:
    """Of single steps after warm-up; merged ones have none."""
    if not durations:
        return {}
    found: dict[str, Interval | float | None] = {"steady step, median": median_interval(durations) or median(durations)}
    if counts is not None and all(d > 0 for d in durations):
        rates = [c / d for c, d in zip(counts, durations, strict=True)]
        found["throughput median"] = median_interval(rates) or median(rates)
    return found


def _positive(value: Interval | float) -> bool:
    return (value.low if isinstance(value, Interval) else value) > 0


def compare_runs(base: Sequence[RunValues], other: Sequence[RunValues]) -> list[Effect]:
    """Every measure that all runs of both sides have."""
    runs = [*base, *other]
    names = [name for name in UNITS if runs and all(name in run for run in runs)]
    sides = [(over_runs([run[name] for run in base]), over_runs([run[name] for run in other])) for name in names]
    ratios = [ratio(*pair) for pair in sides]
    different = _different(ratios)
    return [
        Effect(name=name, unit=UNITS[name], base=pair[0], other=pair[1], ratio=found, verdict=_verdict(found, index in different))
        for index, (name, pair, found) in enumerate(zip(names, sides, ratios, strict=True))
    ]


def _different(ratios: Sequence[Interval]) -> set[int]:
    """Which of them differ from 1, with a chance of _LIMIT at most that any does falsely: Holm's procedure, weighted (1979)."""
    family = [index for index, found in enumerate(ratios) if found.known]
    weights = {index: _HEADLINE if index == family[0] else (1 - _HEADLINE) / (len(family) - 1) for index in family}
    chances = {index: _chance(ratios[index]) for index in family}
    different: set[int] = set()
    for index in sorted(family, key=lambda index: chances[index] / weights[index]):
        left = math.fsum(weight for other, weight in weights.items() if other not in different)
        if chances[index] > _LIMIT * weights[index] / left:
            break
        different.add(index)
    return different


def _chance(found: Interval) -> float:
    """How often equals would come out at least this far apart."""
    apart = abs(math.log(found.estimate))
    half = abs(math.log((found.low if found.estimate > 1 else found.high) / found.estimate)) * _MARGIN
    if not apart or not half:
        return float(not apart)
    return student_tail(student(found.degrees) * apart / half, found.degrees)


def shown_difference(found: Interval) -> float | None:
    """The true difference, as a share, that is called one in four of five comparisons like this.

    None without an interval, and with fewer than MIN_RUNS runs of a side, of which none is ever called one.

    Of the first measure, whose interval leaves it out where it lies beyond both the half-width and what chance adds to that.
    """
    if not found.known or found.low >= found.high or not _between_runs(found):
        return None
    half = math.log(max(found.estimate / found.low, found.high / found.estimate)) * _MARGIN
    t = student(found.degrees)
    return math.expm1(half * (t + student_point(_POWER, found.degrees)) / t)


def _verdict(found: Interval, different: bool) -> Verdict:
    """Runs that were not repeated tell at most that even they show no difference."""
    if found.known and not different:
        return "no difference shown"
    if not found.known or not _between_runs(found):
        return "not told"
    return "higher" if found.estimate > 1 else "lower"


def _between_runs(found: Interval) -> bool:
    return found.basis == "between runs" and found.runs >= MIN_RUNS
