"""Epochs of a job over time: when each was trained, by how many ranks, and the metrics that it ended with."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from distmon.core.energy_trail import Spent
from distmon.core.events import MetricsLogged
from distmon.core.steps import Totals

MOST_EPOCHS = 10_000


@dataclass(slots=True)
class EpochPart:
    """What one generation of ranks trained of an epoch. Times are seconds since the epoch of the clock."""

    started: float
    """Start of its first step, on any rank."""
    ended: float
    """End of its last step, on any rank."""
    samples: int = 0
    sampled: bool = True
    """Every batch of steps told its samples."""
    lead: tuple[int, int] | None = None
    """Rank 0's first step of it, and the one after its last, as the generation counts; None where rank 0 told none."""
    lead_steps: int = 0
    """Steps of rank 0: fewer than lie between those where the number of the epoch came again later."""


@dataclass(slots=True)
class Epoch:
    """All that was trained of an epoch, on any rank."""

    epoch: int
    """From 0."""
    parts: dict[int, EpochPart] = field(default_factory=dict)
    """By generation."""
    metrics: dict[str, float] = field(default_factory=dict)
    """The last values that its lowest rank logged."""
    metrics_rank: int | None = None
    spent_before: Spent | None = None
    """When its first step began; None until that is long ago (`energy.settle`), as the next."""
    spent_until: Spent | None = None
    """When its last step ended."""

    @property
    def started(self) -> float | None:
        """Start of its first step, in seconds since the epoch of the clock."""
        return min((part.started for part in self.parts.values()), default=None)

    @property
    def ended(self) -> float | None:
        """End of its last step, likewise."""
        return max((part.ended for part in self.parts.values()), default=None)

    @property
    def places(self) -> tuple[tuple[int, float], tuple[int, float]]:
        """(generation, step) of its first step and of the one after its last; of a whole generation where rank 0 told none."""
        first, last = min(self.parts), max(self.parts)
        begun, ended = self.parts[first].lead, self.parts[last].lead
        return (first, begun[0] if begun is not None else 0), (last, ended[1] if ended is not None else math.inf)

    @property
    def samples(self) -> int | None:
        """Over all ranks, those that a restart undid among them; None where a batch did not tell them."""
        parts = self.parts.values()
        return sum(part.samples for part in parts) if all(part.sampled for part in parts) else None


def add_steps(
    epochs: dict[int, Epoch],
    epoch: int,
    generation: int,
    lasted: tuple[float, float],
    added: Totals,
    lead: tuple[int, int] | None,
) -> None:
    """Steps of an epoch that is known, from their first start to their last end. Past MOST_EPOCHS no new ones are kept.

    `lead` are the numbers of rank 0's first step among them and of the one after its last.
    """
    known = _epoch(epochs, epoch)
    if known is None:
        return
    started, ended = lasted
    if (part := known.parts.get(generation)) is None:
        part = known.parts[generation] = EpochPart(started, ended)
    part.started, part.ended = min(part.started, started), max(part.ended, ended)
    part.samples += added.samples
    part.sampled = part.sampled and added.sampled_steps == added.steps
    if lead is not None:
        first, end = lead
        part.lead = lead if part.lead is None else (min(part.lead[0], first), max(part.lead[1], end))
        part.lead_steps += end - first


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
