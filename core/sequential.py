"""A sequential test for a series having moved up, and the noise that it is held against.

One-sided CUSUM tests (Page 1954) of blocks of steps, for shifts of 2 % and of 8 % of the step, add up evidence for a shift
against none. docs/statistics.md has how long they take and how often they are wrong.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import sub
from typing import TYPE_CHECKING

from distmon.core.intervals import student

if TYPE_CHECKING:
    Shares = array[float]
else:
    Shares = array  # Python 3.11 cannot subscript it, and the states' codec resolves annotations

SHIFTS = (0.02, 0.08)
ALARM_BLOCKS = 50_000
CALIBRATION = 8
"""Blocks from which the noise is known well enough to start."""
_MEMORY = 100
"""Blocks that a noise or a usual value is averaged over."""
_FAR = (8, 6, 4)
"""Blocks so far apart differ by more than neighbours do where a series wanders slowly, as on a machine that others use too."""
_DELAY, _LONG_DELAY = 4, 24
"""A noise is used so many blocks later, so that a shift does not hide behind the noise that its own begin makes; for whether a
shift has ended, which takes longer to tell, so many, though it is never that of before _LEAST_KNOWN blocks."""
_KEPT = 40
"""Blocks for which it is kept what the noise was known as."""
_LEAST_KNOWN = CALIBRATION + 2 - _DELAY
_CLEAR = 3.0
"""A shift by less than so much noise makes little more of it."""
_CHANCE = 1.75
_CAUTION, _CAUTION_EARLY = 1.12, 0.7
"""Noise is taken to be so much larger than blocks show: as it wanders, and as few blocks tell little."""
_LEAST_NOISE = 0.002
_ENOUGH = 512
"""Ranks whose typical change is that of all within a few percent."""
_LEAST_GROWN = 6
"""Blocks on either side that it takes to tell what the step grew by."""
_FORGIVEN = 3
"""One block alone, however good, takes away no more than this part of an alarm."""
_DATED_BLOCKS, _LATER = 64, 5.0
"""The begin of a shift is looked for in its last blocks, so many, and put later where that is so much likelier."""
_LEAST_OVER = 5
"""It takes so many blocks to tell that a shift has ended."""


def alarm_level(series: int) -> float:
    """The evidence at which a shift is named: false in fewer than one of ALARM_BLOCKS blocks of so many series together."""
    return math.log(ALARM_BLOCKS * series)


def scores(value: float, noise: float, alarm: float, least_blocks: int) -> list[float]:
    """Log-likelihood ratios of each of SHIFTS against none; so limited that an alarm takes `least_blocks` blocks."""
    low, high, weight = -alarm / _FORGIVEN, alarm / least_blocks, 1 / (noise * noise)
    return [min(max(shift * weight * (value - shift / 2), low), high) for shift in SHIFTS]


@dataclass(slots=True)
class Shift:
    """Whether a series has moved up, in shares of the step."""

    evidence: list[float] = field(default_factory=list)
    named: bool = False
    since: int = 0
    """The step from which the evidence speaks."""
    blocks: int = 0
    total: float = 0.0
    """Of the blocks since then."""
    apart: float = 0.0
    """Sum of what the blocks differ from the mean by."""
    held: tuple[int, float, float] = (0, 0.0, 0.0)
    """The last three as of the last block that had half the mean or more: the shift has lasted until then."""
    last_step: int = 0
    """The last one of that block."""
    over: float = 0.0
    """Evidence that a named shift has ended."""
    first: list[tuple[int, float]] = field(default_factory=list)
    """First step and value of the last blocks, until it is named."""
    growth: tuple[float, float] | None = None
    """95 % interval of what the step has grown by since then, as a share of a step now."""

    @property
    def mean(self) -> float:
        """Mean share of the step since `since`."""
        return self.total / self.blocks if self.blocks else 0.0

    @property
    def held_mean(self) -> float:
        """The same until `last_step`."""
        blocks, total, _ = self.held
        return total / blocks if blocks else 0.0

    @property
    def blocks_after(self) -> int:
        """Blocks since `last_step`."""
        return self.blocks - self.held[0]

    def add(self, value: float, found: Sequence[float], alarm: float, steps: tuple[int, int]) -> bool:
        """Takes in the next block, with its scores and its first and last step; whether a named shift has ended with it."""
        old = self.evidence if len(self.evidence) == len(found) else [0.0] * len(found)
        resting = not any(old)
        self.evidence = [min(max(e + score, 0.0), 1.5 * alarm) for e, score in zip(old, found, strict=True)]
        most = max(self.evidence)
        if most == 0.0:
            return self._end()
        if resting:
            self._begin(steps[0])
        self._take(value, steps[1])
        if not self.named:
            self.first.append((steps[0], value))
            del self.first[:-_DATED_BLOCKS]
        self.named = self.named or most >= alarm
        return False

    def date(self, noise: float, length: int) -> None:
        """Once it is named: puts its begin, in blocks of so many steps, where it is likeliest: chance may have begun earlier."""
        values = [value for _, value in self.first]
        fits = [math.fsum(values[place:]) ** 2 / (len(values) - place) for place, _ in enumerate(values)]
        best = fits.index(max(fits))
        if fits[best] - fits[0] > 2 * _LATER * noise * noise:
            self._begin(self.first[best][0])
            for step, value in self.first[best:]:
                self._take(value, step + length - 1)
        self.first = []

    def _begin(self, step: int) -> None:
        self.since, self.blocks, self.total, self.apart, self.over, self.growth = step, 0, 0.0, 0.0, 0.0, None
        self.held = (0, 0.0, 0.0)

    def _take(self, value: float, last_step: int) -> None:
        self.blocks += 1
        self.total += value
        self.apart += abs(value - self.mean)
        if self.blocks == 1 or value >= self.held_mean / 2:
            self.held, self.last_step = (self.blocks, self.total, self.apart), last_step

    def add_to_end(self, value: float, noise: float, alarm: float) -> bool:
        """Takes in what the last block says of a named shift's end, and whether that is it.

        By the same sequential test as its begin, for none against as much as it was, within noise or as it itself varies.
        """
        blocks, total, apart = self.held
        mean, varies = max(total / blocks, 0.0), math.sqrt(math.pi / 2) * apart / blocks
        score = mean * (mean / 2 - value) / (noise * noise + varies * varies)
        self.over = max(self.over + min(max(score, -alarm / _LEAST_OVER), alarm / _LEAST_OVER), 0.0)
        return self.over >= alarm and self._end()

    def _end(self) -> bool:
        ended, self.named, self.first = self.named, False, []
        self.evidence = [0.0] * len(self.evidence)
        return ended


@dataclass(slots=True, frozen=True)
class Known:
    """What a noise was known as after a block."""

    near: float
    far: float
    blocks: int
    deviation: float


@dataclass(slots=True)
class Noise:
    """How much the series of all ranks vary from block to block, typical rank."""

    near: float = 0.0
    """Mean absolute difference between neighbouring blocks."""
    far: float = 0.0
    """The same of blocks that are _FAR apart."""
    blocks: int = 0
    before: list[Shares] = field(default_factory=list)
    """Of the ranks in the last blocks, in one order; those that came later are missing at the end."""
    known: list[Known] = field(default_factory=list)
    """As of the last blocks, the oldest first."""

    @property
    def deviation(self) -> float:
        """The standard deviation of a block, as it was known _DELAY blocks ago."""
        return self.known[-_DELAY:][0].deviation

    @property
    def deviation_before(self) -> float:
        """The same of _LONG_DELAY blocks ago, or of the first block after which enough was known."""
        enough = [known.deviation for known in self.known[-_LONG_DELAY:-_DELAY] if known.blocks >= _LEAST_KNOWN]
        return enough[0] if enough else self.deviation

    def add(self, now: Shares) -> None:
        """Takes in a block."""
        before = self.before
        self.blocks += 1
        if before:
            self.near = averaged(self.near, _typical_change(now, before[-1]), self.blocks - 1)
        if len(before) == _FAR[0] and before[0]:
            change = math.fsum(_typical_change(now, before[-distance]) for distance in _FAR) / len(_FAR)
            self.far = averaged(self.far, change, self.blocks - _FAR[0])
        before.append(now)
        del before[: -_FAR[0]]
        self.known.append(Known(self.near, self.far, self.blocks, deviation(self.near, self.far, self.blocks)))
        del self.known[:-_KEPT]

    def leave_out(self, blocks: int, shift: float) -> None:
        """Forgets what the last blocks, so many, differed by: a shift by so much began or ended in them."""
        blocks = min(blocks, self.blocks - _LEAST_KNOWN, len(self.known) - 1)
        if blocks <= 0 or shift < _CLEAR * self.known[-blocks - 1].deviation:
            return
        then = self.known[-blocks - 1]
        self.near, self.far, self.blocks = then.near, then.far, then.blocks
        self.known[-blocks:] = [then] * blocks
        del self.before[:-1]


def step_growth(before: Sequence[float], since: Sequence[float]) -> tuple[float, float] | None:
    """95 % interval of what the step has grown by, as a share of a step now, from mean steps of blocks before and since.

    By trimmed means with their errors (Tukey and McLaughlin 1963), as there are stalls. None where there are too few blocks.
    """
    if min(len(before), len(since)) < _LEAST_GROWN:
        return None
    (old, old_error), (new, new_error) = _trimmed(before), _trimmed(since)
    reach = student(0.8 * min(len(before), len(since)) - 1) * math.hypot(old_error, new_error)
    return (new - old - reach) / new, (new - old + reach) / new


def _trimmed(values: Sequence[float]) -> tuple[float, float]:
    """The mean without the shortest and the longest tenth, and its standard error."""
    n = len(values)
    cut = math.ceil(n / 10)
    ordered = sorted(values)
    kept = ordered[cut : n - cut]
    held = [kept[0]] * cut + kept + [kept[-1]] * cut
    centre = math.fsum(held) / n
    spread = math.sqrt(math.fsum((value - centre) ** 2 for value in held) / (n - 1))
    return math.fsum(kept) / len(kept), spread / ((1 - 2 * cut / n) * math.sqrt(n))


def averaged(mean: float, value: float, count: int) -> float:
    """A mean of `count` values, this one included, that forgets after _MEMORY blocks; stalls count for no more than 5 means."""
    if count > CALIBRATION and mean > 0:
        value = min(value, 5 * mean)
    return mean + (value - mean) / min(count, _MEMORY)


def _typical_change(now: Shares, before: Shares) -> float:
    """Of the ranks that took part in both; of very many, some spread evenly over all tell it as well."""
    apart = max(min(len(now), len(before)) // _ENOUGH, 1)
    changes: list[float] = sorted(map(abs, map(sub, now[::apart], before[::apart])))
    return changes[len(changes) // 2]


def deviation(near: float, far: float, blocks: int) -> float:
    """The standard deviation that counts for a sum over blocks, from mean absolute differences, which are 2 sigma / sqrt(pi).

    Where blocks far apart differ clearly more than neighbours, the series wanders with a correlation rho of 1 - near^2 / far^2,
    and the variance counts (1 + rho) / (1 - rho) times. Chance alone makes for some of that, the more the fewer the blocks.
    """
    rho = 1 - (near / far) ** 2 if far > near else 0.0
    known = min(max(blocks - _FAR[0], 1), _MEMORY)
    chance = min(_CHANCE / math.sqrt(known), 0.9)
    rho = min(max((rho - chance) / (1 - chance), 0.0), 0.9)
    caution = _CAUTION + _CAUTION_EARLY / math.sqrt(min(max(blocks - 1, 1), _MEMORY))
    return max(caution * near / (1 - rho) * math.sqrt(math.pi * (1 + rho)) / 2, _LEAST_NOISE)


def shares(latenesses: Sequence[float]) -> list[float]:
    """What part of all of it each has."""
    total = math.fsum(latenesses)
    return [lateness / total if total > 0 else 0.0 for lateness in latenesses]
