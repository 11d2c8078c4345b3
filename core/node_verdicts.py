"""What the nodes' own readings say: too much to run, too little memory, clocks held down, GPUs that wait.

Each rests on the mean of some seconds of readings, comes at one threshold and goes at a lower one. What it costs is seen in the
node's ranks: by how much they come later to the collectives than those of the nodes that are well.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from distmon.core.batches import sums_of
from distmon.core.events import NodeSampled
from distmon.core.finding import Verdict
from distmon.core.hysteresis import Thresholds, mean_holds
from distmon.core.joined import gain_without_input, gain_without_lateness, joined
from distmon.core.measures import RECENT, current_generation, recent_splits, step_series, steps_set_aside
from distmon.core.once import once
from distmon.core.places import Place, place_of, places_of
from distmon.core.quantiles import median
from distmon.core.readings import memory_in_use, strain_of
from distmon.core.state import NodeState, SessionState, Strain
from distmon.core.steps import RECENT_STEPS, Generation, RankSteps
from distmon.core.stragglers import LEAST_LATENESS

BUSY_PERCENT = Thresholds(on=95.0, off=90.0)
LOAD_PER_CORE = Thresholds(on=1.5, off=1.3)
RUN_QUEUE_PERCENT = Thresholds(on=20.0, off=14.0)
"""Of the time, over QUEUED_S: the rank that waits longest is ready to run and has no core."""
MOST_QUEUED_PERCENT = 40.0
"""One reading counts for no more: a second in which something else ran is no lack of cores."""
MEMORY_WAIT_PERCENT = Thresholds(on=10.0, off=5.0)
"""Over WAITED_S: a checkpoint may make tasks wait for some seconds."""
MUCH_WAIT_PERCENT = Thresholds(on=25.0, off=10.0)
"""Over SMOOTHED_S."""
MEMORY_PERCENT = Thresholds(on=95.0, off=92.0)
AHEAD_PERCENT = Thresholds(on=90.0, off=85.0)
"""Of the time, in which the GPUs with ranks run something: the ranks are ahead of them, and may wait for a core."""
RESTING_PERCENT = Thresholds(on=50.0, off=40.0)
"""Of the time, in which the GPUs with ranks run nothing."""
THROTTLED_SHARE = Thresholds(on=0.5, off=0.2)
"""Of the readings, in which the driver gives a reason."""
SMOOTHED_S = 5.0
"""Readings are averaged over so many seconds before they are held against a threshold."""
QUEUED_S = 10.0
WAITED_S = 30.0
OWN_SHARE = 0.8
"""Of the cores: where the ranks' own processes fill so many, they are in one another's way."""
WAIT_SHARE = 0.05
"""Of the recent steps, spent waiting for the input: where cores are full, it is for want of them."""
_WAITERS = 4
"""So many ranks are named that wait for a core."""
FEW = 50
"""One step in so many may wait long."""
LONGER = 1.1
"""Steps that take so many times as long as before are slower."""
STRETCHES = 20
"""The run is looked at in so many parts."""
_HOT = ("hot", "thermal", "hardware slowdown")
_CAPPED = ("power",)
HELD = ("thermal_throttling", "power_throttling")
"""Kinds that make the ranks of a node late, and so come before what they do."""
CLOCK_S = 1.0
CLOCK_SET_TOLD_S = 60.0


def node_verdicts(state: SessionState, *, in_full: bool = False) -> list[Verdict]:
    """Each kind once, of the first node that shows it, and of how many more; with what it costs where that is wanted."""
    found: dict[str, list[_Seen]] = {}
    ranks = _Ranks(state)
    for node in state.nodes.values():
        if node.sample is None or node.lost_since is not None or not _takes_part(state, node):
            continue
        for verdict, gpus in _of(state, node, node.sample, ranks):
            found.setdefault(verdict.kind, []).append(_Seen(verdict, node, gpus))
    return [_with_gain(state, _joined(same), same) if in_full else _joined(same) for same in found.values()]


class _Seen(NamedTuple):
    """A finding of a node; `gpus` are those that it is about, none where it is about all of the node."""

    verdict: Verdict
    node: NodeState
    gpus: list[int]


def _with_gain(state: SessionState, verdict: Verdict, seen: list[_Seen]) -> Verdict:
    """What would be saved were the ranks of these nodes no later than the others usually are, or why that is not known."""
    generation = current_generation(state)
    if generation is None:
        return replace(verdict, no_gain="no rank has reported a step")
    own = _ranks_of(state, seen) & generation.ranks.keys()
    if not own:
        return replace(verdict, no_gain="none of the ranks that report steps is known to be there")
    steps = joined(generation, steps_set_aside(generation))
    if len(own) < len(generation.ranks):
        return replace(verdict, gain_percent=gain_without_lateness(steps, own))
    if verdict.kind == "gpu_starved" and all(split.input_wait is not None for split in recent_splits(generation).values()):
        return replace(verdict, gain_percent=gain_without_input(steps))
    return replace(verdict, no_gain="all ranks are there, and none elsewhere to compare them with")


def _ranks_of(state: SessionState, seen: list[_Seen]) -> set[int]:
    """Of the GPUs where ranks are told of them; else of the nodes."""
    own, nodes = set[int](), list[NodeState]()
    for one in seen:
        gpus = one.node.sample.gpus if one.node.sample is not None else []
        if of_gpus := {rank for gpu in gpus if gpu.index in one.gpus for rank in gpu.ranks}:
            own |= of_gpus
        else:
            nodes.append(one.node)
    places = {place for node in nodes for place in places_of(node)}
    return own | {number for number, rank in state.ranks.items() if place_of(rank) in places}


class _Ranks:
    """What many nodes ask of the ranks that have made steps; found when one first does, as most nodes are well."""

    def __init__(self, state: SessionState) -> None:
        self._state = state

    @cached_property
    def _by_place(self) -> dict[Place, list[RankSteps]]:
        generation, ranks = current_generation(self._state), self._state.ranks
        found: dict[Place, list[RankSteps]] = {}
        for number, steps in generation.ranks.items() if generation is not None else ():
            if number in ranks:
                found.setdefault(place_of(ranks[number]), []).append(steps)
        return found

    @cached_property
    def late(self) -> set[int]:
        generation = current_generation(self._state)
        shifts = generation.arrivals.late_ranks() if generation is not None else {}
        return {rank for rank, shift in shifts.items() if shift.mean >= LEAST_LATENESS}

    def on(self, node: NodeState) -> list[RankSteps]:
        return [steps for place in places_of(node) for steps in self._by_place.get(place, ())]


def _takes_part(state: SessionState, node: NodeState) -> bool:
    """Whether it is there, or was until the last step: agents leave before their job has ended, and what they said stays true."""
    return node.left_at is None or node.left_at >= state.stepped_until > -math.inf


def clock_skew(state: SessionState) -> Verdict | None:
    """A node's clock is far from the viewer's, or was set a moment ago; nothing that is measured depends on it."""
    found = max((_skew(state, node) for node in state.nodes.values() if node.left_at is None), key=_size, default=None)
    if found is None or _size(found) < CLOCK_S:
        return None
    node, seconds, set_now = found
    words = f"was set by {seconds:+.1f} s" if set_now else f"is {abs(seconds):,.1f} s {'ahead' if seconds > 0 else 'behind'}"
    return Verdict(
        kind="clock_skew",
        text=f"the clock of {node.host or node.node} {words}; its times are shown on this machine's",
        evidence=(
            "the agent sees the wall clock against the steady one"
            if set_now
            else f"by request and reply, within {(node.clock_round_trip_s or 0.0) / 2:.3f} s"
        ),
        try_first="set it: chronyc makestep, or timedatectl set-ntp true; files and logs of that node are stamped otherwise",
        check="the difference in the node's details falls below a second",
        host=node.host,
    )


_Skew = tuple[NodeState, float, bool]
"""A node, by how many seconds its clock is ahead or was set, and whether it is the latter."""


def _skew(state: SessionState, node: NodeState) -> _Skew:
    if node.clock_set_at is not None and state.now - node.clock_set_at <= CLOCK_SET_TOLD_S:
        return node, node.clock_set_by_s, True
    return node, -state.clock_offsets.get(node.node, 0.0), False


def _size(skew: _Skew) -> float:
    return abs(skew[1])


def _joined(same: list[_Seen]) -> Verdict:
    first, more = same[0].verdict, len(same) - 1
    return replace(first, evidence=f"{first.evidence}; {more} more node{'s' * (more > 1)} alike") if more else first


def _of(state: SessionState, node: NodeState, sample: NodeSampled, ranks: _Ranks) -> Iterator[tuple[Verdict, list[int]]]:
    """Each with its GPUs; lazily from the newest reading back: there may be a thousand nodes, and most are well."""
    width = _readings(sample, SMOOTHED_S)
    strains, cores = node.strains, node.joined.cores if node.joined else None
    busy = mean_holds((s.cpu_percent for s in reversed(strains)), width, BUSY_PERCENT)
    if cores:
        load = Thresholds(LOAD_PER_CORE.on * cores, LOAD_PER_CORE.off * cores)
        crowded = busy and mean_holds((s.load_1m for s in reversed(strains)), width, load)
        queued = _is_queued(node, sample, ranks)
        if (crowded or queued) and _cores_are_missed(state, node, sample, cores, ranks, queued=queued):
            yield _oversubscribed(node, sample, cores, crowded=crowded, queued=queued), []
    long = _readings(sample, WAITED_S)
    if (
        (len(strains) >= long and mean_holds((s.memory_wait_percent for s in reversed(strains)), long, MEMORY_WAIT_PERCENT))
        or mean_holds((s.memory_wait_percent for s in reversed(strains)), width, MUCH_WAIT_PERCENT)
        or mean_holds((s.memory_percent for s in reversed(strains)), width, MEMORY_PERCENT)
    ):
        yield _memory(node, sample), []
    if _is_throttled(node, width):
        yield from _throttled(node, sample, width)
    if (
        busy
        and mean_holds((_resting(s) for s in reversed(strains)), width, RESTING_PERCENT)
        and (not (here := ranks.on(node)) or any(map(_waits, here)))
    ):
        yield _starved(node, sample, width), []


def _readings(sample: NodeSampled, seconds: float) -> int:
    """So many are taken in some seconds."""
    return max(round(seconds / sample.interval_s), 1) if sample.interval_s > 0 else 1


def _is_throttled(node: NodeState, width: int) -> bool:
    return any(strain.throttled for strain in islice(reversed(node.strains), width))


def _is_queued(node: NodeState, sample: NodeSampled, ranks: _Ranks) -> bool:
    """Whether a rank waits for a core while it trains, and its GPU for it."""
    width = _readings(sample, QUEUED_S)
    recent = [strain.run_queue_wait_percent or 0.0 for strain in islice(reversed(node.strains), width)]
    if sum(recent) < RUN_QUEUE_PERCENT.off * len(recent):
        return False  # as on most nodes: the rest takes longer
    begun = min((rank.first_start for rank in ranks.on(node) if rank.first_start is not None), default=math.inf)
    trained = int((sample.at - begun) / sample.interval_s) if begun < sample.at and sample.interval_s > 0 else 0
    return (
        trained >= width
        and mean_holds(islice(_waits_for_core(node), trained), width, RUN_QUEUE_PERCENT)
        and not mean_holds((s.gpu_percent for s in reversed(node.strains)), width, AHEAD_PERCENT)
    )


def _waits_for_core(node: NodeState) -> Iterator[float | None]:
    """The newest first."""
    for strain in reversed(node.strains):
        wait = strain.run_queue_wait_percent
        yield None if wait is None else min(wait, MOST_QUEUED_PERCENT)


def _cores_are_missed(
    state: SessionState, node: NodeState, sample: NodeSampled, cores: int, ranks: _Ranks, *, queued: bool
) -> bool:
    """Whether full cores hold the job back. What loads data may fill them and do no harm: then no rank there waits for its input
    or for a core, or is late, and steps take as long as before. Where no steps are seen there is nothing to go by but the cores.
    """
    generation, here = current_generation(state), ranks.on(node)
    if generation is None or not here or _own_percent(sample) >= 100 * OWN_SHARE * cores or any(map(_waits, here)):
        return True
    if _is_throttled(node, _readings(sample, SMOOTHED_S)):
        return False  # they are late for that, and no other reason is known
    if ranks.late or generation.arrivals.slow.named:
        return any(steps.rank in ranks.late for steps in here)  # all others take longer for these, or for the network
    return queued or once(generation, _are_slower, RECENT_STEPS)


def _own_percent(sample: NodeSampled) -> float:
    """What the ranks' own processes take, in percent of a core."""
    return sum(process.cpu_percent or 0.0 for process in sample.processes)


def _waits(rank: RankSteps) -> bool:
    """Whether it waits for its input in more than a few of its recent steps, such as the first of an epoch."""
    recent = rank.last_batches(RECENT_STEPS)
    _, duration_ns, _, _, waited_ns, *_ = sums_of(recent)
    if waited_ns < WAIT_SHARE * duration_ns:
        return False
    waits = sorted(wait or 0 for batch in recent for wait in batch.column("input_wait_ns") or ())
    return sum(waits[: len(waits) - len(waits) // FEW]) >= WAIT_SHARE * duration_ns


def _are_slower(generation: Generation, count: int) -> bool:
    """Whether the last steps take LONGER than those of some stretch of the run, by their medians."""
    lead = generation.ranks[min(generation.ranks)]  # those of all ranks take the same time
    durations, _ = step_series(generation)
    durations = durations[:: max(len(durations) // (count * STRETCHES), 1)]
    size = max(len(durations) // STRETCHES, RECENT)
    usual = [median(durations[begin : begin + size]) or 0.0 for begin in range(0, len(durations) - size + 1, size)]
    recent = (median(ns for batch in lead.last_batches(count) for ns in batch.durations_ns) or 0.0) / 1e9
    return bool(usual) and recent >= LONGER * min(usual)


def _resting(strain: Strain) -> float | None:
    return None if strain.gpu_percent is None else 100 - strain.gpu_percent


def _recent_mean(newest_first: Iterator[float | None], width: int) -> float:
    known = [value for value in islice(newest_first, width) if value is not None]
    return sum(known) / len(known) if known else math.nan


def _cpu_words(node: NodeState, width: int) -> str:
    mean = _recent_mean((strain.cpu_percent for strain in reversed(node.strains)), width)
    return f"CPU {mean:.0f} % over the last {SMOOTHED_S:.0f} s"


def _oversubscribed(node: NodeState, sample: NodeSampled, cores: int, *, crowded: bool, queued: bool) -> Verdict:
    load = "" if sample.load_1m is None else f": load {sample.load_1m:.1f} on {cores} cores"
    what = "has more to run than cores" if crowded else "has ranks that wait for a core"
    waits = [_queue_words(node, sample)] if queued else []
    return Verdict(
        kind="cpu_oversubscribed",
        text=f"{node.host} {what}{load}",
        evidence="; ".join([*waits, _cpu_words(node, _readings(sample, SMOOTHED_S))]),
        try_first="fewer ranks or threads per rank (OMP_NUM_THREADS), or move what else runs there",
        check="the node's load falls to its number of cores" + ", and its ranks wait no more" * queued,
        host=node.host,
    )


def _queue_words(node: NodeState, sample: NodeSampled) -> str:
    """Who waits for a core, and for how much of the time."""
    mean = _recent_mean((s.run_queue_wait_percent for s in reversed(node.strains)), _readings(sample, QUEUED_S))
    now = [(p.run_queue_wait_percent, p.rank) for p in sample.processes if p.run_queue_wait_percent is not None]
    told = ", ".join(f"rank {rank} {wait:.0f} %" for wait, rank in sorted(now, key=lambda one: -one[0])[:_WAITERS])
    who = f"of its {len(now)} ranks the one that waits longest" if len(now) > 1 else "its rank" if now else "one of its ranks"
    return f"{who} is ready to run and has no core {mean:.0f} % of the last {QUEUED_S:.0f} s" + f"; now {told}" * bool(told)


def _memory(node: NodeState, sample: NodeSampled) -> Verdict:
    """Tasks wait for memory, or nearly all of what may be used is; the file cache does not count as used."""
    memory, waits = memory_in_use(sample), strain_of(sample).memory_wait_percent
    parts = [f"{memory.used_bytes / 2**30:.1f} of {memory.total_bytes / 2**30:.1f} GiB used"] if memory is not None else []
    parts += [f"tasks waited for memory {waits:.0f} % of the last ten seconds"] if waits is not None else []
    return Verdict(
        kind="memory_pressure",
        text=f"{node.host} runs out of memory",
        evidence="; ".join(parts),
        try_first="fewer loader workers or a smaller batch, before the kernel ends a process",
        check="the node's memory and its pressure in the agent's readings",
        host=node.host,
    )


def _throttled(node: NodeState, sample: NodeSampled, width: int) -> Iterator[tuple[Verdict, list[int]]]:
    """Of each kind, the first GPU that is held down, and which others are."""
    for kind, words in (("thermal_throttling", _HOT), ("power_throttling", _CAPPED)):
        said = [_reasons(strain, words) for strain in reversed(node.strains)]
        named = sorted({gpu for reasons in said[:width] for gpu in reasons})
        held = [gpu for gpu in named if mean_holds((float(gpu in reasons) for reasons in said), width, THROTTLED_SHARE)]
        if held:
            last = next(reasons[held[0]] for reasons in said if held[0] in reasons)
            yield _throttling(node, sample, kind, held, ", ".join(last)), held


def _reasons(strain: Strain, words: tuple[str, ...]) -> dict[int, list[str]]:
    """What the driver gives, by GPU, of one kind."""
    found: dict[int, list[str]] = {}
    for gpu, reason in strain.throttled:
        if any(word in reason for word in words):
            found.setdefault(gpu, []).append(reason)
    return found


def _throttling(node: NodeState, sample: NodeSampled, kind: str, gpus: list[int], said: str) -> Verdict:
    gpu = next((gpu for gpu in sample.gpus if gpu.index == gpus[0]), None)
    heat = "" if gpu is None or gpu.temperature_c is None else f"; {gpu.temperature_c:.0f} °C"
    power = "" if gpu is None or gpu.power_w is None else f"; {gpu.power_w:.0f} W"
    more = f"; so is GPU {', '.join(map(str, gpus[1:]))}" if gpus[1:] else ""
    return Verdict(
        kind=kind,
        text=f"GPU {gpus[0]} of {node.host} is throttled: {said}",
        evidence=f"the driver's own reason{heat}{power}{more}",
        try_first=(
            "cooling, or a lower power limit"
            if kind == "thermal_throttling"
            else "the power limit (nvidia-smi -pl), or the supply"
        ),
        check="the driver gives no reason any more, and the clocks rise",
        host=node.host,
    )


def _starved(node: NodeState, sample: NodeSampled, width: int) -> Verdict:
    """The node's GPUs rest while its cores are full: what feeds them is the limit."""
    percent = _recent_mean((strain.gpu_percent for strain in reversed(node.strains)), width)
    gpus = sum(bool(gpu.ranks) and gpu.utilization_percent is not None for gpu in sample.gpus)
    return Verdict(
        kind="gpu_starved",
        text=f"the GPUs of {node.host} are busy {percent:.0f} % of the time while its cores are full",
        evidence=f"{_cpu_words(node, width)}; {gpus} GPUs with ranks",
        try_first="move decoding and augmentation to the GPU, or use fewer, faster loader workers",
        check="GPU utilisation rises while samples/s do",
        host=node.host,
    )
