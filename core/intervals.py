"""95 % intervals that cover what they say, for series whose neighbours are not independent and for runs that were repeated.

Within a run: the variance of the circular block bootstrap (Politis and Romano 1992) in closed form, so that no draws are needed
and live and replay agree. Calibrated in three steps: the block length follows the autocorrelation (Andrews 1991), the variance
that blocks of that length miss is added back, and Student's t stands for the number of blocks. A mean is also corrected for skew,
since a few stalls make it lopsided (Hall 1992, halved: the sample's skew is noise itself). docs/statistics.md has the coverage.

Between runs: Student's t on logarithms of one value per run. Steps of one run never stand for repeated runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Literal

from msgspec import Struct

from distmon.core.quantiles import median, quantile

MIN_STEPS = 50
"""Fewer steady steps carry no interval."""
MIN_RUNS = 3
"""Fewer runs say nothing of how runs differ."""

Basis = Literal["within this run", "between runs"]

_Z = 1.959963984540054
_STUDENT = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)
"""The 97.5 % points for 1 to 10 degrees of freedom."""
_TERMS = 100
"""Of a continued fraction, which needs about the square root of the degrees of freedom."""
_BLOCKS = 8
_LAGS = 200


class Interval(Struct, frozen=True, kw_only=True):
    """An estimate with its 95 % interval, all in the unit of what was measured.

    Where nothing says how well the estimate is known, the interval is the whole line, which JSON has as null.
    """

    estimate: float
    low: float
    high: float
    basis: Basis
    runs: int = 1
    degrees: float = math.inf
    """Degrees of freedom behind the interval."""
    effective_samples: float | None = None
    """Within a run: as many independent steps would know the value as well."""

    @property
    def known(self) -> bool:
        """Whether anything says how well the estimate is known."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def excludes(self, value: float) -> bool:
        """Whether a value lies outside."""
        return not self.low <= value <= self.high


def student(degrees: float) -> float:
    """The 97.5 % point of Student's t: a table for few degrees of freedom, Hill's series beyond."""
    if degrees >= len(_STUDENT):
        z3, z5 = _Z**3, _Z**5
        return _Z + (z3 + _Z) / (4 * degrees) + (5 * z5 + 16 * z3 + 3 * _Z) / (96 * degrees**2)
    whole = max(int(degrees), 1)
    share = (1 / whole - 1 / max(degrees, 1.0)) / (1 / whole - 1 / (whole + 1))
    upper = _STUDENT[whole] if whole < len(_STUDENT) else student(len(_STUDENT))
    return _STUDENT[whole - 1] + share * (upper - _STUDENT[whole - 1])


def student_tail(t: float, degrees: float) -> float:
    """The chance that Student's t lies farther from 0 than `t`, on either side."""
    if math.isinf(degrees):
        return math.erfc(abs(t) / math.sqrt(2))
    return _incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t))


def student_point(share: float, degrees: float) -> float:
    """Where a `share` from 0.5 to 1 of Student's t lies below, by halving; up to 1,000."""
    low, high = 0.0, 1_000.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if student_tail(middle, degrees) > 2 * (1 - share) else (low, middle)
    return high


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function: its continued fraction (Abramowitz and Stegun 26.5.8), from the far end on."""
    if not 0 < x < 1:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    fraction = 1.0
    for m in range(_TERMS, 0, -1):
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        fraction = 1 + even / (1 + odd / fraction)
    fraction = 1 - (a + b) * x / (a + 1) / fraction
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(scale) / a / fraction


def median_interval(values: Sequence[float]) -> Interval | None:
    """Of the median of a run's steps: order statistics, at a distance that the blocks' counts of steps below the median give."""
    n = len(values)
    if n < MIN_STEPS:
        return None
    ordered = sorted(values)
    centre = quantile(ordered, 0.5) or 0.0
    rho = _rank_correlation(values, centre)
    below = [float(v <= centre) for v in values]
    correlations = [2 / math.pi * math.asin(rho**lag) for lag in range(1, _LAGS)] if rho else []
    blocks = _Blocks(below, rho, correlations)
    half = student(blocks.degrees) * math.sqrt(blocks.variance_of_mean)
    return Interval(
        estimate=centre,
        low=quantile(ordered, max(0.5 - half, 0.0)) or 0.0,
        high=quantile(ordered, min(0.5 + half, 1.0)) or 0.0,
        basis="within this run",
        degrees=blocks.degrees,
        effective_samples=blocks.effective_samples,
    )


def mean_interval(values: Sequence[float]) -> Interval | None:
    """Of the mean of a run's steps."""
    if len(values) < MIN_STEPS:
        return None
    rho = _rank_correlation(values, median(values) or 0.0)
    mean = math.fsum(values) / len(values)
    return _around(mean, [v - mean for v in values], rho)


def rate_interval(samples: Sequence[float], seconds: Sequence[float]) -> Interval | None:
    """Of a throughput, the ratio of sums of a run's samples and seconds; by the inverse, whose errors are the steps' times."""
    total, time = math.fsum(samples), math.fsum(seconds)
    if len(seconds) < MIN_STEPS or total <= 0 or time <= 0:
        return None
    per_sample = time / total
    mean_samples = total / len(samples)
    errors = [(d - per_sample * s) / mean_samples for s, d in zip(samples, seconds, strict=True)]
    inverse = _around(per_sample, errors, _rank_correlation(errors, median(errors) or 0.0))
    if inverse.low <= 0:
        return None
    return Interval(
        estimate=total / time,
        low=1 / inverse.high,
        high=1 / inverse.low,
        basis="within this run",
        degrees=inverse.degrees,
        effective_samples=inverse.effective_samples,
    )


def over_runs(runs: Sequence[Interval | float]) -> Interval:
    """One value for repeated runs: their geometric mean, with Student's t between MIN_RUNS runs or more.

    With fewer, the interval is what the runs say of themselves, and is labelled so; it is not known where one of them says
    nothing. Values are positive, and there is at least one.
    """
    values = [r.estimate if isinstance(r, Interval) else r for r in runs]
    count = len(values)
    logs = [math.log(v) for v in values]
    mean = math.fsum(logs) / count
    if count >= MIN_RUNS:
        error = math.sqrt(math.fsum((v - mean) ** 2 for v in logs) / (count - 1) / count)
        half = student(count - 1) * error
        low, high = math.exp(mean - half), math.exp(mean + half)
        return Interval(estimate=math.exp(mean), low=low, high=high, basis="between runs", runs=count, degrees=count - 1)
    within = [r for r in runs if isinstance(r, Interval) and r.known]
    if len(within) < count:
        return _unknown(math.exp(mean), "within this run", count)
    below = math.sqrt(math.fsum(_log_errors(r)[0] ** 2 for r in within)) / count
    above = math.sqrt(math.fsum(_log_errors(r)[1] ** 2 for r in within)) / count
    degrees = min(r.degrees for r in within)
    t = student(degrees)
    return Interval(
        estimate=math.exp(mean),
        low=math.exp(mean - t * below),
        high=math.exp(mean + t * above),
        basis="within this run",
        runs=count,
        degrees=degrees,
    )


def ratio(base: Interval, other: Interval) -> Interval:
    """other / base of two positive values that were measured apart.

    The errors of the logarithms add up in squares, each side by itself (MOVER: Zou and Donner 2008), with the degrees of freedom
    of Welch. For one value per run that is Welch's test. Not known where that of a side is not.
    """
    basis: Basis = "between runs" if base.basis == other.basis == "between runs" else "within this run"
    runs = min(base.runs, other.runs)
    if not (base.known and other.known):
        return _unknown(other.estimate / base.estimate, basis, runs)
    base_low, base_high = _log_errors(base)
    other_low, other_high = _log_errors(other)
    below, above = math.hypot(other_low, base_high), math.hypot(other_high, base_low)
    parts = [(max(base_low, base_high) ** 2, base.degrees), (max(other_low, other_high) ** 2, other.degrees)]
    spread = math.fsum(v * v / degrees for v, degrees in parts)
    degrees = math.fsum(v for v, _ in parts) ** 2 / spread if spread > 0 else math.inf
    t, estimate = student(degrees), other.estimate / base.estimate
    return Interval(
        estimate=estimate,
        low=estimate * math.exp(-t * below),
        high=estimate * math.exp(t * above),
        basis=basis,
        runs=runs,
        degrees=degrees,
    )


def _unknown(estimate: float, basis: Basis, runs: int) -> Interval:
    return Interval(estimate=estimate, low=-math.inf, high=math.inf, basis=basis, runs=runs)


def relative_error(interval: Interval) -> float:
    """Standard error of an estimate as a share of it, the greater of its two sides; infinite where it is not known."""
    return max(_log_errors(interval))


def _log_errors(interval: Interval) -> tuple[float, float]:
    """Standard errors of the logarithm, to below and to above."""
    t = student(interval.degrees)
    tiny = 1e-12 * interval.estimate
    below = math.log(interval.estimate / max(interval.low, tiny)) / t
    return below, math.log(max(interval.high, interval.estimate) / interval.estimate) / t


class _Blocks:
    """Variance of a mean by circular blocks, `correlations` being those of the series from lag 1 on."""

    def __init__(self, values: Sequence[float], rho: float, correlations: Sequence[float]) -> None:
        n = len(values)
        self.length = length = _block_length(rho, n)
        mean = math.fsum(values) / n
        centred = [v - mean for v in values]
        self.sums = list(_circular_sums(centred, length))
        raw = math.fsum(s * s for s in self.sums) / n / length * n / (n - length)
        full = 1 + 2 * math.fsum(correlations)
        within = 1 + 2 * math.fsum((1 - lag / length) * c for lag, c in enumerate(correlations[: length - 1], 1))
        self.variance_of_mean = raw * max(full / within, 1.0) / n
        self.degrees = 1.5 * n / length - 1
        own = math.fsum(c * c for c in centred) / n
        self.effective_samples = own / self.variance_of_mean if self.variance_of_mean > 0 else float(n)

    def skew_of_mean(self) -> float:
        """Skewness of the mean, from that of the blocks' sums."""
        n = len(self.sums)
        second = math.fsum(s * s for s in self.sums) / n
        if second <= 0:
            return 0.0
        third = math.fsum(s * s * s for s in self.sums) / n
        return third / (second * math.sqrt(second)) * math.sqrt(self.length / n)


def _around(estimate: float, errors: Sequence[float], rho: float) -> Interval:
    """An interval around a mean, given each step's error."""
    first = _lag_one(errors)
    share = min((first + 1 / len(errors)) / rho, 1.0) if rho else 0.0
    blocks = _Blocks(errors, rho, [share * rho**lag for lag in range(1, _LAGS)] if rho else [])
    error, t, skew = math.sqrt(blocks.variance_of_mean), student(blocks.degrees), blocks.skew_of_mean() / 2
    return Interval(
        estimate=estimate,
        low=estimate - error * _unskewed(t, skew),
        high=estimate - error * _unskewed(-t, skew),
        basis="within this run",
        degrees=blocks.degrees,
        effective_samples=blocks.effective_samples,
    )


def _unskewed(t: float, skew: float) -> float:
    """The quantile of a studentised mean whose errors are skewed: the inverse of Hall's cubic transformation."""
    if abs(skew) < 1e-9:
        return t
    return 3 / skew * (math.cbrt(1 + skew * (t - skew / 6)) - 1)


def _circular_sums(values: Sequence[float], length: int) -> Iterator[float]:
    """Sums of all blocks of a length; the series goes on from its start."""
    sums = [0.0, *accumulate([*values, *values[:length]])]
    for start in range(len(values)):
        yield sums[start + length] - sums[start]


def _block_length(rho: float, n: int) -> int:
    """Andrews' plug-in for a first-order autoregression, at least the cube root of n, at most what leaves _BLOCKS blocks."""
    alpha = 4 * rho**2 / (1 - rho**2) ** 2
    best = max(round(1.1447 * math.cbrt(alpha * n)), round(math.cbrt(n)))
    return max(min(best, n // _BLOCKS), 1)


def _rank_correlation(values: Sequence[float], centre: float) -> float:
    """Lag-1 autocorrelation from which neighbours lie on the same side of the median, which stalls do not dilute; 0 to 0.95."""
    signs = [1.0 if v > centre else -1.0 for v in values]
    rho = math.sin(math.pi / 2 * max(min(_lag_one(signs, floor=-1.0), 1.0), -1.0))
    rho += (1 + 4 * rho) / len(values)
    return min(rho, 0.95) if rho > 0.05 else 0.0


def _lag_one(values: Sequence[float], floor: float = 0.0) -> float:
    mean = math.fsum(values) / len(values)
    centred = [v - mean for v in values]
    variance = math.fsum(c * c for c in centred)
    return max(math.fsum(a * b for a, b in pairwise(centred)) / variance, floor) if variance > 0 else 0.0
