"""Where the wall time of a job went, on the time line of its lowest rank. The parts add up to the duration."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from itertools import pairwise

from distmon.core.elastic import undone_of
from distmon.core.leaps import end_known, start_known
from distmon.core.measures import elapsed, steps_set_aside, warmup
from distmon.core.state import SessionState
from distmon.core.steps import Generation, RankSteps


@dataclass(slots=True, frozen=True)
class WallSplit:
    """Seconds. `unexplained` is signed: what the other parts leave of the duration. None: not to be told from its neighbour, or
    only by a clock that was set (`core.leaps`).

    Warm-up is that of the generations of which it is known; that of the others is within `steady`.
    """

    launch: float | None
    """From the command to the first worker's process."""
    rendezvous: float | None
    initialisation: float | None
    """From a worker's process to its first step, less the rendezvous: imports, data, broadcast of the weights.

    Keras broadcasts them after its first step: that counts here too.
    """
    warmup: float | None
    steady: float | None
    evaluation: float | None
    checkpoint: float | None
    restart: float | None
    """Between the last step of a generation and the first of the next."""
    redone: float | None
    """Steps since the last commit that a failure undid."""
    tail: float | None
    """From the last step, evaluation or checkpoint to the end of the job."""
    unexplained: float

    def parts(self) -> dict[str, float | None]:
        return asdict(self)


def wall_split(state: SessionState) -> WallSplit | None:
    """The split up to the end of the job, or up to now while it runs; None where nothing is known of a job."""
    if state.job.started is None and not state.ranks and not state.generations:
        return None
    duration = elapsed(state)
    begun = state.job.started.at if state.job.started else state.started
    if duration is None or begun is None:
        return None
    generations = [state.generations[n] for n in sorted(state.generations) if state.generations[n].ranks]
    leads = [g.ranks[min(g.ranks)] for g in generations]
    first_step = leads[0].first_start if leads else None
    told = not leads or start_known(state, leads[0])
    worker = state.job.first_worker_at
    starting = _starting(state, begun, begun + duration, worker, first_step)
    training = _training(state, begun + duration, generations, leads)
    launch, rendezvous, initialisation = starting
    if not told:
        initialisation = None
    if initialisation is not None:
        initialisation += math.fsum(broadcast_between_steps_s(state, lead) for lead in leads)
        if first_step is not None:
            initialisation -= evaluated_between_s(state, leads[-1].rank, worker if worker is not None else begun, first_step)
    known = math.fsum(v for v in (launch, rendezvous, initialisation, *training) if v is not None)
    return WallSplit(launch, rendezvous, initialisation, *training, unexplained=duration - known)


def restarts(state: SessionState) -> list[tuple[float, float]]:
    """(from, to) of each time between the last step of a generation and the first of the next, in seconds since the epoch."""
    return _between([g.ranks[min(g.ranks)] for _, g in sorted(state.generations.items()) if g.ranks])


def _between(leads: list[RankSteps]) -> list[tuple[float, float]]:
    """(last end, next start) of the lowest ranks of generations, one after another."""
    ends = [(one.last_end, other.first_start) for one, other in pairwise(leads)]
    return [(since, to) for since, to in ends if since is not None and to is not None]


def evaluated_between_s(state: SessionState, number: int, since: float, until: float) -> float:
    """Seconds between two moments in which a rank evaluated or saved: these have parts of their own."""
    return math.fsum(
        max(min(span.started + span.duration_s, until) - max(span.started, since), 0.0)
        for span in state.spans
        if span.rank == number and span.span in ("evaluation", "checkpoint")
    )


def broadcast_between_steps_s(state: SessionState, made: RankSteps) -> float:
    """Seconds in which a rank broadcast weights after its first step of a generation, and before its last one ended.

    Such time is cut out of the steps. One broadcast may lie within another. One that lies within the first step is no part of
    this: what is cut out of a step comes before its start.
    """
    known = state.ranks.get(made.rank)
    if known is None or made.first_start is None or made.last_end is None:
        return 0.0
    total = 0.0
    first_end = until = made.first_start + (made.first_duration_s or 0.0)
    for begun, ended in sorted(known.broadcasts):
        if first_end <= begun and ended <= made.last_end and ended > until:
            total += ended - max(begun, until)
            until = ended
    return total


def _starting(
    state: SessionState, begun: float, end: float, worker: float | None, first_step: float | None
) -> tuple[float | None, float | None, float | None]:
    """(launch, rendezvous, initialisation)."""
    if worker is None:
        return (None, None, (first_step if first_step is not None else end) - begun)
    until = first_step if first_step is not None else end
    lead = min(state.ranks, default=0)
    rendezvous = math.fsum(
        min(span.duration_s, until - span.started)
        for span in state.spans
        if span.rank == lead and span.span == "rendezvous" and span.started < until
    )
    return worker - begun, rendezvous, until - worker - rendezvous


def _training(
    state: SessionState, end: float, generations: list[Generation], leads: list[RankSteps]
) -> tuple[float | None, float | None, float | None, float | None, float | None, float | None, float | None]:
    """(warmup, steady, evaluation, checkpoint, restart, redone, tail). Steps at the start that means leave out are warm-up."""
    if not leads:
        return (None, None, None, None, None, None, None)
    warm = steady = 0.0
    for generation, lead in zip(generations, leads, strict=True):
        after = lead.steady(steps_set_aside(generation)).duration_ns / 1e9
        steady += after
        warm += lead.totals.duration_ns / 1e9 - after
    last, own, one_clock = leads[-1].last_end, leads[-1].rank, all(end_known(state, lead) for lead in leads)
    restart = math.fsum(to - since - evaluated_between_s(state, own, since, to) for since, to in _between(leads))
    rank = state.ranks.get(own)
    spans = rank.span_totals if rank else {}
    busy_until = max(last or 0.0, rank.last_span_end if rank else 0.0)
    unknown = all(warmup(g).steps is None for g in generations)
    known = len(generations) == 1 or bool(state.elastic.rounds)
    undone = undone_of(state, {g.number: lead for g, lead in zip(generations, leads, strict=True)}) if known else 0.0
    redone = min(undone, steady)
    return (
        None if unknown and not warm else warm,
        steady - redone,
        float(spans.get("evaluation", 0.0)),
        float(spans.get("checkpoint", 0.0)),
        restart if one_clock or len(leads) == 1 else None,
        redone if known else None,
        None if not one_clock else max(end - busy_until, 0.0) if state.job.ended_at is not None else 0.0,
    )
