"""What an elastic job leaves to be told: rounds, hosts and their slots over time, and the lives of its workers. What an agent
that was started again tells once more counts once.

A worker is named twice: the launcher knows host and slot of the process that it started, the probe the process that it is in.
`distmon.core.elastic` joins the two.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from distmon.core import events as ev

MOST_LIVES = 20_000
MOST_SPANS = 1_000
MOST_POINTS = 20_000
LIFE_SPANS = ("initialisation", "rendezvous", "sync", "teardown")


@dataclass(slots=True)
class WorkerLife:
    """One process that the launcher started, from start to exit."""

    host: str
    local_rank: int
    rank: int
    generation: int
    started: float
    exited: float | None = None
    exit_code: int | None = None
    signal: str = ""
    expected: bool = False
    removed: bool = False
    cause: str = ""
    """Of its death, in words, where signal and exit code do not say it."""
    lost: bool = False
    """Its host or the way to it was lost: when it died is not known."""


@dataclass(slots=True, frozen=True)
class LifeSpan:
    kind: str
    started: float
    ended: float


@dataclass(slots=True, frozen=True)
class Interruption:
    """The training function was left to form a new generation."""

    at: float
    generation: int
    rank: int
    cause: str


@dataclass(slots=True, frozen=True)
class Restore:
    """A state went back to where it stood after `committed_steps` of generation `committed_generation`."""

    at: float
    generation: int
    rank: int
    committed_generation: int
    committed_steps: int
    committed_at: float | None = None


@dataclass(slots=True)
class ProbedLife:
    """One process as its probe tells it."""

    worker: str
    host: str = ""
    local_rank: int | None = None
    seen: float = 0.0
    """When it first said who it is."""
    spans: deque[LifeSpan] = field(default_factory=lambda: deque(maxlen=MOST_SPANS))
    interruptions: deque[Interruption] = field(default_factory=lambda: deque(maxlen=MOST_SPANS))
    commits: int = 0
    commit_s: float = 0.0
    told_until: dict[str, float] = field(default_factory=dict)
    """End of the last span of each kind."""


@dataclass(slots=True, frozen=True)
class Round:
    """Ranks were given out; `places` are (rank, host, local rank)."""

    generation: int
    at: float
    world_size: int
    places: list[tuple[int, str, int]]
    resets: int | None


@dataclass(slots=True)
class HostState:
    slots: int = 0
    here: bool = True
    """The discovery names it, and it is not barred."""
    barred_until: float | None = None
    """When a blacklisted host may come back; infinite where it never does, None where it is not barred."""

    @property
    def barred_for_good(self) -> bool:
        return self.barred_until == float("inf")


@dataclass(slots=True)
class ElasticState:
    """Grows with what happens to the job, not with its length."""

    rounds: deque[Round] = field(default_factory=lambda: deque(maxlen=MOST_POINTS))
    hosts: dict[str, HostState] = field(default_factory=dict)
    slots: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=MOST_POINTS))
    """(from, slots of all hosts that may be used)."""
    lives: deque[WorkerLife] = field(default_factory=lambda: deque(maxlen=MOST_LIVES))
    probes: dict[str, ProbedLife] = field(default_factory=dict)
    restores: deque[Restore] = field(default_factory=lambda: deque(maxlen=MOST_POINTS))
    discovery: ev.DiscoveryReported | None = None

    # --- what the launcher tells ---

    def assign(self, event: ev.RanksAssigned) -> None:
        places = [(place.rank, place.host, place.local_rank) for place in event.places]
        self.rounds.append(Round(event.generation, event.at, event.world_size, places, event.resets))

    def start(self, event: ev.WorkerStarted) -> None:
        self.lives.append(WorkerLife(event.host, event.local_rank, event.rank, event.generation, event.at))

    def exit(self, event: ev.WorkerExited) -> None:
        for life in reversed(self.lives):
            if (life.host, life.local_rank) == (event.host, event.local_rank):
                life.exited, life.exit_code, life.signal = event.at, event.exit_code, event.signal
                life.expected, life.removed, life.rank = event.expected, event.removed, event.rank
                life.cause, life.lost = event.cause, bool(event.cause) and not event.signal
                return

    def change(self, event: ev.MembershipChanged) -> None:
        host = self.hosts.setdefault(event.host, HostState())
        if event.change in ("host_joined", "host_left"):
            host.slots = event.slots or 0
            joined = event.change == "host_joined" and not host.barred_for_good
            host.here = host.slots > 0 and (joined or host.here)
            if joined:
                host.barred_until = None
        elif event.change == "host_blacklisted":
            host.here = False
            host.barred_until = event.until if event.until is not None else float("inf")
        else:
            return
        self.slots.append((event.at, sum(known.slots for known in self.hosts.values() if known.here)))

    # --- what the probes tell ---

    def identify(self, event: ev.WorkerIdentified) -> None:
        known = self._probe(event.worker)
        if known is not None and not known.host:
            known.host, known.local_rank, known.seen = event.host, event.local_rank, event.at

    def span(self, event: ev.SpanRecorded) -> None:
        if event.span not in LIFE_SPANS or (known := self._probe(event.worker)) is None:
            return
        span = LifeSpan(event.span, event.started, event.started + event.duration_s)
        if span.ended > known.told_until.get(span.kind, 0.0):
            known.told_until[span.kind] = span.ended
            known.spans.append(span)

    def interrupt(self, event: ev.TrainingInterrupted) -> None:
        known = self._probe(event.worker)
        if known is not None and event.generation not in (past.generation for past in known.interruptions):
            known.interruptions.append(Interruption(event.at, event.generation, event.rank, event.cause))

    def restore(self, event: ev.StateRestored) -> None:
        if (event.generation, event.rank) not in ((past.generation, past.rank) for past in self.restores):
            self.restores.append(
                Restore(
                    event.at,
                    event.generation,
                    event.rank,
                    event.committed_generation,
                    event.committed_steps,
                    event.committed_at,
                )
            )

    def commits(self, event: ev.CommitsCounted) -> None:
        known = self._probe(event.worker)
        if known is not None and event.at > known.told_until.get("commits", 0.0):
            known.told_until["commits"] = event.at
            known.commits += event.commits
            known.commit_s += event.total_s

    def _probe(self, worker: str) -> ProbedLife | None:
        if worker not in self.probes and len(self.probes) >= MOST_LIVES:
            return None
        return self.probes.setdefault(worker, ProbedLife(worker))
