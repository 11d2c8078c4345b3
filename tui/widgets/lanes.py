"""Lanes over time: a row for each slot, and what its worker did as runs of cells, with a letter where it was no training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual import events
from textual.message import Message
from textual.strip import Strip

from distmon.core.printable import clean
from distmon.tui.format import duration, fit_end
from distmon.tui.widgets.chart import Chart, TimeAxis
from distmon.tui.widgets.line import Line
from distmon.tui.widgets.panel import Panel, ScrollMark
from distmon.tui.widgets.raster import nice_time_step
from distmon.tui.widgets.table_model import TableModel

LABEL = 16


@dataclass(frozen=True)
class Stretch:
    """A time with one glyph and role; later ones lie over earlier ones."""

    started: float
    ended: float
    glyph: str
    role: str
    kind: str
    """What it is, in a word."""


@dataclass(frozen=True)
class LaneRow:
    key: tuple[str, int]
    label: str
    stretches: Sequence[Stretch]
    note: str
    """What the row's end says: how the last worker ended."""
    role: str
    rank: int | None = None
    """The last that its workers had."""


@dataclass(frozen=True)
class LanesData:
    """Times are seconds on one clock, labelled from `origin`; the axis goes from `start` to `end`."""

    rows: Sequence[LaneRow] = ()
    origin: float = 0.0
    start: float = 0.0
    end: float = 1.0
    cross: float | None = None
    legend: tuple[tuple[str, str], ...] = ()


class Lanes(Panel):
    """Scrolls by rows; zoom and pan are the caller's."""

    @dataclass
    class Selected(Message):
        """Another row is selected."""

        key: tuple[str, int] | None

    def __init__(self, title: str, number: int, *, empty: str, id: str | None = None) -> None:
        super().__init__(id=id)
        self.title, self.number, self.empty = title, number, empty
        self.model: TableModel[tuple[str, int]] = TableModel()
        self._data = LanesData()
        self._axis: TimeAxis | None = None

    def show(self, data: LanesData) -> None:
        self._data = data
        self.model.refresh([row.key for row in data.rows])
        self.redraw()

    def caption(self) -> Line:
        data, pieces = self._data, self._data.legend
        if data.cross is not None:
            pieces = ((f"at {duration(data.cross - data.origin)} ", "accent"), *pieces)
        return Line((text, self.palette.style(role)) for text, role in pieces)

    names = ("host", "slot", "kind", "from_s", "to_s")

    def records(self) -> list[dict[str, object]]:
        """Every stretch of every row; seconds since the origin."""
        return [
            {"host": row.key[0], "slot": row.key[1], "kind": s.kind, "from_s": s.started - origin, "to_s": s.ended - origin}
            for origin in (self._data.origin,)
            for row in self._data.rows
            for s in row.stretches
        ]

    def selected_records(self) -> list[dict[str, object]]:
        """Of the selected row."""
        key = self.model.selected
        found = self.records()
        return [record for record in found if (record["host"], record["slot"]) == key] if key is not None else found

    def scroll_mark(self) -> ScrollMark | None:
        return ScrollMark(self.model.top, self.model.visible, len(self.model.keys))

    def draw_body(self, width: int, height: int) -> list[Strip]:
        data = self._data
        if not data.rows:
            return self.blank(width)
        self.model.resize(height - 1)
        columns = max(width - LABEL, 1)
        axis = self._axis = TimeAxis(data.start, max(data.end - data.start, 1e-3) / columns, columns)
        in_view = data.rows[self.model.top : self.model.top + max(height - 1, 1)]
        lines = [self._row(row, axis) for row in in_view]
        lines += [Line()] * (height - 1 - len(lines))
        return [line.strip(width, self.base) for line in [*lines, self._times(axis)]]

    def _row(self, row: LaneRow, axis: TimeAxis) -> Line:
        style, chosen = self.palette.style, row.key == self.model.selected
        name = style("text" if chosen else "muted", bold=chosen, selected=chosen)
        line = Line([(fit_end(clean(row.label), LABEL - 1) + " ", name)])
        cells = [(" ", "track")] * axis.count
        for stretch in row.stretches:
            first, last = axis.column(stretch.started), axis.column(stretch.ended)
            for column in range(max(first, 0), min(max(last, first + 1), axis.count)):
                cells[column] = (stretch.glyph, stretch.role)
        end = min(max((axis.column(stretch.ended) for stretch in row.stretches), default=0) + 1, axis.count - len(row.note))
        for offset, character in enumerate(clean(row.note)):
            if 0 <= end + offset < axis.count:
                cells[end + offset] = (character, row.role)
        if self._data.cross is not None and 0 <= (column := axis.column(self._data.cross)) < axis.count:
            cells[column] = ("│", "accent")
        for glyph, role in cells:
            line.add(glyph, style(role))
        return line

    def _times(self, axis: TimeAxis) -> Line:
        muted = self.palette.style("muted")
        line = Line().pad(LABEL, muted)
        distance = max(nice_time_step(14 * axis.step), 1.0)  # in words of whole seconds
        at = max(-(-(axis.start - self._data.origin) // distance) * distance, 0.0)
        while (column := LABEL + round((at + self._data.origin - axis.start) / axis.step)) + 9 <= LABEL + axis.count:
            if column >= line.width:
                line.pad(column, muted).add(duration(at), muted)
            at += distance
        return line

    def navigate(self, where: str) -> None:
        page, far = max(self.model.visible - 1, 1), len(self.model.keys)
        steps = {"up": -1, "down": 1, "page_up": -page, "page_down": page, "first": -far, "last": far}
        self.model.move(steps.get(where, 0))
        self.redraw()
        self.post_message(self.Selected(self.model.selected))

    def on_mouse_move(self, event: events.MouseMove) -> None:
        column, axis = event.x - self.body_left - LABEL, self._axis
        inside = axis is not None and 0 <= column < axis.count
        self.post_message(Chart.Pointed(axis.start + (column + 0.5) * axis.step if axis is not None and inside else None))

    def on_leave(self, event: events.Leave) -> None:
        self.post_message(Chart.Pointed(None))

    def scroll_by(self, rows: int) -> None:
        self.model.scroll(rows)
        self.redraw()

    def on_click(self, event: events.Click) -> None:
        in_view = self.model.in_view()
        row = event.y - self.body_top
        if 0 <= row < len(in_view) and not self.bar_pressed:
            self.model.select(in_view[row])
            self.redraw()
            self.post_message(self.Selected(self.model.selected))
