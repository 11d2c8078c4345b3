"""Two runs of one training, epoch by epoch: time, metrics, who took part, and what happened in between."""

from __future__ import annotations

import math
from dataclasses import dataclass

from distmon.core.epochs import Epoch
from distmon.core.measures import elapsed
from distmon.core.state import SessionState

_SHOWN = ("host_joined", "host_left", "host_failed", "host_blacklisted", "rendezvous", "resumed")
_FIRST = ("loss", "accuracy", "acc", "top5", "val_loss", "val_accuracy", "val_acc")


@dataclass(slots=True, frozen=True)
class EpochOf:
    """An epoch of one run. Seconds are from the start of its first step to the end of its last, on any rank."""

    seconds: float
    ranks: tuple[int, int] | None
    """The fewest and the most that trained it."""
    samples: int | None
    metrics: dict[str, float]
    events: list[str]
    """Changes of membership since the epoch before ended, in words; of the first since it began."""


@dataclass(slots=True, frozen=True)
class EpochRun:
    """One run by its epochs."""

    epochs: dict[int, EpochOf]
    total_s: float | None
    logged: bool
    """Its metrics were logged, not only printed."""


@dataclass(slots=True, frozen=True)
class EpochPair:
    epoch: int
    """From 0."""
    base: EpochOf | None
    other: EpochOf | None
    difference_s: float | None
    """Other less base."""


@dataclass(slots=True, frozen=True)
class EpochTotals:
    """Of one run. `outside_s` is what its epochs leave of the whole; without an epoch neither is known."""

    epochs: int
    epochs_s: float | None
    outside_s: float | None
    total_s: float | None


@dataclass(slots=True, frozen=True)
class EpochComparison:
    pairs: list[EpochPair]
    base: EpochTotals
    other: EpochTotals
    both: int
    """Epochs that both trained."""
    both_s: tuple[float, float] | None
    """What base and other took for those; None without one."""
    metrics: list[str]
    """Metrics that any epoch has, the usual ones first."""
    metrics_printed: bool
    """They come from what the scripts printed, since these logged none."""


def compare_epochs(base: EpochRun, other: EpochRun) -> EpochComparison | None:
    """None where neither run has epochs by number."""
    ours, theirs = base.epochs, other.epochs
    if not ours and not theirs:
        return None
    pairs = [_pair(number, ours.get(number), theirs.get(number)) for number in sorted(ours.keys() | theirs.keys())]
    names = {name for epochs in (ours, theirs) for epoch in epochs.values() for name in epoch.metrics}
    shared = [(pair.base.seconds, pair.other.seconds) for pair in pairs if pair.base and pair.other]
    ordered = [name for name in _FIRST if name in names]
    return EpochComparison(
        pairs=pairs,
        base=_totals(base),
        other=_totals(other),
        both=len(shared),
        both_s=(math.fsum(base_s for base_s, _ in shared), math.fsum(other_s for _, other_s in shared)) if shared else None,
        metrics=ordered + sorted(names - set(ordered)),
        metrics_printed=bool(names) and not (base.logged or other.logged),
    )


def epoch_run(state: SessionState) -> EpochRun:
    """The epochs that were trained, and the whole."""
    found: dict[int, EpochOf] = {}
    after = min((e.started for e in state.epochs.values() if e.started is not None), default=0.0)
    printed = _printed(state)
    for number in sorted(state.epochs):
        epoch = state.epochs[number]
        if epoch.started is None or epoch.ended is None:
            continue
        found[number] = EpochOf(
            seconds=epoch.ended - epoch.started,
            ranks=epoch_ranks(state, epoch),
            samples=epoch.samples,
            metrics=dict(epoch.metrics) or printed.get(number, {}),
            events=_events(state, after, epoch.ended),
        )
        after = epoch.ended
    return EpochRun(found, elapsed(state), any(epoch.metrics for epoch in state.epochs.values()))


def _printed(state: SessionState) -> dict[int, dict[str, float]]:
    """Printed metrics by epoch from 0: a script that never prints an epoch 0 counts from 1."""
    first = 0 if 0 in state.printed else 1
    return {number - first: values for number, values in state.printed.items()}


def epoch_ranks(state: SessionState, epoch: Epoch) -> tuple[int, int] | None:
    """The fewest and the most ranks that trained it."""
    sizes = [size for g in epoch.parts if (size := state.generations[g].world_size or len(state.generations[g].ranks))]
    return (min(sizes), max(sizes)) if sizes else None


def _events(state: SessionState, after: float, until: float) -> list[str]:
    """A change that comes more than once is told with its number."""
    counted: dict[str, int] = {}
    for change in sorted(state.membership, key=lambda change: change.at):
        if change.change in _SHOWN and after < change.at <= until:
            words = [change.change.replace("_", " "), change.host, f"({change.detail})" if change.detail else ""]
            text = " ".join(word for word in words if word)
            counted[text] = counted.get(text, 0) + 1
    return [text if times == 1 else f"{text} x{times}" for text, times in counted.items()]


def _pair(number: int, base: EpochOf | None, other: EpochOf | None) -> EpochPair:
    return EpochPair(number, base, other, other.seconds - base.seconds if base and other else None)


def _totals(run: EpochRun) -> EpochTotals:
    if not run.epochs:
        return EpochTotals(0, None, None, run.total_s)
    trained = math.fsum(epoch.seconds for epoch in run.epochs.values())
    return EpochTotals(len(run.epochs), trained, None if run.total_s is None else run.total_s - trained, run.total_s)
