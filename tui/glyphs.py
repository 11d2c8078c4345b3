"""The characters that the screens are drawn with, and their ASCII stand-ins.

Widgets draw in Unicode. Where the terminal cannot show it (a locale that is not UTF-8, or DISTMON_ASCII=1) one filter
translates every finished line, so that borders, braille and the framework's own widgets are covered alike.
"""

from __future__ import annotations

import locale
import os
from collections.abc import Mapping
from functools import lru_cache

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

SPARKS = " ▁▂▃▄▅▆▇█"
"""Levels of a sparkline or a core, from nothing to full."""
SHADES = ("█", "▓", "▒", "░", "·")
"""Fills of a stacked bar, so that its parts differ without colour."""
BRAILLE = 0x2800
"""First of the 256 braille patterns."""

STATES: Mapping[str, str] = {
    "good": "●",
    "busy": "◐",
    "idle": "○",
    "warn": "▲",
    "bad": "✖",
    "done": "✔",
    "unknown": "·",
}
"""One shape per state: colour only repeats what the shape says."""

_ASCII: dict[str, str] = {
    "–": "-", "—": "-", "…": "~", "·": ".", "•": "*", "×": "x", "µ": "u", "°": "o", "Σ": "S", "σ": "s", "≥": ">", "≤": "<",
    "±": "+", "→": ">", "←": "<", "↑": "^", "↓": "v", "⇅": "|", "▲": "!", "▼": "v", "▶": ">", "◀": "<", "△": "^", "▽": "v",
    "−": "-", "●": "*", "○": "o", "◐": "@", "✖": "X", "✔": "+", "◆": "#", "◇": "o", "‖": "=", "❯": ">", "█": "#", "▓": "%",
    "▒": "=", "░": ":", "▁": "_", "▂": ".", "▃": ":", "▄": "-", "▅": "=", "▆": "+", "▇": "*", "▏": "|", "▎": "|", "▍": "|",
    "▌": "|", "▋": "#", "▊": "#", "▉": "#", "▐": "|", "▔": "-", "▕": "|", "─": "-", "━": "=", "╸": "-", "╋": "#", "│": "|",
    "›": ">", "κ": "k", "🔎": "> ",
    "┃": "#", "┊": ":", "╌": "-", "╎": ":", "┄": "-", "═": "=", "║": "|", "‘": "'", "’": "'", "“": '"', "”": '"',
}  # fmt: skip


def _braille_in_ascii(dots: int) -> str:
    """A character for a braille cell that keeps its height: dots near the top, the middle, the bottom, or all over.

    A full cell is calm, because areas are made of it.
    """
    top, middle, bottom = dots & 0x09, dots & 0x36, dots & 0xC0
    if dots in (0, 0xFF):
        return ":" if dots else " "
    if top and bottom:
        return "|" if middle else ":"
    if top:
        return "*" if middle else "'"
    if bottom:
        return "*" if middle else "."
    return "-"


def _table() -> dict[int, str]:
    table = {ord(key): value for key, value in _ASCII.items()}
    table.update({BRAILLE + dots: _braille_in_ascii(dots) for dots in range(256)})
    table.update(dict.fromkeys(range(9484, 9581), "+"))
    table.update({ord(key): value for key, value in _ASCII.items()})
    table.update(dict.fromkeys(range(9581, 9585), "+"))
    return table


ASCII_TABLE = _table()


@lru_cache(8192)
def to_ascii(text: str) -> str:
    """The text in ASCII, cell for cell; a character without a stand-in becomes `?` (two for a wide one)."""
    if text.isascii():
        return text
    text = text.translate(ASCII_TABLE)
    return text if text.isascii() else "".join(c if c.isascii() else "?" * cell_len(c) for c in text)


class AsciiFilter(LineFilter):
    """Turns every finished line of the screen into ASCII."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(to_ascii(text), style, control) for text, style, control in segments]


def ascii_only(environment: Mapping[str, str] | None = None) -> bool:
    """True where the screen must be drawn in ASCII: asked for, or the locale cannot carry anything else."""
    environment = os.environ if environment is None else environment
    if environment.get("DISTMON_ASCII", "") not in ("", "0"):
        return True
    named = environment.get("LC_ALL") or environment.get("LC_CTYPE") or environment.get("LANG")
    encoding = named.partition(".")[2] if named and "." in named else "" if named else locale.getencoding()
    if named and not encoding:
        return named.split("@")[0] in ("C", "POSIX")
    return encoding.split("@")[0].lower().replace("-", "") not in ("utf8",)
