"""A braille chart over time: labelled axes, gaps, several series, a band, event lines, a crosshair, a logarithmic axis."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from textual import events
from textual.message import Message
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
    band: tuple[Sequence[float | None], Sequence[float | None]] | None = None
    """Low and high values at the same times, drawn faint behind the line."""


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
    """Show only so many seconds; None shows everything since `origin`."""
    end: float | None = None
    """Where the window ends; None is at `now`."""
    cross: float | None = None
    """The moment that the crosshair is on."""
    log: bool = False
    """Whether the value axis is logarithmic."""
    highest: float | None = None
    """Where the value axis ends, if no value is above it; None ends it a little above the highest."""
    words: Callable[[float | None], str] = compact
    """How a value is written."""
    axis_figure: str = "at_s"
    """What a file calls a distance from the origin."""
    axis_words: Callable[[float], str] = duration
    """How a distance from the origin is written."""
    caption: tuple[tuple[str, str], ...] = ()
    """Text and role for the right end of the title rule."""
    empty: str = "no steps yet"
    figure: str = "value"
    """What a file calls the values, with their unit."""


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
    last = data.now if data.end is None else data.end
    end = data.origin + (math.floor((last - data.origin) / step) + 1) * step
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

    @dataclass
    class Pointed(Message):
        """The mouse is over a moment of a chart, or has left it."""

        at: float | None

    @dataclass
    class Zoomed(Message):
        """The wheel was turned: 1 is closer, -1 is farther."""

        by: int

    @dataclass
    class Dragged(Message):
        """The chart was dragged by so many seconds: to later ones where that is positive."""

        seconds: float

    def __init__(self, title: str, number: int, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.title, self.number = title, number
        self._data = ChartData()
        self._axis: TimeAxis | None = None
        self._grabbed: int | None = None

    def show(self, data: ChartData) -> None:
        self._data = data
        self.redraw()

    def caption(self) -> Line:
        pieces = self._data.caption if self._data.cross is None else cross_words(self._data)
        return Line((text, self.palette.style(role)) for text, role in pieces)

    def draw_body(self, width: int, height: int) -> list[Strip]:
        columns = width - LABEL_WIDTH
        rows = height - 1
        if columns < 4 or rows < 1:
            return []
        plot = Plot(self._data, self.palette, columns, rows)
        self._axis = plot.axis
        return [line.strip(width, self.base) for line in plot.lines()]

    def file_names(self) -> Sequence[str]:
        return ("series", self._data.axis_figure, self._data.figure)

    def records(self) -> list[dict[str, object]]:
        """The samples of the time that is shown; times in seconds since the origin."""
        axis, found, place = self._axis, [], self._data.axis_figure
        end = axis.start + axis.step * axis.count if axis is not None else math.inf
        for series in self._data.series:
            for index, at in enumerate(series.times):
                if axis is None or axis.start <= at < end:
                    record: dict[str, object] = {"series": series.label, place: round(at - self._data.origin, 3)}
                    record[self._data.figure] = series.values[index]
                    if series.band is not None:
                        record |= {"low": series.band[0][index], "high": series.band[1][index]}
                    found.append(record)
        return found

    # --- the mouse ------------------------------------------------------------------------------------------------

    def _moment(self, x: int) -> float | None:
        column = x - self.body_left - LABEL_WIDTH
        if self._axis is None or not 0 <= column < self._axis.count // 2:
            return None
        return self._axis.start + (2 * column + 1) * self._axis.step

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self._grabbed is not None and self._axis is not None:
            if event.x != self._grabbed:
                self.post_message(self.Dragged((self._grabbed - event.x) * 2 * self._axis.step))
                self._grabbed = event.x
        else:
            self.post_message(self.Pointed(self._moment(event.x)))

    def on_leave(self, event: events.Leave) -> None:
        self.post_message(self.Pointed(None))

    def on_mouse_down(self, event: events.MouseDown) -> None:
        if self._data.window_s is not None:
            self._grabbed = event.x
            self.capture_mouse()

    def on_mouse_up(self, event: events.MouseUp) -> None:
        if self._grabbed is not None:
            self._grabbed = None
            self.release_mouse()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.post_message(self.Zoomed(1))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.post_message(self.Zoomed(-1))


def cross_words(data: ChartData) -> tuple[tuple[str, str], ...]:
    """What the crosshair is on: the moment, and each series' value nearest to it."""
    if data.cross is None:
        return ()
    words = [(f"at {data.axis_words(data.cross - data.origin)} ", "accent")]
    for series in data.series:
        index = nearest(series.times, data.cross)
        value = series.values[index] if index is not None else None
        words.append((f" {series.label} {data.words(value)}", series.role))
        if series.band is not None and index is not None and value is not None:
            low, high = series.band[0][index], series.band[1][index]
            words.append((f" ({data.words(low)} to {data.words(high)})", "muted"))
    return tuple(words)


def nearest(times: Sequence[float], at: float) -> int | None:
    """The number of the time nearest to `at`; None of no times."""
    if not times:
        return None
    right = min(bisect_left(times, at), len(times) - 1)
    return right - 1 if right and at - times[right - 1] <= times[right] - at else right


@dataclass
class Plot:
    """One frame of a chart, `columns` cells by `rows` cells without its axes."""

    data: ChartData
    palette: Palette
    columns: int
    rows: int
    high: float = field(init=False)
    low: float = field(init=False, default=0.0)
    axis: TimeAxis = field(init=False)

    def __post_init__(self) -> None:
        self.axis = time_axis(self.data, self.columns * 2)
        self._binned = [self._bins(series.times, series.values) for series in self.data.series]
        self._bands = [self._band_bins(series) for series in self.data.series]
        peaks = [column[1] for columns in (*self._binned, *self._bands) for column in columns if column is not None]
        self.high = nice_ceiling(max(peaks) * 1.05) if peaks else 0.0
        if self.data.highest is not None and peaks and max(peaks) <= self.data.highest:
            self.high = self.data.highest
        if self.data.log:
            lows = [column[0] for columns in (*self._binned, *self._bands) for column in columns if column and column[0] > 0]
            self.low = 10.0 ** math.floor(math.log10(min(lows))) if lows else 0.0

    def _bins(self, times: Sequence[float], values: Sequence[float | None]) -> list[Bin]:
        columns = bins(times, values, self.axis.start, self.axis.step, self.axis.count)
        return bridged(columns, max(1, math.ceil(1.5 * self.data.interval_s / self.axis.step)))

    def _band_bins(self, series: Series) -> list[Bin]:
        if series.band is None:
            return []
        lows, highs = (self._bins(series.times, values) for values in series.band)
        return [(low[0], high[1]) if low and high else None for low, high in zip(lows, highs, strict=True)]

    def _dots(self, columns: Sequence[Bin], below: int = 0) -> list[list[int]]:
        """The dots of columns on the axis of this plot."""
        if not (self.data.log and 0 < self.low < self.high):
            return dots(columns, self.rows, 0.0, self.high, below)
        low, high = math.log10(self.low), math.log10(self.high)
        scaled = [None if c is None else (_log(c[0], low), _log(c[1], low)) for c in columns]
        return dots(scaled, self.rows, low, high, below)

    def lines(self) -> list[Line]:
        grid = self._composed()
        labels = self._value_labels()
        rule, muted = self.palette.style("border"), self.palette.style("muted")
        result = []
        for y, row in enumerate(grid):
            line = Line(
                [(fit(labels.get(y, ""), LABEL_WIDTH - 1, "right"), muted), ("┤" if y in labels else "│", rule)]
            )
            result.append(_add_cells(line, row))
        return [*result, self._time_labels()]

    def _value_labels(self) -> dict[int, str]:
        if not self.high:
            return {}
        words, low = self.data.words, self.low if self.data.log else 0.0
        labels = {0: words(self.high)}
        if self.rows > 1:
            labels[self.rows - 1] = words(low) if low else "0"
        if self.rows >= 5 and self.rows % 2:
            labels[self.rows // 2] = words(math.sqrt(low * self.high) if low else self.high / 2)
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
        for series, columns in zip(self.data.series, self._bands, strict=True):
            self._draw_band(grid, series, columns)
        for series, columns in reversed(list(zip(self.data.series, self._binned, strict=True))):
            self._draw(grid, series, columns)
        self._draw_cross(grid)
        if not any(column for columns in self._binned for column in columns):
            self._write(grid[self.rows // 2], self.data.empty or MISSING)
        return grid

    def _draw_band(self, grid: list[list[Piece]], series: Series, columns: Sequence[Bin]) -> None:
        faint = self.palette.style(series.role + "_area")
        for row, masks in zip(grid, self._dots(columns), strict=True):
            for x, mask in enumerate(masks[: self.columns]):
                if mask:
                    row[x] = (braille(mask), faint)

    def _draw_cross(self, grid: list[list[Piece]]) -> None:
        if self.data.cross is None:
            return
        column = self.axis.column(self.data.cross) // 2
        if 0 <= column < self.columns:
            for row in grid:
                row[column] = ("│", self.palette.style("accent", bold=True))

    def _draw(self, grid: list[list[Piece]], series: Series, columns: Sequence[Bin]) -> None:
        """The line in full colour; the area under it, where the series asks for one, faint."""
        line = self._dots(columns, CREST_DOTS if series.area else 0)
        below = self._dots(columns, self.rows * 4) if series.area else line
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
        number, before = max(math.ceil((self.axis.start - self.data.origin) / distance - 1e-9), 0), ""
        while True:
            at = self.data.origin + number * distance
            column = LABEL_WIDTH + round((at - self.axis.start) / self.axis.step / 2)
            text = self.data.axis_words(number * distance)
            if column + len(text) > LABEL_WIDTH + self.columns:
                return line
            if column >= line.width and text != before:
                line.pad(column, muted).add(text, muted)
            number, before = number + 1, text


def _add_cells(line: Line, row: Sequence[Piece]) -> Line:
    """Cells as pieces, one for neighbours of one style."""
    begin, now = 0, row[0][1]
    for x, (_, style) in enumerate(row):
        if style is not now:
            line.add("".join([text for text, _ in row[begin:x]]), now)
            begin, now = x, style
    return line.add("".join([text for text, _ in row[begin:]]), now)


def _log(value: float, lowest: float) -> float:
    return math.log10(value) if value > 0 else lowest
