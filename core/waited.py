"""What ranks wait for within their steps that is no step of another: it evaluates or saves, and they do not, or not as long."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace

from msgspec import structs

from distmon.core.intervals import Interval
from distmon.core.measures import Throughput, current_generation, steady_totals, steps_set_aside, throughput
from distmon.core.state import SessionState, Span
from distmon.core.steps import Generation, RankSteps

_LEAST_WAITED = 0.005
"""Less than that is how evenly all evaluate."""
SPANS_WAITED_FOR = ("evaluation", "checkpoint")


def waited_for_spans_s(state: SessionState, generation: Generation) -> dict[str, dict[int, float]]:
    """Kind of span -> seconds of its steps in which each rank waited for the one whose were longest; empty of elastic jobs.

    The longer one cuts them out of its own step, and comes so much later to the allreduce. What comes after the last step of
    any rank is waited for in none, what comes before the steps that count in those that are set aside.
    """
    ends = [made.last_end for made in generation.ranks.values() if made.last_end is not None]
    if sum(bool(known.ranks) for known in state.generations.values()) != 1 or not ends:
        return {}
    last, outside = min(ends), defaultdict[tuple[str, int], float](float)
    aside = steps_set_aside(generation)
    for number, spans in _spans_by_rank(state).items():
        begins = _settled_at(generation.ranks[number], aside, spans) if number in generation.ranks else 0.0
        for span in spans:
            if span.started + span.duration_s > last or span.started < begins:
                outside[span.span, number] += span.duration_s
    spent = {
        kind: [max(_told(state, number, kind) - outside.get((kind, number), 0.0), 0.0) for number in generation.ranks]
        for kind in SPANS_WAITED_FOR
    }
    waited = {kind: [max(seconds) - one for one in seconds] for kind, seconds in spent.items()}
    # One that saves while another evaluates is waited for no longer than the longer of the two takes.
    sums = [math.fsum(rank) for rank in zip(*spent.values(), strict=True)]
    found = [math.fsum(rank) for rank in zip(*waited.values(), strict=True)]
    shares = [min(1.0, (max(sums) - own) / waits) if waits > 0 else 0.0 for own, waits in zip(sums, found, strict=True)]
    return {
        kind: {number: one * share for number, one, share in zip(generation.ranks, seconds, shares, strict=True)}
        for kind, seconds in waited.items()
    }


def _spans_by_rank(state: SessionState) -> dict[int, list[Span]]:
    found = defaultdict[int, list[Span]](list)
    for span in state.spans:
        if span.span in SPANS_WAITED_FOR:
            found[span.rank].append(span)
    return found


def _settled_at(made: RankSteps, aside: int, spans: list[Span]) -> float:
    """When the first step of a rank began that is not set aside: what is waited for before lengthens none of those that count."""
    begun = made.first_start or 0.0
    at = begun + (made.totals.duration_ns - made.steady(aside).duration_ns) / 1e9
    for span in spans:
        if begun <= span.started < at:
            at += span.duration_s
    return at


def mean_waited_s(state: SessionState, generation: Generation) -> float:
    """The same of all kinds, mean over ranks."""
    found = waited_for_spans_s(state, generation).values()
    return math.fsum(seconds for waited in found for seconds in waited.values()) / len(generation.ranks)


def waited_share(state: SessionState, generation: Generation) -> float:
    """Of the steady steps' time, mean over ranks: waiting for one that evaluates or saves meanwhile, which is no training."""
    steady = steady_totals(generation).duration_ns / 1e9 / len(generation.ranks)
    share = mean_waited_s(state, generation) / steady if steady > 0 else 0.0
    return share if _LEAST_WAITED <= share < 1 else 0.0


def steady_throughput(state: SessionState) -> Throughput:
    """Of the current generation: its mean is over the steps without that wait, as speedups are."""
    generation = current_generation(state)
    found = throughput(generation)
    if generation is None or found.mean is None:
        return found
    return replace(found, mean=found.mean * without_wait(state, generation))


def without_wait(state: SessionState, generation: Generation) -> float:
    """How many times as fast the steps are without that wait as they are with it."""
    return 1 / (1 - waited_share(state, generation))


def faster(speed: Interval | float, factor: float) -> Interval | float:
    """So many times the speed."""
    if not isinstance(speed, Interval):
        return speed * factor
    return structs.replace(speed, estimate=speed.estimate * factor, low=speed.low * factor, high=speed.high * factor)


def waited_by_rank(state: SessionState, generation: Generation) -> dict[int, float]:
    """Seconds of its steps in which each rank waited so, where that is more than how evenly all evaluate; else empty."""
    if not waited_share(state, generation):
        return {}
    kinds = waited_for_spans_s(state, generation).values()
    return {number: math.fsum(waited[number] for waited in kinds) for number in generation.ranks}


def _told(state: SessionState, number: int, kind: str) -> float:
    rank = state.ranks.get(number)
    return rank.span_totals.get(kind, 0.0) if rank is not None else 0.0
