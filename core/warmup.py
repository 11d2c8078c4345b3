"""Where warm-up ends and the steady state begins, found from the step times of a run.

Method: the leading run of outliers against what follows (compilation, caches, queued steps that look fast), then changepoints of
the mean of log step time (PELT: Killick et al., JASA 2012) after a Hampel filter that hides single stalls from the search.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from msgspec import Struct

from distmon.core.quantiles import median

MIN_STEPS = 10
METHOD = "leading outliers, then PELT changepoints of log step time"
_WINDOW = 51
_MAX_POINTS = 400
_SAME_LEVEL = 0.02
"""Segments whose medians agree within this share are one steady state."""
_MAD_TO_SIGMA = 1.4826

Shape = Literal["flat", "warmup", "slowdown", "no_steady_state", "too_few_steps"]


class Warmup(Struct, frozen=True, kw_only=True):
    """`steps` to set aside (None when there are too few to tell), their `duration_s`, and what they took beyond steady steps."""

    shape: Shape
    steps: int | None
    duration_s: float | None = None
    excess_s: float | None = None
    steady_step_s: float | None = None
    """Median of the steps after warm-up."""
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
    level_change, slower_later = _changepoint_warmup(logs[lead:])
    steps = lead + level_change
    if steps > n // 2:
        return Warmup(shape="no_steady_state", steps=None, leading_steps=lead)
    steady = median(durations[steps:]) or 0.0
    shape: Shape = "slowdown" if slower_later else "warmup" if steps else "flat"
    return Warmup(
        shape=shape,
        steps=steps,
        leading_steps=lead,
        duration_s=math.fsum(durations[:steps]),
        excess_s=math.fsum(d - steady for d in durations[:steps]),
        steady_step_s=steady,
        stalls=sum(d > 3 * steady for d in durations[steps:]),
    )


def _leading_outliers(logs: list[float]) -> int:
    """How many steps at the start differ from the window that follows each; the run ends at three that do not."""
    end = calm = 0
    for i, value in enumerate(logs[:-3]):
        ahead = logs[i + 1 : i + 1 + _WINDOW]
        centre, spread = _centre_and_spread(ahead)
        if abs(value - centre) > max(5 * spread, math.log(1.1)):
            end, calm = i + 1, 0
        else:
            calm += 1
            if calm == 3:
                break
    return end


def _centre_and_spread(values: Sequence[float]) -> tuple[float, float]:
    centre = median(values) or 0.0
    return centre, _MAD_TO_SIGMA * (median(abs(v - centre) for v in values) or 0.0)


def _changepoint_warmup(logs: list[float]) -> tuple[int, bool]:
    """Steps before the last level is reached from a slower one, and whether the run instead slows down later."""
    width = max(1, math.ceil(len(logs) / _MAX_POINTS))
    points = [median(logs[i : i + width]) or 0.0 for i in range(0, len(logs), width)]
    if len(points) < 2 * MIN_STEPS:
        return 0, False
    points = _hampel(points)
    starts = _pelt(points)
    levels = [median(points[a:b]) or 0.0 for a, b in zip(starts, [*starts[1:], len(points)], strict=True)]
    first = len(levels) - 1
    while first > 0 and abs(levels[first - 1] - levels[-1]) <= _SAME_LEVEL:
        first -= 1
    before = levels[:first]
    if not before:
        return 0, False
    if before[-1] < levels[-1]:
        return 0, True
    return min(starts[first] * width, len(logs)), False


def _hampel(points: list[float]) -> list[float]:
    """Replaces points over 4 robust sigmas from the median of their window by that median."""
    half = _WINDOW // 2
    filtered = []
    for i, value in enumerate(points):
        centre, spread = _centre_and_spread(points[max(0, i - half) : i + half + 1])
        filtered.append(centre if abs(value - centre) > 4 * spread else value)
    return filtered


def _pelt(points: list[float]) -> list[int]:
    """Starts of the segments of constant mean that minimise squared error plus a penalty per changepoint.

    The penalty is 3 ln n times the noise variance, scaled for autocorrelation.
    """
    n = len(points)
    differences = [b - a for a, b in pairwise(points)]
    sigma = max(_centre_and_spread(differences)[1] / math.sqrt(2), 1e-4)
    penalty = 3 * math.log(n) * sigma**2 * _autocorrelation_factor(points[n // 2 :])
    sums, squares = [0.0], [0.0]
    for value in points:
        sums.append(sums[-1] + value)
        squares.append(squares[-1] + value * value)

    def cost(a: int, b: int) -> float:
        return squares[b] - squares[a] - (sums[b] - sums[a]) ** 2 / (b - a)

    best, previous, candidates = [-penalty] + [math.inf] * n, [0] * (n + 1), [0]
    for end in range(3, n + 1):
        options = [(best[start] + cost(start, end), start) for start in candidates if end - start >= 3]
        value, previous[end] = min(options)
        best[end] = value + penalty
        candidates = [start for start in candidates if end - start < 3 or best[start] + cost(start, end) <= best[end]]
        if end >= 5:
            candidates.append(end - 2)
    starts, end = [], n
    while end > 0:
        starts.append(previous[end])
        end = previous[end]
    return starts[::-1]


def _autocorrelation_factor(points: list[float]) -> float:
    """(1 + rho) / (1 - rho) of lag 1, at least 1: correlated noise wanders, and must not look like levels."""
    mean = math.fsum(points) / len(points)
    centred = [p - mean for p in points]
    variance = math.fsum(c * c for c in centred)
    if variance == 0:
        return 1.0
    rho = math.fsum(a * b for a, b in pairwise(centred)) / variance
    rho = min(max(rho, 0.0), 0.9)
    return (1 + rho) / (1 - rho)
