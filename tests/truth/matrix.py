"""Trials of known cause through the fold and the verdicts, and the matrix of what was said against what was true."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from distmon.core import measures
from distmon.core.fold import apply
from distmon.core.state import SessionState
from distmon.core.synthetic_faults import CAUSES, Cause, Trial, second_by_second
from distmon.core.verdicts import Verdict, verdicts

BLAME = {"straggler", "slow_network", "input_bound", "communication_bound", "memory_pressure", "stall"}
"""Kinds that blame something; `compute_bound` says that all is well."""


@dataclass(slots=True)
class Outcome:
    """One trial: what blamed something at its end, which was all that was ever named, and the measured gain."""

    trial: Trial
    said: set[tuple[str, int | None, str | None]]
    victims: set[int]
    """Ranks that were named at any moment and are not at fault."""
    steps: int
    first_named: int | None
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


def run(trial: Trial, with_gain: bool = False) -> Outcome:
    """Plays a trial second by second, as a viewer would see it."""
    state, last, first = SessionState(), list[Verdict](), None
    victims: set[int] = set()
    guilty = {rank for _, rank, _ in trial.expected() if rank is not None}
    for events in second_by_second(trial):
        for event in events:
            apply(state, event)
        last = verdicts(state)
        step = measures.steps(state)
        victims |= {v.rank for v in last if v.rank is not None and v.rank not in guilty}
        if first is None and step > trial.onset and trial.expected() <= _blaming(last):
            first = step - trial.onset
    outcome = Outcome(trial, _blaming(last), victims, measures.steps(state), first)
    if with_gain:
        outcome.gain = next((v.gain_percent for v in last if v.kind in BLAME and v.gain_percent), None)
        outcome.measured_gain = _measured_gain(trial, state)
    return outcome


def _blaming(found: Iterable[Verdict]) -> set[tuple[str, int | None, str | None]]:
    return {(v.kind, v.rank, v.phase) for v in found if v.kind in BLAME and v.pattern != "transient"}


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
    """A trial of each cause and seed: rank and size are drawn, between 4 and 12 % of the step."""
    for cause in causes:
        for seed in seeds:
            source = random.Random(f"{cause} {ranks} {seed}")
            rank, other = source.sample(range(ranks), 2)
            if cause == "two_ranks" and ranks < 4:
                continue
            size = source.uniform(0.04, 0.12)
            yield Trial(cause, ranks=ranks, rank=rank, other=other, size=size, seed=seed)


@dataclass(slots=True)
class Matrix:
    """Counts of what was said for each cause."""

    said: dict[Cause, Counter[str]] = field(default_factory=dict)
    right: Counter[Cause] = field(default_factory=Counter)
    healthy_steps: int = 0
    false: int = 0
    gains: list[bool] = field(default_factory=list)
    delays: dict[Cause, list[int]] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> None:
        cause = outcome.trial.cause
        self.said.setdefault(cause, Counter())[outcome.label] += 1
        self.right[cause] += outcome.right
        if cause == "healthy":
            self.healthy_steps += outcome.steps
            self.false += bool(outcome.said or outcome.victims)
        if outcome.first_named is not None:
            self.delays.setdefault(cause, []).append(outcome.first_named)
        if outcome.gain is not None and outcome.measured_gain is not None:
            self.gains.append(outcome.gain[0] <= outcome.measured_gain <= outcome.gain[1])

    @property
    def share_right(self) -> float:
        return sum(self.right.values()) / sum(sum(c.values()) for c in self.said.values())

    def lines(self) -> Iterator[str]:
        """As Markdown."""
        yield "| cause | trials | right class and rank | median steps until named | said |"
        yield "| --- | --- | --- | --- | --- |"
        for cause, counts in self.said.items():
            total = sum(counts.values())
            delays = sorted(self.delays.get(cause, []))
            middle = str(delays[len(delays) // 2]) if delays and cause != "healthy" else "–"
            said = ", ".join(f"{label}: {count}" for label, count in counts.most_common())
            yield f"| {cause} | {total} | {self.right[cause] / total:.0%} | {middle} | {said} |"
