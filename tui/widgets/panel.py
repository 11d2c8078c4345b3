"""A framed canvas: title and figures in the top rule, a number key that focuses it, a scroll mark in the right rule."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.style import Style
from textual import events
from textual.strip import Strip

from distmon.tui.format import fit
from distmon.tui.widgets.canvas import Canvas
from distmon.tui.widgets.line import Line, cut

WHEEL_ROWS = 3


@dataclass(frozen=True)
class ScrollMark:
    """What part of the content is in view: rows before it, rows in view, rows in all."""

    before: int
    visible: int
    total: int

    def rows(self, height: int) -> range:
        """The rows that the mark lies on, of a track `height` rows high; none where everything is in view."""
        if self.total <= self.visible or height <= 0:
            return range(0)
        length = max(1, height * self.visible // self.total)
        top = round((height - length) * self.before / max(self.total - self.visible, 1))
        return range(top, top + length)

    def before_at(self, top: int, height: int) -> int:
        """How many rows are before those in view when the mark begins at a row of the track."""
        most, room = self.total - self.visible, height - len(self.rows(height))
        return min(max(round(top * most / room), 0), most) if room else 0


class Panel(Canvas, can_focus=True):
    """Draws its frame and lets `draw_body` fill the inside.

    Where rows are few the frame is only the top rule (`boxed` is False).
    """

    title = ""
    number = 0
    boxed = True
    body_top = 1
    empty = ""
    """What a body without rows says."""
    names: Sequence[str] = ("line",)
    """What `file_names` gives."""
    hidden = ""
    """What it says in place of that where there are rows, and a filter hides all of them."""
    _framed_rows: tuple[object, list[tuple[Strip, bool, Strip]]] = (None, [])
    """What the frame looks like, and per row of the body: the row as it was drawn, whether it has the mark, and both together."""
    bar_pressed = False
    """Whether the mouse was pressed on the scroll bar last, and so meant no row."""
    _grabbed_at: int | None = None
    """The row of the mark by which it is dragged."""

    def draw_body(self, width: int, height: int) -> list[Strip]:
        raise NotImplementedError

    def records(self) -> Sequence[Mapping[str, object]]:
        """The data that is shown, for a file: here the lines of the body."""
        return [{"line": text} for strip in self.draw_body(*self.body_size) if (text := strip.text.rstrip())]

    def file_names(self) -> Sequence[str]:
        """What the values of its data are called in a file, where there is no data that tells it."""
        return self.names

    def selected_records(self) -> Sequence[Mapping[str, object]]:
        """Of those, what is selected; all where nothing is."""
        return self.records()

    def blank(self, width: int) -> list[Strip]:
        """The lines of a body without rows."""
        lines, style = textwrap.wrap(self.hidden or self.empty, max(width, 1)) or [""], self.palette.style("muted")
        return [Line([(fit(line, width, "centre"), style)]).strip(width, self.base) for line in lines]

    def caption(self) -> Line:
        """What the right end of the top rule says."""
        return Line()

    def scroll_mark(self) -> ScrollMark | None:
        return None

    def scroll_by(self, rows: int) -> None:
        """Move the view; a panel without rows has nothing to do."""

    def navigate(self, where: str) -> None:
        """Answer up, down, page_up, page_down, first or last; a panel without rows has nothing to do."""

    @property
    def body_size(self) -> tuple[int, int]:
        """Columns and rows inside the frame."""
        return self._inside(*self.size)

    def _inside(self, width: int, height: int) -> tuple[int, int]:
        return (max(width - 4, 0), max(height - 2, 0)) if self.boxed else (max(width - 2, 0), max(height - 1, 0))

    @property
    def body_left(self) -> int:
        return 2 if self.boxed else 1

    def draw(self, width: int, height: int) -> list[Strip]:
        inner_width, inner_height = self._inside(width, height)
        body = self.draw_body(inner_width, inner_height)[:inner_height]
        body.extend(Strip.blank(inner_width, self.base) for _ in range(inner_height - len(body)))
        rule = self._rule_style()
        lines = [self._top_rule(width, rule)]
        lines.extend(self._framed(body, rule, width))
        if self.boxed:
            lines.append(Line([("╰" + "─" * max(width - 2, 0) + "╯", rule)]).strip(width, self.base))
        return lines

    def _rule_style(self) -> Style:
        return self.palette.style("focus" if self.has_focus else "border")

    def _top_rule(self, width: int, rule: Style) -> Strip:
        palette = self.palette
        left = Line([("╭─" if self.boxed else "─", rule)])
        if self.number:
            left.add(f" {self.number}", palette.style("key"))
        left.add(f" {self.title} ", palette.style("focus" if self.has_focus else "text", bold=True))
        corner = "─╮" if self.boxed else "─"
        caption, room = self.caption(), width - left.width - len(corner) - 3
        right = Line([(" ", rule)]).extend(cut(caption, room)).add(" ", rule) if caption.width and room >= 8 else Line()
        right.add(corner, rule)
        return left.pad(width - right.width, rule, "─").extend(right).strip(width, self.base)

    def _framed(self, body: list[Strip], rule: Style, width: int) -> list[Strip]:
        mark = self.scroll_mark()
        marked_rows = mark.rows(len(body)) if mark is not None else range(0)
        left = Line([("│ " if self.boxed else " ", rule)]).strip(self.body_left, self.base)
        plain = Line([(" │" if self.boxed else " ", rule)]).strip(self.body_left, self.base)
        marked = Line([(" ┃" if self.boxed else "┃", self.palette.style("accent"))]).strip(self.body_left, self.base)
        stamp = (rule, self.palette, self.boxed, width)
        before = self._framed_rows[1] if self._framed_rows[0] == stamp else []
        rows = []
        for row, strip in enumerate(body):
            covered = row in marked_rows
            known = before[row] if row < len(before) else None
            if known is None or known[1] is not covered or known[0] != strip:
                known = strip, covered, Strip([*left, *strip, *(marked if covered else plain)], width)
            rows.append(known)
        self._framed_rows = stamp, rows
        return [framed for _, _, framed in rows]

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.scroll_by(-WHEEL_ROWS)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.scroll_by(WHEEL_ROWS)

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """On the scroll bar: beside the mark, its middle goes there; then it is dragged."""
        mark, row, height = self.scroll_mark(), event.y - self.body_top, self.body_size[1]
        self.bar_pressed = event.x == self.size.width - 1 and mark is not None and bool(mark.rows(height)) and 0 <= row < height
        if mark is not None and self.bar_pressed:
            rows = mark.rows(height)
            self._grabbed_at = row - rows.start if row in rows else len(rows) // 2
            self.capture_mouse()
            self._drag_bar(event)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        self._drag_bar(event)

    def on_mouse_up(self, event: events.MouseUp) -> None:
        self._let_go()

    def on_hide(self) -> None:
        self._let_go()

    def _let_go(self) -> None:
        if self._grabbed_at is not None:
            self._grabbed_at = None
            self.release_mouse()

    def _drag_bar(self, event: events.MouseEvent) -> None:
        mark = self.scroll_mark()
        if mark is not None and self._grabbed_at is not None:
            top, rows = event.y - self.body_top - self._grabbed_at, mark.rows(self.body_size[1])
            if top != rows.start:
                self.scroll_by(mark.before_at(top, self.body_size[1]) - mark.before)

    def watch_has_focus(self, has_focus: bool) -> None:
        """The frame says who has the keys. A handler of the event itself would run before the change."""
        super().watch_has_focus(has_focus)
        self.redraw()
