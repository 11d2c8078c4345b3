"""A log with a cursor: a line can be selected, and Enter on it goes somewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from textual import events
from textual.message import Message
from textual.strip import Strip

from distmon.tui.widgets.line import Line
from distmon.tui.widgets.log_view import LogLine, LogView

if TYPE_CHECKING:
    from distmon.tui.view.logs import Lines


class CursorLog(LogView):
    """Up and down move the cursor, which stops following; the end follows again. The cursor holds to its line by number."""

    @dataclass
    class Selected(Message):
        """The cursor is on another line; None when it follows again."""

        log: CursorLog
        number: int | None

    @dataclass
    class Opened(Message):
        """Enter, or a second click on the line."""

        log: CursorLog
        number: int

    cursor: int | None = None

    def show(self, lines: Lines[Any], note: str = "") -> None:
        """Take the lines that there are now; a cursor whose line is gone is taken away."""
        if self.cursor is not None and lines.index_of(self.cursor) is None:
            self.cursor = None
            self.post_message(self.Selected(self, None))
        super().show(lines, note)

    def draw_body(self, width: int, height: int) -> list[Strip]:
        """With the line under the cursor as a selected one; drawn lines are kept, and that one is not among them."""
        rows = super().draw_body(width, height)
        place = self._lines.index_of(self.cursor) if self._lines is not None and self.cursor is not None else None
        if self._lines is not None and place is not None:
            row = place - max(self._end() - height, 0)
            if 0 <= row < len(rows):
                rows[row] = self._draw_selected(self._lines[place], width)
        return rows

    def _draw_selected(self, line: LogLine, width: int) -> Strip:
        style = self.palette.style
        pieces = [(text, style(role, selected=True)) for text, role in (*line.prefix, (line.text, line.role))]
        return Line(pieces).strip(width, style("text", selected=True))

    def selected_records(self) -> list[dict[str, object]]:
        if self._lines is None:
            return []
        index = self._lines.index_of(self.cursor) if self.cursor is not None else None
        return [self._lines.shown_record(i) for i in (range(len(self._lines)) if index is None else (index,))]

    def navigate(self, where: str) -> None:
        """One of up, down, page_up, page_down, first, last."""
        if not self._lines:
            return
        if where == ("last" if self._in_time else "first"):
            self.put_cursor(None)
            self.follow()
            return
        page, far = max(self._rows - 1, 1), len(self._lines)
        steps = {"up": -1, "down": 1, "page_up": -page, "page_down": page, "first": -far, "last": far}
        here = self._lines.index_of(self.cursor) if self.cursor is not None else None
        if here is None and where not in ("first", "last"):
            there = self._end() - 1 if self._in_time else 0
        else:
            there = min(max((here or 0) + steps[where], 0), far - 1)
        self.put_cursor(self._lines[there].number)

    def put_cursor(self, number: int | None) -> None:
        """To a line, scrolled into view."""
        if number is not None:
            self._reveal(number)
        before, self.cursor = self.cursor, number
        self.redraw()
        if number != before:
            self.post_message(self.Selected(self, number))

    def _reveal(self, number: int) -> None:
        if not self._lines or (index := self._lines.index_of(number)) is None:
            return
        end = self._end()
        self.following = False
        if index >= end:
            end = index + 1
        elif index < end - self._rows:
            end = index + self._rows
        self._bottom = self._lines[min(end, len(self._lines)) - 1].number

    def open_selected(self) -> None:
        if self.cursor is None:
            self.navigate("up")
        if self.cursor is not None:
            self.post_message(self.Opened(self, self.cursor))

    def on_click(self, event: events.Click) -> None:
        row, end = event.y - self.body_top, self._end()
        index = max(end - self._rows, 0) + row
        if self._lines and row >= 0 and index < end and not self.bar_pressed:
            number = self._lines[index].number
            again = number == self.cursor and event.chain > 1
            self.put_cursor(number)
            if again:
                self.post_message(self.Opened(self, number))
