"""The books of a job in rank-seconds: each rank's own time line, from the job's start to its end, added up over ranks."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from itertools import groupby

from distmon.core.batches import PHASES
from distmon.core.elastic import undone_of
from distmon.core.leaps import BACK_S, end_known, start_known
from distmon.core.measures import elapsed, steps_set_aside
from distmon.core.state import SessionState
from distmon.core.steps import Generation, RankSteps
from distmon.core.waited import waited_for_spans_s
from distmon.core.wall import broadcast_between_steps_s, evaluated_between_s


@dataclass(slots=True, frozen=True)
class Books:
    """Rank-seconds by part. `unexplained` is signed: what the other parts leave of `total`, ranks times duration."""

    ranks: int
    total: float
    parts: dict[str, float]

    @property
    def unexplained_share(self) -> float:
        return self.parts["unexplained"] / self.total if self.total > 0 else 0.0


@dataclass(slots=True)
class _Term:
    """A generation's time. Where no launcher told of its rendezvous it lasts from its first step to its last."""

    generation: Generation
    since: float
    until: float

    def holds(self, number: int) -> bool:
        """Whether it has given out that rank number."""
        return number in self.generation.ranks or number < (self.generation.world_size or 0)


def books(state: SessionState) -> Books | None:
    """None before the first step.

    `absent` is the time in which a rank number was not taken: before a job grew to it, or after it shrank. `restart` is what else
    lies between a rank's steps in one generation and in another; `tail` what follows the last ones of a job that has ended. What
    of these only a clock tells that was set is left unexplained.
    """
    duration = elapsed(state)
    begun = state.job.started.at if state.job.started else state.started
    generations = [state.generations[n] for n in sorted(state.generations) if state.generations[n].ranks]
    if not generations or duration is None or begun is None:
        return None
    end, numbers = begun + duration, sorted({number for generation in generations for number in generation.ranks})
    terms = _terms(state, begun, end)
    parts: defaultdict[str, float] = defaultdict(float)
    waited = [waited_for_spans_s(state, generation) for generation in generations]
    for number in numbers:
        for name, seconds in _of_rank(state, number, generations, waited, _absences(number, terms), begun, end).items():
            parts[name] += seconds
    total = duration * len(numbers)
    parts["unexplained"] = total - math.fsum(parts.values())
    return Books(len(numbers), total, dict(parts))


def _terms(state: SessionState, begun: float, end: float) -> list[_Term]:
    """One after another, the first from the job's start on and the last to its end."""
    assigned = {found.generation: found.at for found in state.elastic.rounds}
    found: list[_Term] = []
    for number in sorted(state.generations):
        ranks = (generation := state.generations[number]).ranks.values()
        first = min((rank.first_start for rank in ranks if rank.first_start is not None), default=None)
        since = assigned.get(number, first)
        if since is None:
            continue
        if found and number in assigned:
            found[-1].until = since
        last = max((rank.last_end for rank in ranks if rank.last_end is not None), default=since)
        found.append(_Term(generation, since if found else begun, last))
    found[-1].until = end
    return found


def _absences(number: int, terms: list[_Term]) -> list[tuple[float, float]]:
    """(from, to) of each time in which no generation held a rank number."""
    runs = [list(run) for held, run in groupby(terms, key=lambda term: term.holds(number)) if not held]
    return [(run[0].since, run[-1].until) for run in runs]


def _of_rank(
    state: SessionState,
    number: int,
    generations: list[Generation],
    waited: list[dict[str, dict[int, float]]],
    absences: list[tuple[float, float]],
    begun: float,
    end: float,
) -> dict[str, float]:
    parts: defaultdict[str, float] = defaultdict(float)
    until, absent, known, one_clock = begun, 0.0, state.ranks.get(number), True
    for index, generation in enumerate(generations):
        made = generation.ranks.get(number)
        if made is None or made.first_start is None or made.last_end is None:
            continue
        away = _overlap(absences, until, made.first_start)
        gap = made.first_start - until - away
        evaluated = evaluated_between_s(state, number, until, made.first_start)
        started = known.first_started_at if known and known.first_started_at is not None else begun
        if not (one_clock and gap >= -BACK_S and start_known(state, made)):
            parts["launch"] += max(started - begun, 0.0) if index == 0 else 0.0
        elif index == 0:
            absent += away
            launch = min(max(started - begun, 0.0), gap)
            parts["launch"] += launch
            parts["initialisation"] += gap - launch - evaluated
        else:
            absent += away
            parts["restart"] += gap - evaluated
        undone_s = undone_of(state, {generation.number: made})
        of_steps = _of_steps(generation, made, undone_s)
        waits = "straggler_wait" if "straggler_wait" in of_steps else "exposed_communication"
        steady_s = math.fsum(of_steps.values()) - of_steps["warmup"]
        kept = 1 - of_steps.get("redone", 0.0) / steady_s if steady_s > 0 else 0.0
        for span, of_ranks in waited[index].items():
            taken = min(of_ranks[number] * kept, of_steps[waits])
            of_steps[waits] -= taken
            parts[span] += taken
        for name, seconds in of_steps.items():
            parts[name] += seconds
        parts["initialisation"] += broadcast_between_steps_s(state, made)
        until, one_clock = made.last_end, end_known(state, made)
    spans = known.span_totals if known else {}
    for span in ("evaluation", "checkpoint"):
        parts[span] += spans.get(span, 0.0)
    parts["absent"] += absent
    if not one_clock:
        return dict(parts)
    busy = min(max(until, known.last_span_end if known else 0.0), end)
    away = _overlap(absences, busy, end)
    if number not in generations[-1].ranks:
        parts["restart"] += end - busy - away
    elif state.job.ended_at is not None:
        parts["tail"] += end - busy - away
    parts["absent"] += away
    return dict(parts)


def _overlap(absences: list[tuple[float, float]], since: float, until: float) -> float:
    """Seconds of a time in which a rank number was not taken."""
    return math.fsum(max(min(to, until) - max(gone, since), 0.0) for gone, to in absences)


def _of_steps(generation: Generation, made: RankSteps, undone_s: float) -> dict[str, float]:
    """Warm-up, and the steady steps by phase; exposed communication divided into waiting for the last rank and transfer.

    `redone` are those that a failure undid: it is taken off all phases alike.
    """
    steady = made.steady(steps_set_aside(generation))
    phases = {name: ns / 1e9 for name, ns in zip(PHASES, steady.phase_ns, strict=True)}
    rest = steady.duration_ns / 1e9 - math.fsum(phases.values())
    arrivals = generation.arrivals
    if arrivals.joined_steps:
        transfer = arrivals.transfer_ns / arrivals.joined_steps * steady.steps / 1e9
        phases["straggler_wait"] = max(phases["exposed_communication"] - transfer, 0.0)
        phases["exposed_communication"] -= phases["straggler_wait"]
    phases["rest"] = rest
    warm, whole = (made.totals.duration_ns - steady.duration_ns) / 1e9, steady.duration_ns / 1e9
    if redone := min(undone_s, whole):
        phases = {name: seconds * (1 - redone / whole) for name, seconds in phases.items()}
        phases["redone"] = redone
    return {"warmup": warm, **phases}
