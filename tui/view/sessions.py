"""The recordings that there are, and what is said of one or two of them."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Sequence

from distmon.replay.glance import Glance
from distmon.tui.format import MISSING, clean, duration, size
from distmon.tui.theme import Palette
from distmon.tui.widgets.line import Line
from distmon.tui.widgets.rows import Cell
from distmon.tui.widgets.table import Column

COLUMNS = (
    Column("name", "recording", 24, "left", grow=3, widest=64),
    Column("started", "started", 16, importance=2),
    Column("length", "last write", 10, importance=3),
    Column("ranks", "ranks", 5, importance=4),
    Column("size", "size", 8, importance=5),
    Column("command", "command", 16, "left", importance=6, grow=4, widest=80),
)
EMPTY = "no recording yet: distmon run makes one of every job"
HINT = (
    "Enter   open the selected recording on these screens",
    "r       its report",
    "b, c    make one the base, and compare another with it",
    "i       A/B: this one beside the base, or beside the session on the screen",
    "X       delete it (asks)",
    "J       a new job",
)


def cells(known: dict[str, Glance], base: str | None, key: str) -> Sequence[Cell]:
    found = known[key]
    name: Cell = (clean(found.path.name), "accent" if key == base else "text")
    if found.started is None:
        return (name, *[(MISSING, "muted")] * 3, (size(found.size_bytes), "muted"), (clean(found.trouble), "warn"))
    return (
        name,
        (time.strftime("%Y-%m-%d %H:%M", time.localtime(found.started)), "text"),
        (f"+{duration(found.changed - found.started)}", "text"),
        (MISSING if found.ranks is None else str(found.ranks), "text"),
        (size(found.size_bytes), "muted"),
        (clean(" ".join(found.command)) or "no job: only nodes were watched", "muted"),
    )


def text_lines(text: str, palette: Palette, width: int, height: int) -> list[Line]:
    """Ready-made text; a line that is too long goes on in the next one."""
    style, lines = palette.style("text"), []
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        parts = [line] if len(line) <= width else textwrap.wrap(line, max(width, 20), subsequent_indent=indent[: width // 3])
        lines += [Line([(clean(part), style)]) for part in parts or [""]]
    return lines
