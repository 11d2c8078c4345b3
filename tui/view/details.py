"""The details panel: one rank, one node, or the verdicts with their evidence."""

from __future__ import annotations

from distmon.core.finding import CALM
from distmon.core.printable import clean
from distmon.core.verdicts import undecided
from distmon.tui.format import duration
from distmon.tui.theme import Palette
from distmon.tui.view import node_table, nodes, rank_detail, ranks, verdict_page
from distmon.tui.view.facts import Facts
from distmon.tui.view.verdict_page import gain_words
from distmon.tui.view.wrap import wrapped
from distmon.tui.widgets.line import Line

LABEL = 11
Subject = tuple[str, object]
"""("rank", number), ("node", key), ("verdicts", None) or, of a log, ("line", None)."""


def details_title(facts: Facts, subject: Subject) -> str:
    kind, key = subject
    if kind == "verdicts":
        return "what holds the job back"
    if kind == "node":
        node = facts.state.nodes.get(str(key))
        return f"node {nodes.name_of(node) if node else clean(str(key))}"
    return f"rank {key}"


def details_figures(facts: Facts, subject: Subject) -> list[dict[str, object]]:
    """The same for a file."""
    kind, key = subject
    if kind == "rank" and isinstance(key, int):
        return ranks.figures(facts, [key]) if key in facts.ranks else []
    if kind == "node":
        return node_table.with_units(facts, [str(key)]) if key in facts.state.nodes else []
    return [verdict_page.record(verdict) for verdict in facts.verdicts]


def details_lines(facts: Facts, subject: Subject, palette: Palette, width: int, height: int) -> list[Line]:
    kind, key = subject
    if kind == "rank" and isinstance(key, int):
        return rank_detail.detail(facts, key, palette, width)
    if kind == "node":
        return nodes.detail(facts, str(key), palette, width)
    return _verdicts(facts, palette, width)


def _verdicts(facts: Facts, palette: Palette, width: int) -> list[Line]:
    style = palette.style
    if not facts.verdicts:
        return [Line([(undecided(facts.state) or facts.steady.reason or "nothing found", style("muted"))])]
    lines = []
    for verdict in facts.verdicts:
        lines += wrapped(clean(verdict.text), width, style("good" if verdict.kind in CALM else "warn", bold=True))
        parts = [("because", clean(verdict.evidence)), ("try", clean(verdict.try_first))]
        if verdict.gain_percent is not None:
            parts.append(("gain", gain_words(verdict)))
        if verdict.from_s is not None and verdict.to_s is not None:
            parts.append(("when", f"{duration(verdict.from_s)} to {duration(verdict.to_s)}"))
        for name, text in parts:
            first, *more = wrapped(text, width - LABEL, style("text"))
            lines += [Line([(f"  {name}".ljust(LABEL), style("muted"))]).extend(first)]
            lines += [Line([(" " * LABEL, style("text"))]).extend(line) for line in more]
        lines.append(Line())
    return lines
