"""The split of a step: each phase with its mean time, its share of the last seconds, and its part of one bar."""

from __future__ import annotations

from distmon.core.measures import ALL_PHASES, ROLLING_S
from distmon.tui.format import MISSING, fit, milliseconds, percent
from distmon.tui.glyphs import SHADES
from distmon.tui.theme import Palette
from distmon.tui.view.facts import Facts
from distmon.tui.view.words import PHASE_NAMES
from distmon.tui.widgets.line import Line
from distmon.tui.widgets.meter import meter, stacked


def figures(facts: Facts) -> list[dict[str, object]]:
    """The same for a file: seconds of the mean steady step, and shares of the last seconds."""
    return [
        {
            "phase": name,
            "mean_s": facts.split.phase(name) if facts.split else None,
            "recent_share_percent": 100 * facts.shares[name] if facts.shares else None,
        }
        for name in ALL_PHASES
    ]


def split_lines(facts: Facts, palette: Palette, width: int, height: int) -> list[Line]:
    """The bar where there is room for it, then a line per phase."""
    style = palette.style
    if facts.shares is None and facts.split is None:
        return [Line(), Line([(fit("no steps yet", width, "centre"), style("muted"))])]
    lines: list[Line] = []
    if height > len(ALL_PHASES) and facts.shares:
        parts = [(max(facts.shares[name], 0.0), name) for name in ALL_PHASES]
        bars = 2 if height >= len(ALL_PHASES) + 3 else 1
        lines.extend(stacked(parts, width, palette) for _ in range(bars))
        if height >= len(ALL_PHASES) + bars + 1:
            lines.append(_heading(palette, width))
    return [*lines, *(_phase(facts, palette, name, i, width) for i, name in enumerate(ALL_PHASES))]


def _heading(palette: Palette, width: int) -> Line:
    muted = palette.style("muted")
    return Line(
        [(fit("phase", 14), muted), (fit("mean ms", 9, "right"), muted), (fit(f"{ROLLING_S:.0f} s", 6, "right"), muted)]
    )


def _phase(facts: Facts, palette: Palette, name: str, index: int, width: int) -> Line:
    style = palette.style
    mean = facts.split.phase(name) if facts.split else None
    share = 100 * facts.shares[name] if facts.shares and mean is not None else None
    line = Line(
        [
            (SHADES[index] + " ", style(name)),
            (fit(PHASE_NAMES[name], 12), style("text" if mean is not None else "muted")),
        ]
    )
    line.add(fit(milliseconds(mean), min(width - line.width - 6, 9), "right"), style("text")).add(
        percent(share, 6), style(name, bold=True)
    )
    room = width - line.width - 2
    if room >= 6 and share is not None:
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
