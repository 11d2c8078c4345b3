"""What the state says in numbers: throughput, warm-up, the split of a step, progress. Everything that a screen or a report shows
is computed here, once, from the state alone; times in seconds, rates per second."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from distmon.core.batches import PHASES, Sums, add_up
from distmon.core.frozen import is_frozen
from distmon.core.kept_series import KeptSeries, kept_series, ordered_rates, spread_of
from distmon.core.leaps import all_leaps, end_known, start_known, told_once
from distmon.core.once import once
from distmon.core.quantiles import quantile
from distmon.core.reach import unheard
from distmon.core.state import LOST_S, NodeState, SessionState
from distmon.core.steps import EXACT_PREFIX, NEARLY_ALL_SAMPLED, Generation, RankSteps, Totals
from distmon.core.warmup import MIN_STEPS, Warmup, find_warmup, of_merged

ROLLING_S = 30.0
STALE_S = 3.0
ALL_PHASES = (*PHASES, "rest")


class Split(NamedTuple):
    """Mean of a step over ranks, in seconds.

    A phase is that of the steps in which it was seen; the time of one that never was, which is None, is in the rest.
    They add up to the step: where they were seen in longer steps than most, they are given as shares of the mean step.
    """

    step_s: float
    input_wait: float | None
    compute: float | None
    exposed_communication: float | None
    optimizer: float | None
    rest: float

    def phase(self, name: str) -> float | None:
        """The value of one of ALL_PHASES."""
        value: float | None = getattr(self, name)
        return value

    def share(self, name: str) -> float | None:
        """A phase as a share of the step, 0 to 1."""
        value = self.phase(name)
        return None if value is None or self.step_s <= 0 else value / self.step_s


def split(totals: Totals) -> Split | None:
    """The mean step of some totals; None of no steps."""
    return split_of((*totals[:4], *totals.phase_ns, *totals.seen))


def split_of(sums: Sums) -> Split | None:
    """The mean step of some sums; None of no steps."""
    steps, duration = sums[0], sums[1]
    if not steps:
        return None
    step_s = duration / steps / 1e9
    found = [ns / seen / 1e9 if seen else None for ns, seen in zip(sums[4:8], sums[8:12], strict=True)]
    known = sum(value for value in found if value is not None)
    if known > step_s:  # the steps in which phases were seen are longer than the others
        found = [None if value is None else value * step_s / known for value in found]
    a, b, c, d = found
    return Split(step_s, a, b, c, d, max(step_s - known, 0.0))


@dataclass(slots=True, frozen=True)
class Throughput:
    """Samples per second of the whole job after warm-up, over batches (one batch is one step of all ranks).

    Median, p5 and p95 are within `quantile_error` of those of the `quantile_steps`: exact, 0, as long as every batch is known.
    """

    mean: float | None = None
    median: float | None = None
    p5: float | None = None
    p95: float | None = None
    steps: int | None = None
    """So many steps are behind it."""
    quantile_error: float = 0.0
    """A share of the value."""
    quantile_steps: int | None = None
    """Fewer than `steps` after a warm-up of thousands of steps in a run of very many: the bins of it go whole."""
    reason: str = ""
    """Why there is no value, or none of a steady state."""


def current_generation(state: SessionState) -> Generation | None:
    """The latest rendezvous round that has steps."""
    numbers = [number for number, generation in state.generations.items() if generation.ranks]
    return state.generations[max(numbers)] if numbers else None


def forming_round(state: SessionState) -> int | None:
    """The rendezvous round that has no step yet, while an earlier one has; None without one, and when the job is over."""
    if state.job.status == "ended":
        return None
    last = max(state.generations, default=None)
    trained = any(generation.ranks for generation in state.generations.values())
    return last if last is not None and trained and not state.generations[last].ranks else None


def step_series(generation: Generation) -> tuple[list[float], list[int]]:
    """Mean duration over ranks (s) and samples over ranks of each step that all ranks have reported; not to be changed.

    Past the limit of the series one entry is the mean of `width` neighbouring steps.
    """
    kept = _kept(generation)
    return kept.durations, kept.samples


def _kept(generation: Generation) -> KeptSeries:
    complete = min((r.last_step + 1 for r in generation.ranks.values()), default=0) // generation.series.width
    return kept_series(generation.series, len(generation.ranks), complete)


def warmup(generation: Generation) -> Warmup:
    """The warm-up of a generation, looked for again whenever its steps have grown by a twentieth."""
    kept = _kept(generation)
    n = _milestone(len(kept.durations))
    if n < MIN_STEPS:
        return Warmup(shape="too_few_steps", steps=None)
    known = kept.memo.warmup
    if known is None or known[0] != n:
        known = kept.memo.warmup = (n, of_merged(find_warmup(kept.durations[:n]), kept.width))
    return known[1]


def steps_set_aside(generation: Generation) -> int:
    """Steps at the start that means leave out: the warm-up, or the outliers at the start where no steady state was found."""
    found = warmup(generation)
    return found.leading_steps if found.steps is None else found.steps


def stalls(generation: Generation) -> int:
    """Single steps after warm-up of over three times the steady one; they stay in the mean. 0 where no steady state was found."""
    kept, found, singles = _kept(generation), warmup(generation), generation.series.singles
    if found.steps is None or found.steady_step_s is None:
        return 0
    limit = 3 * found.steady_step_s
    if singles is None:
        return sum(duration > limit for duration in kept.durations[found.steps :])
    return spread_of(kept, singles, found.steps).durations.above(1e9 * limit)


def _milestone(n: int) -> int:
    """The largest of a fixed ladder of lengths, each a twentieth longer than the last, so that live and replay climb the same."""
    if n <= 20:
        return n
    rung = int(math.log(n / 20) / math.log(1.05))
    while int(20 * 1.05 ** (rung + 1)) <= n:
        rung += 1
    return min(int(20 * 1.05**rung), n)


def throughput(generation: Generation | None) -> Throughput:
    """Steady throughput: the mean is a ratio of sums, the quantiles are over batches.

    Where no steady state was found it is over all steps but the outliers at the start, and `reason` says so.
    """
    if generation is None:
        return Throughput(reason="no steps yet")
    if not generation.sampled:
        return Throughput(reason="the number of samples in a batch was not seen")
    if warmup(generation).shape == "too_few_steps":
        return Throughput(reason=why_no_warmup(generation))
    kept = _kept(generation)
    skip = steps_set_aside(generation)
    cut = skip // kept.width
    total = math.fsum(kept.durations[cut:]) * kept.width
    found = Throughput(
        mean=sum(kept.samples[cut:]) / total if total > 0 else None,
        steps=(len(kept.durations) - cut) * kept.width,
        reason=why_no_warmup(generation),
    )
    if (singles := generation.series.singles) is None:
        rates = ordered_rates(kept, cut)
        median, p5, p95 = (quantile(rates, q) for q in (0.5, 0.05, 0.95))
        return replace(found, median=median, p5=p5, p95=p95, quantile_steps=len(rates))
    spread = spread_of(kept, singles, skip).rates
    per_s = 1e9 * kept.ranks
    median, p5, p95 = (None if (v := spread.quantile(q)) is None else v * per_s for q in (0.5, 0.05, 0.95))
    return replace(found, median=median, p5=p5, p95=p95, quantile_error=spread.relative_error, quantile_steps=spread.count)


def step_quantiles(generation: Generation, *shares: float) -> list[float | None]:
    """Of the mean duration over ranks (s) of the steady steps; of very many within RELATIVE_ERROR of the exact ones."""
    kept, skip, singles = _kept(generation), steps_set_aside(generation), generation.series.singles
    if singles is None:
        ordered = sorted(kept.durations[skip:])
        return [quantile(ordered, q) for q in shares]
    durations = spread_of(kept, singles, skip).durations
    return [None if (ns := durations.quantile(q)) is None else ns / 1e9 for q in shares]


def why_no_warmup(generation: Generation) -> str:
    """Why it is not known which steps were warm-up; empty where it is."""
    found = warmup(generation)
    if found.steps is not None:
        return ""
    if found.shape == "too_few_steps":
        steps = len(step_series(generation)[0])
        return f"not enough steps to tell warm-up from steady state ({steps} of {MIN_STEPS})"
    return "no steady state: the step time still changes in the second half of the run"


def steady_totals(generation: Generation | None) -> Totals:
    """Sums over ranks and steady steps; where no steady state was found, over all but the outliers at the start."""
    total = Totals()
    if generation is None:
        return total
    skip, ranks = steps_set_aside(generation), generation.ranks.values()
    if skip <= EXACT_PREFIX and all(rank.sums[0] >= skip for rank in ranks):
        return Totals.of(add_up([rank.sums for rank in ranks])).less(_first_totals(generation, skip))
    for rank in ranks:
        total = total.plus(rank.steady(skip))
    return total


def _first_totals(generation: Generation, steps: int) -> Totals:
    """Sums over ranks of their first steps, which all of them have done."""
    memo = _kept(generation).memo
    if memo.first is None or memo.first[0] != steps:
        memo.first = steps, Totals.of(add_up([rank.first_sums(steps) for rank in generation.ranks.values()]))
    return memo.first[1]


def step_split(generation: Generation | None) -> Split | None:
    """Mean of a steady step over ranks."""
    return split(steady_totals(generation))


def rolling_throughput(state: SessionState, window_s: float = ROLLING_S) -> float | None:
    """Samples per second of the whole job over the last seconds; differences within this session only.

    None while a round forms.
    """
    return _rolling(state, window_s, samples=True)


def rolling_steps_per_s(state: SessionState, window_s: float = ROLLING_S) -> float | None:
    """Optimizer steps per second, mean over ranks, over the last seconds."""
    generation = current_generation(state)
    rate = _rolling(state, window_s, samples=False)
    return None if rate is None or generation is None else rate / len(generation.ranks)


def _usual_steps_per_s(state: SessionState) -> float | None:
    """Those of rank 0 past its warm-up while that is within the last seconds; None while it is too early to tell it apart."""
    generation = current_generation(state)
    if generation is None or forming_round(state) is not None:
        return None
    kept, lead = _kept(generation), _lead(generation)
    if lead.first_start is None or lead.last_end is None or not kept.durations:
        return None
    leading = max(steps_set_aside(generation), 1) // kept.width
    since = lead.first_start + math.fsum(kept.durations[:leading]) * kept.width
    end = max(_rolling_end(state, generation), lead.last_end)
    if end - since >= ROLLING_S:
        return rolling_steps_per_s(state)
    done = lead.sums[0] - leading * kept.width
    if warmup(generation).shape == "too_few_steps" or end <= since or not told_once(all_leaps(state), since, end):
        return None
    return done / (end - since)


def _rolling(state: SessionState, window_s: float, *, samples: bool) -> float | None:
    history = state.history
    generation = current_generation(state)
    if history is None or generation is None or (samples and not generation.sampled) or forming_round(state) is not None:
        return None
    end = _rolling_end(state, generation)
    starts = [g.first_start for gen in state.generations.values() for g in gen.ranks.values() if g.first_start is not None]
    ends = [r.last_end for r in generation.ranks.values() if r.last_end is not None]
    begun = min(starts)
    start = max(end - max(window_s, history.width_s), begun)
    if end <= start or not told_once(all_leaps(state), start, end):
        return None
    # Ranks are told of up to different moments: the last bin is filled as far as they are on average.
    told = math.fsum(ends) / len(ends)
    return history.between("samples" if samples else "steps", start, end, (begun, max(told, end))) / (end - start)


def _rolling_end(state: SessionState, generation: Generation) -> float:
    """The end of the last step; now, once the next is overdue and an agent is heard that would tell it, so that stalls show."""
    last = min(r.last_end for r in generation.ranks.values() if r.last_end is not None)
    if (state.job.status == "ended" and state.job.ended_at is not None) or state.now - last <= 5.0:
        return last
    usual = max((r.usual_step_s() for r in generation.ranks.values()), default=0.0)
    return last if state.now - last <= 3 * usual or unheard(state, generation.ranks) else state.now


def session_mean_throughput(state: SessionState) -> float | None:
    """All samples over the time from the first step's start to the last step's end; steps as in `_trained`.

    On ranks whose clocks were not set; None where none is left.
    """
    steps = [r for g in state.generations.values() for r in g.ranks.values()]
    if not steps or any(not g.sampled for g in state.generations.values()):
        return None
    starts = [r.first_start for r in steps if r.first_start is not None and start_known(state, r)]
    ends = [r.last_end for r in steps if r.last_end is not None and end_known(state, r)]
    if not starts or not ends:
        return None
    elapsed = max(ends) - min(starts)
    return math.fsum(_trained(r.sums) for r in steps) / elapsed if elapsed > 0 else None


def throughput_history(state: SessionState) -> list[tuple[float, float | None]]:
    """(time, samples per second) for the chart; a bin's are over the time that was trained of it. None before the first step."""
    history, found = state.history, samples_history(state)
    if history is None or not found:
        return []
    half, (begun, ended) = history.width_s / 2, trained_between(state)
    return [(at, count / bin_s(at - half, at + half, begun, ended)) for at, count in found]


def samples_history(state: SessionState) -> list[tuple[float, float]]:
    """(middle of a bin, samples in it) from the first step on; the last, still filling bin is left out where there are others."""
    history = state.history
    generation = current_generation(state)
    if history is None or generation is None or not generation.sampled:
        return []
    end = min(r.last_end for r in generation.ranks.values() if r.last_end is not None)
    width = history.width_s
    values = history.column("samples")
    first = next((i for i, v in enumerate(values) if v), len(values))
    last = max(int((end - history.origin) / width), first + 1)
    return [(history.origin + (i + 0.5) * width, v) for i, v in enumerate(values[first:last], first)]


def trained_between(state: SessionState) -> tuple[float, float]:
    """The begin of the job's first step, and the end of its last."""
    ranks = [rank for generation in state.generations.values() for rank in generation.ranks.values()]
    begun = min((rank.first_start for rank in ranks if rank.first_start is not None), default=-math.inf)
    return begun, max((rank.last_end for rank in ranks if rank.last_end is not None), default=math.inf)


def bin_s(left: float, right: float, begun: float, ended: float) -> float:
    """Seconds of a bin that lie in the training; all of one that lies outside, as what was before the origin is in the first."""
    trained = min(right, ended) - max(left, begun)
    return trained if trained > 0 else right - left


def samples(state: SessionState) -> int | None:
    """All samples trained, over all ranks, without those of the few steps whose own are not known; None where most are not."""
    found = [g for g in state.generations.values() if g.ranks]
    if not found or any(not g.sampled for g in found):
        return None
    return sum(r.sums[2] for g in found for r in g.ranks.values())


def samples_with_unknown(state: SessionState) -> int | None:
    """All samples trained, those of steps whose own are not known taken to be as the others of their rank."""
    if samples(state) is None:
        return None
    return round(math.fsum(_trained(r.sums) for g in state.generations.values() for r in g.ranks.values()))


def steps(state: SessionState) -> int:
    """Optimizer steps of rank 0, over all generations."""
    return sum(_lead(g).totals.steps for g in state.generations.values() if g.ranks)


def _lead(generation: Generation) -> RankSteps:
    return generation.ranks[min(generation.ranks)]


@dataclass(slots=True, frozen=True)
class Progress:
    """How far the training is. `fraction` is 0 to 1; None where it is not known how long it will be, or the job is past that."""

    step: int
    epoch: int | None
    epochs: int | None
    steps_per_epoch: int | None
    fraction: float | None
    epoch_fraction: float | None
    """How much of the current epoch is done, 0 to 1."""
    elapsed_s: float | None
    eta_s: float | None


def progress(state: SessionState) -> Progress:
    """Progress of rank 0; the time left uses the rolling speed past the warm-up."""
    lead = state.ranks.get(min(state.ranks)) if state.ranks else None
    done = steps(state)
    epochs = lead.epochs if lead and (lead.epoch or 0) < (lead.epochs or 0) else None
    per_epoch = lead.steps_per_epoch if lead else None
    fraction = eta = None
    epoch_fraction = ((done - 1) % per_epoch + 1) / per_epoch if per_epoch and done else None
    if epochs and per_epoch:
        total = epochs * per_epoch
        # A job that goes on from a checkpoint begins with a later epoch.
        trained = min(state.epochs, default=0) * per_epoch + done
        fraction = min(trained / total, 1.0)
        rate = _usual_steps_per_s(state) if state.job.status == "running" else None
        if rate:
            eta = max(total - trained, 0) / rate
    return Progress(done, lead.epoch if lead else None, epochs, per_epoch, fraction, epoch_fraction, elapsed(state), eta)


def elapsed(state: SessionState) -> float | None:
    """Seconds since the job started, until its end; None where that is dated before its start, by a clock that was set."""
    begun = state.job.started.at if state.job.started else state.started
    ended = state.job.ended_at if state.job.ended_at is not None else state.now
    return None if begun is None or ended < begun else ended - begun


class RankRow(NamedTuple):
    """One rank of the current generation, over its recent steps."""

    rank: int
    host: str
    pid: int | None
    step: int | None
    epoch: int | None
    state: str
    recent: Split | None
    lateness_s: float | None
    """How much later it comes to the collective than the usual rank that is on time: by so much less it waits there."""
    samples_per_s: float | None
    unseen: dict[str, str]


RECENT = 32


def rank_rows(state: SessionState) -> list[RankRow]:
    """One row per rank, in order: of an elastic job, those that its last round has given out. A round that forms has no steps."""
    world = state.elastic.rounds[-1].world_size if state.elastic.rounds else None
    forms = forming_round(state) is not None
    generation = None if forms else current_generation(state)
    taking_part = generation.ranks if generation else {}
    recents = recent_splits(generation) if generation else {}
    sums = recent_sums(generation) if generation else {}
    late = generation.arrivals.late_ranks() if generation else {}
    waits = sorted(
        split.exposed_communication
        for number, split in recents.items()
        if split.exposed_communication is not None and number not in late
    )
    usual = waits[len(waits) // 2] if waits else None  # of two it is the one that waits for the other
    rows = []
    for number in sorted(state.ranks.keys() | taking_part.keys()):
        if world is not None and number >= world:
            continue
        known, made, recent = state.ranks.get(number), taking_part.get(number), recents.get(number)
        own = recent.exposed_communication if recent else None
        rows.append(
            RankRow(
                rank=number,
                host=known.host if known else "",
                pid=known.pid if known else None,
                step=made.sums[0] if made else None,
                epoch=made.epoch if made else None,
                state=_rank_status(state, generation, number, forms),
                recent=recent,
                lateness_s=usual - own if usual is not None and own is not None else None,
                samples_per_s=_rate(sums[number]) if made else None,
                unseen=known.unseen if known else {},
            )
        )
    return rows


def recent_sums(generation: Generation, count: int = RECENT) -> Mapping[int, Sums]:
    """Sums over each rank's last steps, of whole batches that hold at least `count`."""
    return once(generation, _last_sums, count)


def _last_sums(generation: Generation, count: int) -> dict[int, Sums]:
    return {number: rank.last_sums(count) for number, rank in generation.ranks.items()}


def recent_splits(generation: Generation, count: int = RECENT) -> Mapping[int, Split]:
    """Mean over each rank's last steps; without ranks that have done none."""
    return once(generation, _last_splits, count)


def _last_splits(generation: Generation, count: int) -> dict[int, Split]:
    return {number: made for number, sums in recent_sums(generation, count).items() if (made := split_of(sums))}


def steady_split(state: SessionState, number: int) -> Split | None:
    """Mean over a rank's steady steps in the current generation."""
    generation = current_generation(state)
    made = generation.ranks.get(number) if generation else None
    return split(made.steady(steps_set_aside(generation))) if generation and made else None


def _rate(sums: Sums) -> float | None:
    return _trained(sums) / sums[1] * 1e9 if sums[1] and sums[3] >= NEARLY_ALL_SAMPLED * sums[0] else None


def _trained(sums: Sums) -> float:
    """Samples; steps whose own are not known are taken to be as the others."""
    return sums[2] * sums[0] / sums[3] if sums[3] else 0.0


def rank_status(state: SessionState, number: int) -> str:
    """starting, training, forming (a new round that has no step yet), frozen (by an operator's SIGSTOP), silent (no step for
    long), unmeasured, ended, stopped or the signal or code it died with.
    """
    return _rank_status(state, current_generation(state), number, forming_round(state) is not None)


def _rank_status(state: SessionState, generation: Generation | None, number: int, forms: bool) -> str:
    rank = state.ranks.get(number)
    if rank is None:
        return "forming" if forms else "training"
    if rank.exit_code is not None:
        return "ended" if rank.exit_code == 0 else "stopped" if rank.stopped else rank.signal or f"exit {rank.exit_code}"
    if state.job.status == "ended":
        return "ended"
    if rank.frozen_at is not None and is_frozen(state, rank):
        return "frozen"
    if forms:
        return "forming"
    made = generation.ranks.get(number) if generation else None
    if made is None or made.last_end is None:
        if "steps" in rank.unseen:
            return "unmeasured"
        return "starting" if rank.identity is None or not generation else "unmeasured"
    silence = state.now - made.last_end
    return "silent" if silence > 10.0 and silence > 5 * made.usual_step_s() else "training"


def node_status(state: SessionState, node: NodeState) -> str:
    """starting (joined, and no sample yet), live, stale, lost or left, by when the viewer last heard of it."""
    if node.left_at is not None:
        return "left"
    silence = state.now - node.last_heard
    if node.joined is not None and silence <= LOST_S and (node.sample is None or node.sample.at < node.joined.at):
        return "starting"
    return "live" if silence <= STALE_S else "stale" if silence <= LOST_S else "lost"


@dataclass(slots=True, frozen=True)
class NodeMeans:
    """Means of a node over the session. `energy_covers` names what the joules include."""

    cpu_percent: float | None
    power_w: float | None
    energy_j: float | None
    energy_covers: str
    rails: list[tuple[str, float | None]]
    gpus: list[tuple[int, str, float | None, float | None]]
    """(index, name, utilisation in percent, watts)."""
    cores: list[float | None]
    """Percent of each core over the time that it was on; None for one that never was."""
    temperatures: list[tuple[str, float | None, float]]
    """(zone, mean, highest) in degrees Celsius."""


def node_means(node: NodeState) -> NodeMeans:
    """Means by time; a rail that lies within another is listed but not added."""
    rails = [(name, r.joules / r.seconds if r.seconds else None) for name, r in sorted(node.rails.items())]
    gpus = [
        (
            index,
            g.name,
            g.utilization_seconds / g.utilization_s if g.utilization_s else None,
            g.joules / g.power_s if g.power_s else None,
        )
        for index, g in sorted(node.gpus.items())
    ]
    outer = [(name, r.joules, r.seconds) for name, r in sorted(node.rails.items()) if not r.within and r.seconds]
    outer += [(f"gpu{index}", g.joules, g.power_s) for index, g in sorted(node.gpus.items()) if g.power_s]
    return NodeMeans(
        cpu_percent=node.cpu_percent_seconds / node.cpu_seconds if node.cpu_seconds else None,
        power_w=sum(joules / seconds for _, joules, seconds in outer) if outer else None,
        energy_j=sum(joules for _, joules, _ in outer) if outer else None,
        energy_covers=" + ".join(name for name, _, _ in outer),
        rails=rails,
        gpus=gpus,
        cores=[
            percent_s / seconds if seconds else None
            for percent_s, seconds in zip(node.core_percent_seconds, node.core_seconds, strict=True)
        ],
        temperatures=[
            (name, zone.celsius_seconds / zone.seconds if zone.seconds else None, zone.highest)
            for name, zone in sorted(node.temperatures.items())
        ],
    )


def phase_shares(state: SessionState, window_s: float = ROLLING_S) -> dict[str, float] | None:
    """Share of the ranks' step time per phase over the last seconds, rest included; None before the first step."""
    generation = current_generation(state)
    history = state.history
    if generation is None or history is None:
        return None
    end = _rolling_end(state, generation)
    total = history.between("step", end - window_s, end)
    if total <= 0:
        return None
    return {name: history.between(name, end - window_s, end) / total for name in ALL_PHASES}
