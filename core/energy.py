"""Energy of a session: joules with an error, what they cover, and what they come to per sample, useful sample and epoch.

A counter of energy is preferred to watts times time. Watts are samples: between two that differ the change may have been at
any moment, an error of the difference times the interval over the root of 12. A counter is off by what it has not counted yet
at the ends. Where nothing was measured no energy is made up: the joules are of the measured seconds, which are told beside them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from distmon.core.measures import elapsed, samples
from distmon.core.state import NodeState, PowerSeries, SessionState

COUNTER_PERIOD_S = 0.1
"""How often drivers bring their counter of energy up to date."""
_SIGMAS = 1.96
J_PER_WH = 3_600.0
IDLE_AFTER_S = 3.0
"""Energy spent this long after the last known step, and more, trains nothing. Steps are told once a second."""


def add_power(series: PowerSeries, joules: float, interval_s: float, counted: bool) -> None:
    """Takes in one reading of `interval_s`."""
    watts = joules / interval_s if interval_s > 0 else 0.0
    series.highest_w = max(series.highest_w, watts)
    if counted:
        if series.counted_s == 0:
            series.ends = 2 * watts * COUNTER_PERIOD_S
        series.counted_s += interval_s
    elif series.last_w is not None:
        series.squares += ((watts - series.last_w) * interval_s) ** 2 / 12
    series.last_w = watts


@dataclass(slots=True, frozen=True)
class Reading:
    """One rail or GPU over the session."""

    node: str
    name: str
    joules: float
    error_j: float
    """Half of a 95 % interval."""
    seconds: float
    """For which it was measured."""
    mean_w: float
    peak_w: float
    counted_share: float
    """Of the seconds, by a counter."""
    within: str
    """The rail that holds this one already: it is listed and not added."""


@dataclass(slots=True, frozen=True)
class EpochEnergy:
    """From the epoch's start on rank 0 to that of the next, or to the session's end."""

    epoch: int
    joules: float
    error_j: float
    """Half of a 95 % interval: a start lies anywhere between two readings."""
    per_sample_j: float | None


@dataclass(slots=True, frozen=True)
class Energy:
    """All readings that lie within no other, added up. Ratios are None where their divisor is not known."""

    readings: list[Reading]
    joules: float
    error_j: float
    covers: str
    mean_w: float
    """Sum of the readings' means."""
    peak_w: float
    """At most: the readings' peaks need not have been at one moment."""
    measured_share: float | None
    """Of the duration, in which it was measured: the least of any reading."""
    per_sample_j: float | None
    per_useful_sample_j: float | None
    """Useful: not done again after a restart."""
    samples: int | None
    node_seconds: float
    idle_joules: float
    """While no step was trained."""
    epochs: list[EpochEnergy]

    @property
    def watt_hours(self) -> float:
        return self.joules / J_PER_WH

    def cost(self, price_per_node_hour: float) -> float:
        """In the currency of the price, for the time that the nodes were held."""
        return price_per_node_hour * self.node_seconds / 3_600

    def cost_per_sample(self, price_per_node_hour: float) -> float | None:
        return self.cost(price_per_node_hour) / self.samples if self.samples else None


def energy(state: SessionState, redone_samples: int = 0) -> Energy | None:
    """None where no power was measured on any node."""
    readings = [reading for _, node in sorted(state.nodes.items()) for reading in _readings(node)]
    outer = [reading for reading in readings if not reading.within]
    if not outer:
        return None
    joules, trained, duration = math.fsum(r.joules for r in outer), samples(state), elapsed(state)
    useful = trained - redone_samples if trained is not None else None
    return Energy(
        readings=readings,
        joules=joules,
        error_j=math.hypot(*(r.error_j for r in outer)),
        covers=" + ".join(dict.fromkeys(r.name for r in outer)),
        mean_w=math.fsum(r.mean_w for r in outer),
        peak_w=math.fsum(r.peak_w for r in outer),
        measured_share=min(min(r.seconds for r in outer) / duration, 1.0) if duration else None,
        per_sample_j=joules / trained if trained else None,
        per_useful_sample_j=joules / useful if useful and useful > 0 else None,
        samples=trained,
        node_seconds=(duration or 0.0) * len(state.nodes),
        idle_joules=math.fsum(node.idle_joules for node in state.nodes.values()),
        epochs=_by_epoch(state, joules),
    )


def joules_so_far(state: SessionState) -> float | None:
    """Of all readings that lie within no other; None without one."""
    parts = [rail.joules for node in state.nodes.values() for rail in node.rails.values() if rail.seconds and not rail.within]
    parts += [gpu.joules for node in state.nodes.values() for gpu in node.gpus.values() if gpu.power_s]
    return math.fsum(parts) if parts else None


def _by_epoch(state: SessionState, joules: float) -> list[EpochEnergy]:
    begun = [epoch for _, epoch in sorted(state.epochs.items()) if epoch.joules_before is not None]
    ends = [*(epoch.joules_before for epoch in begun), joules][1:]
    interval_s = max((node.sample.interval_s for node in state.nodes.values() if node.sample is not None), default=0.0)
    found = []
    for epoch, end in zip(begun, ends, strict=True):
        if epoch.joules_before is None or end is None or epoch.started is None or epoch.ended is None:
            continue
        spent, lasted = end - epoch.joules_before, epoch.ended - epoch.started
        # Each end lies anywhere in an interval, with the power of the epoch: two uniform errors.
        error = _SIGMAS * spent / lasted * interval_s / math.sqrt(6) if lasted > 0 else math.inf
        if error < spent:
            per_sample = spent / epoch.samples if epoch.samples else None
            found.append(EpochEnergy(epoch.epoch, spent, error, per_sample))
    return found


def _readings(node: NodeState) -> Iterable[Reading]:
    host = node.host or node.node
    for name, rail in sorted(node.rails.items()):
        if rail.seconds:
            yield _reading(host, name, rail.joules, rail.seconds, rail.series, rail.within)
    for index, gpu in sorted(node.gpus.items()):
        if gpu.power_s:
            yield _reading(host, f"gpu{index}", gpu.joules, gpu.power_s, gpu.series, "")


def _reading(host: str, name: str, joules: float, seconds: float, series: PowerSeries, within: str) -> Reading:
    return Reading(
        node=host,
        name=name,
        joules=joules,
        error_j=math.hypot(_SIGMAS * math.sqrt(series.squares), series.ends),
        seconds=seconds,
        mean_w=joules / seconds,
        peak_w=series.highest_w,
        counted_share=series.counted_s / seconds,
        within=within,
    )
