"""Time across, ranks down: how a late rank ripples through the others. Rows are shared where there are more ranks than rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from textual import events
from textual.message import Message
from textual.strip import Strip

from distmon.tui.format import MISSING, duration, fit, milliseconds
from distmon.tui.glyphs import SPARKS
from distmon.tui.widgets.chart import Chart
from distmon.tui.widgets.heat import UNKNOWN, Scale
from distmon.tui.widgets.line import Line, spread
from distmon.tui.widgets.panel import Panel

LABEL = 10
SHIFT_S = 8
"""The picture moves by so many seconds at once: each move writes every cell to the terminal."""


@dataclass(frozen=True)
class RippleData:
    """Rows of values by second from `start` on, hottest first or in order as the caller likes."""

    start: int = 0
    seconds: int = 0
    ranks: Sequence[int] = ()
    rows: Sequence[Sequence[float | None]] = ()
    scale: Scale = field(default_factory=lambda: Scale(0.0, 1.0, str, ""))
    caption: tuple[tuple[str, str], ...] = ()
    cross: float | None = None
    """The moment that the crosshair is on."""
    figure: str = "value"
    """What a file calls the values, with their unit."""
    origin: float = 0.0
    """When the job began: seconds are counted from there."""

    @property
    def elapsed(self) -> int:
        """Whole seconds from the origin to the start."""
        return self.start - math.floor(self.origin)

    @property
    def cross_second(self) -> int | None:
        """The number of the second under the crosshair; None where it is on none of these."""
        second = -1 if self.cross is None else math.floor(self.cross) - self.start
        return second if 0 <= second < self.seconds else None


class Ripple(Panel):
    """The heat map over time; a row is selected by its first rank."""

    @dataclass
    class Selected(Message):
        """Another rank is selected."""

        rank: int

    @dataclass
    class Opened(Message):
        """Enter, or a second click."""

        rank: int

    def __init__(self, title: str, number: int, *, empty: str, id: str | None = None) -> None:
        super().__init__(id=id)
        self.title, self.number, self.empty = title, number, empty
        self.selected: int | None = None
        self._data = RippleData()
        self._share = 1
        self._places = (0, 1)
        """The first second that is drawn, and how many cells each takes."""

    def show(self, data: RippleData) -> None:
        self._data = data
        self.redraw()

    def caption(self) -> Line:
        """Under the crosshair: its moment, and what the selected rank did in that second, or else the lowest and the highest."""
        data, pieces = self._data, self._data.caption
        if data.cross is not None and (second := data.cross_second) is not None:
            pieces = ((f"at {duration(data.cross - data.origin)} ", "accent"), (self._words_of(second), "text"))
        return Line((text, self.palette.style(role)) for text, role in pieces)

    def _words_of(self, second: int) -> str:
        data = self._data
        if self.selected is not None and self.selected in data.ranks:
            return f"rank {self.selected} {milliseconds(data.rows[list(data.ranks).index(self.selected)][second])} ms"
        known = [value for row in data.rows if (value := row[second]) is not None]
        return f"{milliseconds(min(known))} to {milliseconds(max(known))} ms" if known else MISSING

    def file_names(self) -> Sequence[str]:
        return ("rank", "at_s", self._data.figure)

    def records(self) -> list[dict[str, object]]:
        """Every second of every rank, by when it begins: in seconds since the job's start."""
        data = self._data
        rows, first = zip(data.ranks, data.rows, strict=True), data.start - data.origin
        return [{"rank": rank, "at_s": first + i, data.figure: value} for rank, row in rows for i, value in enumerate(row)]

    def draw_body(self, width: int, height: int) -> list[Strip]:
        data = self._data
        if not data.ranks or not data.seconds:
            return self.blank(width)
        rows = max(height - 1, 1)
        self._share = -(-len(data.ranks) // rows)
        columns = max(width - LABEL, 1)
        cell = max(min(columns // (data.seconds + SHIFT_S), 3), 1)
        shown = max(columns // cell - SHIFT_S, 1)
        first = max(data.seconds - shown, 0)
        if first:
            first += -(data.elapsed + first) % SHIFT_S
        self._places = first, cell
        lines = [self._row(row, first, cell) for row in range(0, len(data.ranks), self._share)]
        lines += [Line()] * (rows - len(lines))
        lines.append(self._foot(first, cell, width))
        return [line.strip(width, self.base) for line in lines[:height]]

    def _row(self, first_rank: int, first: int, cell: int) -> Line:
        data, style = self._data, self.palette.style
        ranks = data.ranks[first_rank : first_rank + self._share]
        chosen = self.selected in ranks
        name = str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]} +{len(ranks) - 1}"
        line = Line([(fit(name, LABEL - 1, "right") + " ", style("text" if chosen else "muted", bold=chosen, selected=chosen))])
        rows = data.rows[first_rank : first_rank + self._share]
        run, role, crossed = "", "", data.cross_second
        for second in range(first, data.seconds):
            known = [value for row in rows if (value := row[second]) is not None]
            level = data.scale.level(data.scale.of(known)) if known else -1
            wanted = f"{data.scale.ramp}{level}" if known else "muted"
            mark = SPARKS[level + 1] if known else UNKNOWN
            if second == crossed:
                line.add(run, style(role or "muted")).add("│", style("accent", bold=True))
                run, role = mark * (cell - 1), wanted
                continue
            if wanted != role and run:
                line.add(run, style(role))
                run = ""
            role = wanted
            run += mark * cell
        return line.add(run, style(role or "muted"))

    def _foot(self, first: int, cell: int, width: int) -> Line:
        """The time since the origin every SHIFT_S or more, and the legend."""
        data, muted = self._data, self.palette.style("muted")
        legend = data.scale.legend(self.palette)
        line = Line().pad(LABEL, muted)
        every = SHIFT_S * -(-11 // (SHIFT_S * cell))
        second = first + -(data.elapsed + first) % SHIFT_S
        while LABEL + (second - first) * cell + 8 <= width - legend.width - 1 and second < data.seconds + SHIFT_S:
            column = LABEL + (second - first) * cell
            if column >= line.width:
                line.pad(column, muted).add(duration(data.elapsed + second), muted)
            second += every
        return spread(line, legend, width, muted)

    # --- selecting ------------------------------------------------------------------------------------------------

    def navigate(self, where: str) -> None:
        ranks = list(self._data.ranks)
        if not ranks:
            return
        here = ranks.index(self.selected) if self.selected in ranks else -self._share
        rows = {"up": -1, "down": 1, "page_up": -10, "page_down": 10, "first": -len(ranks), "last": len(ranks)}.get(where, 0)
        self.select(ranks[min(max(here + rows * self._share, 0), len(ranks) - 1)])

    def select(self, rank: int) -> None:
        before, self.selected = self.selected, rank
        self.redraw()
        if before != rank:
            self.post_message(self.Selected(rank))

    def open_selected(self) -> None:
        if self.selected is None:
            self.navigate("first")
        if self.selected is not None:
            self.post_message(self.Opened(self.selected))

    def on_mouse_move(self, event: events.MouseMove) -> None:
        first, cell = self._places
        second = first + (event.x - self.body_left - LABEL) // cell
        inside = event.x >= self.body_left + LABEL and second < self._data.seconds
        self.post_message(Chart.Pointed(self._data.start + second + 0.5 if inside else None))

    def on_leave(self, event: events.Leave) -> None:
        self.post_message(Chart.Pointed(None))

    def on_click(self, event: events.Click) -> None:
        row = (event.y - self.body_top) * self._share
        if 0 <= row < len(self._data.ranks):
            again = self.selected == self._data.ranks[row] and event.chain > 1
            self.select(self._data.ranks[row])
            if again:
                self.open_selected()

