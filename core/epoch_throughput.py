"""Throughput of each epoch: of all ranks together, from its first step to its last."""

from __future__ import annotations

import math
from dataclasses import dataclass

from distmon.core.elastic import undone_from
from distmon.core.epoch_comparison import epoch_ranks
from distmon.core.epochs import Epoch, EpochPart
from distmon.core.leaps import REASON, Clocks, clocks, in_step
from distmon.core.state import SessionState
from distmon.core.steps import JobSeries


@dataclass(slots=True, frozen=True)
class EpochThroughput:
    """What was trained of an epoch in this session; the rest of one that was begun before is not in it."""

    epoch: int
    """From 0."""
    ranks: tuple[int, int] | None
    """The fewest and the most that trained it."""
    samples: int | None
    """Over all ranks, those that a restart undid among them."""
    redone_samples: int | None
    """Those that a restart undid."""
    duration_s: float | None
    """From the start of its first step to the end of its last, on any rank; None where these are of clocks that were set."""
    training_s: float | None
    """The same in each generation of ranks, added up: without the pauses of restarts."""
    samples_per_s: float | None
    """Samples by `training_s`."""
    reason: str = ""
    """Why there is no throughput."""


def epoch_throughputs(state: SessionState) -> list[EpochThroughput]:
    """Every epoch of which steps were told, in order."""
    undone, found = undone_from(state), clocks(state)
    return [_throughput(state, epoch, undone, found) for _, epoch in sorted(state.epochs.items()) if epoch.parts]


def _throughput(
    state: SessionState, epoch: Epoch, undone: dict[int, tuple[int, float]], of_ranks: dict[int, Clocks]
) -> EpochThroughput:
    parts = epoch.parts
    begun, ended = min(part.started for part in parts.values()), max(part.ended for part in parts.values())
    samples, in_time = epoch.samples, in_step(of_ranks, *epoch.places)
    whole = in_time and all(map(_whole, parts.values()))
    training_s = math.fsum(part.ended - part.started for part in parts.values()) if whole else None
    thrown = [
        _samples_between(state.generations[number].series, max(part.lead[0], undone[number][0]), part.lead[1])
        for number, part in parts.items()
        if number in undone and part.lead is not None
    ]
    return EpochThroughput(
        epoch=epoch.epoch,
        ranks=epoch_ranks(state, epoch),
        samples=samples,
        redone_samples=None if samples is None else sum(thrown),
        duration_s=ended - begun if in_time else None,
        training_s=training_s,
        samples_per_s=samples / training_s if samples is not None and training_s else None,
        reason=_why(samples, training_s) if in_time else REASON,
    )


def _whole(part: EpochPart) -> bool:
    """Whether all of rank 0's steps between its first and its last belong to it."""
    return part.lead is None or part.lead_steps == part.lead[1] - part.lead[0]


def _why(samples: int | None, training_s: float | None) -> str:
    if samples is None:
        return "the number of samples in a batch was not seen"
    if training_s is None:
        return "between its first step and its last lie others: its number came again later, or records were lost"
    return "" if training_s else "its steps took no time"


def _samples_between(series: JobSeries, first: int, end: int) -> int:
    """Over all ranks, of the steps from `first` to before `end`; where neighbours are kept as one, in proportion."""
    width, total = series.width, 0.0
    for index in range(first // width, -(-max(end, first) // width)):
        covered = min(end, (index + 1) * width) - max(first, index * width)
        total += series.samples[index] * covered / width
    return round(total)
