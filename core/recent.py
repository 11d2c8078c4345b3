"""What every rank did lately, second by second: the rows of the heat map over time and the band over ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    middles = _middles(list(splits.values()))
    found: dict[int, Difference] = {}
    for rank, split in splits.items():
        phase, by, wait = "", 0.0, 0.0
        for place, name, middle in middles:
            value = split[place]
            if value is None:
                continue
            departs = value - middle
            if name == WAIT:
                wait = departs
            elif not phase or abs(departs) > abs(by):
                phase, by = name, departs
        explained = by * wait < 0 and abs(by) >= abs(wait) / 2
        if abs(wait) > abs(by) and not explained:
            phase, by = WAIT, wait
        if phase or split.exposed_communication is not None:
            found[rank] = Difference(phase or WAIT, by)
    return found


def _middles(splits: Sequence[Split]) -> list[tuple[int, str, float]]:
    """(place in a split, name, value of the median rank) of the phases that were seen; of the rest where it is of the same
    phases on all ranks."""
    seen = {tuple(value is None for value in split) for split in splits}
    found = []
    for phase in ALL_PHASES if len(seen) == 1 else PHASES:
        place = Split._fields.index(phase)
        middle = quantile(sorted(value for split in splits if (value := split[place]) is not None), 0.5)
        if middle is not None:
            found.append((place, phase, middle))
    return found


def _band(values: Sequence[float | None]) -> tuple[float, float, float] | None:
    known = sorted(value for value in values if value is not None)
    low, middle, high = (quantile(known, q) for q in (0.05, 0.5, 0.95))
    return None if low is None or middle is None or high is None else (low, middle, high)
