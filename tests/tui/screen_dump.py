"""The screen as a grid of text, and as runs of style: what goldens are made of."""

from __future__ import annotations

from rich.style import Style
from textual.app import App
from textual.strip import Strip


def strips(app: App[object]) -> list[Strip]:
    """The finished lines of the whole screen, filters applied."""
    width, height = app.size
    compositor = app.screen._compositor
    return [Strip(line, width) for line in compositor.render_strips()][:height]


def text_grid(app: App[object]) -> list[str]:
    """What is on the screen, one string a row, blanks at the right included."""
    return [strip.text for strip in strips(app)]


def style_grid(app: App[object]) -> list[str]:
    """Per row the runs of equal style as `start:style`."""
    rows = []
    for strip in strips(app):
        x, runs, last = 0, [], ""
        for segment in strip:
            words = _style_words(segment.style)
            if words != last:
                runs.append(f"{x}:{words}")
                last = words
            x += segment.cell_length
        rows.append(" ".join(runs))
    return rows


def _style_words(style: Style | None) -> str:
    if style is None:
        return "-"
    marks = "b" * bool(style.bold) + "d" * bool(style.dim) + "r" * bool(style.reverse)
    colour = style.color.name if style.color else "-"
    background = style.bgcolor.name if style.bgcolor else "-"
    return f"{colour}/{background}" + (f"/{marks}" if marks else "")
