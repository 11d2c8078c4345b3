"""A panel, and an unframed band, of ready-made lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from textual import events
from textual.message import Message
from textual.strip import Strip

from distmon.tui.theme import Palette
from distmon.tui.widgets.canvas import Canvas
from distmon.tui.widgets.line import Line
from distmon.tui.widgets.panel import Panel, ScrollMark

Writer = Callable[[Palette, int, int], Sequence[Line]]
"""Makes lines for a palette, a width and a height; it may give more lines than fit where they can be scrolled."""


def nothing(palette: Palette, width: int, height: int) -> Sequence[Line]:
    return ()


class TextBand(Canvas):
    """Lines without a frame: header, verdict, footer."""

    @dataclass
    class Clicked(Message):
        """A click on the band, and at which cell."""

        band: TextBand
        x: int

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._write: Writer = nothing
        self._stamp: object = None

    def show(self, write: Writer, stamp: object = None) -> None:
        """`stamp` is all that the lines depend on besides theme and size: while it stays the same they are not written again."""
        known = None if stamp is None else (stamp, self.app.theme)
        if known is not None and known == self._stamp:
            return
        self._write, self._stamp = write, known
        self.redraw()

    def draw(self, width: int, height: int) -> list[Strip]:
        return [line.strip(width, self.base) for line in self._write(self.palette, width, height)]

    def on_click(self, event: events.Click) -> None:
        self.post_message(self.Clicked(self, event.x))


class TextPanel(Panel):
    """Framed lines that scroll."""

    def __init__(self, title: str, number: int, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.title, self.number = title, number
        self._write: Writer = nothing
        self._caption: tuple[tuple[str, str], ...] = ()
        self._top = 0
        self._rows = 1
        self._total = 0
        self.figures: Callable[[], Sequence[Mapping[str, object]]] | None = None
        """What the lines tell, for a file: as it was measured, with units in the names. Without any it is the lines."""

    def records(self) -> Sequence[Mapping[str, object]]:
        return (self.figures() if self.figures is not None else ()) or super().records()

    def selected_records(self) -> Sequence[Mapping[str, object]]:
        """For the clipboard: what is on the screen."""
        return super().records()

    def show(self, write: Writer, caption: Sequence[tuple[str, str]] = (), title: str | None = None) -> None:
        self._write, self._caption = write, tuple(caption)
        self.title = title if title is not None else self.title
        self.redraw()

    def caption(self) -> Line:
        return Line((text, self.palette.style(role)) for text, role in self._caption)

    def scroll_mark(self) -> ScrollMark | None:
        return ScrollMark(self._top, self._rows, self._total)

    def draw_body(self, width: int, height: int) -> list[Strip]:
        lines = self._write(self.palette, width, height)
        self._rows, self._total = height, len(lines)
        self._top = max(0, min(self._top, self._total - height))
        return [line.strip(width, self.base) for line in lines[self._top : self._top + height]]

    def scroll_by(self, rows: int) -> None:
        self._top = max(0, min(self._top + rows, self._total - self._rows))
        self.redraw()

    def navigate(self, where: str) -> None:
        """One of up, down, page_up, page_down, first, last."""
        page, far = max(self._rows - 1, 1), self._total
        steps = {"up": -1, "down": 1, "page_up": -page, "page_down": page, "first": -far, "last": far}
        self.scroll_by(steps[where])
