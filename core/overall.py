"""Over the whole session: what each rank did in all its generations, and how sure the steady throughput is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from distmon.core.measures import Split, split, step_series, steps_set_aside, warmup
from distmon.core.quantiles import Quantiles
from distmon.core.state import SessionState
from distmon.core.steps import PHASES, Generation, Totals

_BATCHES = {20: 2.093, 10: 2.262}
"""Number of batches -> the 97.5 % point of Student's t for it."""
_STEPS_PER_BATCH = 5


@dataclass(slots=True, frozen=True)
class RankOverall:
    """One rank number over all generations that it took part in, whoever held it."""

    rank: int
    host: str
    steps: int
    micro_batches: int
    """Forward and backward passes; more than steps where gradients are accumulated."""
    step_median_s: float | None
    """End to end, over all steps, warm-up included."""
    steady: Split | None
    missing: dict[str, int]
    """Phase, or samples -> steps in which it was not seen, warm-up included."""


def rank_overalls(state: SessionState) -> list[RankOverall]:
    """Every rank that took part, in order."""
    generations = [state.generations[number] for number in sorted(state.generations)]
    skips = {g.number: steps_set_aside(g) if g.ranks else 0 for g in generations}
    numbers = sorted(state.ranks.keys() | {number for g in generations for number in g.ranks})
    return [_overall(state, number, generations, skips) for number in numbers]


def _overall(state: SessionState, number: int, generations: list[Generation], skips: dict[int, int]) -> RankOverall:
    made = [(g.ranks[number], skips[g.number]) for g in generations if number in g.ranks]
    whole, steady, durations = Totals(), Totals(), Quantiles()
    for rank, skip in made:
        whole = whole.plus(rank.totals)
        steady = steady.plus(rank.steady(skip))
        durations.merge(rank.durations)
    known = state.ranks.get(number)
    return RankOverall(
        rank=number,
        host=known.host if known else "",
        steps=whole.steps,
        micro_batches=sum(rank.micro_batches for rank, _ in made),
        step_median_s=durations.quantile(0.5),
        steady=split(steady),
        missing={
            **{phase: whole.steps - seen for phase, seen in zip(PHASES, whole.seen, strict=True)},
            "samples": whole.steps - whole.sampled_steps,
        },
    )


def throughput_interval(generation: Generation | None) -> tuple[float, float] | None:
    """95 % interval of the mean steady samples per second, by batch means: neighbouring steps are not independent.

    It says how well this run's mean is known, not how much another run would differ. None with too few steady steps.
    """
    if generation is None or not generation.series.sampled:
        return None
    skip = warmup(generation).steps
    if skip is None:
        return None
    durations, samples = step_series(generation)
    cut, width = skip // generation.series.width, generation.series.width
    durations, samples = durations[cut:], samples[cut:]
    batches = next((b for b in _BATCHES if len(durations) >= b * _STEPS_PER_BATCH), None)
    if batches is None:
        return None
    edges = [len(durations) * i // batches for i in range(batches + 1)]
    seconds = [math.fsum(durations[a:b]) * width for a, b in pairwise(edges)]
    rates = [sum(samples[a:b]) / s for (a, b), s in zip(pairwise(edges), seconds, strict=True) if s > 0]
    if len(rates) < batches:
        return None
    mean = math.fsum(rates) / batches
    half = _BATCHES[batches] * math.sqrt(math.fsum((r - mean) ** 2 for r in rates) / (batches - 1) / batches)
    centre = sum(samples) / math.fsum(seconds)
    return centre - half, centre + half
