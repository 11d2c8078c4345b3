"""The split of the mean steady step: each phase with its time, its share and its part of one bar; and the last seconds."""

from __future__ import annotations

from distmon.core.measures import ALL_PHASES, ROLLING_S
from distmon.tui.format import MISSING, fit, milliseconds, percent
from distmon.tui.glyphs import SHADES
from distmon.tui.theme import Palette
from distmon.tui.view.facts import Facts
from distmon.tui.view.words import PHASE_NAMES
from distmon.tui.widgets.line import Line
from distmon.tui.widgets.meter import meter, stacked

_RECENT = f"  last {ROLLING_S:.0f} s"
_FIGURES, _LEAST_METER = 14 + 9 + 6, 8
"""Cells of a phase's name, time and share; and of the smallest meter behind them, with its gap."""


def figures(facts: Facts) -> list[dict[str, object]]:
    """The same for a file: seconds and shares of the mean steady step, and shares of the last seconds."""
    return [
        {
            "phase": name,
            "mean_s": facts.split.phase(name) if facts.split else None,
            "mean_share_percent": _share(facts, name),
            "recent_share_percent": _recent_share(facts, name),
        }
        for name in ALL_PHASES
    ]


def _share(facts: Facts, name: str) -> float | None:
    """Of the mean steady step, in percent."""
    share = facts.split.share(name) if facts.split else None
    return None if share is None else 100 * share


def _recent_share(facts: Facts, name: str) -> float | None:
    return 100 * facts.shares[name] if facts.shares else None


def split_lines(facts: Facts, palette: Palette, width: int, height: int) -> list[Line]:
    """The bar where there is room for it, then a line per phase; what is of another time has its column's name over it."""
    style = palette.style
    if facts.shares is None and facts.split is None:
        return [Line(), Line([(fit("no steps yet", width, "centre"), style("muted"))])]
    lines: list[Line] = []
    with_recent = False
    if height > len(ALL_PHASES) and facts.split:
        parts = [(max(_share(facts, name) or 0.0, 0.0), name) for name in ALL_PHASES]
        bars = 2 if height >= len(ALL_PHASES) + 3 else 1
        lines.extend(stacked(parts, width, palette) for _ in range(bars))
        if height >= len(ALL_PHASES) + bars + 1:
            with_recent = width >= _FIGURES + len(_RECENT) + _LEAST_METER
            heads = (fit("phase", 14), fit("mean ms", 9, "right"), fit("share", 6, "right"), _RECENT * with_recent)
            lines.append(Line([(head, style("muted")) for head in heads if head]))
    return [*lines, *(_phase(facts, palette, name, i, width, with_recent) for i, name in enumerate(ALL_PHASES))]


def _phase(facts: Facts, palette: Palette, name: str, index: int, width: int, with_recent: bool) -> Line:
    style = palette.style
    mean = facts.split.phase(name) if facts.split else None
    share = _share(facts, name)
    line = Line(
        [
            (SHADES[index] + " ", style(name)),
            (fit(PHASE_NAMES[name], 12), style("text" if mean is not None else "muted")),
        ]
    )
    line.add(fit(milliseconds(mean), min(width - line.width - 6, 9), "right"), style("text")).add(
        percent(share, 6), style(name, bold=True)
    )
    if with_recent:
        line.add(percent(_recent_share(facts, name) if mean is not None else None, len(_RECENT)), style("muted"))
    room = width - line.width - 2
    if room >= _LEAST_METER - 2 and share is not None:
        line.add("  ", style("text")).extend(meter(palette, share, room, name))
    return line


def split_caption(facts: Facts) -> list[tuple[str, str]]:
    """The mean step, named for what it is."""
    if facts.split is None:
        return []
    return [(milliseconds(facts.split.step_s), "text"), (" ms a step", "muted")]


def unseen(facts: Facts) -> str:
    """Why a phase has no value, in the words of the first rank that says so."""
    for rank in facts.ranks.values():
        for field, reason in rank.unseen.items():
            return f"{PHASE_NAMES.get(field, field)} {MISSING}: {reason}"
    return ""
