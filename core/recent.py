"""What every rank did lately, second by second: the rows of the heat map over time and the band over ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from distmon.core.batches import PHASES
from distmon.core.measures import ALL_PHASES, RankRow, Split, current_generation
from distmon.core.quantiles import quantile
from distmon.core.state import SessionState
from distmon.core.steps import RankSteps, Totals

WAIT = "exposed_communication"
"""The phase in which a rank waits for the others."""
METRICS = ("step", *ALL_PHASES, "late")
"""`late` is how much later than the median rank a rank comes to the collective, as in RankRow."""
RECENT_S = 120
"""At most so many seconds; fewer where the last RECENT_STEPS steps took less."""

Row = list[float | None]


@dataclass(slots=True, frozen=True)
class Recent:
    """Mean seconds per step of each rank in each second from `start` on; None where a rank ended no step."""

    start: int
    seconds: int
    rows: dict[int, Row]
    limit: Literal["", "steps", "seconds"] = ""
    """Why there is no more: of RECENT_STEPS, of RECENT_S; empty where it is all that the generation did."""

    def band(self) -> list[tuple[float, float, float] | None]:
        """(p5, median, p95) over ranks of each second."""
        return [_band([row[i] for row in self.rows.values()]) for i in range(self.seconds)]


def recent(state: SessionState, metric: str) -> Recent:
    """The last seconds of the current generation, of one of METRICS."""
    generation = current_generation(state)
    if generation is None:
        return Recent(0, 0, {})
    ranks = {number: generation.ranks[number] for number in sorted(generation.ranks)}
    end = max(int(r.last_end) for r in ranks.values() if r.last_end is not None) + 1
    oldest = min(int(r.batches[0].begin) for r in ranks.values() if r.batches)
    start = max(oldest, end - RECENT_S)
    own = {number: _row(r, WAIT if metric == "late" else metric, start, end) for number, r in ranks.items()}
    limit: Literal["", "steps", "seconds"] = "steps" if any(r.sums[0] > r.kept_steps for r in ranks.values()) else ""
    return Recent(start, end - start, _lateness(own) if metric == "late" else own, "seconds" if start > oldest else limit)


def _row(rank: RankSteps, metric: str, start: int, end: int) -> Row:
    row: Row = [None] * (end - start)
    for batch in rank.batches:
        first, last = int(batch.begin), int(batch.end)
        if last >= start:
            value = _mean(Totals.of(batch.sums), metric)
            for second in range(max(first if last - first > 1 else last, start), last + 1):
                row[second - start] = value
    return row


def _mean(sums: Totals, metric: str) -> float | None:
    if metric == "step":
        return sums.duration_ns / sums.steps / 1e9
    if metric == "rest":
        return (sums.duration_ns - sum(sums.phase_ns)) / sums.steps / 1e9
    phase = PHASES.index(metric)
    return sums.phase_ns[phase] / sums.seen[phase] / 1e9 if sums.seen[phase] else None


def _lateness(exposed: dict[int, Row]) -> dict[int, Row]:
    """The median of each second less each rank's own."""
    medians = [quantile(sorted(v for v in column if v is not None), 0.5) for column in zip(*exposed.values(), strict=True)]
    return {
        number: [None if v is None or m is None else m - v for v, m in zip(row, medians, strict=True)]
        for number, row in exposed.items()
    }


@dataclass(slots=True, frozen=True)
class Difference:
    """In which phase a rank differs most from the median rank, and by how many seconds a step."""

    phase: str
    by_s: float


def differences(rows: Iterable[RankRow]) -> dict[int, Difference]:
    """Of each rank whose phases were seen, over its recent steps; to be ordered by the size of `by_s`.

    Who is late waits that much less for the others: the wait is named only where no other phase explains half of it.
    """
    splits = {row.rank: row.recent for row in rows if row.recent is not None}
    waits = _departures(splits, WAIT)
    found: dict[int, Difference] = {}
    for phase in _compared(splits):
        for rank, by in _departures(splits, phase).items():
            if rank not in found or abs(by) > abs(found[rank].by_s):
                found[rank] = Difference(phase, by)
    for rank, by in waits.items():
        cause = found.get(rank)
        explained = cause is not None and cause.by_s * by < 0 and abs(cause.by_s) >= abs(by) / 2
        if cause is None or (abs(by) > abs(cause.by_s) and not explained):
            found[rank] = Difference(WAIT, by)
    return found


def _compared(splits: Mapping[int, Split]) -> list[str]:
    """The phases besides the wait; the rest too, where the same phases were seen of all ranks, so that it is of the same time."""
    seen = {tuple(split.phase(phase) is None for phase in PHASES) for split in splits.values()}
    return [phase for phase in (ALL_PHASES if len(seen) == 1 else PHASES) if phase != WAIT]


def _departures(splits: Mapping[int, Split], phase: str) -> dict[int, float]:
    """By how many seconds a phase of each rank is longer than that of the median rank."""
    values = {rank: value for rank, split in splits.items() if (value := split.phase(phase)) is not None}
    middle = quantile(sorted(values.values()), 0.5)
    return {rank: value - middle for rank, value in values.items()} if middle is not None else {}


def _band(values: Sequence[float | None]) -> tuple[float, float, float] | None:
    known = sorted(value for value in values if value is not None)
    low, middle, high = (quantile(known, q) for q in (0.05, 0.5, 0.95))
    return None if low is None or middle is None or high is None else (low, middle, high)
