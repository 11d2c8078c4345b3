"""Epochs of a job over time: when each was trained, by how many ranks, and the metrics that it ended with."""

from __future__ import annotations

from dataclasses import dataclass, field

from distmon.core.events import MetricsLogged
from distmon.core.steps import Totals

MOST_EPOCHS = 10_000


@dataclass(slots=True)
class Epoch:
    """Times are seconds since the epoch of the clock."""

    epoch: int
    """From 0."""
    started: float | None = None
    """Start of its first step, on any rank."""
    ended: float | None = None
    """End of its last step, on any rank."""
    samples: int = 0
    sampled: bool = True
    """Every batch of steps told its samples."""
    rank_steps: int = 0
    generations: set[int] = field(default_factory=set)
    metrics: dict[str, float] = field(default_factory=dict)
    """The last values that its lowest rank logged."""
    metrics_rank: int | None = None
    joules_before: float | None = None
    """Measured of the session when rank 0 began it, for the first time; None without a power reading."""


def add_steps(epochs: dict[int, Epoch], epoch: int, generation: int, lasted: tuple[float, float], added: Totals) -> None:
    """Steps of an epoch that is known, from their first start to their last end. Past MOST_EPOCHS no new ones are kept."""
    known = _epoch(epochs, epoch)
    if known is None:
        return
    started, ended = lasted
    known.started = started if known.started is None else min(known.started, started)
    known.ended = ended if known.ended is None else max(known.ended, ended)
    known.samples += added.samples
    known.sampled = known.sampled and added.sampled_steps == added.steps
    known.rank_steps += added.steps
    known.generations.add(generation)


def begin_epoch(epochs: dict[int, Epoch], epoch: int, joules: float | None) -> None:
    """Rank 0 begins an epoch, with so much energy spent before."""
    known = _epoch(epochs, epoch) if joules is not None else None
    if known is not None and known.joules_before is None:
        known.joules_before = joules


def add_metrics(epochs: dict[int, Epoch], event: MetricsLogged) -> None:
    """Metrics of an epoch, those of the lowest rank that logs any. They may come before its steps."""
    known = _epoch(epochs, event.epoch)
    if known is not None and (known.metrics_rank is None or event.rank <= known.metrics_rank):
        known.metrics_rank = event.rank
        known.metrics.update(event.values)


def _epoch(epochs: dict[int, Epoch], number: int | None) -> Epoch | None:
    if number is None or number < 0:
        return None
    if number not in epochs and len(epochs) >= MOST_EPOCHS:
        return None
    if (known := epochs.get(number)) is None:
        known = epochs[number] = Epoch(number)
    return known
