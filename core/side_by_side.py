"""Two sessions side by side at moments that belong together: what each measured so far, and in words what makes the difference.

The moments are locked by steps of rank 0, by time since the job's start, or by epochs. Differences are B less A. What makes one
slower is told from the mean steady step: the phases that grew, with the wait for the last rank apart from the transfer.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from distmon.core.finding import Verdict, phase_words
from distmon.core.intervals import Interval, ratio
from distmon.core.measures import (
    ALL_PHASES,
    RankRow,
    current_generation,
    elapsed,
    node_means,
    progress,
    rank_rows,
    rolling_throughput,
    samples_history,
    step_quantiles,
    step_series,
    step_split,
    steps,
    throughput_history,
)
from distmon.core.state import SessionState
from distmon.core.steady import SteadySpeed, run_speed
from distmon.core.verdicts import verdicts
from distmon.core.waited import steady_throughput

Lock = Literal["step", "time", "epoch"]
LOCKS: tuple[Lock, ...] = get_args(Lock)
Better = Literal["more", "less", ""]
LEAST_DIFFERENCE = 0.01
"""Speeds that differ by less are called the same."""
LEAST_PART = 0.15
"""Of the difference of the steps: a phase that makes less of it is not named."""
MOST_PARTS = 3
POINTS = 600
TICK_S = 1.0
LOSSES = ("loss", "train_loss", "val_loss")


@dataclass(slots=True, frozen=True)
class Measure:
    """`better` says in which direction it is; `share` is for values that are shares of 1."""

    name: str
    unit: str
    better: Better = ""


MEASURES = (
    Measure("throughput", "samples/s", "more"),
    Measure("last 30 s", "samples/s", "more"),
    Measure("step p50", "s", "less"),
    Measure("step p95", "s", "less"),
    *(Measure(phase, "s", "less") for phase in ALL_PHASES),
    Measure("communication share", "share", "less"),
    Measure("wait for the last rank", "s", "less"),
    Measure("latest rank", "s", "less"),
    Measure("CPU", "percent"),
    Measure("power", "W", "less"),
    Measure("loss", "", "less"),
)


@dataclass(slots=True, frozen=True)
class Standing:
    """How far a session is. `epoch` counts from 0 and has a fraction; None where epochs are not known."""

    step: int
    time_s: float
    epoch: float | None


@dataclass(slots=True, frozen=True)
class Side:
    """One session at its moment. `values` has what was measured; the split of a step is of steady steps, in seconds."""

    standing: Standing
    ranks: int | None
    samples_per_step: float | None
    speed: SteadySpeed | None
    values: dict[str, float]
    latest: int | None
    """The rank that is latest to the collective now."""
    late: tuple[tuple[int, str | None], ...]
    """Ranks that the findings name as late, and in which phase."""


@dataclass(slots=True, frozen=True)
class Row:
    measure: Measure
    a: float | None
    b: float | None

    @property
    def difference(self) -> float | None:
        """B less A."""
        return None if self.a is None or self.b is None else self.b - self.a

    @property
    def percent(self) -> float | None:
        """Of A; None for shares, which differ in points, and where A is nothing."""
        if self.a is None or self.b is None or not self.a or self.measure.unit in ("share", "percent"):
            return None
        return 100 * (self.b / self.a - 1)


def standing(state: SessionState) -> Standing:
    done, here = steps(state), progress(state)
    epoch = None
    if here.steps_per_epoch:
        epoch = done / here.steps_per_epoch
    elif here.epoch is not None:
        epoch = float(here.epoch)
    return Standing(done, elapsed(state) or 0.0, epoch)


def side(state: SessionState) -> Side:
    """Of a state of which nothing is known yet."""
    return side_of(state, rank_rows(state), verdicts(state), run_speed(state))


def side_of(state: SessionState, rows: Sequence[RankRow], found: Sequence[Verdict], speed: SteadySpeed | None) -> Side:
    """With this state's rows, findings and speed."""
    generation = current_generation(state)
    lateness = {row.rank: row.lateness_s for row in rows if row.lateness_s is not None}
    latest = max(lateness, key=lambda rank: lateness[rank], default=None)
    values: dict[str, float | None] = {
        "throughput": steady_throughput(state).mean,
        "last 30 s": rolling_throughput(state),
        "latest rank": lateness[latest] if latest is not None and len(lateness) > 1 else None,
        "loss": _loss(state),
        **_of_nodes(state),
        **_of_steps(state),
    }
    late = tuple((v.rank, v.phase) for v in found if v.kind == "straggler" and v.rank is not None and v.pattern != "transient")
    per_step = None
    if generation is not None and generation.sampled and (counts := step_series(generation)[1]):
        per_step = math.fsum(counts) / len(counts) / generation.series.width
    return Side(
        standing(state),
        generation.world_size or len(generation.ranks) if generation else None,
        per_step,
        speed,
        {name: value for name, value in values.items() if value is not None},
        latest,
        late,
    )


def _of_steps(state: SessionState) -> dict[str, float | None]:
    generation, split = current_generation(state), step_split(current_generation(state))
    if generation is None or split is None:
        return {}
    found: dict[str, float | None] = {phase: split.phase(phase) for phase in ALL_PHASES}
    found |= zip(("step p50", "step p95"), step_quantiles(generation, 0.5, 0.95), strict=True)
    found["communication share"] = split.share("exposed_communication")
    arrivals = generation.arrivals
    if (rank_ns := arrivals.joined_ns * len(arrivals.ranks)) and split.exposed_communication is not None:
        found["wait for the last rank"] = min(arrivals.waiting_ns / rank_ns * split.step_s, split.exposed_communication)
    return found


def _of_nodes(state: SessionState) -> dict[str, float | None]:
    means = [node_means(node) for _, node in sorted(state.nodes.items())]
    cpu = [m.cpu_percent for m in means if m.cpu_percent is not None]
    power = [m.power_w for m in means if m.power_w is not None]
    return {"CPU": math.fsum(cpu) / len(cpu) if cpu else None, "power": math.fsum(power) if power else None}


def _loss(state: SessionState) -> float | None:
    """The last that the lowest rank logged; else the last that was printed with an epoch."""
    logged = [state.ranks[rank].metrics for rank in sorted(state.ranks)[:1]]
    sources = [{name: metric.value for name, metric in metrics.items()} for metrics in logged]
    sources += [state.printed[epoch] for epoch in sorted(state.printed, reverse=True)[:1]]
    return next((metrics[name] for metrics in sources for name in LOSSES if name in metrics), None)


def rows_of(a: Side, b: Side | None) -> list[Row]:
    """What either has, in the order of MEASURES; without B, what A has."""
    others = b.values if b is not None else {}
    found = [Row(measure, a.values.get(measure.name), others.get(measure.name)) for measure in MEASURES]
    return [row for row in found if row.a is not None or row.b is not None]


# --- in words -----------------------------------------------------------------------------------------------------


def difference_words(a: Side, b: Side) -> str:
    """Which of the two is faster, by how much, and what makes it so."""
    compared = _speeds(a, b)
    if compared is None:
        return "too few steps yet to tell a difference"
    change, sure = compared
    unlike = _unlike(a, b)
    if not sure or abs(change) < LEAST_DIFFERENCE:
        return "; ".join([f"no difference shown: B's speed is within {max(abs(change), LEAST_DIFFERENCE):.0%} of A's", *unlike])
    slower = change < 0
    said = f"B is {abs(change):.0%} {'slower' if slower else 'faster'}"
    made = [*unlike, *_parts(a, b, slower)]
    return f"{said}: {', '.join(made)}" if made else f"{said}; no phase of the step stands out"


def _speeds(a: Side, b: Side) -> tuple[float, bool] | None:
    """B's steady speed over A's, less 1, and whether it is more than how steps vary; by steps where samples were not seen.

    None where a side has too few steps to tell how they vary.
    """
    if a.speed is not None and b.speed is not None:
        ours, theirs = b.speed.samples_per_s, a.speed.samples_per_s
        if not isinstance(ours, Interval) or not isinstance(theirs, Interval):
            return None
        return b.speed.estimate / a.speed.estimate - 1, ratio(theirs, ours).excludes(1.0)
    before, after = a.values.get("step p50"), b.values.get("step p50")
    return (before / after - 1, True) if before and after else None


def _unlike(a: Side, b: Side) -> list[str]:
    """What makes the sides hard to compare step by step."""
    found = []
    if a.ranks and b.ranks and a.ranks != b.ranks:
        found.append(f"it has {b.ranks} ranks, A {a.ranks}")
    if a.samples_per_step and b.samples_per_step and abs(b.samples_per_step / a.samples_per_step - 1) > 0.02:
        found.append(f"{b.samples_per_step:,.0f} samples a step, A {a.samples_per_step:,.0f}")
    return found


def _parts(a: Side, b: Side, slower: bool) -> list[str]:
    """The parts of the step that make B slower or faster, the greatest first; none where its steps tell the opposite."""
    before, after = _split(a), _split(b)
    differences = {name: after[name] - before[name] for name in before.keys() & after.keys()}
    total = math.fsum(differences.values())
    if (total > 0) is not slower:
        return []
    ordered = sorted(differences.items(), key=lambda item: (-item[1] if total > 0 else item[1], item[0]))
    named = [(name, d) for name, d in ordered if d * total > 0 and abs(d) >= LEAST_PART * abs(total)]
    return [f"{1e3 * d:+.1f} ms {_PARTS.get(name) or phase_words(name)}{_who(name, d, a, b)}" for name, d in named[:MOST_PARTS]]


_PARTS = {"input_wait": "waiting for input", "rest": "other code"}


def _split(one: Side) -> dict[str, float]:
    """Seconds of the mean step; the wait for the last rank taken out of the exposed communication."""
    found = {name: one.values[name] for name in (*ALL_PHASES, "wait for the last rank") if name in one.values}
    if "wait for the last rank" in found:
        found["exposed_communication"] -= found["wait for the last rank"]
    return found


def _who(part: str, difference: float, a: Side, b: Side) -> str:
    """The ranks that are waited for on the slower side."""
    late = (b if difference > 0 else a).late
    if part != "wait for the last rank" or not late:
        return ""
    rank, phase = late[0]
    where = f" in {phase_words(phase)}" if phase else ""
    more = f" and {len(late) - 1} more" if len(late) > 1 else ""
    return f" ({'' if difference > 0 else 'A: '}rank {rank}{more} late{where})"


# --- moments that belong together ---------------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class Landmarks:
    """What is needed of a whole session to find its moments."""

    job_started: float
    """Seconds since the epoch, like the times of `epochs`."""
    steps_per_epoch: int | None
    epochs: dict[int, tuple[float, float]]
    """Start of the first step and end of the last."""


def landmarks(state: SessionState) -> Landmarks:
    """Of the state at a session's end."""
    begun = state.job.started.at if state.job.started else state.started
    epochs = {
        number: (epoch.started, epoch.ended)
        for number, epoch in state.epochs.items()
        if epoch.started is not None and epoch.ended is not None
    }
    return Landmarks(begun if begun is not None else state.now, progress(state).steps_per_epoch, epochs)


@dataclass(slots=True, frozen=True)
class End:
    """The last moment of a session, and whether its job had ended by then."""

    standing: Standing
    ended: bool


def end_of(state: SessionState) -> End:
    """Of the state at a session's end."""
    return End(standing(state), state.job.status == "ended")


def is_past(lock: Lock, of: Standing, end: Standing) -> bool:
    """Whether a session that stands at `of` is further than another one ever came. Times are told once a second."""
    if lock == "step":
        return of.step > end.step
    if lock == "time":
        return of.time_s > end.time_s + TICK_S
    return of.epoch is not None and end.epoch is not None and of.epoch > end.epoch


def place(lock: Lock, of: Standing, marks: Landmarks) -> tuple[Literal["step", "at"], float] | None:
    """Where the session of these landmarks is to be looked at: a step, or seconds since the epoch; None where it is not known."""
    if lock == "time":
        return "at", marks.job_started + of.time_s
    if lock == "step":
        return "step", float(of.step)
    if of.epoch is None:
        return None
    if marks.steps_per_epoch:
        return "step", of.epoch * marks.steps_per_epoch
    if (number := int(of.epoch)) not in marks.epochs:
        return ("at", max(end for _, end in marks.epochs.values())) if marks.epochs else None
    started, ended = marks.epochs[number]
    return "at", started + (of.epoch - number) * (ended - started)


# --- curves -------------------------------------------------------------------------------------------------------


def curve(state: SessionState, lock: Lock) -> list[tuple[float, float | None]]:
    """(step, seconds since the job's start, or epoch; samples/s of the job), at most about POINTS of them."""
    if lock == "time":
        begun = landmarks(state).job_started
        found = [(at - begun, value) for at, value in throughput_history(state)]
        every = max(-(-len(found) // POINTS), 1)
        return [_mean_point(found[i : i + every]) for i in range(0, len(found), every)]
    by_step = _by_step(state)
    if lock == "step":
        return by_step
    per_epoch = progress(state).steps_per_epoch
    return [(step / per_epoch, value) for step, value in by_step] if per_epoch else []


def _mean_point(points: Sequence[tuple[float, float | None]]) -> tuple[float, float | None]:
    known = [value for _, value in points if value is not None]
    return math.fsum(x for x, _ in points) / len(points), math.fsum(known) / len(known) if known else None


def _by_step(state: SessionState) -> list[tuple[float, float | None]]:
    generation = current_generation(state)
    if generation is None or not generation.sampled:
        return []
    durations, counts = step_series(generation)
    width = generation.series.width
    first = max(steps(state) - len(durations) * width, 0)
    every = max(-(-len(durations) // POINTS), 1)
    found: list[tuple[float, float | None]] = []
    for i in range(0, len(durations), every):
        seconds = math.fsum(durations[i : i + every]) * width
        middle = first + (i + min(every, len(durations) - i) / 2) * width
        found.append((middle, sum(counts[i : i + every]) / seconds if seconds > 0 else None))
    return found


# --- between moments and the axis of the curves -------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class Axis:
    """Places on the axis of one session's curve and their moments, both rising; between two of them it is taken as even."""

    moments: Sequence[float]
    """Seconds since the epoch."""
    places: Sequence[float]

    def x_of(self, at: float) -> float:
        return _between(self.moments, self.places, at)

    def at(self, x: float) -> float:
        return _between(self.places, self.moments, x)


def axis_of(state: SessionState, lock: Lock) -> Axis | None:
    """Of the session's curve; None where it has none. Steps are spread over time as the samples were."""
    begun = landmarks(state).job_started
    if lock == "time":
        return Axis((begun, begun + 1.0), (0.0, 1.0))
    history = state.history
    done, per_epoch = steps(state), progress(state).steps_per_epoch if lock == "epoch" else 1
    if history is None or not done or not per_epoch:
        return None
    points = samples_history(state)
    moments, counts = [at - history.width_s / 2 for at, _ in points[:1]], [0.0]
    for at, count in points:
        moments.append(at + history.width_s / 2)
        counts.append(counts[-1] + count)
    if not counts[-1]:
        return None
    return Axis(moments, [count / counts[-1] * done / per_epoch for count in counts])


def _between(xs: Sequence[float], ys: Sequence[float], x: float) -> float:
    """By a straight line between neighbours, and on beyond the last and before the first."""
    right = min(max(bisect_left(xs, x), 1), len(xs) - 1)
    low, high = xs[right - 1], xs[right]
    share = (x - low) / (high - low) if high > low else 0.0
    return ys[right - 1] + share * (ys[right] - ys[right - 1])
