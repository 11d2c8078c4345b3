"""The recent steps of all ranks side by side, and what a step would have taken without something."""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from distmon.core.batches import USUAL, Int64s
from distmon.core.intervals import MIN_STEPS, mean_interval, student
from distmon.core.once import once
from distmon.core.quantiles import median, quantile
from distmon.core.steps import RECENT_STEPS, Generation, RankSteps

_ROWS = 4_096
_VARIES = 0.75
_MOST_COST = 2.0
"""Of what is waited for a late rank, all that it costs is taken to be no more than this."""
_WANDERS = 1.0
"""Percent of the step by which what a cure gains wanders in real jobs from one minute to the next, beyond what steps tell."""
_LEAST_STEPS = 16
"""Fewer steps are joined where there are many ranks to average over: about _ROWS steps of ranks."""


@dataclass(slots=True, frozen=True)
class JoinedStep:
    """One step of all ranks in ns: exposed communication and input wait by rank, in the order of `Joined.ranks`."""

    step: int
    duration: int
    waits: Sequence[int]
    inputs: Sequence[int]
    """0 where input was not seen."""


@dataclass(slots=True, frozen=True)
class Joined:
    ranks: list[int]
    steps: list[JoinedStep]


def joined(generation: Generation, since: int = 0) -> Joined:
    """The last steps, from `since` on, in which all ranks' communication was seen."""
    count = min(max(_ROWS // len(generation.ranks), _LEAST_STEPS), RECENT_STEPS)
    found = once(generation, _joined, count)
    return Joined(found.ranks, [step for step in found.steps if step.step >= since][-count:])


def _joined(generation: Generation, count: int) -> Joined:
    numbers = sorted(generation.ranks)
    rows = [_row(generation.ranks[number], count) for number in numbers]
    return Joined(numbers, _by_row([row for row in rows if row]) if all(rows) else _by_step(generation, numbers, count))


@dataclass(slots=True, frozen=True)
class _Row:
    """The last steps of a rank, one after the other, all known."""

    first: int
    durations: Int64s
    waits: Int64s
    inputs: Int64s

    def cut(self, column: Int64s, first: int, last: int) -> Int64s:
        return column[first - self.first : last + 1 - self.first]


def _row(rank: RankSteps, count: int) -> _Row | None:
    """None where the batches are not the usual ones, or steps are missing between them."""
    batches = rank.last_batches(count)[::-1]
    if not batches:
        return None
    first, expected = batches[0].first_step, batches[0].first_step
    durations, waits, inputs = array("I"), array("I"), array("I")
    for start, steps, _, _, columns, numbers in batches:
        if start != expected or columns != USUAL or numbers.typecode != "I":  # equal: a state that was read has its own
            return None
        durations += numbers[:steps]
        inputs += numbers[steps : 2 * steps]
        waits += numbers[3 * steps : 4 * steps]
        expected += steps
    return _Row(first, durations, waits, inputs)


def _by_row(rows: Sequence[_Row]) -> list[JoinedStep]:
    """The steps that all rows have, column by column: there may be a thousand rows."""
    first, last = max(row.first for row in rows), min(row.first + len(row.durations) for row in rows) - 1
    if last < first:
        return []
    durations = rows[0].cut(rows[0].durations, first, last)
    waits = zip(*(row.cut(row.waits, first, last) for row in rows), strict=True)
    inputs = zip(*(row.cut(row.inputs, first, last) for row in rows), strict=True)
    steps = zip(range(first, last + 1), durations, waits, inputs, strict=True)
    return [JoinedStep(*step) for step in steps if step[1] > 0]


def _by_step(generation: Generation, numbers: Sequence[int], count: int) -> list[JoinedStep]:
    columns: dict[int, tuple[int, list[int], list[int]]] = {}
    for number in numbers:
        for batch in generation.ranks[number].last_batches(count):
            inputs, durations = batch.column("input_wait_ns"), batch.durations_ns
            for i, wait in enumerate(batch.column("exposed_communication_ns") or ()):
                if wait is not None:
                    _, waits, waited = columns.setdefault(batch.first_step + i, (durations[i], [], []))
                    waits.append(wait)
                    waited.append((inputs[i] if inputs else 0) or 0)
    whole = [(step, row) for step, row in sorted(columns.items()) if len(row[1]) == len(numbers) and row[0] > 0]
    return [JoinedStep(step, *row) for step, row in whole]


def gain_of_cure(found: Joined, ranks: Collection[int], growth: tuple[float, float] | None) -> tuple[float, float] | None:
    """95 % interval, in percent of the step, of what is saved once ranks that were found late are so no more.

    A rank that keeps others waiting costs more than the wait: who slept wakes up slow, and the transfer takes longer. Therefore
    the interval reaches from `gain_without_lateness` up to the end of that of the step's `growth` since the lateness began, as a
    share of a step now, though to no more than twice as far as without; and jobs wander. None where there are no others.
    """
    gain = gain_without_lateness(found, ranks)
    if gain is None:
        return None
    low, high = _wandering(gain)
    if growth is None:
        return low, high
    return low, max(high, min(_wandering((100 * growth[0], 100 * growth[1]))[1], _MOST_COST * gain[1]))


def _wandering(percent: tuple[float, float]) -> tuple[float, float]:
    middle, reach = sum(percent) / 2, math.hypot((percent[1] - percent[0]) / 2, _WANDERS)
    return max(middle - reach, 0.0), min(middle + reach, 100.0)


def gain_without_lateness(found: Joined, ranks: Collection[int]) -> tuple[float, float] | None:
    """95 % interval, in percent of the step, of what would be saved if some ranks were no later than the others usually are.

    In each step each of them is moved forward by its mean lateness; the step then ends as much earlier as the last rank allows.
    None where there are no others.
    """
    own = [index for index, rank in enumerate(found.ranks) if rank in ranks]
    chosen = set(own)
    others = [[wait for index, wait in enumerate(step.waits) if index not in chosen] for step in found.steps]
    if not own or not found.steps or not others[0]:
        return None
    usual = [median(waits) or 0.0 for waits in others]
    late = [[middle - step.waits[i] for middle, step in zip(usual, found.steps, strict=True)] for i in own]
    shifts = [mean_band(values) for values in late]
    # A lateness that varies from step to step is not one shift: the rank being last may then cost up to all of its margins.
    least = [max(shift[0], 0.0) for shift in shifts if shift is not None]
    most = [
        math.inf if _varies(values) else max(shift[1], 0.0)
        for shift, values in zip(shifts, late, strict=True)
        if shift is not None
    ]
    if len(least) < len(own):
        return None

    def saved(by: Sequence[float]) -> list[float]:
        return [
            100 * (min(least_other, *(step.waits[i] + s for i, s in zip(own, by, strict=True))) - min(step.waits)) / step.duration
            for least_other, step in zip(map(min, others), found.steps, strict=True)
        ]

    low, high = mean_band(saved(least)), mean_band(saved(most))
    return None if low is None or high is None else _as_measured((low[0], high[1]), found)


def _varies(late: Sequence[float]) -> bool:
    """Whether the spread of a lateness is nearly as large as its mean, or larger."""
    mean = math.fsum(late) / len(late)
    return math.fsum((value - mean) ** 2 for value in late) / len(late) > (_VARIES * mean) ** 2


def gain_without_input(found: Joined) -> tuple[float, float] | None:
    """95 % interval, in percent of the step, of what would be saved if no rank waited for input: the last one then decides."""
    saved = [
        100 * min(wait - min(step.waits) + waited for wait, waited in zip(step.waits, step.inputs, strict=True)) / step.duration
        for step in found.steps
    ]
    return _as_measured(mean_band(saved), found)


def gain_without_transfer(found: Joined) -> tuple[float, float] | None:
    """95 % interval, in percent of the step, of what would be saved if the transfer were wholly hidden behind compute."""
    return _as_measured(mean_band([100 * min(step.waits) / step.duration for step in found.steps]), found)


def _as_measured(percent: tuple[float, float] | None, found: Joined) -> tuple[float, float] | None:
    """The interval for what equal looks before and after would show: the mean step of each has an error of its own."""
    durations = [float(step.duration) for step in found.steps]
    mean = mean_band(durations)
    if percent is None or mean is None:
        return None
    middle, half = sum(percent) / 2, (percent[1] - percent[0]) / 2
    error = 100 * (mean[1] - mean[0]) / 2 / (math.fsum(durations) / len(durations))
    reach = math.hypot(half, math.sqrt(2) * error)
    return max(middle - reach, 0.0), min(middle + reach, 100.0)


def mean_band(values: Sequence[float]) -> tuple[float, float] | None:
    """95 % interval of a mean; of fewer than MIN_STEPS values as if they were independent; None of fewer than 10."""
    n = len(values)
    if n < 10:
        return None
    if n >= MIN_STEPS and (found := mean_interval(values)) is not None:
        return found.low, found.high
    mean = math.fsum(values) / n
    half = student(n - 1) * math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1) / n)
    return mean - half, mean + half


def is_bursty(values: Sequence[float]) -> bool:
    """Whether few values hold most of the sum: the median is then less than half of the mean."""
    middle = quantile(sorted(values), 0.5)
    return middle is not None and middle < 0.5 * math.fsum(values) / len(values)
