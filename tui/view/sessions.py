"""The recordings that there are, and what is said of one or two of them."""

from __future__ import annotations

import re
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

from distmon.core.printable import clean
from distmon.replay.glance import Glance
from distmon.replay.paths import label
from distmon.tui.format import MISSING, duration, size
from distmon.tui.glyphs import STATES
from distmon.tui.theme import Palette
from distmon.tui.widgets.line import Line
from distmon.tui.widgets.rows import Cell
from distmon.tui.widgets.table import Column

COLUMNS = (
    Column("name", "recording", 20, "left", grow=3, widest=64, ends=True, narrow=11),
    Column("outcome", "outcome", 9, "left", importance=1),
    Column("started", "started", 16, importance=2, figure="started_at_s"),
    Column("length", "ran", 9, importance=3, figure="ran_s"),
    Column("ranks", "ranks", 5, importance=4),
    Column("size", "size", 8, importance=5, figure="size_bytes"),
    Column("command", "command", 16, "left", importance=6, grow=4, widest=80),
    Column("written", "last write", 16, importance=7, figure="last_write_at_s"),
)
OUTCOMES = {
    "ended": (STATES["done"], "muted"), "running": (STATES["good"], "good"), "cut off": (STATES["warn"], "warn"),
    "stopped": (STATES["idle"], "muted"), "failed": (STATES["bad"], "bad"), "lost": (STATES["bad"], "bad"),
}  # fmt: skip
_MADE = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-(.+)-[0-9a-f]{12}(-\d+)?")
"""The name of an automatic recording: when it began, what ran, the session, and which start of it."""
EMPTY = "no recording yet: distmon run makes one of every job"
READING = "reading the list of recordings ..."
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
            "ran_s": found.ran_s,
            "outcome": found.outcome or None,
            "ranks": found.ranks,
            "size_bytes": found.size_bytes,
            "command": " ".join(found.command),
            "trouble": found.trouble,
        }
        for key, found in known.items()
    }


def cells(known: dict[str, Glance], base: str | None, key: str) -> Sequence[Cell]:
    found = known[key]
    name: Cell = (name_of(found.path), "accent" if key == base else "text")
    glyph, role = OUTCOMES.get(found.outcome, (MISSING, "muted"))
    outcome: Cell = (f"{glyph} {found.outcome}".strip(), role)
    if found.started is None:
        written, missing = (_moment(found.changed), "muted"), (MISSING, "muted")
        trouble, large = (clean(found.trouble), "warn"), (size(found.size_bytes), "muted")
        return (name, missing, missing, missing, missing, large, trouble, written)
    return (
        name,
        outcome,
        (_moment(found.started), "text"),
        (duration(found.ran_s), "text"),
        (MISSING if found.ranks is None else str(found.ranks), "text"),
        (size(found.size_bytes), "muted"),
        (clean(" ".join(found.command)) or "no job: only nodes were watched", "muted"),
        (_moment(found.changed), "text"),
    )


def name_of(path: Path) -> str:
    """What a recording is called in the list, beside when it began: of an automatic one the job's name."""
    made = _MADE.fullmatch(name := label(path))
    return clean(f"{made[1]}{made[2] or ''}" if made else name)


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
