"""One row per rank, and everything about one rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter

from distmon.core.measures import ALL_PHASES, RankRow
from distmon.core.printable import clean
from distmon.core.recent import Difference, differences
from distmon.tui.format import MISSING, compact, milliseconds
from distmon.tui.view.facts import Facts
from distmon.tui.view.filters import read_filter
from distmon.tui.view.words import PHASE_NAMES, rank_state
from distmon.tui.widgets.rows import Cell
from distmon.tui.widgets.table import Column

COLUMNS = (
    Column("rank", "rank", 4),
    Column("host", "host", 9, "left", importance=3, grow=3, widest=24, ends=True),
    Column("step", "step", 6, importance=9),
    Column("duration", "step ms", 7, importance=2, grow=1, widest=10),
    Column("input_wait", "input", 6, importance=6, grow=1, widest=9),
    Column("compute", "compute", 7, importance=7, grow=1, widest=9),
    Column("exposed_communication", "comm", 6, importance=5, grow=1, widest=9),
    Column("late", "late", 5, importance=4, grow=1, widest=9),
    Column("samples_per_s", "samples/s", 9, importance=8),
    Column("state", "state", 10, "left", importance=1, grow=1, widest=14),
    Column("optimizer", "optim", 6, importance=10),
    Column("rest", "rest", 6, importance=11),
)
NOISE = 0.02
ALL_COLUMNS = (*COLUMNS, Column("differs", "differs by", 20, "left", importance=1))
SORTS = ("rank", "late", "duration", "input_wait", "compute", "exposed_communication", "samples_per_s", "host", "state")


def _duration(row: RankRow) -> float | None:
    return row.recent.step_s if row.recent else None


def _phase(name: str) -> Callable[[RankRow], float | None]:
    return lambda row: row.recent.phase(name) if row.recent else None


_SORT_VALUES: dict[str, Callable[[RankRow], float | str | None]] = {
    "rank": lambda row: row.rank,
    "host": lambda row: row.host,
    "step": lambda row: row.step,
    "duration": _duration,
    "late": lambda row: row.lateness_s,
    "samples_per_s": lambda row: row.samples_per_s,
    "state": lambda row: row.state,
    **{name: _phase(name) for name in ALL_PHASES},
}


FIELDS = (
    "rank", "host", "state", "step", "epoch", "step_ms", "input", "compute", "comm", "optim", "rest", "late", "samples",
    "differs_in", "differs_by",
)  # fmt: skip
"""What a filter can ask of a rank; times in ms, as in the table."""


def fields(facts: Facts, row: RankRow, differing: Mapping[int, Difference]) -> dict[str, float | int | str | None]:
    """A rank's FIELDS."""
    recent = row.recent
    phases = [recent.phase(name) if recent else None for name in ALL_PHASES]
    times = [None if s is None else s * 1e3 for s in (recent.step_s if recent else None, *phases, row.lateness_s)]
    state = state_of(facts, row)
    found = differing.get(row.rank)
    differs = (None, None) if found is None else (PHASE_NAMES[found.phase], found.by_s * 1e3)
    values = (row.rank, row.host, state, row.step, row.epoch, *times, row.samples_per_s, *differs)
    return dict(zip(FIELDS, values, strict=True))


_UNITS = {"samples": "samples_per_s"} | {
    name: f"{name}_ms" for name in ("input", "compute", "comm", "optim", "rest", "late", "differs_by")
}


FILE_NAMES = [_UNITS.get(name, name) for name in FIELDS]
"""Of the figures of a rank, in a file."""


def figures(facts: Facts, ranks: Sequence[int]) -> list[dict[str, object]]:
    """The FIELDS of ranks for a file, with their units in the names."""
    differing = differences(facts.ranks.values())
    found = (fields(facts, facts.ranks[rank], differing) for rank in ranks)
    return [{_UNITS.get(name, name): value for name, value in row.items()} for row in found]


def state_of(facts: Facts, row: RankRow) -> str:
    """How a rank is, in a word: of one that trains, `slow` where a verdict names it, `stale` where a recording is cut off."""
    if row.state != "training":
        return row.state
    return "stale" if facts.cut_off else "slow" if row.rank in facts.slow_ranks else row.state


def is_problem(facts: Facts, row: RankRow) -> bool:
    """Whether a rank needs a look."""
    return row.rank in facts.slow_ranks or row.state not in ("training", "starting", "forming", "ended")


def ordered(
    facts: Facts,
    column: str,
    descending: bool,
    text: str,
    differing: Mapping[int, Difference] | None = None,
    *,
    problems: bool = False,
) -> list[int]:
    """Ranks that pass the filter, by a column; those without a value come last either way."""
    wanted = read_filter(text, FIELDS)
    rows: Iterable[RankRow] = facts.ranks.values()
    if differing is None:
        differing = differences(rows) if "differs" in text else {}
    value = _SORT_VALUES[column] if column != "differs" else _difference(differing)
    if wanted or problems:
        rows = [
            row
            for row in rows
            if (not problems or is_problem(facts, row))
            and (not wanted or wanted.passes(fields(facts, row, differing), str(row.rank)))
        ]
    if column == "rank":
        return sorted((row.rank for row in rows), reverse=descending)
    valued = [(value(row), row.rank) for row in rows]
    known = [pair for pair in valued if pair[0] is not None]
    known.sort(key=itemgetter(0), reverse=descending)
    return [rank for _, rank in known] + [rank for found, rank in valued if found is None]


def _difference(differing: Mapping[int, Difference]) -> Callable[[RankRow], float | None]:
    """How much a rank differs; less than NOISE of its step counts as nothing, so that rows do not change places for it."""

    def value(row: RankRow) -> float | None:
        found, step = differing.get(row.rank), _duration(row)
        if found is None or step is None:
            return None
        return abs(found.by_s) if abs(found.by_s) > NOISE * step else 0.0

    return value


def all_cells(facts: Facts, differing: Mapping[int, Difference], rank: int) -> Sequence[Cell]:
    """One cell for each of ALL_COLUMNS."""
    found = differing.get(rank)
    if found is None:
        return (*cells(facts, rank), (MISSING, "muted"))
    sign = "+" if found.by_s >= 0 else "-"
    words = f"{PHASE_NAMES[found.phase]} {sign}{milliseconds(abs(found.by_s))}"
    return (*cells(facts, rank), (words, "warn" if rank in facts.slow_ranks else "text"))


def cells(facts: Facts, rank: int) -> Sequence[Cell]:
    """One cell per column."""
    row = facts.ranks[rank]
    words, slow = state_of(facts, row), facts.slow_ranks.get(rank)
    glyph, role = rank_state(words)
    recent = row.recent
    phases = {name: (milliseconds(recent.phase(name) if recent else None), "text") for name in ALL_PHASES}
    if slow is not None and slow.phase in phases:
        phases[slow.phase] = (phases[slow.phase][0], "warn")
    return (
        (str(rank), "text"),
        (facts.host_label(row.host) or MISSING, "text"),
        (f"{row.step:,}" if row.step is not None else MISSING, "text"),
        (milliseconds(recent.step_s if recent else None), "text"),
        phases["input_wait"],
        phases["compute"],
        phases["exposed_communication"],
        (milliseconds(row.lateness_s), "warn" if slow is not None else "text"),
        (compact(row.samples_per_s), "text"),
        (f"{glyph} {clean(words)}", role),
        phases["optimizer"],
        phases["rest"],
    )


def summary(facts: Facts) -> list[Cell]:
    """How many ranks are in which state, those that need a look first."""
    counts = Counter([state_of(facts, row) for row in facts.ranks.values()])
    order = sorted(counts, key=lambda state: (state in ("training", "ended"), state))
    words: list[Cell] = []
    for state in order:
        words += [(f"{'  ' * bool(words)}{counts[state]:,} {clean(state)}", rank_state(state)[1])]
    return words
