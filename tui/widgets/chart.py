"""A braille chart over time: labelled axes with units, gaps, several series, event lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from textual.strip import Strip

from distmon.tui.format import MISSING, compact, duration, fit
from distmon.tui.theme import Palette
from distmon.tui.widgets.line import Line, Piece
from distmon.tui.widgets.panel import Panel
from distmon.tui.widgets.raster import Bin, bins, braille, bridged, dots, nice_ceiling, nice_time_step

LABEL_WIDTH = 6
"""Cells of the value axis: five of its numbers and the rule."""
CREST_DOTS = 2
"""How far below its line an area is in full colour, so that the crest does not flicker where the line crosses cells."""


@dataclass(frozen=True)
class Series:
    """One line: sorted times (seconds) and values; None is a gap."""

    label: str
    times: Sequence[float]
    values: Sequence[float | None]
    role: str
    area: bool = False


@dataclass(frozen=True)
class EventLine:
    """A moment drawn over the chart."""

    at: float
    role: str


@dataclass(frozen=True)
class ChartData:
    """What a chart shows. Times are seconds on one clock; the time axis is labelled from `origin`."""

    series: tuple[Series, ...] = ()
    events: tuple[EventLine, ...] = ()
    origin: float = 0.0
    now: float = 0.0
    interval_s: float = 1.0
    """The usual spacing of samples: the time axis is never finer than a quarter of it."""
    window_s: float | None = None
    """Show only the last so many seconds; None shows everything since `origin`."""
    caption: tuple[tuple[str, str], ...] = ()
    """Text and role for the right end of the title rule."""
    empty: str = "no steps yet"


@dataclass(frozen=True)
class TimeAxis:
    """Columns of equal time: column i begins at start + i * step."""

    start: float
    step: float
    count: int

    def column(self, at: float) -> int:
        return math.floor((at - self.start) / self.step)


def time_axis(data: ChartData, count: int) -> TimeAxis:
    """Everything since the origin grows from the left and is squeezed when full; a window moves by whole columns.

    Either way a sample stays in its column from frame to frame, so that a refresh changes few cells.
    """
    if data.window_s is None:
        span = max(data.now - data.origin, data.interval_s)
        return TimeAxis(data.origin, _squeeze(span / count, data.interval_s), count)
    step = max(nice_time_step(data.window_s / count), data.interval_s / 4)
    end = data.origin + (math.floor((data.now - data.origin) / step) + 1) * step
    return TimeAxis(end - count * step, step, count)


def _squeeze(needed: float, interval: float) -> float:
    """The least step that fits, from a quarter of the interval on, in a series whose neighbours differ by at most a half."""
    eighths = 2
    while interval / 8 * eighths < needed:
        eighths += max(1, eighths // 3)
    return interval / 8 * eighths


class Chart(Panel):
    """One chart in a frame."""

    DEFAULT_CSS = "Chart { min-height: 3; }"

    def __init__(self, title: str, number: int, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.title, self.number = title, number
        self._data = ChartData()
        self._ceiling = 0.0

    def show(self, data: ChartData) -> None:
        self._data = data
        self.redraw()

    def caption(self) -> Line:
        return Line((text, self.palette.style(role)) for text, role in self._data.caption)

    def draw_body(self, width: int, height: int) -> list[Strip]:
        columns = width - LABEL_WIDTH
        rows = height - 1
        if columns < 4 or rows < 1:
            return []
        plot = Plot(self._data, self.palette, columns, rows, self._ceiling)
        self._ceiling = plot.high
        return [line.strip(width, self.base) for line in plot.lines()]


@dataclass
class Plot:
    """One frame of a chart, `columns` cells by `rows` cells without its axes."""

    data: ChartData
    palette: Palette
    columns: int
    rows: int
    previous_ceiling: float
    high: float = field(init=False)
    axis: TimeAxis = field(init=False)

    def __post_init__(self) -> None:
        self.axis = time_axis(self.data, self.columns * 2)
        self._binned = [self._bins(series) for series in self.data.series]
        peaks = [column[1] for columns in self._binned for column in columns if column is not None]
        self.high = nice_ceiling(max(peaks) * 1.05, self.previous_ceiling) if peaks else 0.0

    def _bins(self, series: Series) -> list[Bin]:
        columns = bins(series.times, series.values, self.axis.start, self.axis.step, self.axis.count)
        return bridged(columns, max(1, math.ceil(1.5 * self.data.interval_s / self.axis.step)))

    def lines(self) -> list[Line]:
        grid = self._composed()
        labels = self._value_labels()
        rule, muted = self.palette.style("border"), self.palette.style("muted")
        result = []
        for y, row in enumerate(grid):
            line = Line(
                [(fit(labels.get(y, ""), LABEL_WIDTH - 1, "right"), muted), ("┤" if y in labels else "│", rule)]
            )
            for style, group in groupby(row, key=lambda piece: piece[1]):
                line.add("".join(text for text, _ in group), style)
            result.append(line)
        return [*result, self._time_labels()]

    def _value_labels(self) -> dict[int, str]:
        if not self.high:
            return {}
        labels = {0: compact(self.high), self.rows - 1: "0"} if self.rows > 1 else {0: compact(self.high)}
        if self.rows >= 5 and self.rows % 2:
            labels[self.rows // 2] = compact(self.high / 2)
        return labels

    def _composed(self) -> list[list[Piece]]:
        """Background, event lines, then the series, the first on top; a cell belongs to one series, so colours never mix."""
        blank, grid_style = (" ", self.palette.style("track")), self.palette.style("track")
        grid: list[list[Piece]] = [[blank] * self.columns for _ in range(self.rows)]
        if self.rows >= 5 and self.rows % 2:
            grid[self.rows // 2] = [("┄", grid_style)] * self.columns
        for event in self.data.events:
            column = self.axis.column(event.at) // 2
            if 0 <= column < self.columns:
                for row in grid:
                    row[column] = ("┊", self.palette.style(event.role))
        for series, columns in reversed(list(zip(self.data.series, self._binned, strict=True))):
            self._draw(grid, series, columns)
        if not any(column for columns in self._binned for column in columns):
            self._write(grid[self.rows // 2], self.data.empty or MISSING)
        return grid

    def _draw(self, grid: list[list[Piece]], series: Series, columns: Sequence[Bin]) -> None:
        """The line in full colour; the area under it, where the series asks for one, faint."""
        line = dots(columns, self.rows, 0.0, self.high, CREST_DOTS if series.area else 0)
        below = dots(columns, self.rows, 0.0, self.high, self.rows * 4) if series.area else line
        bright = self.palette.style(series.role)
        faint = self.palette.style(series.role + "_area") if series.area else bright
        for row, line_masks, masks in zip(grid, line, below, strict=True):
            for x, mask in enumerate(masks[: self.columns]):
                if mask:
                    row[x] = (braille(mask), bright if line_masks[x] else faint)

    def _write(self, row: list[Piece], text: str) -> None:
        left = max((self.columns - len(text)) // 2, 0)
        for x, character in enumerate(text[: self.columns]):
            row[left + x] = (character, self.palette.style("muted"))

    def _time_labels(self) -> Line:
        """Elapsed time at even distances of at least fourteen cells."""
        muted = self.palette.style("muted")
        line = (
            Line([("0" if self.rows == 1 else "", muted)])
            .pad(LABEL_WIDTH - 1, muted)
            .add("└", self.palette.style("border"))
        )
        distance = nice_time_step(14 * 2 * self.axis.step)
        first = math.ceil((self.axis.start - self.data.origin) / distance - 1e-9)
        number = first
        while True:
            at = self.data.origin + number * distance
            column = LABEL_WIDTH + round((at - self.axis.start) / self.axis.step / 2)
            text = duration(number * distance)
            if column + len(text) > LABEL_WIDTH + self.columns:
                return line
            if column >= line.width:
                line.pad(column, muted).add(text, muted)
            number += 1
