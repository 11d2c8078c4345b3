"""What users and their programs wrote, as text that a terminal or a page can only show."""

from __future__ import annotations

import re
import unicodedata

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|\x9c|$)"  # OSC, DCS, SOS, PM, APC: to their end, or the end of the text
    r"|\x9b[0-?]*[ -/]*[@-~]"
    r"|\x1b[ -/]*[0-~]?"
)
OBEYED = re.compile(r"[\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters that JSON writes as they are: of the terminal, of lines, and of the direction of writing."""
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_DROPPED_CATEGORIES = frozenset({"Cc", "Cs", "Co", "Cn", "Zl", "Zp"})


def clean(text: str) -> str:
    """User-made text as one printable line: escape sequences, control and direction characters are removed."""
    if text.isascii() and text.isprintable():
        return text
    text = _ESCAPES.sub("", text).expandtabs(4)
    return "".join(c for c in text if c.isprintable() or (c not in _BIDI and _is_shown(c)))


def _is_shown(character: str) -> bool:
    category = unicodedata.category(character)
    return category not in _DROPPED_CATEGORIES and category != "Cf"


def cells(text: str) -> int:
    """How wide a terminal shows a printable line: East Asian wide characters take two cells, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
