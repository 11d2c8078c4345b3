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
_DELAY = 4
"""A noise is used so many blocks later, so that a shift does not hide behind the noise that its own begin makes."""
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
    growth: tuple[float, float] | None = None
    """95 % interval of what the step has grown by since then, as a share of a step now."""

    @property
    def mean(self) -> float:
        """Mean share of the step since `since`."""
        return self.total / self.blocks if self.blocks else 0.0

    def add(self, value: float, found: Sequence[float], alarm: float, step: int) -> bool:
        """Takes in the next block, with its scores; whether a named shift has ended with it."""
        old = self.evidence if len(self.evidence) == len(found) else [0.0] * len(found)
        resting = not any(old)
        self.evidence = [min(max(e + score, 0.0), 1.5 * alarm) for e, score in zip(old, found, strict=True)]
        most = max(self.evidence)
        if most == 0.0:
            ended, self.named = self.named, False
            return ended
        if resting:
            self.since, self.blocks, self.total, self.growth = step, 0, 0.0, None
        self.blocks += 1
        self.total += value
        self.named = self.named or most >= alarm
        return False


@dataclass(slots=True)
class Noise:
    """How much the series of all ranks vary from block to block, typical rank."""

    near: float = 0.0
    """Mean absolute difference between neighbouring blocks."""
    far: float = 0.0
    """The same of blocks that are _FAR apart."""
    before: list[Shares] = field(default_factory=list)
    """Of the ranks in the last blocks, in one order; those that came later are missing at the end."""
    deviations: list[float] = field(default_factory=list)
    """As of the last blocks, the oldest first."""

    @property
    def deviation(self) -> float:
        """The standard deviation of a block, as it was known _DELAY blocks ago."""
        return self.deviations[0]

    def add(self, now: Shares, blocks: int) -> None:
        """Takes in a block, the `blocks`-th of this generation."""
        before = self.before
        if before:
            self.near = averaged(self.near, _typical_change(now, before[-1]), blocks - 1)
        if len(before) == _FAR[0] and before[0]:
            change = math.fsum(_typical_change(now, before[-distance]) for distance in _FAR) / len(_FAR)
            self.far = averaged(self.far, change, blocks - _FAR[0])
        before.append(now)
        del before[: -_FAR[0]]
        self.deviations.append(deviation(self.near, self.far, blocks))
        del self.deviations[:-_DELAY]


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
