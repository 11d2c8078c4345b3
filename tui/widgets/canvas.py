"""The base of all widgets: a rectangle of lines that refreshes only the cells that changed."""

from __future__ import annotations

from itertools import takewhile

from rich.style import Style
from textual.app import RenderResult
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from distmon.tui.theme import Palette, palette_named


class Canvas(Widget):
    """Draws whole lines with `draw`, keeps them, and on `redraw` marks as dirty only what differs.

    A terminal over ssh is paid by the byte: a refresh in which nothing changed writes nothing.
    """

    ALLOW_SELECT = False
    DEFAULT_CSS = "Canvas { background: $background; height: 1fr; width: 1fr; }"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._drawn: list[Strip] = []
        self._drawn_as: tuple[int, int, str] = (0, 0, "")

    def draw(self, width: int, height: int) -> list[Strip]:
        """The widget's lines in this size; fewer than `height` are filled up with blanks."""
        raise NotImplementedError

    @property
    def palette(self) -> Palette:
        return palette_named(self.app.theme)

    @property
    def base(self) -> Style:
        return self.palette.style("text")

    def redraw(self) -> None:
        """Compose the lines again and refresh those cells that changed; a widget without a size waits for one."""
        width, height = self.size
        if not self.is_mounted or not width or not height or not self.display:
            self._drawn_as = (0, 0, "")
            return
        lines = self._compose_lines(width, height)
        key = (width, height, self.app.theme)
        if key != self._drawn_as:
            self._drawn, self._drawn_as = lines, key
            self.refresh()
            return
        changed = [
            Region(first, y, last - first, 1)
            for y, (old, new) in enumerate(zip(self._drawn, lines, strict=True))
            for first, last in (changed_cells(old, new),)
            if last > first
        ]
        self._drawn = lines
        if changed:
            self.refresh(*changed)

    def _compose_lines(self, width: int, height: int) -> list[Strip]:
        lines = self.draw(width, height)[:height]
        lines.extend(Strip.blank(width, self.base) for _ in range(height - len(lines)))
        return lines

    def render_line(self, y: int) -> Strip:
        width, height = self.size
        key = (width, height, self.app.theme)
        if key != self._drawn_as:
            self._drawn, self._drawn_as = self._compose_lines(width, height), key
        return self._drawn[y] if y < len(self._drawn) else Strip.blank(width, self.base)

    def render(self) -> RenderResult:
        return ""


def changed_cells(old: Strip, new: Strip) -> tuple[int, int]:
    """The first changed cell and the one after the last, by whole segments; equal strips give an empty range."""
    before, after = list(old), list(new)
    if before == after:
        return 0, 0
    head = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))
    rest = min(len(before), len(after)) - head
    reverse = zip(reversed(before), reversed(after), strict=False)
    tail = min(rest, sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], reverse)))
    first = sum(segment.cell_length for segment in after[:head])
    last = new.cell_length - sum(segment.cell_length for segment in after[len(after) - tail :])
    return first, max(last, first)
