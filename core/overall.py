"""Over the whole session: what each rank did in all its generations, and how sure the steady throughput is."""

from __future__ import annotations

from dataclasses import dataclass

from distmon.core.batches import PHASES
from distmon.core.intervals import rate_interval
from distmon.core.measures import Split, split, step_series, steps_set_aside, warmup
from distmon.core.quantiles import Quantiles
from distmon.core.state import SessionState
from distmon.core.steps import Generation, Totals


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
        step_median_s=None if (median_ns := durations.quantile(0.5)) is None else median_ns / 1e9,
        steady=split(steady),
        missing={
            **{phase: whole.steps - seen for phase, seen in zip(PHASES, whole.seen, strict=True)},
            "samples": whole.steps - whole.sampled_steps,
        },
    )


def throughput_interval(generation: Generation | None) -> tuple[float, float] | None:
    """95 % interval of the mean samples per second, over the steps that the mean itself is over.

    It says how well this run's mean is known, not how much another run would differ. None with too few steps.
    """
    if generation is None or not generation.series.sampled or warmup(generation).shape == "too_few_steps":
        return None
    durations, samples = step_series(generation)
    cut, width = steps_set_aside(generation) // generation.series.width, generation.series.width
    found = rate_interval(samples[cut:], [d * width for d in durations[cut:]])
    return None if found is None else (found.low, found.high)
