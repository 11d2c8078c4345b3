"""Everything about one rank, with the reason beside each value that is missing."""

from __future__ import annotations

from distmon.core.events import WorkerIdentified
from distmon.core.measures import ALL_PHASES, RECENT, RankRow, Split, steady_split
from distmon.core.printable import clean
from distmon.core.state import Metric, RankState
from distmon.tui.format import MISSING, duration, fit, milliseconds, percent
from distmon.tui.theme import Palette
from distmon.tui.view.facts import Facts
from distmon.tui.view.ranks import state_of
from distmon.tui.view.words import PHASE_NAMES, rank_state
from distmon.tui.widgets.line import Line


def detail(facts: Facts, rank: int, palette: Palette, width: int) -> list[Line]:
    """The details panel's lines for a rank."""
    row, known = facts.ranks.get(rank), facts.state.ranks.get(rank)
    if row is None:
        return [Line([(f"rank {rank} is gone", palette.style("muted"))])]
    steady = steady_split(facts.state, rank)
    lines = [*_who(facts, row, known, palette), *_times(row, steady, palette), *_why_slow(facts, rank, palette)]
    lines += [
        _note(palette, f"{field} {MISSING}", reason) for field, reason in row.unseen.items() if field not in ALL_PHASES
    ]
    if known is not None:
        lines += _metrics(known.metrics, palette) + _spans(known.span_totals, palette)
    return lines


def _who(facts: Facts, row: RankRow, known: RankState | None, palette: Palette) -> list[Line]:
    style = palette.style
    word = state_of(facts, row)
    glyph, role = rank_state(word)
    state = Line([(f"{glyph} {clean(word)}", style(role, bold=True))])
    for name, value in (("host", clean(row.host)), ("local rank", known and known.local_rank), ("pid", row.pid)):
        state.add(f"  {name} ", style("muted")).add(MISSING if value in (None, "") else str(value), style("text"))
    identity = known.identity if known else None
    return [state] if identity is None else [state, Line([(clean(_software(identity)), style("muted"))])]


def _software(identity: WorkerIdentified) -> str:
    """What the rank runs: framework and Horovod with their versions where they are known, and the script."""
    parts = [
        f"{identity.framework} {identity.framework_version}".strip(),
        f"horovod {identity.horovod_version}" if identity.horovod_version else "",
        identity.script,
    ]
    return "  ".join(part for part in parts if part)


def _times(row: RankRow, steady: Split | None, palette: Palette) -> list[Line]:
    """The step and its phases, recent and steady, and how late the rank comes to the others."""
    recent = row.recent
    lines = [
        _heading(palette),
        _pair(palette, "step", recent.step_s if recent else None, steady.step_s if steady else None),
    ]
    for name in ALL_PHASES:
        line = _pair(
            palette, PHASE_NAMES[name], recent.phase(name) if recent else None, steady.phase(name) if steady else None
        )
        share = recent.share(name) if recent else None
        line.add(percent(None if share is None else 100 * share, 7), palette.style("text"))
        if share is None and name in row.unseen:
            line.add(f"  {clean(row.unseen[name])}", palette.style("warn"))
        lines.append(line)
    label, side = ("early", "ahead of") if row.lateness_s is not None and row.lateness_s < 0 else ("late", "behind")
    late = None if row.lateness_s is None else abs(row.lateness_s)
    line = Line([(fit(label, 14), palette.style("muted")), (fit(milliseconds(late), 10, "right"), palette.style("text"))])
    return [*lines, line.add(f"  {side} the median rank", palette.style("muted"))]


def _heading(palette: Palette) -> Line:
    words = (
        fit("", 14) + fit(f"last {RECENT} ms", 10, "right") + fit("steady ms", 10, "right") + fit("share", 7, "right")
    )
    return Line([(words, palette.style("muted"))])


def _pair(palette: Palette, name: str, recent: float | None, steady: float | None) -> Line:
    line = Line([(fit(name, 14), palette.style("muted"))])
    return line.add(
        fit(milliseconds(recent), 10, "right") + fit(milliseconds(steady), 10, "right"), palette.style("text")
    )


def _why_slow(facts: Facts, rank: int, palette: Palette) -> list[Line]:
    slow = facts.slow_ranks.get(rank)
    if slow is None:
        return []
    return [
        Line([(clean(slow.text), palette.style("warn", bold=True))]),
        _note(palette, "try:", slow.try_first, "text"),
    ]


def _note(palette: Palette, name: str, text: str, role: str = "warn") -> Line:
    return Line([(clean(name) + " ", palette.style("muted")), (clean(text), palette.style(role))])


def _metrics(metrics: dict[str, Metric], palette: Palette) -> list[Line]:
    style = palette.style
    return [
        Line([(fit(clean(name), 14), style("muted")), (f"{metric.value:>10.4g}", style("text"))])
        for name, metric in sorted(metrics.items())
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
