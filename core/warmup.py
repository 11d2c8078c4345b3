"""Where warm-up ends and the steady state begins, found from the step times of a run.

Method: the leading run of outliers against what follows (compilation, caches, queued steps that look fast), then changepoints of
log step time (PELT: Killick et al., JASA 2012) on medians of bins that widen along the run, after a Hampel filter that hides
single stalls from the search. Where neighbours change between the levels found, as with two sizes of batches, these are how the
steps are spread, and no levels: the search is made once more, on means, with that spread as the noise. Classes are those of
Barrett et al. (OOPSLA 2017), but a level that had held before ends the warm-up where it first did. docs/statistics.md says how
often it is right.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from statistics import fmean
from typing import Literal, NamedTuple

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
_HELD = 0.2
"""A level that held for this share of the steps, from one moment to where it holds for good, holds since that moment."""
_DRIFT_LEVELS = 4
"""So many levels, each slower than the last, are a drift."""
_DRIFT_ERRORS, _ON_THE_WAY = 3.0, 0.2
"""The last third of a drift differs from the first by so many standard errors, of which the middle one has so much at least."""
_LONG = 0.15
"""A warm-up of so much of the run may be the begin of a drift."""
_MAX_CORRELATION = 0.8
_SLACK = 0.1
"""The correlation that levels alone would feign is cut off at this much above what differences of steps allow."""
_FEW = 80
"""Of fewer steps the levels may pass for correlated noise, as their pieces hold one change or two."""
_WIDEST = 1 / math.sqrt(1 - _MAX_CORRELATION)
"""How many times as far as neighbours the steps of a correlated series may lie apart: those that lie farther have levels."""
_MAD_TO_SIGMA = 1.4826
_TENTHS_TO_SIGMA = 1 / 2.5631

_OUTLYING = math.log(1.1)
"""Steps at the start that are no outliers of the noise alone differ by so much."""
_COMMON = 0.05
"""A step at the start is no outlier where this share of the second half of the run is like it."""
_MIXED = 0.15
"""Levels between which neighbours change so often are values that the steps have by turns."""
_LEADING = 0.1
"""Levels at the start of a run without a steady state are left out of its means where they end within this share of it."""

Shape = Literal["flat", "warmup", "slowdown", "no_steady_state", "too_few_steps"]


class Spell(Struct, frozen=True, kw_only=True):
    """Steps `first` to `end` - 1, slower or faster than those before and after, which are at one level."""

    first: int
    end: int
    step_s: float
    """Their median."""


class Warmup(Struct, frozen=True, kw_only=True):
    """`steps` to set aside (None when there are too few to tell), their `duration_s`, and what they took beyond steady steps."""

    shape: Shape
    steps: int | None
    duration_s: float | None = None
    excess_s: float | None = None
    steady_step_s: float | None = None
    """Median of the steady steps but those of spells."""
    steady_from: int | None = None
    """The first steady step. After `steps` only for a slowdown: what was faster before is neither warm-up nor steady."""
    spells: tuple[Spell, ...] = ()
    """Slow or fast ones that passed before the middle of the run; they stay in the mean."""
    leading_steps: int = 0
    """Steps at the start that differ from all that follows: to be left out of means even where no steady state was found."""


class _Found(NamedTuple):
    """What the levels of a series make of it; as in Warmup, but for steps that are never None."""

    shape: Shape
    steps: int = 0
    steady_from: int = 0
    spells: Sequence[tuple[int, int]] = ()
    """(first, end)"""


def find_warmup(durations: Sequence[float]) -> Warmup:
    """Classifies a series of step times in seconds."""
    n = len(durations)
    if n < MIN_STEPS:
        return Warmup(shape="too_few_steps", steps=None)
    logs = [math.log(max(d, 1e-9)) for d in durations]
    lead = _leading_outliers(logs)
    if lead > n // 2:
        return Warmup(shape="no_steady_state", steps=None)
    shape, steps, steady_from, spells = _last_level(logs[lead:])
    if shape == "no_steady_state" or (shape == "warmup" and lead + steps > n // 2):
        return Warmup(shape="no_steady_state", steps=None, leading_steps=lead + steps if shape == "no_steady_state" else lead)
    steps, steady_from = lead + steps, lead + steady_from
    passed = [(lead + first, lead + end) for first, end in spells]
    edges = [steady_from, *chain.from_iterable(passed), n]
    steady = median(chain.from_iterable(durations[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True))) or 0.0
    return Warmup(
        shape="warmup" if shape == "flat" and lead else shape,
        steps=steps,
        leading_steps=lead,
        duration_s=math.fsum(durations[:steps]),
        excess_s=math.fsum(d - steady for d in durations[:steps]),
        steady_step_s=steady,
        steady_from=steady_from,
        spells=tuple(Spell(first=a, end=b, step_s=median(durations[a:b]) or 0.0) for a, b in passed),
    )


def of_merged(found: Warmup, width: int) -> Warmup:
    """In steps, what was found in a series of which each entry is the mean of `width` steps."""
    return structs.replace(
        found,
        steps=None if found.steps is None else found.steps * width,
        duration_s=None if found.duration_s is None else found.duration_s * width,
        excess_s=None if found.excess_s is None else found.excess_s * width,
        steady_from=None if found.steady_from is None else found.steady_from * width,
        leading_steps=found.leading_steps * width,
        spells=tuple(structs.replace(s, first=s.first * width, end=s.end * width) for s in found.spells),
    )


def _leading_outliers(logs: list[float]) -> int:
    """How many steps at the start differ from the window that follows each, and from most of the run.

    It ends at three that do not, or at the first step already: a stall later on is no warm-up. Nor is what is common later on.
    """
    end = calm = 0
    usual = median(logs) or 0.0
    later = sorted(logs[len(logs) // 2 :])
    for i, value in enumerate(logs[:-3]):
        ahead = logs[i + 1 : i + 1 + _WINDOW]
        centre, spread = _centre_and_spread(ahead)
        apart = min(abs(value - centre), abs(value - usual))
        if apart > max(5 * spread, _OUTLYING) and _share_near(later, value, apart / 2) < _COMMON:
            end, calm = i + 1, 0
        else:
            calm += 1
            if calm == 3 or end == 0:
                break
    return end


def _share_near(ordered: list[float], value: float, reach: float) -> float:
    """Of sorted values, those less than `reach` from one."""
    return (bisect_left(ordered, value + reach) - bisect_right(ordered, value - reach)) / len(ordered)


def _median(values: Sequence[float]) -> float:
    return median(values) or 0.0


def _centre_and_spread(values: Sequence[float]) -> tuple[float, float]:
    centre = median(values) or 0.0
    return centre, _MAD_TO_SIGMA * (median(abs(v - centre) for v in values) or 0.0)


def _last_level(logs: list[float]) -> _Found:
    """What the levels of a series make of it."""
    if len(logs) < 2 * MIN_STEPS:
        return _Found("flat")
    if _alternates(logs):
        pairs = _last_level([fmean(pair) for pair in zip(logs[::2], logs[1::2], strict=False)])
        spells = [(2 * first, 2 * end) for first, end in pairs.spells]
        return _Found(pairs.shape, 2 * pairs.steps, 2 * pairs.steady_from, spells)
    own, factor = _noise(logs)
    levels = _levels(logs, own, factor)
    found = levels.found()
    apart = own * 2 / (factor + 1)  # half the variance of the difference of neighbours: own (1 - rho)
    if found.shape == "flat" and len(logs) < _FEW and _spread(logs, own) > _WIDEST * math.sqrt(apart):
        levels = _levels(logs, apart, 1.0)
        found = levels.found()
    if found.shape == "flat" and not found.spells:
        return _Found("no_steady_state") if _drifts(logs, math.pi / 2 * own * factor, _median) else found
    if levels.mixed(logs) < _MIXED:
        return _Found("no_steady_state") if _goes_on(logs, found, math.pi / 2 * own * factor, _median) else found
    reach = 4 * math.sqrt(own)
    low, high = min(levels.values) - reach, max(levels.values) + reach
    cut = [min(max(value, low), high) for value in logs]
    own, factor = _noise(cut, spread_out=True)
    found = _levels(cut, own, factor, spread_out=True).found()
    drifts = found.shape == "flat" and not found.spells and _drifts(cut, own * factor, fmean)
    return _Found("no_steady_state") if drifts or _goes_on(cut, found, own * factor, fmean) else found


def _alternates(logs: list[float]) -> bool:
    """Whether every other step is of its own level."""
    one, two = (sorted(abs(b - a) for a, b in zip(logs, logs[lag:], strict=False)) for lag in (1, 2))
    return (quantile(one, 0.25) or 0.0) > 2 * (quantile(two, 0.75) or 0.0)


def _goes_on(logs: list[float], found: _Found, variance: float, centre: Callable[[Sequence[float]], float]) -> bool:
    """Whether what seems to be a long warm-up is a drift, as steps get faster after it, too."""
    if found.shape != "warmup" or found.steps < _LONG * len(logs):
        return False
    steady = logs[found.steps :]
    third = len(steady) // 3
    faster = centre(steady[-third:]) < centre(steady[:third])
    return faster and _drifts(steady, variance, centre, least=_SAME_LEVEL / 2)


def _drifts(
    logs: list[float], variance: float, centre: Callable[[Sequence[float]], float], least: float = _SAME_LEVEL
) -> bool:
    """Whether a series without levels that are far enough apart goes one way all along: by the centres of its thirds.

    A centre of n steps has an error of the root of `variance` / n. A difference of less than `least` is none.
    """
    third = len(logs) // 3
    first, middle, last = (centre(logs[place * third : (place + 1) * third]) for place in range(3))
    rise = last - first
    if abs(rise) < max(_DRIFT_ERRORS * math.sqrt(2 * variance / third), least * max(1.0, _SHORT / len(logs))):
        return False
    return _ON_THE_WAY <= (middle - first) / rise <= 1 - _ON_THE_WAY


def _spread(logs: list[float], own: float) -> float:
    """Standard deviation of the steps without their stalls, by the distance from the first to the last tenth."""
    ordered = sorted(_hampel(logs, [4 * math.sqrt(own)] * len(logs)))
    return _TENTHS_TO_SIGMA * ((quantile(ordered, 0.9) or 0.0) - (quantile(ordered, 0.1) or 0.0))


def _levels(logs: list[float], own: float, factor: float, *, spread_out: bool = False) -> _Levels:
    """Those of steps of such a variance, and such a factor by which that of sums is more than of independent steps.

    Of steps that are spread out otherwise than a bell they are means.
    """
    centre = fmean if spread_out else _median
    starts, points, weights = _bins(logs, centre)
    variance = own * factor
    calm = _hampel(points, [4 * math.sqrt(own / weight) for weight in weights])
    edges = [*_pelt(calm, weights, 3 * math.log(len(points)) * variance), len(points)]
    return _Levels(
        begins=[*(starts[edge] for edge in edges[:-1]), len(logs)],
        values=[centre(points[a:b]) for a, b in pairwise(edges)],
        sizes=[math.fsum(weights[a:b]) for a, b in pairwise(edges)],
        variance=variance,
        same=_SAME_LEVEL * max(1.0, _SHORT / len(logs)),
    )


class _Levels(NamedTuple):
    """The levels of a series, in order."""

    begins: list[int]
    """The first step of each, and the number of steps."""
    values: list[float]
    sizes: list[float]
    """As the weights of bins."""
    variance: float
    same: float

    def found(self) -> _Found:
        """What they make of the series."""
        begins, values, last = self.begins, self.values, len(self.values) - 1
        half = begins[-1] // 2
        first, since = self.held_since(last)
        if begins[first] > half:
            valley = self.valley(last)
            if last - valley >= _DRIFT_LEVELS - 1 and begins[valley] <= half:
                return _Found("slowdown", begins[valley], begins[valley])
            return _Found("no_steady_state", self.outlying())
        if since == 0:
            return _Found("flat", spells=self.spells(since, first))
        if values[since - 1] > values[last]:
            return _Found("warmup", begins[since], begins[since], self.spells(since, first))
        _, fastest = self.held_since(self.valley(since - 1))
        return _Found("slowdown", begins[fastest], begins[since], self.spells(since, first))

    def mixed(self, logs: list[float]) -> float:
        """Share of neighbours on different sides of the middle between two adjacent levels, by their steps but the stalls."""
        across: list[bool] = []
        for i, (one, two) in enumerate(pairwise(self.values)):
            middle, reach = (one + two) / 2, 2 * abs(one - two)
            sides = [step > middle for step in logs[self.begins[i] : self.begins[i + 2]] if abs(step - middle) < reach]
            across += [a != b for a, b in pairwise(sides)]
        return sum(across) / max(len(across), 1)

    def held_since(self, last: int) -> tuple[int, int]:
        """(since which level there is none but that of `last`, up to it; since which that one holds but for spells)."""
        first = last
        while first and self._alike(first - 1, last, first):
            first -= 1
        since, held = first, 0
        for i in range(first - 1, -1, -1):
            steps = self.begins[i + 1] - self.begins[i]
            if self._alike(i, last, first):
                held += steps
                if steps >= MIN_STEPS and held >= _HELD * (self.begins[first] - self.begins[i]):
                    since = i
        return first, since

    def _alike(self, one: int, last: int, first: int) -> bool:
        """Whether a level is that of the levels from `first` to `last`."""
        error = math.sqrt(self.variance * (1 / self.sizes[one] + 1 / math.fsum(self.sizes[first : last + 1])))
        return abs(self.values[one] - self.values[last]) <= max(self.same, _SAME_ERRORS * error)

    def valley(self, last: int) -> int:
        """From which level on each is slower than the one before, up to `last`."""
        while last and self.values[last - 1] < self.values[last]:
            last -= 1
        return last

    def spells(self, since: int, first: int) -> list[tuple[int, int]]:
        """(first step, end) of what lies between these levels and is not of their level."""
        found: list[tuple[int, int]] = []
        for i in range(since, first):
            if not self._alike(i, len(self.values) - 1, first):
                begun = found.pop()[0] if found and found[-1][1] == self.begins[i] else self.begins[i]
                found.append((begun, self.begins[i + 1]))
        return found

    def outlying(self) -> int:
        """How many steps at the start are far slower than all that follow."""
        end = 0
        for i, value in enumerate(self.values[:-1], 1):
            if value < max(self.values[i:]) + _OUTLYING or self.begins[i] > _LEADING * self.begins[-1]:
                break
            end = self.begins[i]
        return end


def _bins(logs: list[float], centre: Callable[[Sequence[float]], float]) -> tuple[list[int], list[float], list[float]]:
    """(starts, centres, weights): the weight is the number of single steps whose mean would be known as well.

    Bins have an odd number of steps: the median of two or four would lie between the values of steps that have two.
    """
    efficiency = 1.0 if centre is fmean else 2 / math.pi
    starts, points, weights = [], [], []
    start = 0
    while start < len(logs):
        end = min(start + max(start // _FINE - 1 | 1, 1), len(logs))
        starts.append(start)
        points.append(centre(logs[start:end]))
        weights.append(1 + efficiency * (end - start - 1))
        start = end
    return starts, points, weights


def _noise(logs: list[float], *, spread_out: bool = False) -> tuple[float, float]:
    """Variance of a step, and (1 + rho) / (1 - rho) for its correlation: such noise wanders, and must not look like levels.

    rho is how often neighbours within short pieces lie on the same side of the piece's median, but no more than differences two
    and three steps apart allow, which hardly see levels: VAR(x[t+k] - x[t]) = 2 VAR(x) (1 - rho^k).
    """
    n = len(logs)
    length = min(max(n // 4, 12), 50)
    pieces = [logs[a : a + length] for a in range(0, n - length + 1, max(length, n // 40))]
    if not spread_out:
        pieces = [_without_stalls(piece) for piece in pieces]
    same = pairs = 0
    for piece in pieces:
        middle = median(piece) or 0.0
        same += sum((a > middle) == (b > middle) for a, b in pairwise(piece))
        pairs += len(piece) - 1
    rho = math.sin(math.pi / 2 * (2 * same / pairs - 1))
    square = _mean_square if spread_out else _robust_square
    differences = ([b - a for piece in pieces for a, b in zip(piece, piece[lag:], strict=False)] for lag in (1, 2, 3))
    one, two, three = (max(square(apart), 1e-8) for apart in differences)
    farther = ((two / one - 1) + (math.sqrt(max(4 * three / one - 3, 0.0)) - 1) / 2) / 2
    rho = min(max(min(rho + (1 + 4 * rho) / length, farther + _SLACK), 0.0), _MAX_CORRELATION)
    return one / 2 / (1 - rho), (1 + rho) / (1 - rho)


def _robust_square(differences: list[float]) -> float:
    return (_MAD_TO_SIGMA * _median([abs(d) for d in differences])) ** 2


def _mean_square(differences: list[float]) -> float:
    return fmean(d * d for d in differences)


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
