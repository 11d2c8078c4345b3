"""Energy of a session: joules with an error, what they cover, and what they come to per sample, useful sample and epoch.

A counter of energy is preferred to watts times time. Watts are samples: between two that differ the change may have been at
any moment, an error of the difference times the interval over the root of 12; where they go up and down from one to the next,
power does so between them too, and each may be off by as much as they differ. As a sample stands for the time before it, what
the power rose by in all counts half. Of few samples all this is known badly: Student's t stands for that. Samples that are all
alike tell nothing of what was between them, and no error is made up. A counter is off by what it has not counted yet at the
ends. Where nothing was measured no energy is made up: the joules are of the measured seconds, which are told beside them.

An epoch begins and ends within a reading, which is divided as if the power had not changed in it. Where it did so at that very
moment, a counter's reading is off by the change times its length times f(1 - f), f being the share before; the watts of a
reading's end, taken for all of it, are off by one of the two shares, at the end of the epoch alone or at its start.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from distmon.core.energy_trail import KEEP_S, EnergyTrail, Spent
from distmon.core.epochs import Epoch
from distmon.core.intervals import student
from distmon.core.leaps import REASON, all_leaps, clocks, in_step, told_once
from distmon.core.measures import elapsed, samples_with_unknown
from distmon.core.state import NodeState, PowerSeries, SessionState

COUNTER_PERIOD_S = 0.1
"""How often drivers bring their counter of energy up to date."""
_SIGMAS = 1.96
_TURNS = 5 / 6
_DEGREES = 2 / 3
"""Of freedom, for each change from one reading to the next: neighbouring ones share a reading."""
LEAST_READINGS = 3
"""Fewer watts tell nothing of how the power changes between them."""
J_PER_WH = 3_600.0
NEARLY_ALL = 0.95
"""Of the time: joules of less stand for no more samples than were trained meanwhile, and how many those are is not known."""
_COUNTED_VARIANCE, _SAMPLED_VARIANCE = 1 / 30, 1 / 6
"""Of the joules at an end of an epoch, f being anything from 0 to 1, as a share of the square of the change times the length.

Of watts it would be a third at one of the ends: with what the sum over readings has of it, a sixth at both holds 95 %.
"""
_MOST_TIMES = 100
"""A GPU that draws its most may have rested for the moment at which its power was read."""


def jumped(counted_j: float, watts: float | None, interval_s: float) -> bool:
    """Whether a counter went back, or on by what no device used: it was set anew, and says nothing of the time since."""
    return counted_j < 0 or (watts is not None and 0 < _MOST_TIMES * watts * interval_s < counted_j)


def add_power(series: PowerSeries, at: float, joules: float, interval_s: float, counted: bool) -> float:
    """Takes in one reading of the `interval_s` before `at`, and gives the variance of its joules."""
    if series.since is None:
        series.since = at - interval_s
    series.readings += 1
    watts = joules / interval_s if interval_s > 0 else 0.0
    series.highest_w = max(series.highest_w, watts)
    variance = 0.0
    if counted:
        if series.counted_s == 0:
            series.ends = 2 * watts * COUNTER_PERIOD_S
        series.counted_s += interval_s
        series.last_change_j = 0.0
    elif series.last_w is not None:
        change_j = (watts - series.last_w) * interval_s
        # By turns up and down, this adds up to half of the squares: the variance of samples that have nothing to do with another.
        variance = change_j**2 / 12 + _TURNS * max(-change_j * series.last_change_j, 0.0)
        series.squares += variance
        series.rise_j += change_j
        series.last_change_j = change_j
    series.last_w = watts
    return variance


def settle(state: SessionState) -> None:
    """Keeps what had been spent when epochs began and ended, once so long after that nothing of it is still to be told."""
    trail = state.trail
    if state.stepped_until < trail.settled_at + KEEP_S:
        return
    trail.settled_at = state.stepped_until
    keep_s = max(KEEP_S, 3 * trail.interval_s)
    told_until = state.stepped_until - keep_s
    for number in sorted(state.unsettled_epochs):
        epoch = state.epochs.get(number)
        if epoch is None or epoch.started is None or epoch.ended is None:
            state.unsettled_epochs.discard(number)
            continue
        if epoch.started < told_until:
            epoch.spent_before = _at(trail, epoch.started, epoch.spent_before)
        if epoch.ended < told_until:
            epoch.spent_until = _at(trail, epoch.ended, epoch.spent_until)
            state.unsettled_epochs.discard(number)
    trail.drop_before(told_until - keep_s)


def _at(trail: EnergyTrail, moment: float, known: Spent | None) -> Spent | None:
    """What had been spent at a moment, or at the one that was taken for it before."""
    return known if known is not None and known.at == moment else trail.spent(moment) or known


@dataclass(slots=True, frozen=True)
class Reading:
    """One rail or GPU over the session."""

    node: str
    name: str
    joules: float
    error_j: float | None
    """Half of a 95 % interval; None of watts that were read fewer than LEAST_READINGS times, or were the same each time."""
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
    error_j: float | None
    """Half of a 95 % interval; None of watts that were the same each time."""
    per_sample_j: float | None


@dataclass(slots=True, frozen=True)
class Energy:
    """All readings that lie within no other, added up. Ratios are None where their divisor is not known.

    None per sample is known either where power was not measured for nearly all of the time.
    """

    readings: list[Reading]
    joules: float
    error_j: float | None
    """None where that of a reading is."""
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
    """Those of steps whose own are not known among them, taken to be as the others: joules and price are of all steps."""
    node_seconds: float
    idle_joules: float | None
    """While no step was trained; None where clocks were set."""
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
    joules, trained, duration = math.fsum(r.joules for r in outer), samples_with_unknown(state), elapsed(state)
    useful = trained - redone_samples if trained is not None else None
    due = _due(state)
    due_s = _due_s(due, -math.inf, math.inf)
    measured = min(state.trail.all_seconds / due_s, 1.0) if due_s > 0 else None
    whole = measured is not None and measured >= NEARLY_ALL
    epochs, no_epoch = _by_epoch(state, due, math.fsum(r.counted_share * r.joules for r in outer) / joules if joules else 0.0)
    one_clock = not any(all_leaps(state))
    errors = [r.error_j for r in outer if r.error_j is not None]
    return Energy(
        readings=readings,
        joules=joules,
        error_j=math.hypot(*errors) if len(errors) == len(outer) else None,
        covers=" + ".join(dict.fromkeys(r.name for r in outer)),
        mean_w=math.fsum(r.mean_w for r in outer),
        peak_w=math.fsum(r.peak_w for r in outer),
        measured_share=measured,
        per_sample_j=joules / trained if whole and trained else None,
        per_useful_sample_j=joules / useful if whole and useful and useful > 0 else None,
        samples=trained,
        node_seconds=(duration or 0.0) * len(state.nodes),
        idle_joules=state.trail.idle(ended=state.job.status != "running" or state.complete) if one_clock else None,
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


def _by_epoch(
    state: SessionState, due: list[tuple[float, float]], counted_share: float
) -> tuple[list[EpochEnergy], dict[int, str]]:
    """Epochs with their energy, and why others have none."""
    interval_s = max((node.least_interval_s or 0.0 for node in state.nodes.values()), default=0.0)
    found, lacking, leaps, of_ranks = [], {}, all_leaps(state), clocks(state)
    for number, epoch in sorted(state.epochs.items()):
        if epoch.started is None or epoch.ended is None:
            continue
        # What is spent is known by times, of which some come twice.
        if not (in_step(of_ranks, *epoch.places) and told_once(leaps, epoch.started, epoch.ended)):
            lacking[number] = REASON
            continue
        measured = _measured(state.trail, epoch, epoch.started, epoch.ended, due, counted_share)
        if isinstance(measured, str):
            lacking[number] = measured
        elif epoch.ended - epoch.started < interval_s:
            lacking[number] = f"it is too short for readings every {interval_s:.1f} s"
        else:
            joules, error = measured
            found.append(EpochEnergy(number, joules, error, joules / epoch.samples if epoch.samples else None))
    return found, lacking


def _measured(
    trail: EnergyTrail, epoch: Epoch, started: float, ended: float, due: list[tuple[float, float]], counted_share: float
) -> tuple[float, float | None] | str:
    """Joules with their error as in EpochEnergy, or why there are none."""
    before, until = _at(trail, started, epoch.spent_before), _at(trail, ended, epoch.spent_until)
    lasted = ended - started
    if before is None or until is None or abs(before.at - started) + abs(until.at - ended) > (1 - NEARLY_ALL) * lasted:
        return f"its steps were told more than {KEEP_S:.0f} s after others"
    due_s = _due_s(due, started, ended)
    share = (until.seconds - before.seconds) / due_s if due_s > 0 else 1.0
    if share < NEARLY_ALL:
        return f"power was measured for {int(100 * max(share, 0.0))} % of its time"
    joules = until.joules - before.joules
    of_changes = counted_share * _COUNTED_VARIANCE + (1 - counted_share) * _SAMPLED_VARIANCE
    variance = until.variance - before.variance + of_changes * (before.change_j**2 + until.change_j**2)
    error = _SIGMAS * math.sqrt(max(variance, 0.0))
    if lasted > 0:
        error = math.hypot(error, 2 * counted_share * joules / lasted * COUNTER_PERIOD_S)
    if error >= joules:
        return "between readings the power changes by too much for so short a time"
    return joules, error or None


def _readings(node: NodeState) -> Iterable[Reading]:
    host = node.host or node.node
    for name, rail in sorted(node.rails.items()):
        if rail.seconds:
            yield _reading(host, name, rail.joules, rail.seconds, rail.series, rail.within)
    for index, gpu in sorted(node.gpus.items()):
        if gpu.power_s:
            yield _reading(host, f"gpu{index}", gpu.joules, gpu.power_s, gpu.series, "")


def _reading(host: str, name: str, joules: float, seconds: float, series: PowerSeries, within: str) -> Reading:
    # Before the first reading it is taken to have gone on as after it.
    changes = max(series.readings - 1, 1)
    longer, rise_j = series.readings / changes, series.rise_j * series.readings / changes
    error = math.hypot(student(_DEGREES * changes) * math.sqrt(longer * series.squares), series.ends) + abs(rise_j) / 2
    if series.readings < LEAST_READINGS and not series.counted_s:
        error = 0.0
    return Reading(
        node=host,
        name=name,
        joules=joules,
        error_j=error if error or series.counted_s else None,
        seconds=seconds,
        mean_w=joules / seconds,
        peak_w=series.highest_w,
        counted_share=series.counted_s / seconds,
        within=within,
    )
