"""How a job scales with the number of ranks: speedups, Karp-Flatt's serial share, and the laws of Amdahl, Gustafson and USL.

The laws are fitted to throughput X (samples/s of all ranks) over N, each point weighted by its error, and bands come from fits to
points drawn anew from their errors. Repeated runs are taken to scatter alike, as a share, at every size: three runs alone say too
little of their scatter. A law that the points cannot carry is refused, with the reason.

    Amdahl      X = λN / (1 + s(N - 1))                    s: share of the work that does not get faster
    Gustafson   X = λ(N - s(N - 1))                        s: share of the time that does not grow with N
    USL         X = λN / (1 + σ(N - 1) + κN(N - 1))        σ: contention, κ: coherence; peak at √((1 - σ)/κ) (Gunther 2007)
    Karp-Flatt  e = (1/S - 1/N) / (1 - 1/N)                flat: a serial part; rising: overhead that grows (Karp and Flatt 1990)
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from distmon.core.intervals import Interval, ratio, relative_error, student
from distmon.core.quantiles import quantile

Law = Literal["amdahl", "gustafson", "usl"]
Kind = Literal["strong", "weak"]
DRAWS = 500
BAND = 0.90
_MIN_SIZES: dict[Law, int] = {"amdahl": 3, "gustafson": 3, "usl": 5}
_WIDEST = 0.5
"""A band for the next doubling that is wider than this share of its middle is no prediction."""
_MISFIT = 4.0
"""A law that misses a point by more than this many of its standard errors, and by more than _TOLERANCE, does not describe it."""
_TOLERANCE = 0.05


class Point(Struct, frozen=True, kw_only=True):
    """What one number of ranks reached: throughput in samples/s, all its runs together (distmon.core.intervals.over_runs)."""

    ranks: int
    throughput: Interval


class Speedup(Struct, frozen=True, kw_only=True):
    """A point against the smallest. Efficiency is speedup over the ratio of ranks; superlinear points are shown as they are."""

    ranks: int
    throughput: Interval
    speedup: Interval
    efficiency: float
    karp_flatt: tuple[float, float, float] | None
    """(low, estimate, high), infinite where the speedup has no interval; None for the smallest point, and where that one has
    more than one rank."""


class Band(Struct, frozen=True, kw_only=True):
    """A value with its band of 90 %."""

    estimate: float
    low: float
    high: float


class Fit(Struct, frozen=True, kw_only=True):
    """A law on the points. Where `refused` says why not, there are no parameters and no predictions."""

    law: Law
    refused: str = ""
    assumes: str = ""
    """What the law takes as given where the points leave it open: what it foresees is the most that can come then, and a growing
    overhead brings less."""
    parameters: dict[str, Band] = {}
    """`rate` λ in samples/s; `serial` s, or `contention` σ and `coherence` κ."""
    curve: list[tuple[float, Band]] = []
    """(ranks, throughput in samples/s), from the smallest size to the next doubling."""
    next_ranks: int | None = None
    next_throughput: Band | None = None
    next_gain: Band | None = None
    """Throughput at twice the ranks over that at the most ranks measured."""
    peak_ranks: float | None = None
    """USL: where throughput would be highest; None where that lies beyond twice the most ranks measured, or nowhere."""
    worst_residual: float | None = None
    """The greatest miss of a point, as a share of it."""


class Scaling(Struct, frozen=True, kw_only=True):
    """All that the points say, smallest size first."""

    kind: Kind | None
    speedups: list[Speedup]
    fits: list[Fit]
    basis: str
    """`between runs` only if every point has three runs or more."""


def scaling(points: Sequence[Point], kind: Kind | None = None, seed: int = 0) -> Scaling:
    """Speedups and fits of points of different sizes. The same points and seed give the same bands."""
    ordered = sorted(points, key=lambda p: p.ranks)
    apart = all(p.throughput.basis == "between runs" for p in ordered)
    return Scaling(
        kind=kind,
        speedups=[_speedup(ordered[0], point) for point in ordered],
        fits=_consistent([fit(law, ordered, seed) for law in _MIN_SIZES], kind, len({p.ranks for p in ordered})),
        basis="between runs" if apart and ordered else "within this run",
    )


def _consistent(fits: list[Fit], kind: Kind | None, sizes: int) -> list[Fit]:
    """The fits, with those refused that have no term for an overhead that grows, unless the points show that none does.

    Fewer sizes than the USL takes cannot show it: the two laws then say what they assume, and are bounds. N/X bends upwards where
    overhead grows, and so lies above the line that Amdahl's law draws on through the sizes measured (X below its curve).
    """
    usl = next(f for f in fits if f.law == "usl")
    few = sizes < _MIN_SIZES["usl"]
    return [f if f.refused or f is usl else _carried(f, usl, kind, few) for f in fits]


def _carried(found: Fit, usl: Fit, kind: Kind | None, few: bool) -> Fit:
    """The fit as far as the points carry it."""
    if (why := _other_kind(found.law, kind)) or (why := "" if few else _not_carried(found, usl)):
        return Fit(law=found.law, refused=why)
    if few:
        return replace(found, assumes=f"overhead does not grow with the ranks, which takes {_MIN_SIZES['usl']} sizes to show")
    return found


def _other_kind(law: Law, kind: Kind | None) -> str:
    """Why Gustafson's law is not of these runs; empty where it is, and for the other laws."""
    if law != "gustafson" or kind == "weak":
        return ""
    unsaid = ", which these runs are not known to be" * (kind is None)
    return f"this law is of weak scaling, where the work grows with the ranks{unsaid}"


def _not_carried(found: Fit, usl: Fit) -> str:
    """Why points that Amdahl's or Gustafson's law fits do not carry it; empty where they do.

    Both hold only if overhead does not grow with the ranks, which is taken as shown where the USL, which holds in both cases, is
    fitted and foresees the same. Amdahl's law is the USL with κ at 0: there each has to lie in the other's band.
    """
    ahead, wider = found.next_throughput, usl.next_throughput
    if ahead is None or wider is None:
        return f"the points leave open whether overhead grows with the ranks, which this law has no term for (USL: {usl.refused})"
    if usl.parameters["coherence"].low > 0:
        return "overhead grows with the ranks (κ of the USL is above 0), which this law has no term for"
    apart = found.law == "amdahl" and not ahead.low <= wider.estimate <= ahead.high
    if apart or not wider.low <= ahead.estimate <= wider.high:
        return f"for {found.next_ranks} ranks the USL, which holds also where overhead grows, foresees another throughput"
    return ""


def karp_flatt(speedup: float, ranks: int) -> float:
    """The serial share that Amdahl's law would need for this speedup over one rank; `ranks` is 2 or more."""
    return (1 / speedup - 1 / ranks) / (1 - 1 / ranks)


def _speedup(base: Point, point: Point) -> Speedup:
    found = ratio(base.throughput, point.throughput)
    if point is base:
        found = Interval(estimate=1.0, low=1.0, high=1.0, basis=found.basis, runs=found.runs)
    serial = None
    if base.ranks == 1 and point.ranks > 1:
        middle = karp_flatt(found.estimate, point.ranks)
        serial = -math.inf, middle, math.inf
        if found.known:
            serial = karp_flatt(found.high, point.ranks), middle, karp_flatt(found.low, point.ranks)
    return Speedup(
        ranks=point.ranks,
        throughput=point.throughput,
        speedup=found,
        efficiency=found.estimate * base.ranks / point.ranks,
        karp_flatt=serial,
    )


def fit(law: Law, points: Sequence[Point], seed: int = 0) -> Fit:
    """One law on points in order of size."""
    sizes = [p.ranks for p in points]
    if len(set(sizes)) < _MIN_SIZES[law]:
        return Fit(law=law, refused=f"takes {_MIN_SIZES[law]} numbers of ranks, there are {len(set(sizes))}")
    if unknown := [str(p.ranks) for p in points if not p.throughput.known]:
        lacking = f"too few steady steps at {', '.join(unknown)} ranks, and fewer than three runs"
        return Fit(law=law, refused=f"the points have no intervals: {lacking}")
    errors, degrees = _errors(points)
    if not any(errors):
        return Fit(law=law, refused="the points have no errors: repeat each size three times, or train for longer")
    values = [p.throughput.estimate for p in points]
    best = _solve(law, sizes, values, errors)
    if best is not None and law == "usl" and best[2] < 0 and (simpler := _solve("amdahl", sizes, values, errors)) is not None:
        best = [*simpler, 0.0]
    if best is None:
        return Fit(law=law, refused="throughput does not grow with ranks as this law would have it")
    misses = [value / _throughput(law, best, n) - 1 for n, value in zip(sizes, values, strict=True)]
    if (refused := _misfit(misses, errors, sizes)) is not None:
        return Fit(law=law, refused=refused)
    draws = _redrawn(law, sizes, values, errors, degrees, seed)
    return _described(law, sizes, best, draws, max(abs(m) for m in misses))


def _misfit(misses: Sequence[float], errors: Sequence[float], sizes: Sequence[int]) -> str | None:
    for miss, error, n in zip(misses, errors, sizes, strict=True):
        if abs(miss) > max(_MISFIT * error, _TOLERANCE):
            ranks = f"{n} rank{'s' * (n != 1)}"
            return f"misses the measured throughput at {ranks} by {miss:+.0%}, far beyond its error of {error:.1%}"
    return None


def _described(law: Law, sizes: Sequence[int], best: Sequence[float], draws: list[list[float]], worst: float) -> Fit:
    """The fit with its bands, or why they are too wide to be of use."""
    most, following = max(sizes), 2 * max(sizes)

    def band(value: Callable[[Sequence[float]], float]) -> Band:
        spread = sorted(value(parameters) for parameters in draws)
        low, high = quantile(spread, (1 - BAND) / 2), quantile(spread, (1 + BAND) / 2)
        return Band(estimate=value(best), low=low or 0.0, high=high or 0.0)

    ahead = band(lambda p: _throughput(law, p, following))
    if not 0 < ahead.low <= ahead.high < math.inf:
        return Fit(law=law, refused=f"the points are above ideal: this law has no throughput for {following} ranks")
    if ahead.high - ahead.low > _WIDEST * ahead.estimate:
        width = (ahead.high - ahead.low) / ahead.estimate
        return Fit(law=law, refused=f"the points leave {following} ranks open within {width:.0%}: more runs or sizes are needed")
    names = ("rate", "contention", "coherence") if law == "usl" else ("rate", "serial")
    parameters = {name: band(lambda p, i=i: p[i]) for i, name in enumerate(names)}  # type: ignore[misc]
    steps = [min(sizes) * (following / min(sizes)) ** (i / 32) for i in range(33)]
    peak = math.sqrt((1 - best[1]) / best[2]) if law == "usl" and best[2] > 0 and best[1] < 1 else None
    return Fit(
        law=law,
        parameters=parameters,
        curve=[(n, band(lambda p, n=n: _throughput(law, p, n))) for n in steps],  # type: ignore[misc]
        next_ranks=following,
        next_throughput=ahead,
        next_gain=band(lambda p: _throughput(law, p, following) / _throughput(law, p, most)),
        peak_ranks=peak if peak is not None and peak <= following else None,
        worst_residual=worst,
    )


def _errors(points: Sequence[Point]) -> tuple[list[float], float]:
    """Relative standard error of each point, and the degrees of freedom behind them; repeated runs pool their scatter."""
    found = [p.throughput for p in points]
    own = [relative_error(i) for i in found]
    if any(i.basis != "between runs" for i in found):
        floor = max(own) / 10
        return [max(e, floor) for e in own], min(i.degrees for i in found)
    degrees = math.fsum(i.degrees for i in found)
    scatter = math.sqrt(math.fsum(i.degrees * i.runs * e * e for i, e in zip(found, own, strict=True)) / degrees)
    return [scatter / math.sqrt(i.runs) for i in found], degrees


def _redrawn(
    law: Law, sizes: Sequence[int], values: Sequence[float], errors: Sequence[float], degrees: float, seed: int
) -> list[list[float]]:
    """Fits to points drawn from their errors, whose tails are those of Student's t."""
    source = random.Random(seed)
    widen = student(degrees) / student(math.inf)
    found = []
    for _ in range(DRAWS):
        drawn = [value * math.exp(source.gauss(0, error * widen)) for value, error in zip(values, errors, strict=True)]
        if (parameters := _solve(law, sizes, drawn, errors)) is not None:
            found.append(parameters)
    return found


def _throughput(law: Law, parameters: Sequence[float], n: float) -> float:
    rate, first, *rest = parameters
    if law == "gustafson":
        return rate * (n - first * (n - 1))
    kappa = rest[0] if rest else 0.0
    slowing = 1 + first * (n - 1) + kappa * n * (n - 1)
    return rate * n / slowing if slowing > 0 else math.inf


def _solve(law: Law, sizes: Sequence[int], values: Sequence[float], errors: Sequence[float]) -> list[float] | None:
    """Parameters of least weighted squared relative error, negative ones too: cut off at 0, their bands would not cover.

    Each law is linear in some coefficients: N/X in those of Amdahl and USL, X/N in those of Gustafson.
    """
    if law == "gustafson":
        targets = [x / n for n, x in zip(sizes, values, strict=True)]
        rows = [[1.0, -(n - 1) / n] for n in sizes]
    else:
        targets = [n / x for n, x in zip(sizes, values, strict=True)]
        rows = [[1.0, n - 1.0, n * (n - 1.0)][: 3 if law == "usl" else 2] for n in sizes]
    weights = [1 / (target * error) for target, error in zip(targets, errors, strict=True)]
    scaled = [[w * value for value in row] for w, row in zip(weights, rows, strict=True)]
    aims = [w * target for w, target in zip(weights, targets, strict=True)]
    found = _least_squares(scaled, aims)
    if found is None or found[0] <= 0:
        return None
    if law == "gustafson":
        return [found[0], found[1] / found[0]]
    return [1 / found[0], *(value / found[0] for value in found[1:])]


def _least_squares(rows: Sequence[Sequence[float]], aims: Sequence[float]) -> list[float] | None:
    """Two or three coefficients by the normal equations and Cramer's rule; None where the points do not determine them."""
    width = len(rows[0])
    matrix = [[math.fsum(row[i] * row[j] for row in rows) for j in range(width)] for i in range(width)]
    right = [math.fsum(row[i] * aim for row, aim in zip(rows, aims, strict=True)) for i in range(width)]
    whole = _determinant(matrix)
    if abs(whole) <= 1e-12 * math.prod(matrix[i][i] for i in range(width)):
        return None
    return [
        _determinant([[right[r] if c == column else matrix[r][c] for c in range(width)] for r in range(width)]) / whole
        for column in range(width)
    ]


def _determinant(m: Sequence[Sequence[float]]) -> float:
    if len(m) == 1:
        return m[0][0]
    return math.fsum(
        (-1) ** c * m[0][c] * _determinant([[row[k] for k in range(len(m)) if k != c] for row in m[1:]]) for c in range(len(m))
    )


def nearest_kind(samples_per_epoch: Sequence[tuple[int, int]]) -> Kind | None:
    """Strong or weak scaling from (ranks, samples of one epoch over all ranks); None where the sizes do not agree on one.

    Strong: the same samples whatever the ranks. Weak: in proportion to the ranks.
    """
    strong = weak = bool(samples_per_epoch)
    for (n, a), (m, b) in combinations(samples_per_epoch, 2):
        if n == m or a <= 0 or b <= 0:
            continue
        strong = strong and abs(b / a - 1) < 0.1
        weak = weak and abs(b / a / (m / n) - 1) < 0.1
    return None if strong == weak else "strong" if strong else "weak"
