"""The recordings that there are, and what is said of one or two of them."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Sequence

from distmon.core.printable import clean
from distmon.replay.glance import Glance
from distmon.tui.format import MISSING, duration, size
from distmon.tui.theme import Palette
from distmon.tui.widgets.line import Line
from distmon.tui.widgets.rows import Cell
from distmon.tui.widgets.table import Column

COLUMNS = (
    Column("name", "recording", 24, "left", grow=3, widest=64, ends=True),
    Column("started", "started", 16, importance=2, figure="started_at_s"),
    Column("written", "last write", 16, importance=3, figure="last_write_at_s"),
    Column("length", "after", 9, importance=6, figure="last_write_after_s"),
    Column("ranks", "ranks", 5, importance=4),
    Column("size", "size", 8, importance=5, figure="size_bytes"),
    Column("command", "command", 16, "left", importance=7, grow=4, widest=80),
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


def records(known: dict[str, Glance]) -> dict[str, dict[str, object]]:
    """The same for a file; moments in seconds since the epoch."""
    return {
        key: {
            "name": found.path.name,
            "started_at_s": found.started,
            "last_write_at_s": found.changed,
            "last_write_after_s": None if found.started is None else found.changed - found.started,
            "ranks": found.ranks,
            "size_bytes": found.size_bytes,
            "command": " ".join(found.command),
            "trouble": found.trouble,
        }
        for key, found in known.items()
    }


def cells(known: dict[str, Glance], base: str | None, key: str) -> Sequence[Cell]:
    found = known[key]
    name: Cell = (clean(found.path.name), "accent" if key == base else "text")
    if found.started is None:
        written, missing = (_moment(found.changed), "muted"), (MISSING, "muted")
        return (name, missing, written, missing, missing, (size(found.size_bytes), "muted"), (clean(found.trouble), "warn"))
    return (
        name,
        (_moment(found.started), "text"),
        (_moment(found.changed), "text"),
        (duration(found.changed - found.started), "text"),
        (MISSING if found.ranks is None else str(found.ranks), "text"),
        (size(found.size_bytes), "muted"),
        (clean(" ".join(found.command)) or "no job: only nodes were watched", "muted"),
    )


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def text_lines(text: str, palette: Palette, width: int, height: int) -> list[Line]:
    """Ready-made text; a line that is too long goes on in the next one."""
    style, lines = palette.style("text"), []
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        parts = [line] if len(line) <= width else textwrap.wrap(line, max(width, 20), subsequent_indent=indent[: width // 3])
        lines += [Line([(clean(part), style)]) for part in parts or [""]]
    return lines
