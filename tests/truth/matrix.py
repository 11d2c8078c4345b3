"""Trials of known cause through the fold and the verdicts, and the matrix of what was said against what was true."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from distmon.core import measures
from distmon.core.arrivals import Arrivals
from distmon.core.batches import told_by
from distmon.core.finding import CALM
from distmon.core.fold import apply
from distmon.core.state import SessionState
from distmon.core.stragglers import LEAST_LATENESS
from distmon.core.synthetic_faults import CAUSES, OF_NODES, Cause, Trial, second_by_second
from distmon.core.verdicts import Verdict, verdicts

LATE: tuple[Cause, ...] = ("input", "compute", "disk", "cpu_hog", "send")
"""Causes whose price is held against the same job without them."""
GAIN_RANKS = 16
"""With more ranks that job, too, would take too long."""
_FEW_RANKS = 100

Named = tuple[str, int | None, str | None]
"""(kind, rank, phase)."""


@dataclass(slots=True)
class Outcome:
    """One trial: what blamed something at its end, what was ever named that was not at fault, and the measured gain."""

    trial: Trial
    said: set[Named]
    victims: set[int]
    """Ranks that were named at any moment and are not at fault."""
    healthy_steps: int
    """Steps before the fault, or all."""
    false: Counter[str] = field(default_factory=Counter)
    """Kind of verdict, whatever it is but that all is well -> how often one came up while nothing was wrong."""
    named_after: int | None = None
    """Steps from the fault's begin to the first right naming."""
    gain: tuple[float, float] | None = None
    measured_gain: float | None = None

    @property
    def right(self) -> bool:
        return self.said == self.trial.expected() and not self.victims

    @property
    def label(self) -> str:
        """What was said, in short: the kind, and whether it is of the right rank."""
        if not self.said:
            return "nothing"
        expected = self.trial.expected()
        kinds = sorted(kind if (kind, rank, phase) in expected else f"{kind} (wrong)" for kind, rank, phase in self.said)
        return " + ".join(dict.fromkeys(kinds))


def run(trial: Trial) -> Outcome:
    """Plays a trial as a viewer would see it, looking each second; every fifth with very many ranks."""
    state, last, every = SessionState(), list[Verdict](), 1 if trial.ranks <= _FEW_RANKS else 5
    outcome = Outcome(trial, set(), set(), 0)
    guilty = {rank for _, rank, _ in trial.expected() if rank is not None}
    blamed: set[Named] = set()
    for second, events in enumerate(second_by_second(trial)):
        for event in events:
            apply(state, event)
        step = measures.steps(state)
        stalled = trial.cause == "stopped" and step >= trial.onset
        if second % every and step < trial.steps and not stalled:
            continue
        last = verdicts(state)
        before, blamed = blamed, blaming(last)
        outcome.victims |= {rank for _, rank, _ in blamed if rank is not None and rank not in guilty}
        if trial.cause == "healthy" or (step <= trial.onset and not stalled):
            outcome.healthy_steps = step
            outcome.false.update(kind for kind, _, _ in blamed - before)
        elif outcome.named_after is None and trial.expected() <= blamed:
            outcome.named_after = step - trial.onset
    outcome.said = blamed
    if trial.cause in LATE and trial.ranks <= GAIN_RANKS:
        outcome.gain = next((v.gain_percent for v in last if (v.kind, v.rank, v.phase) in trial.expected()), None)
        outcome.measured_gain = _measured_gain(trial, state)
    return outcome


def blaming(found: Iterable[Verdict]) -> set[Named]:
    """What is said to be wrong now."""
    return {(v.kind, v.rank, v.phase) for v in found if v.kind not in CALM and v.pattern != "transient"}


def _measured_gain(trial: Trial, state: SessionState) -> float:
    """Percent of the step that is saved once the fault is gone: the same run, with other noise, without it."""
    healthy = SessionState()
    for events in second_by_second(Trial("healthy", ranks=trial.ranks, steps=trial.steps, seed=trial.seed + 100_000)):
        for event in events:
            apply(healthy, event)
    count = trial.steps - trial.onset
    slow, fast = (sum(measures.step_series(s.generations[0])[0][-count:]) for s in (state, healthy))
    return 100 * (1 - fast / slow)


def trials(ranks: int, seeds: range, causes: Iterable[Cause] = CAUSES) -> Iterator[Trial]:
    """A trial of each cause and seed: rank, moment and size are drawn, the size between 4 and 12 % of the step."""
    for cause in causes:
        for seed in seeds:
            source = random.Random(f"{cause} {ranks} {seed}")
            rank, other = source.sample(range(ranks), 2)
            if cause == "two_ranks" and ranks < 4:
                continue
            size, onset = source.uniform(0.04, 0.12), source.randrange(180, 220) if cause != "crowded" else 0
            varied = cause in OF_NODES
            yield Trial(cause, ranks=ranks, rank=rank, other=other, size=size, onset=onset, seed=seed, varied=varied)


def small_delays(ranks: int, size: float, seeds: range) -> Iterator[Trial]:
    """Streams in which one rank gets late, about step 150."""
    for seed in seeds:
        cause: Cause = "input" if seed % 2 else "compute"
        yield Trial(cause, ranks=ranks, rank=seed % ranks, size=size, onset=150 + seed % 5, steps=450, seed=seed)


def first_named(trial: Trial) -> tuple[int | None, bool]:
    """(steps from the delay's begin until its rank is named, whether another was, or it before); looked at after each step."""
    arrivals, other = Arrivals(), False
    for events in second_by_second(trial):
        told = [(rank, worker, batch.single_steps()) for event in events for rank, worker, batch in told_by(event)]
        for step in zip(*(steps for _, _, steps in told), strict=True):
            arrivals.add([(rank, worker, one) for (rank, worker, _), one in zip(told, step, strict=True)], trial.ranks)
            late = [rank for rank, shift in arrivals.late_ranks().items() if shift.mean >= LEAST_LATENESS]
            done = step[0].last_step + 1
            other |= any(rank != trial.rank for rank in late) or (bool(late) and done <= trial.onset)
            if trial.rank in late and done > trial.onset:
                return done - trial.onset, other
    return None, other


@dataclass(slots=True)
class Matrix:
    """Counts of what was said for each cause."""

    said: dict[Cause, Counter[str]] = field(default_factory=dict)
    right: Counter[Cause] = field(default_factory=Counter)
    healthy_steps: int = 0
    false: Counter[str] = field(default_factory=Counter)
    gains: list[bool] = field(default_factory=list)
    delays: dict[Cause, list[int]] = field(default_factory=dict)
    wrong: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        cause = outcome.trial.cause
        self.said.setdefault(cause, Counter())[outcome.label] += 1
        self.right[cause] += outcome.right
        self.healthy_steps += outcome.healthy_steps
        self.false += outcome.false
        if not outcome.right:
            self.wrong.append(outcome)
        if outcome.named_after is not None and cause != "healthy":
            self.delays.setdefault(cause, []).append(outcome.named_after)
        if outcome.measured_gain is not None and outcome.right:
            told = outcome.gain
            self.gains.append(told is not None and told[0] <= outcome.measured_gain <= told[1])

    @property
    def share_right(self) -> float:
        return sum(self.right.values()) / sum(sum(c.values()) for c in self.said.values())

    def lines(self) -> Iterator[str]:
        """As Markdown."""
        yield "| cause | trials | right class, rank and phase | steps until named, median | most | said |"
        yield "| --- | --- | --- | --- | --- | --- |"
        for cause, counts in self.said.items():
            total = sum(counts.values())
            delays = sorted(self.delays.get(cause, []))
            middle, most = (str(delays[len(delays) // 2]), str(delays[-1])) if delays else ("–", "–")
            said = ", ".join(f"{label}: {count}" for label, count in counts.most_common())
            yield f"| {cause} | {total} | {self.right[cause] / total:.0%} | {middle} | {most} | {said} |"
