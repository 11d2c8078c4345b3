"""Text over several lines, broken between words."""

from __future__ import annotations

import textwrap

from rich.style import Style

from distmon.tui.widgets.line import Line


def wrapped(text: str, width: int, style: Style, indent: str = "") -> list[Line]:
    """The text in lines of at most `width` cells and the indent before them."""
    return [Line([(indent + part, style)]) for part in textwrap.wrap(text, max(width, 8))] or [Line()]
