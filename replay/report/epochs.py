"""Two runs epoch by epoch, for `distmon compare`: as JSON and as a table."""

from __future__ import annotations

from msgspec import Struct

from distmon.core.epoch_comparison import EpochOf, EpochRun, EpochTotals, compare_epochs
from distmon.core.printable import clean
from distmon.replay.report.tables import Section, Table
from distmon.replay.report.words import DASH, number, seconds

_SHOWN_METRICS = 2
_SHOWN_EVENTS = 3


class EpochSide(Struct, kw_only=True):
    seconds: float | None
    ranks: tuple[int, int] | None
    samples: int | None
    metrics: dict[str, float]
    events: list[str]


class EpochRow(Struct, kw_only=True):
    epoch: int
    base: EpochSide | None
    other: EpochSide | None
    difference_s: float | None


class Totals(Struct, kw_only=True):
    epochs: int
    epochs_s: float | None
    outside_s: float | None
    total_s: float | None


class Epochs(Struct, kw_only=True):
    rows: list[EpochRow]
    base: Totals
    other: Totals
    both: int
    both_s: tuple[float, float] | None
    metrics: list[str]
    metrics_printed: bool


def summarise_epochs(base: EpochRun, other: EpochRun) -> Epochs | None:
    """None where neither run has epochs by number."""
    found = compare_epochs(base, other)
    if found is None:
        return None
    return Epochs(
        rows=[
            EpochRow(epoch=pair.epoch, base=_side(pair.base), other=_side(pair.other), difference_s=pair.difference_s)
            for pair in found.pairs
        ],
        base=_totals(found.base),
        other=_totals(found.other),
        both=found.both,
        both_s=found.both_s,
        metrics=[clean(name) for name in found.metrics],
        metrics_printed=found.metrics_printed,
    )


def _side(epoch: EpochOf | None) -> EpochSide | None:
    if epoch is None:
        return None
    return EpochSide(
        seconds=epoch.seconds,
        ranks=epoch.ranks,
        samples=epoch.samples,
        metrics={clean(name): value for name, value in epoch.metrics.items()},
        events=[clean(event) for event in epoch.events],
    )


def _totals(totals: EpochTotals) -> Totals:
    return Totals(epochs=totals.epochs, epochs_s=totals.epochs_s, outside_s=totals.outside_s, total_s=totals.total_s)


def epoch_sections(found: Epochs) -> list[Section]:
    """The table for people: the first metrics, and what happened before and in each epoch of either run."""
    names = found.metrics[:_SHOWN_METRICS]
    header = ["epoch", "ranks", "base", "other", "difference"]
    header += [f"{name}, {side}" for name in names for side in ("base", "other")]
    rows = [_row(row, names) for row in found.rows]
    for label, values, difference in _sums(found):
        rows.append([label, "", *map(_seconds, values), difference, *[""] * (2 * len(names))])
    notes = ["loss and the like are as rank 0 printed them with the number of their epoch"] if found.metrics_printed else []
    notes += [
        f"{side}, epoch {row.epoch + 1}: {_events(said.events)}"
        for row in found.rows
        for side, said in (("base", row.base), ("other", row.other))
        if said is not None and said.events
    ]
    return [Section("Epoch by epoch", table=Table(header, rows)), *([Section("Events", lines=notes)] if notes else [])]


def _sums(found: Epochs) -> list[tuple[str, tuple[float | None, float | None], str]]:
    """(label, values, difference). What one run trained and the other did not is not summed as a difference of speed."""
    base, other, same = found.base, found.other, found.both == len(found.rows)
    trained, outside, whole = (base.epochs_s, other.epochs_s), (base.outside_s, other.outside_s), (base.total_s, other.total_s)
    shared = found.both_s or (None, None)
    return [
        *([] if same else [(f"sum of the {found.both} of both", shared, _difference(*shared))]),
        ("sum of epochs", trained, _difference(*trained) if same else DASH),
        ("outside them", outside, _difference(*outside)),
        ("total", whole, _difference(*whole) if same else DASH),
    ]


def _row(row: EpochRow, names: list[str]) -> list[str]:
    sides = row.base, row.other
    times = [_seconds(side.seconds if side else None) for side in sides]
    metrics = [_metric(side, name) for name in names for side in sides]
    shown = DASH if row.difference_s is None else f"{row.difference_s:+.2f} s"
    return [str(row.epoch + 1), " / ".join(map(_ranks, sides)), *times, shown, *metrics]


def _metric(side: EpochSide | None, name: str) -> str:
    value = side.metrics.get(name) if side is not None else None
    return DASH if value is None else number(value, 4)


def _ranks(side: EpochSide | None) -> str:
    if side is None or side.ranks is None:
        return DASH
    least, most = side.ranks
    return str(most) if least == most else f"{least}-{most}"


def _seconds(value: float | None) -> str:
    return DASH if value is None else seconds(value)


def _difference(base: float | None, other: float | None) -> str:
    return DASH if base is None or other is None else f"{other - base:+.2f} s"


def _events(events: list[str]) -> str:
    more = f", and {len(events) - _SHOWN_EVENTS} more" if len(events) > _SHOWN_EVENTS else ""
    return "; ".join(events[:_SHOWN_EVENTS]) + more
