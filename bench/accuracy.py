"""The tables of docs/statistics.md: warm-up beside MSER-5, Geweke and PELT as warmup_stats uses it, and the cover of intervals.

python bench/accuracy.py [--seeds 40] [--trials 400] > tables.md
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from distmon.core.intervals import Interval, mean_interval, median_interval, over_runs, rate_interval, ratio
from distmon.core.scaling import Point, scaling
from distmon.core.step_series import LENGTHS, NOISES, SHAPES, series
from distmon.core.warmup import find_warmup

Cut = Callable[[Sequence[float]], int | None]
"""The first steady step; None for no steady state."""


def ours(values: Sequence[float]) -> int | None:
    return find_warmup(values).steady_from


def mser5(values: Sequence[float]) -> int | None:
    """White (1997): the cut, in batches of five and within the first half, with the least standard error of what remains."""
    means = [math.fsum(values[i : i + 5]) / 5 for i in range(0, len(values) - 4, 5)]
    total, squares = math.fsum(means), math.fsum(m * m for m in means)
    best, cut = math.inf, 0
    for d in range(len(means) // 2 + 1):
        left = len(means) - d
        spread = max(squares - total * total / left, 0.0) / left**2
        if spread < best:
            best, cut = spread, d
        total -= means[d]
        squares -= means[d] ** 2
    return 5 * cut


def geweke(values: Sequence[float]) -> int | None:
    """Geweke (1992): tenths are cut until the first tenth and the second half agree (|z| < 1.96), by batch means."""
    n = len(values)
    for cut in range(0, n // 2, max(n // 20, 1)):
        rest = values[cut:]
        first, last = rest[: len(rest) // 10], rest[len(rest) // 2 :]
        if len(first) < 2:
            break
        error = math.hypot(_batch_error(first), _batch_error(last))
        if error > 0 and abs(statistics.fmean(first) - statistics.fmean(last)) / error < 1.96:
            return cut
    return None


def _batch_error(values: Sequence[float]) -> float:
    """Standard error of a mean by up to ten batches."""
    count = min(10, len(values))
    edges = [len(values) * i // count for i in range(count + 1)]
    means = [statistics.fmean(values[a:b]) for a, b in pairwise(edges)]
    return statistics.stdev(means) / math.sqrt(count)


def warmup_stats(values: Sequence[float]) -> int | None:
    """Barrett et al. (2017): PELT on mean and variance with a penalty of 15 ln n, outliers cut off at 3 (P90 - P10) of 200 steps.

    Segments are equal within the larger of the last one's variance and 1 ms; the last 500 steps (half, if fewer) must be steady.
    """
    n = len(values)
    calm = list(values)
    for start in range(0, n, 200):
        window = sorted(values[start : start + 200])
        reach = 3 * (window[int(0.9 * (len(window) - 1))] - window[int(0.1 * (len(window) - 1))])
        centre = window[len(window) // 2]
        calm[start : start + 200] = [min(max(v, centre - reach), centre + reach) for v in values[start : start + 200]]
    starts = _pelt_mean_and_variance(calm, 15 * math.log(n))
    segments = [calm[a:b] for a, b in pairwise([*starts, n])]
    last = statistics.fmean(segments[-1])
    same = max(statistics.pvariance(segments[-1]), 0.001)
    index = len(segments) - 1
    while index > 0 and abs(statistics.fmean(segments[index - 1]) - last) <= same:
        index -= 1
    return None if starts[index] > n - min(500, n // 2) else starts[index]


def _pelt_mean_and_variance(values: Sequence[float], penalty: float) -> list[int]:
    n = len(values)
    sums, squares = [0.0], [0.0]
    for v in values:
        sums.append(sums[-1] + v)
        squares.append(squares[-1] + v * v)

    def cost(a: int, b: int) -> float:
        size = b - a
        variance = (squares[b] - squares[a] - (sums[b] - sums[a]) ** 2 / size) / size
        return size * (math.log(2 * math.pi * max(variance, 1e-10)) + 1)

    best, previous, candidates = [-penalty] + [math.inf] * n, [0] * (n + 1), [0]
    for end in range(2, n + 1):
        options = [(best[start] + cost(start, end), start) for start in candidates if end - start >= 2]
        value, previous[end] = min(options)
        best[end] = value + penalty
        candidates = [c for c in candidates if end - c < 2] + [start for found, start in options if found <= best[end]]
        if end >= 3:
            candidates.append(end - 1)
    starts, end = [], n
    while end > 0:
        starts.append(previous[end])
        end = previous[end]
    return starts[::-1]


METHODS: dict[str, Cut] = {"distmon": ours, "MSER-5": mser5, "Geweke": geweke, "warmup_stats": warmup_stats}


def warmup_table(seeds: int) -> Iterable[str]:
    """For each length and method: the share within the limit, the worst cell, no steady state found and falsely so."""
    yield "| steps | method | within limit | worst cell | no steady state found | falsely | CPU of a series |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for n in LENGTHS:
        limit = 0.015 if n < 200 else 0.005
        for name, method in METHODS.items():
            if n == 10_000 and method is warmup_stats:
                continue  # PELT finds nothing to prune in a level this long: minutes for each series
            yield _warmup_row(n, limit, name, method, seeds if n < 1_000 else max(seeds // 4, 2) if n < 10_000 else 2)


def _warmup_row(n: int, limit: float, name: str, method: Cut, seeds: int) -> str:
    cells: list[list[bool]] = []
    unsteady: list[bool] = []
    false: list[bool] = []
    seconds = []
    for shape in SHAPES:
        for noise in NOISES:
            near = []
            for seed in range(seeds):
                values, truth = series(shape, noise, n, seed)
                begun = time.process_time()
                cut = method(values)
                seconds.append(time.process_time() - begun)
                if truth.steady_from is None:
                    unsteady.append(cut is None)
                else:
                    false.append(cut is None)
                    best = statistics.median(values[truth.steady_from :])
                    near.append(cut is not None and abs(statistics.median(values[cut:]) / best - 1) <= limit)
            if near:
                cells.append(near)
    within, worst = _share(hit for cell in cells for hit in cell), min(_share(cell) for cell in cells)
    cpu = f"{1e3 * statistics.median(seconds):.1f} ms"
    return f"| {n:,} | {name} | {within:.1%} | {worst:.0%} | {_share(unsteady):.1%} | {_share(false):.1%} | {cpu} |"


def _share(hits: Iterable[bool]) -> float:
    known = list(hits)
    return sum(known) / len(known)


def noisy(n: int, rho: float, source: random.Random) -> list[float]:
    """Steps of 100 ms with 5 % of AR(1) noise, 3 % of them stalled to three times."""
    wander, values = source.gauss(0, 1), []
    for _ in range(n):
        wander = rho * wander + math.sqrt(1 - rho * rho) * source.gauss(0, 1)
        values.append(0.1 * math.exp(0.05 * wander) * (3 if source.random() < 0.03 else 1))
    return values


MEAN_STEP_S = 0.1 * math.exp(0.05**2 / 2) * 1.06
MEDIAN_STEP_S = 0.1 * math.exp(0.05 * statistics.NormalDist().inv_cdf(0.5 / 0.97))
_BATCH = 32.0
BLOCK_DRAWS = 300
_PLAIN_TRIALS = 100


def block_bootstrap(values: Sequence[float], source: random.Random) -> Interval:
    """What is usual: percentiles of the mean over circular blocks of the cube root of n, uncalibrated."""
    n, length = len(values), round(len(values) ** (1 / 3))
    twice = [*values, *values]
    sums = [math.fsum(twice[i : i + length]) for i in range(n)]
    means = sorted(statistics.fmean(source.choices(sums, k=n // length)) / length for _ in range(BLOCK_DRAWS))
    low, high = means[int(0.025 * BLOCK_DRAWS)], means[int(0.975 * BLOCK_DRAWS)]
    return Interval(estimate=statistics.fmean(values), low=low, high=high, basis="within this run")


def coverage_table(trials: int) -> Iterable[str]:
    """How often nominal 95 % intervals hold the truth."""
    yield "| steps | correlation | pairs of runs | median | throughput | speedup | ratio of medians | plain blocks, mean |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for n in (200, 1_000, 5_000):
        for rho in (0.0, 0.5, 0.8):
            yield _coverage_row(n, rho, trials if n < 5_000 else max(trials // 2, 50))


def _coverage_row(n: int, rho: float, trials: int) -> str:
    source = random.Random(f"{n} {rho}")
    hits, plain = [0, 0, 0, 0], list[bool]()
    for trial in range(trials):
        one, two = noisy(n, rho, source), noisy(n, rho, source)
        samples = [_BATCH] * n
        medians = median_interval(one), median_interval(two)
        rates = rate_interval(samples, one), rate_interval([2 * _BATCH] * n, two)
        assert medians[0] and medians[1] and rates[0] and rates[1] and mean_interval(one)
        hits[0] += not medians[0].excludes(MEDIAN_STEP_S)
        hits[1] += not rates[0].excludes(_BATCH / MEAN_STEP_S)
        hits[2] += not ratio(rates[0], rates[1]).excludes(2.0)
        hits[3] += not ratio(medians[0], medians[1]).excludes(1.0)
        if trial < _PLAIN_TRIALS:
            plain.append(not block_bootstrap(one, source).excludes(MEAN_STEP_S))
    cells = " | ".join(f"{hit / trials:.1%}" for hit in hits)
    return f"| {n:,} | {rho} | {trials} | {cells} | {_share(plain):.0%} |"


def scaling_table(trials: int) -> Iterable[str]:
    """How often the band of 90 % at twice the most ranks holds the truth; three runs with 3 % noise at 1 to 16 ranks.

    Scaling is said to be weak, so that Gustafson's law is tried too.
    """
    yield "| truth | law | in the band | refused |"
    yield "| --- | --- | --- | --- |"
    for truth, kappa in (("contention alone", 0.0), ("contention and coherence", 0.001)):
        inside: dict[str, list[bool]] = {"amdahl": [], "gustafson": [], "usl": []}
        for trial in range(trials):
            source = random.Random(f"{truth} {trial}")
            sigma = source.uniform(0, 0.08)
            points = [_point(n, sigma, kappa, source) for n in (1, 2, 4, 8, 16)]
            for found in scaling(points, "weak", seed=trial).fits:
                if found.law in inside and found.next_throughput is not None:
                    hit = found.next_throughput.low <= _usl(32, sigma, kappa) <= found.next_throughput.high
                    inside[found.law].append(hit)
        for law, hits in inside.items():
            inside_said = f"{_share(hits):.0%} of {len(hits)}" if hits else "never given"
            yield f"| {truth} | {law} | {inside_said} | {trials - len(hits)} of {trials} |"


def _usl(n: int, sigma: float, kappa: float) -> float:
    return 100 * n / (1 + sigma * (n - 1) + kappa * n * (n - 1))


def _point(n: int, sigma: float, kappa: float, source: random.Random) -> Point:
    return Point(ranks=n, throughput=over_runs([_usl(n, sigma, kappa) * math.exp(source.gauss(0, 0.03)) for _ in range(3)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=40, help="series of each shape and noise")
    parser.add_argument("--trials", type=int, default=1_000, help="pairs of runs for each cover")
    options = parser.parse_args()
    tables = {
        "Warm-up": warmup_table(options.seeds),
        "Cover of 95 % intervals": coverage_table(options.trials),
        "Next doubling": scaling_table(options.trials // 10),
    }
    for title, lines in tables.items():
        print(f"\n## {title}\n", flush=True)
        for line in lines:
            print(line, flush=True)


if __name__ == "__main__":
    main()
