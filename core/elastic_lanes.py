"""The time line of every slot of an elastic job: what its worker did from its process's start to its exit.

Each moment of a worker belongs to one segment. Spans that the probe measured are taken as they are; what lies between two of them
belongs to what it leads to, and the time around a failure is parted at the moment of the first death.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

from distmon.core.elastic_state import Interruption, LifeSpan, ProbedLife, WorkerLife
from distmon.core.state import SessionState
from distmon.core.steps import Generation, RankSteps

TRAINING = "training"
TAIL = "tail"
UNSEEN = "unseen"
"""A worker that trains, and whose probe never spoke."""
LATE_EXIT_S = 2.0
LOST_KINDS = ("detection", "teardown", "rendezvous", "initialisation", "sync", "redone")
"""Of a worker's time, what is lost; `redone` here is the step that a failure cut short."""


@dataclass(slots=True, frozen=True)
class Segment:
    kind: str
    """One of LOST_KINDS, training, tail or unseen."""
    started: float
    ended: float
    generation: int | None = None
    rank: int | None = None


@dataclass(slots=True, frozen=True)
class Lane:
    """One worker's life on a slot."""

    host: str
    local_rank: int
    segments: list[Segment]
    end: str = ""
    """How it ended: ended, removed, stopped, SIGKILL ...; empty while it lives."""
    failed: bool = False


@dataclass(slots=True, frozen=True)
class _Block:
    """The steps of one worker in one generation."""

    generation: int
    rank: int
    started: float
    ended: float


def lanes(state: SessionState) -> list[Lane]:
    """The lives of all workers, those of one slot in order of time."""
    until = state.job.ended_at if state.job.ended_at is not None else state.now
    blocks = _blocks(state)
    deaths = sorted(life.exited for life in state.elastic.lives if life.exited is not None and _failed(life) and not life.lost)
    interruptions = sorted(i.at for probe in state.elastic.probes.values() for i in probe.interruptions)
    noticed, committed = _failures_noticed(state), _commits(state)
    found = []
    for life in state.elastic.lives:
        probe = _probe_of(state, life)
        exited = life.exited if life.exited is not None else until
        before = _before_start(state, life, interruptions)
        if probe is None:
            own = _unseen(state, life, exited)
        else:
            own = _Life(life, probe, blocks.get(probe.worker, []), deaths, noticed, committed, exited).segments()
        found.append(Lane(life.host, life.local_rank, before + own, _end(life), _failed(life)))
    order = {host: number for number, host in enumerate(dict.fromkeys(life.host for life in state.elastic.lives))}
    return sorted(found, key=lambda lane: (order[lane.host], lane.local_rank, lane.segments[0].started if lane.segments else 0.0))


def cut_short(deaths: list[float], after: float, noticed: float) -> float:
    """When the death happened that a worker noticed, whose last whole step had ended at `after`.

    A process that is killed is gone for its launcher some time after its connections have closed. Of a host that fell silent
    nobody saw the moment: its loss begins with the end of the last step that all ranks made, and the step under way is waiting.
    """
    death = next((death for death in deaths if after < death <= noticed + LATE_EXIT_S), None)
    return after if death is None else min(death, noticed)


def made_until(state: SessionState, generation: Generation, rank: RankSteps) -> float:
    """The end of the last step that a rank made, or took part in though its record of it never came.

    A host that is lost takes the last second of its records along. The other ranks cannot end a step without it: until their
    last one it trained as they did. Raises ValueError for a rank without a step.
    """
    if rank.last_end is None:
        raise ValueError(f"rank {rank.rank} has made no step")
    probe = state.elastic.probes.get(rank.worker)
    if probe is not None and any(past.generation == generation.number for past in probe.interruptions):
        return rank.last_end
    return max(other.last_end or 0.0 for other in generation.ranks.values() if other.last_step >= rank.last_step)


def _failed(life: WorkerLife) -> bool:
    return life.exited is not None and bool(life.exit_code) and not life.expected


def _end(life: WorkerLife) -> str:
    if life.exited is None:
        return ""
    if life.removed:
        return "removed"
    if life.expected:
        return "stopped"
    return life.signal or (f"exit code {life.exit_code}" if life.exit_code else "ended")


def _blocks(state: SessionState) -> dict[str, list[_Block]]:
    """Worker -> its steps, by generation."""
    found: dict[str, list[_Block]] = defaultdict(list)
    for number in sorted(state.generations):
        generation = state.generations[number]
        for rank in generation.ranks.values():
            if rank.first_start is not None and rank.last_end is not None:
                ended = made_until(state, generation, rank)
                found[rank.worker].append(_Block(number, rank.rank, rank.first_start, ended))
    return found


def _commits(state: SessionState) -> dict[int, float]:
    """Generation -> its last commit that others went on from, by the word of the lowest rank that went back to it."""
    found: dict[int, tuple[int, float]] = {}
    for restore in state.elastic.restores:
        known = found.get(restore.committed_generation)
        if restore.committed_at is not None and (known is None or restore.rank < known[0]):
            found[restore.committed_generation] = restore.rank, restore.committed_at
    return {generation: at for generation, (_, at) in found.items()}


def _failures_noticed(state: SessionState) -> dict[int, float]:
    """Generation -> when the first of its ranks noticed that another had failed."""
    found: dict[int, float] = {}
    for probe in state.elastic.probes.values():
        for interruption in probe.interruptions:
            if interruption.cause == "failure":
                known = found.get(interruption.generation, interruption.at)
                found[interruption.generation] = min(known, interruption.at)
    return found


def _probe_of(state: SessionState, life: WorkerLife) -> ProbedLife | None:
    """The probe that spoke from the launcher's slot during the process's life."""
    ended = life.exited if life.exited is not None else float("inf")
    for probe in state.elastic.probes.values():
        if (probe.host, probe.local_rank) == (life.host, life.local_rank) and life.started <= probe.seen <= ended:
            return probe
    return None


def _unseen(state: SessionState, life: WorkerLife, exited: float) -> list[Segment]:
    """Of a worker without a word from its probe: it starts until its generation trains, and then takes part somehow."""
    generation = state.generations.get(life.generation)
    starts = [r.first_start for r in generation.ranks.values() if r.first_start is not None] if generation else []
    trains = max(min(min(starts, default=exited), exited), life.started)
    pieces = [Segment("initialisation", life.started, trains), Segment(UNSEEN, trains, exited)]
    return [piece for piece in pieces if piece.ended > piece.started]


def _before_start(state: SessionState, life: WorkerLife, interruptions: list[float]) -> list[Segment]:
    """A slot that joined waits until the others take notice, then until they have come to the new round."""
    joined = max(
        (e.at for e in state.membership if e.change == "host_joined" and e.host == life.host and e.at <= life.started),
        default=None,
    )
    if joined is None or life.generation == 0:
        return []
    earlier = max((other.exited or 0.0 for other in state.elastic.lives if _same_slot(other, life)), default=0.0)
    joined = max(joined, earlier)
    noticed = next((at for at in interruptions if joined <= at <= life.started), life.started)
    return [
        segment
        for segment in (Segment("detection", joined, noticed), Segment("rendezvous", noticed, life.started))
        if segment.ended > segment.started
    ]


def _merged(segments: list[Segment]) -> list[Segment]:
    """Neighbours of one kind and generation as one."""
    found: list[Segment] = []
    for segment in segments:
        if found and (found[-1].kind, found[-1].generation) == (segment.kind, segment.generation):
            found[-1] = replace(found[-1], ended=segment.ended)
        else:
            found.append(segment)
    return found


def _same_slot(other: WorkerLife, life: WorkerLife) -> bool:
    return (other.host, other.local_rank) == (life.host, life.local_rank) and other.started < life.started


@dataclass(slots=True)
class _Life:
    """One worker's time, cut into segments."""

    life: WorkerLife
    probe: ProbedLife
    blocks: list[_Block]
    deaths: list[float]
    noticed: dict[int, float]
    committed: dict[int, float]
    exited: float

    def segments(self) -> list[Segment]:
        pieces: list[LifeSpan | _Block] = [*self.probe.spans, *self.blocks]
        known = sorted(pieces, key=lambda piece: (piece.started, piece.ended))
        found: list[Segment] = []
        at = self.life.started
        before: LifeSpan | _Block | None = None
        for piece in known:
            started, ended = max(piece.started, at), min(piece.ended, self.exited)
            if ended <= at:
                continue
            if isinstance(before, _Block) and before is self.blocks[-1] and self._interruption(before.generation) is None:
                break  # shutting down at the end of the job is no loss to a change
            if started > at:
                found += self._between(before, at, started, piece)
            if isinstance(piece, _Block):
                found.append(Segment(TRAINING, started, ended, piece.generation, piece.rank))
            else:
                found.append(Segment(piece.kind, started, ended))
            at, before = ended, piece
        if at < self.exited:
            found += self._between(before, at, self.exited, None)
        return _merged(found)

    def _between(
        self, before: LifeSpan | _Block | None, started: float, ended: float, after: LifeSpan | _Block | None
    ) -> list[Segment]:
        """The time between two pieces, or after the last one."""
        if isinstance(before, _Block):
            return self._after_training(before, started, ended, last=after is None)
        if before is None or before.kind != "teardown":
            return [Segment("initialisation", started, ended)]
        # After the teardown the others are waited for; a worker whose slot is gone only waits for its end.
        return [Segment("teardown" if after is None and self.life.removed else "rendezvous", started, ended)]

    def _after_training(self, block: _Block, started: float, ended: float, *, last: bool) -> list[Segment]:
        interruption = self._interruption(block.generation)
        if interruption is None:
            if not last:
                return [Segment("teardown", started, ended)]
            return self._last_moments(block, started, ended)
        left = min(max(interruption.at, started), ended)
        if interruption.cause == "failure":
            found = self._failure(block, started, left)
        else:
            # The commit in which the worker learns of the change is work as any other commit.
            found = [Segment(TRAINING, started, left, block.generation, block.rank)]
        return [segment for segment in [*found, Segment("teardown", left, ended)] if segment.ended > segment.started]

    def _last_moments(self, block: _Block, started: float, ended: float) -> list[Segment]:
        """After the last step of a worker that no interruption ended: a death, the end of the job, or a step under way."""
        if self.life.exited is None:
            return [Segment(TRAINING, started, ended, block.generation, block.rank)]
        if not _failed(self.life):
            return [Segment(TAIL, started, ended)]
        if self.life.lost:
            return []  # an empty slot from its last step on
        # Once the others know, they go on without it.
        return self._failure(block, started, max(min(ended, self.noticed.get(block.generation, ended)), started))

    def _failure(self, block: _Block, started: float, ended: float) -> list[Segment]:
        """A step is cut short by the first death, which the worker then takes time to notice."""
        cut = cut_short(self.deaths, started, ended)
        # The state that goes on may have been committed after the last step, and even after the death.
        committed = min(max(self.committed.get(block.generation, started), started), cut)
        pieces = [
            Segment(TRAINING, started, committed, block.generation, block.rank),
            Segment("redone", committed, cut, block.generation, block.rank),
            Segment("detection", cut, ended, block.generation, block.rank),
        ]
        return [piece for piece in pieces if piece.ended > piece.started]

    def _interruption(self, generation: int) -> Interruption | None:
        return next((i for i in self.probe.interruptions if i.generation == generation), None)
