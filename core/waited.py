"""What ranks wait for within their steps that is no step of another: it evaluates or saves, and they do not, or not as long."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import NamedTuple

from msgspec import structs

from distmon.core.intervals import Interval, rate_interval
from distmon.core.measures import Throughput, current_generation, steady_totals, step_series, steps_set_aside, throughput
from distmon.core.quantiles import median
from distmon.core.state import SessionState, Span
from distmon.core.steps import Generation, JobSeries, RankSteps

_LEAST_WAITED = 0.005
"""Less than that is how evenly all evaluate."""
_APART = 0.5
"""Of a usual step: spans of ranks that lie so far apart, or farther, have a step between them."""
_LEAST_LEFT = 0.3
"""Of a usual step: no step takes less once the wait is taken off, or it was another that was waited in."""
SPANS_WAITED_FOR = ("evaluation", "checkpoint")


@dataclass(slots=True)
class _Occasion:
    """What ranks evaluated and saved between two steps."""

    begun_s: float
    """Since the first step ended on the rank that began: clocks of nodes may differ. Infinite of what is known as sums alone."""
    until_s: float
    spans: dict[str, dict[int, float]] = field(default_factory=dict)
    """Kind -> rank -> seconds."""
    counts: bool = True
    """Whether it lengthens one of the steps that count."""

    def waited(self, ranks: Iterable[int]) -> Iterator[tuple[str, int, float]]:
        """(kind, rank, seconds for which it waited for the one whose spans took longest).

        One that saves while another evaluates is waited for no longer than the longer of the two takes.
        """
        longest = {kind: max(own.values()) for kind, own in self.spans.items()}
        if len(longest) == 1:
            for kind, own in self.spans.items():
                yield from ((kind, number, longest[kind] - own.get(number, 0.0)) for number in ranks)
            return
        sums = {number: math.fsum(own.get(number, 0.0) for own in self.spans.values()) for number in ranks}
        most = max(sums.values())
        for number, spent in sums.items():
            found = {kind: longest[kind] - own.get(number, 0.0) for kind, own in self.spans.items()}
            whole = math.fsum(found.values())
            share = min(1.0, (most - spent) / whole) if whole > 0 else 0.0
            yield from ((kind, number, seconds * share) for kind, seconds in found.items())

    @property
    def seconds(self) -> float:
        """Of its spans, added up over ranks."""
        return math.fsum(seconds for own in self.spans.values() for seconds in own.values())


class _Kept(NamedTuple):
    """What was found in a generation, for as long as no step and no span is added; only speed depends on it."""

    series: JobSeries
    """Stands for the generation: holding that would keep all of its steps alive."""
    told: tuple[int, int, Span | None]
    """Batches of steps, spans, and the last of them."""
    occasions: list[_Occasion]
    waited: dict[str, dict[int, float]]


_kept: dict[int, _Kept] = {}
_MOST = 4
"""Generations of which it is kept."""


def waited_for_spans_s(state: SessionState, generation: Generation) -> dict[str, dict[int, float]]:
    """Kind of span -> seconds of its steps in which each rank waited for the one whose were longest.

    Empty where `waits_untold`.

    The longer one cuts them out of its own step, and comes so much later to the allreduce. Ranks may do so by turns. What comes
    after the last step of any rank is waited for in none, what comes before the steps that count in those that are set aside.
    It is not to be changed.
    """
    if not generation.ranks or waits_untold(state):
        return {}
    return _found(state, generation).waited


def waits_untold(state: SessionState) -> bool:
    """Whether not all spans are kept one by one, and there are several generations that they may be of."""
    return len(state.spans) == state.spans.maxlen and sum(bool(known.ranks) for known in state.generations.values()) > 1


def _found(state: SessionState, generation: Generation) -> _Kept:
    series, told = generation.series, (generation.told, len(state.spans), state.spans[-1] if state.spans else None)
    known = _kept.get(id(series))
    if known is not None and known.series is series and known.told == told:
        return known
    waited = {kind: dict.fromkeys(generation.ranks, 0.0) for kind in SPANS_WAITED_FOR}
    occasions = _occasions(state, generation)
    for occasion in occasions:
        if occasion.counts:
            for kind, number, seconds in occasion.waited(generation.ranks):
                waited[kind][number] += seconds
    _kept.pop(id(series), None)
    for old in list(_kept)[: len(_kept) + 1 - _MOST]:
        _kept.pop(old, None)
    found = _kept[id(series)] = _Kept(series, told, occasions, waited)
    return found


def _occasions(state: SessionState, generation: Generation) -> list[_Occasion]:
    """In order; the spans of a very long job that are not kept one by one are one that comes last."""
    ranks, by_rank, aside = generation.ranks, _spans_by_rank(state), steps_set_aside(generation)
    if not by_rank and len(state.spans) < (state.spans.maxlen or 0):
        return []
    first_ends = {number: (made.first_start or 0.0) + (made.first_duration_s or 0.0) for number, made in ranks.items()}
    settled = min(_settled_at(made, aside, by_rank.get(number, [])) - first_ends[number] for number, made in ranks.items())
    last = min((made.last_end or 0.0) - first_ends[number] for number, made in ranks.items())
    apart = _APART * min(made.usual_step_s() for made in ranks.values())
    told = [
        (span.started - first_ends[rank], rank, span)
        for rank, made in ranks.items()
        for span in by_rank.get(rank, ())
        if (made.first_start or 0.0) <= span.started <= (made.last_end or 0.0)
    ]
    occasions: list[_Occasion] = []
    for begun, number, span in sorted(told, key=itemgetter(0, 1)):
        if not occasions or begun > occasions[-1].until_s + apart:
            occasions.append(_Occasion(begun, begun))
        occasion = occasions[-1]
        occasion.until_s = max(occasion.until_s, begun + span.duration_s)
        own = occasion.spans.setdefault(span.span, {})
        own[number] = own.get(number, 0.0) + span.duration_s
    for occasion in occasions:
        occasion.counts = settled - apart <= occasion.begun_s and occasion.until_s <= last
    if len(state.spans) == state.spans.maxlen:
        occasions.append(_Occasion(math.inf, math.inf, _not_kept(state, generation, by_rank)))
    return occasions


def _not_kept(state: SessionState, generation: Generation, by_rank: dict[int, list[Span]]) -> dict[str, dict[int, float]]:
    """Seconds by kind and rank of the spans that went before those that are kept one by one."""
    kept = defaultdict[tuple[str, int], float](float)
    for number, spans in by_rank.items():
        for span in spans:
            kept[span.span, number] += span.duration_s
    return {
        kind: {number: max(_told(state, number, kind) - kept[kind, number], 0.0) for number in generation.ranks}
        for kind in SPANS_WAITED_FOR
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


def steady_speed(
    state: SessionState, generation: Generation, entries: int | None = None, faster: float | None = None
) -> Interval | float | None:
    """Samples/s after warm-up without that wait, of the first `entries` of the series; with an interval where they are enough.
    None where no time passed or no sample was trained.

    `faster` is `without_wait` as it was found before. None of the interval's width is of how seldom another evaluates.
    """
    width = generation.series.width
    cut = steps_set_aside(generation) // width
    durations, counts = (column[cut:entries] for column in step_series(generation))
    if (seconds := math.fsum(durations) * width) <= 0 or sum(counts) <= 0:
        return None
    faster = without_wait(state, generation) if faster is None else faster
    speed = sum(counts) / seconds * faster
    if faster > 1:
        durations = _without_waits(state, generation)[cut:entries]
    interval = rate_interval(counts, [d * width for d in durations])
    return speed if interval is None else _centred(interval, speed)


def _centred(interval: Interval, estimate: float) -> Interval:
    factor = estimate / interval.estimate
    return structs.replace(interval, estimate=estimate, low=interval.low * factor, high=interval.high * factor)


def _without_waits(state: SessionState, generation: Generation) -> list[float]:
    """The durations of `step_series` without what was waited, on the mean over ranks, where its step can be told."""
    series, width, ranks = step_series(generation)[0], generation.series.width, generation.ranks
    durations, usual = series[:], median(series) or 0.0
    occasions = _found(state, generation).occasions
    known = [occasion for occasion in occasions if occasion.begun_s < math.inf]
    # When an entry began, on the same clock as occasions.
    place, begun = 1, math.fsum(one.seconds for one in occasions[len(known) :]) / len(ranks)
    for occasion in known:
        while place < len(series) and begun < occasion.begun_s - _APART * usual:
            begun += series[place] * width
            place += 1
        begun += occasion.seconds / len(ranks)
        around = range(max(place - 1, 0), min(place + 2, len(series)))
        waited = math.fsum(seconds for *_, seconds in occasion.waited(ranks)) / len(ranks) / width
        held = max(around, key=lambda index: durations[index], default=None)
        if occasion.counts and held is not None and durations[held] - waited >= _LEAST_LEFT * usual:
            durations[held] -= waited
    return durations


def waited_by_rank(state: SessionState, generation: Generation) -> dict[int, float]:
    """Seconds of its steps in which each rank waited so, where that is more than how evenly all evaluate; else empty."""
    if not waited_share(state, generation):
        return {}
    kinds = waited_for_spans_s(state, generation).values()
    return {number: math.fsum(waited[number] for waited in kinds) for number in generation.ranks}


def _told(state: SessionState, number: int, kind: str) -> float:
    rank = state.ranks.get(number)
    return rank.span_totals.get(kind, 0.0) if rank is not None else 0.0
