"""Speedup by steady speed and by wall time, reconciled.

With W samples trained in T seconds of wall time, and v samples/s in steady state, f = (W/v)/T is the share of the wall time that
the work would have taken at steady speed. Then, exactly,

    S_wall = T1/TN = (W1/WN) x (vN/v1) x (fN/f1)

so that the two speedups differ by the work and by f alone; and 1/f is the wall time, part by part, over W/v.
Repeated runs are joined by geometric means, which keep the identity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from distmon.core.intervals import Interval, over_runs, ratio
from distmon.core.measures import (
    ALL_PHASES,
    current_generation,
    elapsed,
    samples,
    samples_with_unknown,
    step_split,
    warmup,
)
from distmon.core.state import SessionState
from distmon.core.waited import steady_speed, waited_share
from distmon.core.wall import wall_split

NO_SAMPLES = "the number of samples in a batch was not seen"
ENDS_BEFORE_START = "its end is dated before its start: a clock was set"


class RunFigures(Struct, frozen=True, kw_only=True):
    """One run. `parts_s` is its wall time; they add up to `wall_s`.

    The steady part is divided into the phases of a step, and what is waited for allreduce into waiting for the last rank
    (`straggler_wait`) and the rest.
    """

    ranks: int
    wall_s: float
    samples: int
    steady_samples_per_s: Interval | float
    steady_found: bool = True
    """False where no steady state was found: the speed is then over all steps but the outliers at the start."""
    parts_s: dict[str, float]

    @property
    def steady(self) -> float:
        """The steady speed in samples/s."""
        found = self.steady_samples_per_s
        return found.estimate if isinstance(found, Interval) else found

    @property
    def steady_share(self) -> float:
        """f: from 0 up; beyond 1 where warm-up was faster than steady state."""
        return self.samples / self.steady / self.wall_s


class Reconciled(Struct, frozen=True, kw_only=True):
    """All runs of one number of ranks against those of the smallest. Efficiencies are per rank, 1 is ideal."""

    ranks: int
    runs: int
    wall_s: Interval
    throughput_samples_per_s: Interval
    samples: float
    """Geometric mean of the runs."""
    steady_share: float
    speedup_by_speed: Interval
    efficiency_by_speed: float
    speedup_by_wall: Interval
    efficiency_by_wall: float
    """Of samples over wall time: right for strong and for weak scaling alike."""
    work_factor: float
    """W1/WN."""
    speed_factor: float
    """vN/v1."""
    share_factor: float
    """fN/f1."""
    parts_s: dict[str, float]
    """Seconds of each part, by its mean share of the runs' wall times; they add up to `wall_s`."""


def run_figures(state: SessionState) -> RunFigures | None:
    """The figures of a session; None where its samples, its steps or its ranks were not seen."""
    generation, wall, trained, split = current_generation(state), elapsed(state), samples_with_unknown(state), wall_split(state)
    if generation is None or not generation.world_size or not wall or not trained or split is None:
        return None
    speed = steady_speed(state, generation)
    if speed is None:
        return None
    parts = {name: value for name, value in split.parts().items() if value}
    return RunFigures(
        ranks=generation.world_size,
        wall_s=wall,
        samples=trained,
        steady_samples_per_s=speed,
        steady_found=warmup(generation).steps is not None,
        parts_s=_with_phases(parts, state),
    )


def why_no_figures(state: SessionState) -> str:
    """What a session without figures lacks."""
    if (generation := current_generation(state)) is None:
        return "no rank reported a step"
    if samples(state) is None:
        return NO_SAMPLES
    if elapsed(state) is None:
        return ENDS_BEFORE_START if state.job.started is not None else "no start was recorded"
    return "too few steps for a speed" if generation.world_size else "its number of ranks was not seen"


def _with_phases(parts: dict[str, float], state: SessionState) -> dict[str, float]:
    """The steady time divided as the mean steady step is; of what is waited for allreduce, what the last rank does not wait."""
    steady, generation = parts.pop("steady", 0.0), current_generation(state)
    split = step_split(generation)
    if split is None or generation is None:
        return parts | {"steady": steady}
    shares = {name: split.share(name) or 0.0 for name in ALL_PHASES}
    arrivals = generation.arrivals
    if rank_ns := arrivals.joined_ns * len(arrivals.ranks):
        shares["straggler_wait"] = min(arrivals.waiting_ns / rank_ns, shares["exposed_communication"])
        shares["exposed_communication"] -= shares["straggler_wait"]
    if waited := waited_share(state, generation):
        # The steady time is that of the lowest rank, in which nobody waits for it.
        name = "straggler_wait" if "straggler_wait" in shares else "exposed_communication"
        shares[name] = max(shares[name] - waited, 0.0)
        whole = math.fsum(shares.values())
        shares = {name: share / whole for name, share in shares.items()} if whole else shares
    return parts | {f"steady {name}": steady * share for name, share in shares.items() if share}


def reconcile(runs: Sequence[RunFigures]) -> list[Reconciled]:
    """A row for each number of ranks, the smallest first."""
    by_size = {size: [run for run in runs if run.ranks == size] for size in sorted({run.ranks for run in runs})}
    joined = [_joined(size, found) for size, found in by_size.items()]
    return [_against(joined[0], each) for each in joined]


class _Joined(Struct, frozen=True):
    ranks: int
    runs: int
    wall_s: Interval
    throughput_samples_per_s: Interval
    samples: float
    steady_share: float
    parts_s: dict[str, float]


def _joined(size: int, runs: list[RunFigures]) -> _Joined:
    names, wall = dict.fromkeys(name for run in runs for name in run.parts_s), over_runs([run.wall_s for run in runs])
    return _Joined(
        ranks=size,
        runs=len(runs),
        wall_s=wall,
        throughput_samples_per_s=over_runs([run.steady_samples_per_s for run in runs]),
        samples=_geometric_mean([run.samples for run in runs]),
        steady_share=_geometric_mean([run.steady_share for run in runs]),
        parts_s={
            name: wall.estimate * math.fsum(run.parts_s.get(name, 0.0) / run.wall_s for run in runs) / len(runs) for name in names
        },
    )


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(math.log(value) for value in values) / len(values))


def _against(base: _Joined, one: _Joined) -> Reconciled:
    more = one.ranks / base.ranks
    by_speed, by_wall = ratio(base.throughput_samples_per_s, one.throughput_samples_per_s), ratio(one.wall_s, base.wall_s)
    work = base.samples / one.samples
    return Reconciled(
        ranks=one.ranks,
        runs=one.runs,
        wall_s=one.wall_s,
        throughput_samples_per_s=one.throughput_samples_per_s,
        samples=one.samples,
        steady_share=one.steady_share,
        speedup_by_speed=_exactly_one(by_speed) if one is base else by_speed,
        efficiency_by_speed=by_speed.estimate / more,
        speedup_by_wall=_exactly_one(by_wall) if one is base else by_wall,
        efficiency_by_wall=by_wall.estimate / work / more,
        work_factor=work,
        speed_factor=by_speed.estimate,
        share_factor=one.steady_share / base.steady_share,
        parts_s=one.parts_s,
    )


def _exactly_one(found: Interval) -> Interval:
    """A point against itself."""
    return Interval(estimate=1.0, low=1.0, high=1.0, basis=found.basis, runs=found.runs)
