"""Where warm-up ends and the steady state begins, found from the step times of a run.

Method: the leading run of outliers against what follows (compilation, caches, queued steps that look fast), then changepoints of
log step time (PELT: Killick et al., JASA 2012) on medians of bins that widen along the run, after a Hampel filter that hides
single stalls from the search. Classes are those of Barrett et al. (OOPSLA 2017). docs/statistics.md says how often it is right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from msgspec import Struct, structs

from distmon.core.quantiles import median, quantile

MIN_STEPS = 10
METHOD = "leading outliers, then PELT changepoints of log step time"
_WINDOW = 51
_HAMPEL = 11
_FINE = 64
"""The first steps are looked at one by one; later bins are a share of 1/_FINE of the steps before them."""
_SAME_LEVEL = 0.02
"""Segments whose medians agree within this share are one steady state."""
_SHORT = 200
"""In a run of fewer steps that share is larger in proportion: its noise wanders too far to be told from small steps."""
_SAME_ERRORS = 3.0
"""So are segments that differ by no more than this many standard errors of the difference."""
_DRIFT_LEVELS = 4
"""So many levels, each slower than the last, are a drift."""
_MAX_CORRELATION = 0.8
_SLACK = 0.1
"""The correlation that levels alone would feign is cut off at this much above what differences of steps allow."""
_FEW = 80
"""Of fewer steps the levels may pass for correlated noise, as their pieces hold one change or two."""
_WIDEST = 1 / math.sqrt(1 - _MAX_CORRELATION)
"""How many times as far as neighbours the steps of a correlated series may lie apart: those that lie farther have levels."""
_MAD_TO_SIGMA = 1.4826
_TENTHS_TO_SIGMA = 1 / 2.5631

Shape = Literal["flat", "warmup", "slowdown", "no_steady_state", "too_few_steps"]


class Warmup(Struct, frozen=True, kw_only=True):
    """`steps` to set aside (None when there are too few to tell), their `duration_s`, and what they took beyond steady steps."""

    shape: Shape
    steps: int | None
    duration_s: float | None = None
    excess_s: float | None = None
    steady_step_s: float | None = None
    """Median of the steady steps."""
    steady_from: int | None = None
    """The first steady step. After `steps` only for a slowdown: what was faster before is neither warm-up nor steady."""
    leading_steps: int = 0
    """Steps at the start that differ from all that follows: to be left out of means even where no steady state was found."""
    stalls: int = 0
    """Single steady steps over three times the median; they stay in the mean."""


def find_warmup(durations: Sequence[float]) -> Warmup:
    """Classifies a series of step times in seconds."""
    n = len(durations)
    if n < MIN_STEPS:
        return Warmup(shape="too_few_steps", steps=None)
    logs = [math.log(max(d, 1e-9)) for d in durations]
    lead = _leading_outliers(logs)
    if lead > n // 2:
        return Warmup(shape="no_steady_state", steps=None)
    shape, start = _last_level(logs[lead:])
    if shape == "no_steady_state" or (shape == "warmup" and lead + start > n // 2):
        return Warmup(shape="no_steady_state", steps=None, leading_steps=lead)
    steps = lead + start if shape == "warmup" else lead
    steady = median(durations[lead + start :]) or 0.0
    return Warmup(
        shape="warmup" if shape == "flat" and lead else shape,
        steps=steps,
        leading_steps=lead,
        duration_s=math.fsum(durations[:steps]),
        excess_s=math.fsum(d - steady for d in durations[:steps]),
        steady_step_s=steady,
        steady_from=lead + start,
        stalls=sum(d > 3 * steady for d in durations[steps:]),
    )


def of_merged(found: Warmup, width: int) -> Warmup:
    """In steps, what was found in a series of which each entry is the mean of `width` steps; a stall stays an entry."""
    return structs.replace(
        found,
        steps=None if found.steps is None else found.steps * width,
        duration_s=None if found.duration_s is None else found.duration_s * width,
        excess_s=None if found.excess_s is None else found.excess_s * width,
        steady_from=None if found.steady_from is None else found.steady_from * width,
        leading_steps=found.leading_steps * width,
    )


def _leading_outliers(logs: list[float]) -> int:
    """How many steps at the start differ from the window that follows each.

    It ends at three that do not, or at the first step already: a stall later on is no warm-up.
    """
    end = calm = 0
    for i, value in enumerate(logs[:-3]):
        ahead = logs[i + 1 : i + 1 + _WINDOW]
        centre, spread = _centre_and_spread(ahead)
        if abs(value - centre) > max(5 * spread, math.log(1.1)):
            end, calm = i + 1, 0
        else:
            calm += 1
            if calm == 3 or end == 0:
                break
    return end


def _centre_and_spread(values: Sequence[float]) -> tuple[float, float]:
    centre = median(values) or 0.0
    return centre, _MAD_TO_SIGMA * (median(abs(v - centre) for v in values) or 0.0)


def _last_level(logs: list[float]) -> tuple[Shape, int]:
    """What the levels of a series make of it, and the step from which the last one holds (0 for a drift, which has none)."""
    if len(logs) < 2 * MIN_STEPS:
        return "flat", 0
    own, factor = _noise(logs)
    found = _levels(logs, own, factor)
    apart = own * 2 / (factor + 1)  # half the variance of the difference of neighbours: own (1 - rho)
    if found[0] == "flat" and len(logs) < _FEW and _spread(logs, own) > _WIDEST * math.sqrt(apart):
        return _levels(logs, apart, 1.0)
    return found


def _spread(logs: list[float], own: float) -> float:
    """Standard deviation of the steps without their stalls, by the distance from the first to the last tenth."""
    ordered = sorted(_hampel(logs, [4 * math.sqrt(own)] * len(logs)))
    return _TENTHS_TO_SIGMA * ((quantile(ordered, 0.9) or 0.0) - (quantile(ordered, 0.1) or 0.0))


def _levels(logs: list[float], own: float, factor: float) -> tuple[Shape, int]:
    """`_last_level` for steps of such a variance, and such a factor by which that of sums is more than of independent steps."""
    starts, points, weights = _bins(logs)
    variance = own * factor
    calm = _hampel(points, [4 * math.sqrt(own / weight) for weight in weights])
    edges = [*_pelt(calm, weights, 3 * math.log(len(points)) * variance), len(points)]
    levels = [median(points[a:b]) or 0.0 for a, b in pairwise(edges)]
    sizes = [math.fsum(weights[a:b]) for a, b in pairwise(edges)]
    same, first = _SAME_LEVEL * max(1.0, _SHORT / len(logs)), len(levels) - 1
    while first > 0:
        error = math.sqrt(variance * (1 / sizes[first - 1] + 1 / math.fsum(sizes[first:])))
        if abs(levels[first - 1] - levels[-1]) > max(same, _SAME_ERRORS * error):
            break
        first -= 1
    start = starts[edges[first]]
    if first == 0:
        return "flat", 0
    if start > len(logs) // 2:
        drifting = first >= _DRIFT_LEVELS - 1 and all(a < b for a, b in pairwise(levels))
        return ("slowdown", 0) if drifting else ("no_steady_state", start)
    return ("slowdown" if levels[first - 1] < levels[-1] else "warmup"), start


def _bins(logs: list[float]) -> tuple[list[int], list[float], list[float]]:
    """(starts, medians, weights): the weight is the number of single steps whose mean would be known as well as the median."""
    starts, points, weights = [], [], []
    start = 0
    while start < len(logs):
        end = min(start + max(start // _FINE, 1), len(logs))
        starts.append(start)
        points.append(median(logs[start:end]) or 0.0)
        weights.append(1 + 2 / math.pi * (end - start - 1))
        start = end
    return starts, points, weights


def _noise(logs: list[float]) -> tuple[float, float]:
    """Variance of a step, and (1 + rho) / (1 - rho) for its correlation: such noise wanders, and must not look like levels.

    rho is how often neighbours within short pieces lie on the same side of the piece's median, but no more than differences two
    and three steps apart allow, which hardly see levels: VAR(x[t+k] - x[t]) = 2 VAR(x) (1 - rho^k).
    """
    n = len(logs)
    length = min(max(n // 4, 12), 50)
    pieces = [_without_stalls(logs[a : a + length]) for a in range(0, n - length + 1, max(length, n // 40))]
    same = pairs = 0
    for piece in pieces:
        middle = median(piece) or 0.0
        same += sum((a > middle) == (b > middle) for a, b in pairwise(piece))
        pairs += len(piece) - 1
    rho = math.sin(math.pi / 2 * (2 * same / pairs - 1))
    spreads = [
        median(abs(b - a) for piece in pieces for a, b in zip(piece, piece[lag:], strict=False)) or 0.0 for lag in (1, 2, 3)
    ]
    one, two, three = (max(_MAD_TO_SIGMA * spread, 1e-4) ** 2 for spread in spreads)
    farther = ((two / one - 1) + (math.sqrt(max(4 * three / one - 3, 0.0)) - 1) / 2) / 2
    rho = min(max(min(rho + (1 + 4 * rho) / length, farther + _SLACK), 0.0), _MAX_CORRELATION)
    return one / 2 / (1 - rho), (1 + rho) / (1 - rho)


def _without_stalls(piece: list[float]) -> list[float]:
    centre, spread = _centre_and_spread(piece)
    return [value for value in piece if abs(value - centre) <= 4 * spread]


def _hampel(points: list[float], limits: list[float]) -> list[float]:
    """Replaces points that lie further from the median of their window than their limit by that median."""
    half = _HAMPEL // 2
    filtered = []
    for i, value in enumerate(points):
        centre = median(points[max(0, i - half) : i + half + 1]) or 0.0
        filtered.append(centre if abs(value - centre) > limits[i] else value)
    return filtered


def _pelt(points: list[float], weights: list[float], penalty: float) -> list[int]:
    """Starts of the segments of constant mean that minimise weighted squared error plus a penalty per changepoint."""
    n = len(points)
    weight, sums, squares = [0.0], [0.0], [0.0]
    for value, w in zip(points, weights, strict=True):
        weight.append(weight[-1] + w)
        sums.append(sums[-1] + w * value)
        squares.append(squares[-1] + w * value * value)

    best = [-penalty, math.inf, math.inf]
    previous, candidates = [0] * (n + 1), [0]
    begun = [(-penalty, 0.0, 0.0)]  # of each candidate: the cost up to it less its square, its sum and its weight
    for end in range(3, n + 1):
        s, w = sums[end], weight[end]
        # The weighted squared error of a segment, written out: this is where a search spends its time.
        costs = [cost - (d := s - begin_sum) * d / (w - begin_weight) for cost, begin_sum, begin_weight in begun]
        least = min(costs)
        previous[end] = candidates[costs.index(least)]
        if max(costs) > least + penalty:
            kept = [i for i, cost in enumerate(costs) if cost <= least + penalty]
            candidates, begun = [candidates[i] for i in kept], [begun[i] for i in kept]
        best.append(least + squares[end] + penalty)
        if end >= 5:
            candidates.append(end - 2)
            begun.append((best[end - 2] - squares[end - 2], sums[end - 2], weight[end - 2]))
    starts, end = [], n
    while end > 0:
        starts.append(previous[end])
        end = previous[end]
    return starts[::-1]
