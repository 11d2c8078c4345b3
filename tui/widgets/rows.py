"""A panel of rows that are known by their keys: selection, scroll, keys and mouse, whatever the rows look like."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from textual import events
from textual.message import Message

from distmon.tui.widgets.line import Line
from distmon.tui.widgets.panel import Panel, ScrollMark
from distmon.tui.widgets.table_model import TableModel

K = TypeVar("K", bound=Hashable)
Cell = tuple[str, str]
"""Text (clean, printable) and role."""


class RowsPanel(Panel, Generic[K]):
    """Subclasses draw; this holds what is selected and in view."""

    header_rows = 0

    @dataclass
    class Selected(Message):
        """The selection moved to another row."""

        panel: RowsPanel[Any]

    @dataclass
    class Opened(Message):
        """Enter, or a second click on the selected row."""

        panel: RowsPanel[Any]

    @dataclass
    class SortAsked(Message):
        """A click on the head of a column."""

        panel: RowsPanel[Any]
        column: str

    def __init__(self, title: str, number: int, *, empty: str, id: str | None = None) -> None:
        super().__init__(id=id)
        self.title, self.number, self.empty = title, number, empty
        self.model: TableModel[K] = TableModel()
        self.row_height = 1
        self.sort_key, self.descending = "", False
        self._caption: tuple[Cell, ...] = ()
        self.figures: Callable[[Sequence[K]], Sequence[Mapping[str, object]]] | None = None
        """Rows' values for a file, as they were measured and with their units in the names; None: rows as they are shown."""

    def records(self) -> Sequence[Mapping[str, object]]:
        """All rows, as far as they pass the filter, in order."""
        return self.figures(self.model.keys) if self.figures is not None else self.shown_records()

    def shown_records(self) -> Sequence[Mapping[str, object]]:
        """The same as they are shown."""
        return super().records()

    def selected_records(self) -> Sequence[Mapping[str, object]]:
        """For the clipboard: what is on the screen."""
        return self.shown_records()

    def take(self, keys: Sequence[K], caption: Sequence[Cell]) -> None:
        """The rows that there are now, in order."""
        self.model.refresh(keys)
        self._caption = tuple(caption)
        self.redraw()

    def caption(self) -> Line:
        return Line((text, self.palette.style(role)) for text, role in self._caption)

    def scroll_mark(self) -> ScrollMark | None:
        return ScrollMark(self.model.top, self.model.visible, len(self.model.keys))

    def move(self, rows: int) -> None:
        """Move the selection and tell who listens."""
        before = self.model.selected
        self.model.move(rows)
        self._after_selecting(before)

    def select(self, key: K) -> None:
        before = self.model.selected
        self.model.select(key)
        self._after_selecting(before)

    def _after_selecting(self, before: K | None) -> None:
        self.redraw()
        if self.model.selected != before:
            self.post_message(self.Selected(self))

    def open_selected(self) -> None:
        if self.model.selected is None:
            self.move(0)
        if self.model.selected is not None:
            self.post_message(self.Opened(self))

    def navigate(self, where: str) -> None:
        """One of up, down, page_up, page_down, first, last."""
        page = max(self.model.visible - 1, 1)
        steps = {"up": -1, "down": 1, "page_up": -page, "page_down": page}
        if where in steps:
            self.move(steps[where])
        elif self.model.keys:
            self.select(self.model.keys[0 if where == "first" else -1])

    def scroll_by(self, rows: int) -> None:
        self.model.scroll(rows)
        self.redraw()

    def on_click(self, event: events.Click) -> None:
        y = event.y - self.body_top - self.header_rows
        if self.bar_pressed:
            return
        if y < 0:
            if event.y >= self.body_top:
                self.click_header(event.x - self.body_left)
            return
        in_view = self.model.in_view()
        row = y // self.row_height
        if row < len(in_view):
            again = in_view[row] == self.model.selected and event.chain > 1
            self.select(in_view[row])
            if again:
                self.open_selected()

    def click_header(self, x: int) -> None:
        """A click above the first row, at a cell of the body."""
