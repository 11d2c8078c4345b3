"""One row per rank, and everything about one rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from distmon.core.events import WorkerIdentified
from distmon.core.measures import ALL_PHASES, RECENT, RankRow
from distmon.tui.format import MISSING, clean, compact, duration, fit, milliseconds, percent
from distmon.tui.theme import Palette
from distmon.tui.view.facts import Facts
from distmon.tui.view.words import PHASE_NAMES, rank_state
from distmon.tui.widgets.line import Line
from distmon.tui.widgets.rows import Cell
from distmon.tui.widgets.table import Column

COLUMNS = (
    Column("rank", "rank", 4),
    Column("host", "host", 9, "left", importance=3, grow=3, widest=24),
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


def ordered(facts: Facts, column: str, descending: bool, text: str) -> list[int]:
    """Ranks that contain the text, by a column; those without a value come last either way."""
    value = _SORT_VALUES[column]
    wanted = text.lower()
    rows = [row for row in facts.ranks.values() if not wanted or wanted in f"{row.rank} {row.host} {row.state}".lower()]
    known = [row for row in rows if value(row) is not None]
    unknown = [row.rank for row in rows if value(row) is None]
    known.sort(key=lambda row: (value(row), row.rank), reverse=descending)
    return [row.rank for row in known] + unknown


def cells(facts: Facts, rank: int) -> Sequence[Cell]:
    """One cell per column."""
    row = facts.ranks[rank]
    glyph, role = rank_state(row.state)
    words = row.state
    slow = facts.slow_ranks.get(rank)
    if slow is not None and row.state == "training":
        glyph, role, words = "▲", "warn", "slow"
    recent = row.recent
    phases = {name: (milliseconds(recent.phase(name) if recent else None), "text") for name in ALL_PHASES}
    if slow is not None and slow.phase in phases:
        phases[slow.phase] = (phases[slow.phase][0], "warn")
    return (
        (str(rank), "text"),
        (clean(row.host) or MISSING, "text"),
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
    counts = Counter(
        "slow" if row.state == "training" and row.rank in facts.slow_ranks else row.state
        for row in facts.ranks.values()
    )
    order = sorted(counts, key=lambda state: (state in ("training", "ended"), state))
    words: list[Cell] = []
    for state in order:
        role = "warn" if state == "slow" else rank_state(state)[1]
        words += [(f"{'  ' * bool(words)}{counts[state]:,} {clean(state)}", role)]
    return words


def detail(facts: Facts, rank: int, palette: Palette, width: int) -> list[Line]:
    """Everything known of a rank; a value that is missing has its reason beside it."""
    style = palette.style
    row, known = facts.ranks.get(rank), facts.state.ranks.get(rank)
    if row is None:
        return [Line([(f"rank {rank} is gone", style("muted"))])]
    glyph, role = rank_state(row.state)
    lines = [
        Line(
            [
                (f"{glyph} {clean(row.state)}", style(role, bold=True)),
                (f"  host {clean(row.host) or MISSING}", style("text")),
            ]
        )
    ]
    pid = str(row.pid) if row.pid is not None else MISSING
    lines.append(
        Line(
            [
                ("pid ", style("muted")),
                (pid, style("text")),
                ("  local rank ", style("muted")),
                (_local(known), style("text")),
            ]
        )
    )
    identity = known.identity if known else None
    if identity is not None:
        lines.append(Line([(clean(_software(identity)), style("text"))]))
    lines.append(_heading(palette))
    recent_s = row.recent.step_s if row.recent else None
    lines.append(_pair(palette, "step", recent_s, row.steady.step_s if row.steady else None, None, ""))
    for name in ALL_PHASES:
        recent = row.recent.phase(name) if row.recent else None
        steady = row.steady.phase(name) if row.steady else None
        share = row.recent.share(name) if row.recent else None
        lines.append(_pair(palette, PHASE_NAMES[name], recent, steady, share, row.unseen.get(name, "")))
    lines.append(_pair(palette, "late", row.lateness_s, None, None, row.unseen.get("exposed_communication", "")))
    slow = facts.slow_ranks.get(rank)
    if slow is not None:
        lines += [
            Line([(clean(slow.text), style("warn", bold=True))]),
            Line([("try: ", style("muted")), (clean(slow.try_first), style("text"))]),
        ]
    for field, reason in row.unseen.items():
        if field not in ALL_PHASES:
            lines.append(Line([(f"{clean(field)} {MISSING} ", style("muted")), (clean(reason), style("text"))]))
    return (
        lines + _metrics(known.metrics if known else {}, palette) + _spans(known.span_totals if known else {}, palette)
    )


def _software(identity: WorkerIdentified) -> str:
    """What the rank runs: framework and Horovod with their versions where they are known, and the script."""
    parts = [
        f"{identity.framework} {identity.framework_version}".strip(),
        f"horovod {identity.horovod_version}" if identity.horovod_version else "",
        identity.script,
    ]
    return "  ".join(part for part in parts if part)


def _local(known: object) -> str:
    local = getattr(known, "local_rank", None)
    return MISSING if local is None else str(local)


def _heading(palette: Palette) -> Line:
    muted = palette.style("muted")
    return Line(
        [
            (fit("", 14), muted),
            (fit(f"last {RECENT} ms", 10, "right"), muted),
            (fit("steady ms", 10, "right"), muted),
            (fit("share", 7, "right"), muted),
        ]
    )


def _pair(
    palette: Palette, name: str, recent: float | None, steady: float | None, share: float | None, reason: str
) -> Line:
    style = palette.style
    line = Line([(fit(name, 14), style("muted"))])
    line.add(fit(milliseconds(recent), 10, "right"), style("text")).add(
        fit(milliseconds(steady), 10, "right"), style("text")
    )
    if share is not None:
        line.add(percent(100 * share, 7), style("text"))
    if recent is None and reason:
        line.add(f"  {clean(reason)}", style("warn"))
    return line


def _metrics(metrics: dict[str, float], palette: Palette) -> list[Line]:
    style = palette.style
    return [
        Line([(fit(clean(name), 14), style("muted")), (f"{value:>10.4g}", style("text"))])
        for name, value in sorted(metrics.items())
    ]


def _spans(totals: dict[str, float], palette: Palette) -> list[Line]:
    style = palette.style
    return [
        Line(
            [
                (fit(clean(name), 14), style("muted")),
                (fit(duration(seconds), 10, "right"), style("text")),
                (" in all", style("muted")),
            ]
        )
        for name, seconds in sorted(totals.items())
    ]
