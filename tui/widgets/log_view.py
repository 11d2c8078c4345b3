"""Lines of text that keep coming: bounded, filtered, following the newest until the reader scrolls up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from textual.strip import Strip

from distmon.tui.widgets.line import Line
from distmon.tui.widgets.panel import Panel, ScrollMark

if TYPE_CHECKING:
    from distmon.tui.view.logs import Lines


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line: a number that only grows, pieces (text, role) before the text, the text and its role."""

    number: int
    prefix: tuple[tuple[str, str], ...]
    text: str
    role: str = "text"


class LogView(Panel):
    """Shows a window on lines that the caller keeps. Following is on until a scroll up, and on again at the end.

    The place is held by line number, so lines that come or fall off the far end do not move what is being read.
    """

    def __init__(self, title: str, number: int, *, empty: str, id: str | None = None) -> None:
        super().__init__(id=id)
        self.title, self.number, self.empty = title, number, empty
        self.following = True
        self._lines: Lines[Any] | None = None
        self._series: object = None
        self._bottom = 0
        """Number of the last line in view, when not following."""
        self._rows = 1
        self._note = ""
        self._written: dict[LogLine, Strip] = {}
        self._written_as: object = None

    def show(self, lines: Lines[Any], note: str = "") -> None:
        """Take the lines that are there now, oldest first; `note` says what filter they passed or what was dropped.

        Of another log, or through another filter, the end is shown.
        """
        self.following = self.following or lines.series is not self._series
        self._lines, self._series, self._note = lines, lines.series, note
        self.redraw()

    @property
    def reads_from(self) -> int | None:
        """Number of the first line in view; None while it follows the end."""
        if self.following or not self._lines or not self._lines.in_time:
            return None
        return self._lines[max(self._end() - self._rows, 0)].number

    @property
    def all_lines(self) -> Sequence[LogLine]:
        """Those that there are, in view or not."""
        return self._lines if self._lines is not None else ()

    def records(self) -> list[dict[str, object]]:
        """All lines, as far as they pass the filter."""
        return [self._lines.record(index) for index in range(len(self._lines))] if self._lines is not None else []

    def caption(self) -> Line:
        """Where it stands, which stays when there is no room for the note."""
        style = self.palette.style
        line = Line([(self._standing(), style("good" if self.following else "warn"))])
        return line.add(" · ", style("muted")).add(self._note, style("accent")) if self._note else line

    def _standing(self) -> str:
        if self.following:
            return "following" if self._in_time else "from the top"
        if self._lines and not self._lines.in_time:
            return f"{self._end():,} of {len(self._lines):,}"
        below = self._lines.below(self._end()) if self._lines else 0
        return f"paused, {below:,} below"

    def scroll_mark(self) -> ScrollMark | None:
        end = self._end()
        return ScrollMark(max(end - self._rows, 0), self._rows, len(self.all_lines))

    def draw_body(self, width: int, height: int) -> list[Strip]:
        self._rows = height
        if not self._lines:
            return self.blank(width)
        end = self._end()
        written_as = width, self.palette
        known = self._written if self._written_as == written_as else {}
        shown = self._lines[max(end - height, 0) : end]
        self._written = {line: known.get(line) or self._draw_line(line, width) for line in shown}
        self._written_as = written_as
        return [self._written[line] for line in shown]

    def _draw_line(self, line: LogLine, width: int) -> Strip:
        style = self.palette.style
        return Line([*((text, style(role)) for text, role in line.prefix), (line.text, style(line.role))]).strip(
            width, self.base
        )

    def _end(self) -> int:
        """Index after the last line in view."""
        count = len(self.all_lines)
        if not self._lines or self.following:
            return count if self._in_time else min(self._rows, count)
        found = self._lines.index_of(self._bottom)
        if found is None:  # it has fallen off the far end, or lies beyond the near one
            found = -1 if self._bottom < self._lines[0].number else count - 1
        return min(max(found + 1, min(self._rows, count)), count)

    @property
    def _in_time(self) -> bool:
        """Whether the newest line is the last; else the first is what is to be seen."""
        return self._lines is None or self._lines.in_time

    def scroll_by(self, rows: int) -> None:
        """Move by rows; at the end, following begins again."""
        if not self._lines:
            return
        count = len(self._lines)
        end = min(max(self._end() + rows, min(self._rows, count)), count)
        self.following = end >= count if self._in_time else end <= self._rows
        self._bottom = self._lines[end - 1].number
        self.redraw()

    def follow(self) -> None:
        self.following = True
        self.redraw()

    def navigate(self, where: str) -> None:
        """One of up, down, page_up, page_down, first, last."""
        page, far = max(self._rows - 1, 1), len(self.all_lines)
        steps = {"up": -1, "down": 1, "page_up": -page, "page_down": page, "first": -far, "last": far}
        self.scroll_by(steps[where])
