"""Energy of a session: joules with an error, what they cover, and what they come to per sample, useful sample and epoch.

A counter of energy is preferred to watts times time. Watts are samples: between two that differ the change may have been at
any moment, an error of the difference times the interval over the root of 12. A counter is off by what it has not counted yet
at the ends. Where nothing was measured no energy is made up: the joules are of the measured seconds, which are told beside them.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter

from distmon.core.epochs import Epoch, Spent
from distmon.core.measures import elapsed, samples
from distmon.core.state import NodeState, PowerSeries, SessionState

COUNTER_PERIOD_S = 0.1
"""How often drivers bring their counter of energy up to date."""
_SIGMAS = 1.96
J_PER_WH = 3_600.0
IDLE_AFTER_S = 3.0
"""Energy spent this long after the last known step, and more, trains nothing. Steps are told once a second."""
NEARLY_ALL = 0.95
"""Of the time: joules of less stand for no more samples than were trained meanwhile, and how many those are is not known."""
_TRAIL_EVERY_S = 0.5


def add_power(series: PowerSeries, at: float, joules: float, interval_s: float, counted: bool) -> None:
    """Takes in one reading of the `interval_s` before `at`."""
    if series.since is None:
        series.since = at - interval_s
    watts = joules / interval_s if interval_s > 0 else 0.0
    series.highest_w = max(series.highest_w, watts)
    if counted:
        if series.counted_s == 0:
            series.ends = 2 * watts * COUNTER_PERIOD_S
        series.counted_s += interval_s
    elif series.last_w is not None:
        series.squares += ((watts - series.last_w) * interval_s) ** 2 / 12
    series.last_w = watts


def add_spent(state: SessionState, at: float, lasted_s: float, joules: float, seconds: float) -> None:
    """What all outer readings of one sample add, of the `lasted_s` before `at`; `seconds` are added up over the readings."""
    trail, before = state.energy_trail, state.spent
    if not trail or at - lasted_s > before.at:
        trail.append(Spent(at - lasted_s, before.joules, before.seconds))
    last = trail[-1]
    state.spent = now = Spent(at if at > last.at else last.at, before.joules + joules, before.seconds + seconds)
    if len(trail) > 1 and now.at - trail[-2].at < _TRAIL_EVERY_S:
        trail[-1] = now
        return
    trail.append(now)
    while len(trail) > 2 and trail[1].at < state.stepped_until - IDLE_AFTER_S:
        trail.popleft()  # no step that is still to be told began or ended before
    lead = state.ranks.get(0)
    if lead is not None and lead.epoch is not None:
        for number in (lead.epoch - 1, lead.epoch):  # the last steps of the one before may have come after the next began
            if (epoch := state.epochs.get(number)) is not None:
                epoch.spent_before, epoch.spent_until = _bounds(state, epoch)


def _bounds(state: SessionState, epoch: Epoch) -> tuple[Spent | None, Spent | None]:
    """What had been spent at its first step's start and at its last step's end, as the trail says, or as it said before."""
    if epoch.started is None or epoch.ended is None:
        return epoch.spent_before, epoch.spent_until
    return _spent_at(state, epoch.started) or epoch.spent_before, _spent_at(state, epoch.ended) or epoch.spent_until


def _spent_at(state: SessionState, moment: float) -> Spent | None:
    """None of a moment before the trail; after it, what was spent in all."""
    trail = state.energy_trail
    place = bisect_right(trail, moment, key=attrgetter("at"))
    if not place or place == len(trail):
        return trail[-1] if place else None
    before, after = trail[place - 1], trail[place]
    share = (moment - before.at) / (after.at - before.at)
    return Spent(moment, *(b + share * (a - b) for b, a in zip(before[1:], after[1:], strict=True)))


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
    """From the start of the epoch's first step to the end of its last."""

    epoch: int
    joules: float
    error_j: float
    """Half of a 95 % interval: each end lies anywhere between two readings."""
    per_sample_j: float | None


@dataclass(slots=True, frozen=True)
class Energy:
    """All readings that lie within no other, added up. Ratios are None where their divisor is not known.

    None per sample is known either where power was not measured for nearly all of the time.
    """

    readings: list[Reading]
    joules: float
    error_j: float
    covers: str
    mean_w: float
    """Sum of the readings' means."""
    peak_w: float
    """At most: the readings' peaks need not have been at one moment."""
    measured_share: float | None
    """Of the time that the readings should have been there, added up over them."""
    per_sample_j: float | None
    per_useful_sample_j: float | None
    """Useful: not done again after a restart."""
    samples: int | None
    node_seconds: float
    idle_joules: float
    """While no step was trained."""
    epochs: list[EpochEnergy]
    no_epoch: dict[int, str]
    """Epoch that was trained and is not among those -> why."""

    @property
    def nearly_all(self) -> bool:
        """Whether power was measured for nearly all of the time."""
        return self.measured_share is not None and self.measured_share >= NEARLY_ALL

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
    due = _due(state)
    due_s = _due_s(due, -math.inf, math.inf)
    measured = min(state.spent.seconds / due_s, 1.0) if due_s > 0 else None
    whole = measured is not None and measured >= NEARLY_ALL
    epochs, no_epoch = _by_epoch(state, due)
    return Energy(
        readings=readings,
        joules=joules,
        error_j=math.hypot(*(r.error_j for r in outer)),
        covers=" + ".join(dict.fromkeys(r.name for r in outer)),
        mean_w=math.fsum(r.mean_w for r in outer),
        peak_w=math.fsum(r.peak_w for r in outer),
        measured_share=measured,
        per_sample_j=joules / trained if whole and trained else None,
        per_useful_sample_j=joules / useful if whole and useful and useful > 0 else None,
        samples=trained,
        node_seconds=(duration or 0.0) * len(state.nodes),
        idle_joules=math.fsum(node.idle_joules for node in state.nodes.values()),
        epochs=epochs,
        no_epoch=no_epoch,
    )


def _due(state: SessionState) -> list[tuple[float, float]]:
    """(from, to) of each reading that lies within no other: the time in which it should have been there.

    A node's first reading is due from the job's start on, and all to its end. The hosts of an elastic job come and go: there
    readings are due while they come, but the first of all from the start on.
    """
    start, elastic = state.job.started.at if state.job.started else state.started, bool(state.elastic.rounds)
    end = state.now if start is None else start + (elapsed(state) or 0.0)
    spans = []
    for node in state.nodes.values():
        series = [rail.series for rail in node.rails.values() if not rail.within] + [gpu.series for gpu in node.gpus.values()]
        read = [one.since for one in series if one.since is not None]
        gone = elastic or node.left_at is not None
        until = node.sample.at if gone and node.sample is not None else end
        spans += [(start if start is not None and not elastic and since == min(read) else since, until) for since in read]
    first = min((since for since, _ in spans), default=0.0)
    return [(start if start is not None and since == first else since, until) for since, until in spans]


def _due_s(due: list[tuple[float, float]], begun: float, ended: float) -> float:
    """Seconds between two moments, added up over the readings."""
    return math.fsum(max(min(until, ended) - max(since, begun), 0.0) for since, until in due)


def _by_epoch(state: SessionState, due: list[tuple[float, float]]) -> tuple[list[EpochEnergy], dict[int, str]]:
    """Epochs with their energy, and why others have none."""
    interval_s = max((node.sample.interval_s for node in state.nodes.values() if node.sample is not None), default=0.0)
    found, lacking = [], {}
    for number, epoch in sorted(state.epochs.items()):
        if epoch.started is None or epoch.ended is None:
            continue
        before, until = _bounds(state, epoch)
        if before is None or until is None:
            lacking[number] = "power was not measured when it began"
            continue
        spent, lasted = until.joules - before.joules, epoch.ended - epoch.started
        due_s = _due_s(due, epoch.started, epoch.ended)
        share = (until.seconds - before.seconds) / due_s if due_s > 0 else 1.0
        if share * lasted + interval_s < NEARLY_ALL * lasted:
            lacking[number] = f"power was measured for {share * lasted:.0f} of its {lasted:.0f} s"
            continue
        # Each end lies anywhere in an interval, with the power of the epoch: two uniform errors.
        error = _SIGMAS * spent / lasted * interval_s / math.sqrt(6) if lasted > 0 else math.inf
        if error < spent:
            found.append(EpochEnergy(number, spent, error, spent / epoch.samples if epoch.samples else None))
        else:
            lacking[number] = f"it is too short for readings every {interval_s:.1f} s"
    return found, lacking


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
