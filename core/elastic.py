"""What an elastic job's changes cost: its generations, the time lost in rank-seconds, and its goodput.

The books: from the first step on, `ranks` slots (the most that the job ever had) could have worked all the time. Every
rank-second of that is training that counted, or lost in one of the parts of `Lost`; `unexplained_s` is what the sum leaves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from distmon.core.elastic_lanes import LOST_KINDS, TAIL, TRAINING, Lane, lanes, made_until
from distmon.core.elastic_state import Restore, Round
from distmon.core.measures import steps_set_aside
from distmon.core.state import SessionState
from distmon.core.steps import Generation, RankSteps, Step, Totals


@dataclass(slots=True, frozen=True)
class Lost:
    """Rank-seconds."""

    detection: float
    """From a death until the survivors notice, and from a slot's arrival until the others take notice of it.

    Of a host that fell silent nobody sees the moment: there it is from the last step that all ranks ended.
    """
    teardown: float
    """Shutting Horovod down, and the last moments of a worker whose slot was taken away."""
    rendezvous: float
    initialisation: float
    """Processes' starts, imports, and what lies between a rendezvous and the first step."""
    sync: float
    redone: float
    """Steps since the last commit that a failure undid, and the one that it cut short."""
    below_capacity: float
    """Slots that were away, or stood empty."""

    def parts(self) -> dict[str, float]:
        return asdict(self)


@dataclass(slots=True, frozen=True)
class Accounts:
    started: float
    ended: float
    ranks: int
    capacity_s: float
    """Rank-seconds: `ranks` times the duration."""
    training_s: float
    """Training that counted, with the evaluations and checkpoints in it."""
    lost: Lost
    unexplained_s: float
    goodput: float | None
    """Samples that counted, as a share of those that the slots that were there could have trained at their steady speed."""
    useful_samples: int | None
    redone_steps: int
    """Of the job: steps undone in each generation, counted once for all ranks."""
    redone_samples: int | None


@dataclass(slots=True, frozen=True)
class GenerationSpan:
    """One generation of ranks. Times are seconds since the epoch or durations in seconds; None where they were not seen."""

    generation: int
    world_size: int | None
    assigned: float | None
    first_step: float | None
    last_step: float | None
    ended: float | None
    """When the next round gave out its ranks, or the job ended; None while it goes on."""
    cause: str
    """What led to it, in words."""
    rendezvous_s: float | None
    """The longest of its ranks; as the next two."""
    initialisation_s: float | None
    sync_s: float | None
    first_step_s: float | None
    """Mean over ranks."""
    usual_step_s: float | None
    undone_steps: int
    """Its steps that a failure threw away."""

    @property
    def forming_s(self) -> float | None:
        """Until its first step; of one that never trained, until it ended. With the next two it is the whole generation."""
        until = self.first_step if self.first_step is not None else self.ended
        return None if self.assigned is None or until is None else max(until - self.assigned, 0.0)

    @property
    def trained_s(self) -> float | None:
        """From the start of its first step to the end of its last."""
        return None if self.first_step is None or self.last_step is None else self.last_step - self.first_step

    @property
    def after_s(self) -> float | None:
        """From its last step to its end."""
        return None if self.ended is None or self.last_step is None else max(self.ended - self.last_step, 0.0)


@dataclass(slots=True, frozen=True)
class Undone:
    """Steps of one generation that a failure threw away, over all ranks."""

    steps: int
    """The most of one rank."""
    rank_seconds: float
    samples: int | None


def undone(state: SessionState) -> dict[int, Undone]:
    """Generation -> what was thrown away of it. Each step counts once, however often a state went back before it."""
    found: dict[int, Undone] = {}
    for number, (first, since) in undone_from(state).items():
        generation = state.generations.get(number)
        if generation is not None:
            parts = [_after(rank, first, since) for rank in generation.ranks.values()]
            samples = [part.samples for part in parts]
            found[number] = Undone(
                steps=max((part.steps for part in parts), default=0),
                rank_seconds=math.fsum(part.duration_ns for part in parts) / 1e9 + _unrecorded_s(state, generation, since),
                samples=sum(samples) if all(part.sampled_steps == part.steps for part in parts) else None,
            )
    return found


def _unrecorded_s(state: SessionState, generation: Generation, since: float) -> float:
    """Rank-seconds after the commit at `since` of steps that ranks took part in, and of which no record came."""
    if not since:
        return 0.0  # of a recording that does not tell when the commit was
    known = [(rank, rank.last_end) for rank in generation.ranks.values() if rank.last_end is not None]
    return math.fsum(max(made_until(state, generation, rank) - max(end, since), 0.0) for rank, end in known)


def undone_of(state: SessionState, ranks: dict[int, RankSteps]) -> float:
    """Seconds of the steps that were thrown away of one rank in each generation (generation -> its steps)."""
    thrown = undone_from(state)
    return math.fsum(_after(rank, *thrown[number]).duration_ns for number, rank in ranks.items() if number in thrown) / 1e9


def undone_from(state: SessionState) -> dict[int, tuple[int, float]]:
    """Generation -> its first step that was thrown away, and the moment of the commit before it.

    The oldest worker's state is the one that is handed to the others.
    """
    word: dict[int, Restore] = {}
    for restore in state.elastic.restores:
        known = word.get(restore.generation)
        if known is None or restore.rank < known.rank:
            word[restore.generation] = restore
    found: dict[int, tuple[int, float]] = {}
    for restore in word.values():
        for number in range(restore.committed_generation, restore.generation + 1):
            own = (restore.committed_steps, restore.committed_at or 0.0)
            first = own if number == restore.committed_generation else (0, 0.0)
            found[number] = min(found.get(number, first), first)
    return found


def _after(rank: RankSteps, first: int, since: float) -> Totals:
    """The steps from number `first` on; their mean stands for those that are no longer kept one by one.

    The first of them counts from `since`, the commit before it, which lies within it.
    """
    count = rank.last_step + 1 - first
    if count <= 0:
        return Totals()
    kept = rank.recent(count)
    known = Totals(
        steps=len(kept),
        duration_ns=sum(round(_until(step, since) * 1e9) for step in kept),
        samples=sum(step.samples or 0 for step in kept),
        sampled_steps=sum(step.samples is not None for step in kept),
    )
    missing = min(count, rank.totals.steps) - len(kept)
    if missing <= 0:
        return known
    mean = rank.totals
    return known.plus(Totals(missing, mean.duration_ns * missing // mean.steps, mean.samples * missing // mean.steps, missing))


def _until(step: Step, since: float) -> float:
    """Of a step, the time after `since`."""
    return max(min(step.duration_s, step.end - since), 0.0)


def accounts(state: SessionState) -> Accounts | None:
    """The books from the first step to the last, or up to now while the job runs; None for a job that is not elastic."""
    begun = min((r.first_start for g in state.generations.values() for r in g.ranks.values() if r.first_start), default=None)
    if begun is None or not state.elastic.rounds:
        return None
    ended = _end(state)
    ranks, found = most_ranks(state), lanes(state)
    sums = {kind: _sum(found, kind, begun, ended) for kind in (TRAINING, TAIL, *LOST_KINDS)}
    thrown = undone(state)
    redone = math.fsum(part.rank_seconds for part in thrown.values())
    capacity = ranks * (ended - begun)
    lost = Lost(
        detection=sums["detection"],
        teardown=sums["teardown"],
        rendezvous=sums["rendezvous"],
        initialisation=sums["initialisation"],
        sync=sums["sync"],
        redone=sums["redone"] + redone,
        below_capacity=_empty_s(found, ranks, begun, ended),
    )
    training = sums[TRAINING] - redone
    samples, thrown_samples = _samples(state), _known_sum(part.samples for part in thrown.values())
    useful = None if samples is None or thrown_samples is None else samples - thrown_samples
    return Accounts(
        started=begun,
        ended=ended,
        ranks=ranks,
        capacity_s=capacity,
        training_s=training,
        lost=lost,
        unexplained_s=capacity - training - math.fsum(lost.parts().values()),
        goodput=_goodput(state, useful, begun, ended),
        useful_samples=useful,
        redone_steps=sum(part.steps for part in thrown.values()),
        redone_samples=thrown_samples,
    )


def _end(state: SessionState) -> float:
    """The end of the last step of a job that finished, the end of one that did not, now for one that runs."""
    if state.job.status != "ended" or state.job.ended_at is None:
        return state.now
    if state.job.exit_code:
        return state.job.ended_at
    return max(r.last_end for g in state.generations.values() for r in g.ranks.values() if r.last_end is not None)


def most_ranks(state: SessionState) -> int:
    """The most slots that the job could use at any time."""
    offered = max((_usable(state, slots) for _, slots in state.elastic.slots), default=0)
    return max(offered, max((r.world_size for r in state.elastic.rounds), default=0))


def _usable(state: SessionState, slots: int) -> int:
    limit = state.job.started.max_np if state.job.started else None
    return slots if limit is None else min(slots, limit)


def _sum(found: Iterable[Lane], kind: str, begun: float, ended: float) -> float:
    return math.fsum(
        max(min(segment.ended, ended) - max(segment.started, begun), 0.0)
        for lane in found
        for segment in lane.segments
        if segment.kind == kind
    )


def _empty_s(found: Iterable[Lane], ranks: int, begun: float, ended: float) -> float:
    """Rank-seconds in which fewer workers than `ranks` lived."""
    steps = [(begun, 0), (ended, 0)]
    for lane in found:
        for segment in lane.segments:
            if segment.ended > begun and segment.started < ended:
                steps += [(max(segment.started, begun), 1), (min(segment.ended, ended), -1)]
    total, alive, last = 0.0, 0, begun
    for at, change in sorted(steps):
        total += max(ranks - alive, 0) * (at - last)
        alive, last = alive + change, at
    return total


def _samples(state: SessionState) -> int | None:
    ranks = [rank.totals for g in state.generations.values() for rank in g.ranks.values()]
    return sum(t.samples for t in ranks) if all(t.sampled_steps == t.steps for t in ranks) else None


def _known_sum(values: Iterable[int | None]) -> int | None:
    found = list(values)
    return None if None in found else sum(value or 0 for value in found)


def _goodput(state: SessionState, useful: int | None, begun: float, ended: float) -> float | None:
    """Against the steady speed per rank of each generation while it trained, and of all together in between."""
    generations = [g for g in state.generations.values() if g.ranks]
    overall = _samples_per_rank_second(generations)
    possible = overall * slot_seconds(state, begun, ended)
    for generation in generations:
        start = min((r.first_start for r in generation.ranks.values() if r.first_start is not None), default=ended)
        end = max((r.last_end for r in generation.ranks.values() if r.last_end is not None), default=start)
        own = _samples_per_rank_second([generation])
        possible += (own - overall) * slot_seconds(state, max(start, begun), min(end, ended))
    return useful / possible if useful is not None and possible > 0 else None


def _samples_per_rank_second(generations: list[Generation]) -> float:
    """After warm-up; of all steps of a generation of which nothing is left after it."""
    samples, nanoseconds = 0, 0
    for generation in generations:
        skipped = steps_set_aside(generation)
        steady = [rank.steady(skipped) for rank in generation.ranks.values()]
        if not all(totals.steps for totals in steady):
            steady = [rank.totals for rank in generation.ranks.values()]
        samples += sum(totals.samples for totals in steady)
        nanoseconds += sum(totals.duration_ns for totals in steady)
    return samples / (nanoseconds / 1e9) if nanoseconds > 0 else 0.0


def slot_seconds(state: SessionState, begun: float, ended: float) -> float:
    """Rank-seconds of the slots that the job could use, as they came and went."""
    series = [(at, _usable(state, slots)) for at, slots in state.elastic.slots]
    series = series or [(r.at, r.world_size) for r in state.elastic.rounds]
    total = 0.0
    for (at, slots), following in zip(series, [*(at for at, _ in series[1:]), ended], strict=True):
        total += slots * max(min(following, ended) - max(at, begun), 0.0)
    return total


def generation_spans(state: SessionState) -> list[GenerationSpan]:
    """All generations, in order."""
    rounds = {r.generation: r for r in state.elastic.rounds}
    thrown = undone(state)
    numbers = sorted(rounds.keys() | state.generations.keys())
    return [_generation_span(state, n, rounds.get(n), thrown.get(n)) for n in numbers]


def _generation_span(state: SessionState, number: int, assigned: Round | None, thrown: Undone | None) -> GenerationSpan:
    generation = state.generations.get(number) or Generation(number)
    ranks = list(generation.ranks.values())
    first = min((r.first_start for r in ranks if r.first_start is not None), default=None)
    last = max((r.last_end for r in ranks if r.last_end is not None), default=None)
    firsts = [s for r in ranks if (s := r.first_duration_s) is not None]
    usual = [ns / 1e9 for r in ranks if (ns := r.durations.quantile(0.5)) is not None]
    ended = min((r.at for r in state.elastic.rounds if r.generation > number), default=state.job.ended_at)
    return GenerationSpan(
        generation=number,
        world_size=assigned.world_size if assigned else generation.world_size,
        assigned=assigned.at if assigned else None,
        first_step=first,
        last_step=last,
        ended=ended,
        cause=_cause(state, number, assigned),
        rendezvous_s=_longest(state, "rendezvous", assigned, first),
        initialisation_s=_longest(state, "initialisation", assigned, first),
        sync_s=_longest(state, "sync", assigned, first),
        first_step_s=math.fsum(firsts) / len(firsts) if firsts else None,
        usual_step_s=math.fsum(usual) / len(usual) if usual else None,
        undone_steps=thrown.steps if thrown else 0,
    )


def _longest(state: SessionState, kind: str, assigned: Round | None, first: float | None) -> float | None:
    """Of the spans of a kind that end between the round and its first step: the longest sum of one worker."""
    if assigned is None or first is None:
        return None
    sums = [
        math.fsum(span.ended - span.started for span in probe.spans if span.kind == kind and assigned.at <= span.ended <= first)
        for probe in state.elastic.probes.values()
    ]
    return max(sums, default=0.0) or None


def _cause(state: SessionState, number: int, assigned: Round | None) -> str:
    """Hosts that came, left or failed since the round before."""
    if number == 0 or assigned is None:
        return ""
    before = max((r.at for r in state.elastic.rounds if r.at < assigned.at), default=0.0)
    words = {"host_joined": "joined", "host_left": "left", "host_failed": "failed"}
    said = [
        f"{e.host} {words[e.change]}{f' ({e.detail})' if e.detail else ''}"
        for e in state.membership
        if e.change in words and before < e.at <= assigned.at
    ]
    return ", ".join(dict.fromkeys(said))
