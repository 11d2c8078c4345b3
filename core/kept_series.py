"""The steps of a job as its measures read them, kept from one look to the next: what all ranks have told stays.

Only speed depends on what is kept. It is safe to look from several threads: what was handed out is never changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from distmon.core.step_bins import Spread, StepBins
from distmon.core.steps import JobSeries, Totals
from distmon.core.warmup import Warmup

_MOST = 8
"""Series that are kept: those of the generations that were looked at last."""


@dataclass(slots=True)
class Memo:
    """What was found in the series, for as long as it only grows."""

    warmup: tuple[int, Warmup] | None = None
    """Of so many entries."""
    rates: tuple[int, int, list[float]] | None = None
    """(first entry, end, samples per second of each entry between, in order of size)."""
    spread: tuple[int, int, Spread] | None = None
    """(first step, end, how the steps between are spread), where entries are merged steps."""
    first: tuple[int, Totals] | None = None
    """Sums over all ranks of so many first steps, which all of them have done."""


@dataclass(slots=True, frozen=True, eq=False)
class KeptSeries:
    """The first `entries` entries of a series. An entry is a step, or the mean of `width` neighbouring ones."""

    series: JobSeries
    width: int
    ranks: int
    entries: int = 0
    durations: list[float] = field(default_factory=list)
    """Mean over ranks, in seconds; entries that no rank told are left out, here and in `samples`."""
    samples: list[int] = field(default_factory=list)
    """Over all ranks."""
    memo: Memo = field(default_factory=Memo)


_kept: dict[int, KeptSeries] = {}


def kept_series(series: JobSeries, ranks: int, complete: int) -> KeptSeries:
    """The first `complete` entries, which all `ranks` ranks have told."""
    known = _kept.get(id(series))
    complete = min(complete, len(series.reports))
    same = known is not None and known.series is series and (known.width, known.ranks) == (series.width, ranks)
    if known is None or not same or known.entries > complete:
        known = KeptSeries(series, series.width, ranks)
    if known.entries < complete:
        known = _grown(known, complete)
        _kept.pop(id(series), None)
        for old in list(_kept)[: len(_kept) + 1 - _MOST]:
            _kept.pop(old, None)
        _kept[id(series)] = known
    return known


def _grown(known: KeptSeries, complete: int) -> KeptSeries:
    series, ranks, new = known.series, known.ranks, slice(known.entries, complete)
    whole = ranks * known.width
    durations: list[float] = []
    samples: list[int] = []
    for ns, count, reports in zip(series.duration_ns[new], series.samples[new], series.reports[new], strict=False):
        if reports:
            durations.append(ns / reports / 1e9)
            samples.append(round(count * ranks / reports) if reports < whole else count)
    return KeptSeries(series, known.width, ranks, complete, known.durations + durations, known.samples + samples, known.memo)


def ordered_rates(kept: KeptSeries, cut: int) -> list[float]:
    """Samples per second of each entry from `cut` on, in order of size, where an entry is a step."""
    known, count = kept.memo.rates, len(kept.durations)
    begin, ordered = (known[1], known[2]) if known is not None and known[0] == cut and known[1] <= count else (cut, [])
    if begin < count:
        pairs = zip(kept.samples[begin:], kept.durations[begin:], strict=True)
        # Sorting what is in order already but for its end takes little time.
        ordered = sorted(ordered + [samples / duration for samples, duration in pairs if duration > 0])
        kept.memo.rates = (cut, count, ordered)
    return ordered


def spread_of(kept: KeptSeries, singles: StepBins, step: int) -> Spread:
    """How the single steps from `step` on are spread, where an entry is several: those in bins, and then those that all told."""
    begin, end, known = singles.begin(step), kept.entries * kept.width, kept.memo.spread
    if known is None or known[0] != begin or not singles.first <= known[1] <= end:
        known = begin, max(singles.first, begin), singles.spread(begin)
    if known[1] < end:
        known = begin, end, singles.extended(known[2], known[1], end)
    kept.memo.spread = known
    return known[2]
