"""Over the whole session: what each rank did in all its generations, and how sure the steady throughput is."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from distmon.core.batches import PHASES, Batch
from distmon.core.intervals import Interval
from distmon.core.measures import Split, current_generation, split, steps_set_aside, warmup, why_no_warmup
from distmon.core.quantiles import Quantiles, median
from distmon.core.state import SessionState
from distmon.core.steps import NEARLY_ALL_SAMPLED, RECENT_STEPS, Generation, RankSteps, Totals
from distmon.core.waited import steady_speed, waited_by_rank

_SAME_SIZE = 0.95
"""With so many of the known batches of one size, that size stands for all of a rank."""


@dataclass(slots=True, frozen=True)
class RankThroughput:
    """Samples per second of one rank after warm-up, over its generations of which warm-up could be told."""

    samples: int | None = None
    """All that it trained, warm-up included; None where the size of a batch was not seen."""
    mean: float | None = None
    """Samples over the time of their steps."""
    median: float | None = None
    """Over its batches."""
    reason: str = ""
    """Why there is no mean."""
    no_median: str = ""
    """Why there is a mean and no median."""


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
    step_median_error: float | None
    """Relative, of that median; 0 where it is exact."""
    steady: Split | None
    throughput: RankThroughput
    missing: dict[str, int]
    """Phase, or samples -> steps in which it was not seen, warm-up included."""


def rank_overalls(state: SessionState) -> list[RankOverall]:
    """Every rank that took part, in order."""
    generations = [state.generations[number] for number in sorted(state.generations)]
    skips = {g.number: steps_set_aside(g) if g.ranks else 0 for g in generations}
    waited = {g.number: waited_by_rank(state, g) for g in generations if g.ranks}
    numbers = sorted(state.ranks.keys() | {number for g in generations for number in g.ranks})
    return [_overall(state, number, generations, skips, waited) for number in numbers]


def _overall(
    state: SessionState, number: int, generations: list[Generation], skips: dict[int, int], waited: dict[int, dict[int, float]]
) -> RankOverall:
    taken = [g for g in generations if number in g.ranks]
    made = [(g.ranks[number], skips[g.number]) for g in taken]
    whole, steady, durations = Totals(), Totals(), Quantiles()
    for rank, skip in made:
        whole = whole.plus(rank.totals)
        steady = steady.plus(rank.steady(skip))
        durations.merge(rank.durations)
    known, median_ns = state.ranks.get(number), durations.quantile(0.5)
    return RankOverall(
        rank=number,
        host=known.host if known else "",
        steps=whole.steps,
        micro_batches=sum(rank.micro_batches for rank, _ in made),
        step_median_s=None if median_ns is None else median_ns / 1e9,
        step_median_error=None if median_ns is None else durations.relative_error,
        steady=split(steady),
        throughput=_throughput(number, taken, skips, waited),
        missing={
            **{phase: whole.steps - seen for phase, seen in zip(PHASES, whole.seen, strict=True)},
            "samples": whole.steps - whole.sampled_steps,
        },
    )


def _throughput(
    number: int, taken: list[Generation], skips: dict[int, int], waited: dict[int, dict[int, float]]
) -> RankThroughput:
    """Of the generations that it took part in; `waited`: generation -> rank -> seconds of its steps in which it waited for
    one that evaluates or saves alone.
    """
    if not taken:
        return RankThroughput(reason="it reported no step")
    totals = [g.ranks[number].totals for g in taken]
    if any(total.sampled_steps < NEARLY_ALL_SAMPLED * total.steps for total in totals):
        return RankThroughput(reason="the number of samples in a batch was not seen")
    samples = sum(total.samples for total in totals)
    settled = [g for g in taken if warmup(g).shape != "too_few_steps"]
    told = [(g.ranks[number], skips[g.number]) for g in settled]
    if not told:
        return RankThroughput(samples, reason=why_no_warmup(taken[-1]))
    steady = Totals()
    for rank, skip in told:
        steady = steady.plus(rank.steady(skip))
    if not steady.duration_ns:
        return RankThroughput(samples, reason="its steady steps took no time")
    if any(rank.summed_steps for rank, _ in told):
        usual, no_median = None, "its steps came as sums of about a second, which hide how single steps differ"
    else:
        usual = _median_rate(told)
        no_median = "" if usual is not None else "its batches differ in size, and single ones of so many steps are not kept"
    lasted_s, waited_s = steady.duration_ns / 1e9, math.fsum(waited[g.number].get(number, 0.0) for g in settled)
    trained_s = lasted_s - waited_s if waited_s < lasted_s else lasted_s
    mean = steady.samples * steady.steps / (steady.sampled_steps or 1) / trained_s
    return RankThroughput(samples, mean, usual, no_median=no_median)


def _median_rate(made: list[tuple[RankSteps, int]]) -> float | None:
    """The median of samples/s over steady batches, of ranks with the steps that each sets aside.

    From every batch where all are kept. Of more steps the usual size over the median step time, where a few batches at most have
    another size: the rates are then in the order of the times. Past the exact quantiles those times are of all steps.
    """
    kept = [(_kept_steps(rank), skip) for rank, skip in made]
    if all(len(steps) == rank.sums[0] for (steps, _), (rank, _) in zip(kept, made, strict=True)):
        told = (one for steps, skip in kept for step, one in steps.items() if step >= skip)
        return median(samples / ns * 1e9 for samples, ns in told if samples is not None and ns)
    sizes = Counter(samples for steps, _ in kept for samples, _ in steps.values() if samples is not None)
    if not sizes:
        return None
    size, times = sizes.most_common(1)[0]
    whole, steps = sum(rank.sums[2] for rank, _ in made), sum(rank.sums[3] for rank, _ in made)
    if times < _SAME_SIZE * sizes.total() or not _SAME_SIZE * size * steps <= whole <= size * steps / _SAME_SIZE:
        return None
    durations = Quantiles()
    for rank, skip in made:
        if rank.durations.bins:
            durations.merge(rank.durations)
        else:
            durations.extend(rank.durations.values[skip:])
    usual = durations.quantile(0.5)
    return size / usual * 1e9 if usual else None


def _kept_steps(rank: RankSteps) -> dict[int, tuple[int | None, int]]:
    """Of the steps that are kept one by one, the first and the last: place since its first -> (samples, nanoseconds)."""
    batches: Iterable[Batch] = (*rank.first_batches, *rank.last_batches(RECENT_STEPS))
    first = rank.first_batches[0].first_step if rank.first_batches else 0
    found: dict[int, tuple[int | None, int]] = {}
    for batch in batches:
        told = zip(batch.column("samples") or [None] * batch.steps, batch.durations_ns, strict=True)
        found.update(enumerate(told, batch.first_step - first))
    return found


def throughput_interval(state: SessionState) -> tuple[float, float] | None:
    """95 % interval of the current generation's mean samples per second (`steady_throughput`).

    It says how well this run's mean is known, not how much another run would differ. None with too few steps.
    """
    generation = current_generation(state)
    if generation is None or not generation.sampled or warmup(generation).shape == "too_few_steps":
        return None
    found = steady_speed(state, generation)
    return (found.low, found.high) if isinstance(found, Interval) else None
