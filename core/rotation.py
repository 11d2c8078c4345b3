"""Whether one rank stays behind, or the late one changes every few steps: then to name the one of the moment would mislead."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from distmon.core.joined import Joined, JoinedStep, mean_band
from distmon.core.quantiles import quantile

_HELD_UP = 0.05
"""A step is held up by its last rank that comes later than those on time by so much of the step."""
_LATE = 0.01
_MOST = 0.6
"""A rank stays behind that is late in so much of the steps that are looked at, or holds so much of all that is waited in them."""
_COSTS = 0.03
"""Of the step: where the last ranks cost less, there is too little to tell by whom."""
_TURN, _TURNS = 5, 4
"""So many held-up steps of one rank on end are a turn of it; so many turns, most of them of others, tell that it goes round."""


class HeldUp(NamedTuple):
    """A step, the place of its last rank, and by how much of the step that comes later than ranks on time do."""

    step: int
    place: int
    share: float


class Rotation(NamedTuple):
    """Over the recent steps of all ranks."""

    shares: dict[int, float]
    """Of what is waited for last ranks, by rank, the largest first."""
    cost: float
    """What is waited for them, as a share of the step."""
    gain_percent: tuple[float, float] | None
    """95 % interval of what would be saved if they came with those on time."""
    steps: int
    held_up: int
    first_step: int

    @property
    def goes_round(self) -> bool:
        """Whether no one rank has most of it, and most steps are held up."""
        return max(self.shares.values()) < _MOST and self.held_up >= _MOST * self.steps


def rotation(found: Joined) -> Rotation | None:
    """None where no step was held up."""
    held = _held_up(found)
    if not held:
        return None
    by_rank: dict[int, float] = {}
    for one in held:
        rank = found.ranks[one.place]
        by_rank[rank] = by_rank.get(rank, 0.0) + one.share
    total = math.fsum(by_rank.values())
    shares = {rank: share / total for rank, share in sorted(by_rank.items(), key=lambda item: -item[1])}
    of_steps = {one.step: one.share for one in held}
    band = mean_band([100 * of_steps.get(step.step, 0.0) for step in found.steps])
    gain = None if band is None else (max(band[0], 0.0), min(band[1], 100.0))
    return Rotation(shares, total / len(found.steps), gain, len(found.steps), len(held), found.steps[0].step)


def passing(found: Joined, late: Mapping[int, int]) -> set[int]:
    """Of ranks that are late since a step each, those that do not stay behind: others are late as well, by turns."""
    held = _held_up(found)
    turns = [turn for turn in _turns(held) if len(turn) >= _TURN]
    if _goes_round(turns):
        in_turns = {one.step for turn in turns for one in turn}
        looked_at = {rank: [step for step in found.steps if step.step in in_turns] for rank in late}
    else:
        looked_at = {rank: [step for step in found.steps if step.step >= since] for rank, since in late.items()}
    return {rank for rank in late if not _stays(looked_at[rank], found.ranks.index(rank), held)}


def _held_up(found: Joined) -> list[HeldUp]:
    held = []
    for step in found.steps:
        least = min(step.waits)
        share = (_on_time(step.waits) - least) / step.duration
        if share >= _HELD_UP:
            held.append(HeldUp(step.step, step.waits.index(least), share))
    return held


def _on_time(waits: Sequence[int]) -> float:
    """What ranks on time wait: of two the other, of more a quarter waits longer, so that several late ones do not matter."""
    return quantile(sorted(waits), 0.75) or 0.0 if len(waits) > 2 else max(waits)


def _turns(held: Sequence[HeldUp]) -> list[list[HeldUp]]:
    """Held-up steps of one rank with none of another between them."""
    return [list(turn) for _, turn in groupby(held, key=lambda one: one.place)]


def _goes_round(turns: Collection[Sequence[HeldUp]]) -> bool:
    steps = Counter[int]()
    for turn in turns:
        steps[turn[0].place] += len(turn)
    return len(turns) >= _TURNS and max(steps.values()) < _MOST * steps.total()


def _stays(steps: Sequence[JoinedStep], place: int, held: Sequence[HeldUp]) -> bool:
    """Whether the rank at a place is late in most of these steps, or holds most of what is waited for last ranks in them."""
    numbers = {step.step for step in steps}
    held = [one for one in held if one.step in numbers]
    waited = math.fsum(one.share for one in held)
    if not steps or waited < _COSTS * len(steps):
        return True
    late = sum(_on_time(step.waits) - step.waits[place] >= _LATE * step.duration for step in steps)
    return late >= _MOST * len(steps) or math.fsum(one.share for one in held if one.place == place) >= _MOST * waited
