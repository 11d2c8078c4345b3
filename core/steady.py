"""The steady speed of a run, as it is compared with other runs. What it is at a moment depends on the steps so far alone."""

from __future__ import annotations

import math
from typing import NamedTuple

from msgspec import Struct

from distmon.core.intervals import Interval
from distmon.core.measures import current_generation, samples, step_series, steps_set_aside, warmup
from distmon.core.state import SessionState
from distmon.core.waited import steady_speed, without_wait
from distmon.core.warmup import MIN_STEPS

_EXACT, _GROWTH = 200, 1.01
"""The speed of a run under way is that of the steps up to a rung: every step is one up to the first, then they are 1 % apart."""


class SteadySpeed(Struct, frozen=True, kw_only=True):
    """Of a run with `ranks` ranks. Where no steady state was `found` it is over all steps but the outliers at the start."""

    ranks: int
    samples_per_s: Interval | float
    found: bool = True

    @property
    def estimate(self) -> float:
        speed = self.samples_per_s
        return speed.estimate if isinstance(speed, Interval) else speed


def steps_so_far(state: SessionState) -> tuple[int, int] | None:
    """How many steps there are, and how many it takes to tell warm-up from steady state; None where there are enough."""
    generation = current_generation(state)
    steps = 0 if generation is None else len(step_series(generation)[0])
    return (steps, MIN_STEPS) if generation is None or warmup(generation).shape == "too_few_steps" else None


class SpeedStamp(NamedTuple):
    """What the speed depends on: while it is the same, so is the speed of that session."""

    session_id: str
    generation: int
    ranks: int
    width: int
    entries: int
    left_out: int
    found: bool
    faster: float
    """Without what is waited for a rank that evaluates or saves alone, to a thousandth."""


def speed_stamp(state: SessionState) -> SpeedStamp | None:
    """None where samples, steps or ranks were not seen."""
    generation = current_generation(state)
    if generation is None or not generation.world_size or not samples(state):
        return None
    entries = len(step_series(generation)[0])
    if state.job.status != "ended":
        entries = _rung(entries)
    left_out, found = steps_set_aside(generation), warmup(generation).steps is not None
    faster = round(without_wait(state, generation), 3)
    return SpeedStamp(
        state.session_id, generation.number, generation.world_size, generation.series.width, entries, left_out, found, faster
    )


def run_speed(state: SessionState) -> SteadySpeed | None:
    """None where there is nothing to compare."""
    stamp, generation = speed_stamp(state), current_generation(state)
    if stamp is None or generation is None:
        return None
    speed = steady_speed(state, generation, stamp.entries, stamp.faster)
    if speed is None:
        return None
    return SteadySpeed(ranks=stamp.ranks, samples_per_s=speed, found=stamp.found)


def _rung(n: int) -> int:
    """The highest rung up to n, the same for whoever asks and whenever."""
    if n <= _EXACT:
        return n
    rung = int(math.log(n / _EXACT) / math.log(_GROWTH))
    while int(_EXACT * _GROWTH ** (rung + 1)) <= n:
        rung += 1
    return min(int(_EXACT * _GROWTH**rung), n)
