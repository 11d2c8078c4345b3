"""A table that draws only the rows in view; its columns go in order of importance when space is short."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from textual.strip import Strip

from distmon.tui.format import fit, fit_ends
from distmon.tui.widgets.line import Line
from distmon.tui.widgets.rows import Cell, RowsPanel

K = TypeVar("K", bound=Hashable)
NARROW = 60
"""A table of fewer cells has the narrow widths of its columns."""


@dataclass(frozen=True)
class Column:
    """A column: what it is called, how wide it is, and how soon it goes when space is short (0 stays to the last)."""

    key: str
    title: str
    width: int
    align: Literal["left", "right"] = "right"
    importance: int = 0
    grow: int = 0
    """Share of the space left over, up to `widest` cells."""
    widest: int = 0
    figure: str = ""
    """What the records of a file call it, where that is not its key."""
    ends: bool = False
    """Of text that is too long, beginning and end are kept."""
    narrow: int = 0
    """Its width in a narrow table, where it can do with less there."""


def placed(columns: Sequence[Column], width: int) -> list[tuple[Column, int]]:
    """The columns that fit with their widths: the least important go first, and what is left over goes to those that grow."""
    least = {column.key: column.narrow if column.narrow and width < NARROW else column.width for column in columns}
    kept = list(columns)
    while len(kept) > 1 and sum(least[column.key] + 1 for column in kept) - 1 > width:
        kept.remove(max(kept, key=lambda column: (column.importance, columns.index(column))))
    spare = width - sum(least[column.key] + 1 for column in kept) + 1
    growing = sum(column.grow for column in kept)
    widths = []
    for column in kept:
        extra = spare * column.grow // growing if growing and spare > 0 else 0
        widths.append((column, min(least[column.key] + extra, max(column.widest, column.width))))
    return widths


class Table(RowsPanel[K]):
    """Rows of cells under a header line. The content comes from `cells(key)`, which is asked only for rows in view."""

    header_rows = 1

    def __init__(
        self, title: str, number: int, columns: Sequence[Column], *, empty: str, id: str | None = None
    ) -> None:
        super().__init__(title, number, empty=empty, id=id)
        self.columns = tuple(columns)
        self.names = [column.figure or column.key for column in columns]
        self._cells: Callable[[K], Sequence[Cell]] = lambda key: ()
        self.in_brief: Callable[[K], str] = lambda key: ""
        """What a narrow table says of a row in place of all cells but the first; empty where these tell more."""
        self._row_cache: dict[K, tuple[object, Strip]] = {}

    def show(self, keys: Sequence[K], cells: Callable[[K], Sequence[Cell]], caption: Sequence[Cell] = ()) -> None:
        """Take the rows in their order. `cells` gives one cell per column, in the order of `columns`."""
        self._cells = cells
        self.take(keys, caption)

    def shown_records(self) -> list[dict[str, object]]:
        return [self._record(key) for key in self.model.keys]

    def selected_records(self) -> list[dict[str, object]]:
        selected = self.model.selected
        return [self._record(selected)] if selected is not None else self.shown_records()

    def _record(self, key: K) -> dict[str, object]:
        texts = (text.strip() for text, _ in self._cells(key))
        return {column.title.strip() or column.key: text for column, text in zip(self.columns, texts, strict=True)}

    def draw_body(self, width: int, height: int) -> list[Strip]:
        self.model.resize(height - 1)
        layout = placed(self.columns, width)
        if not self.model.keys:
            return [self._header(layout, width), *self.blank(width)]
        rows = [self._row(key, layout, width) for key in self.model.in_view()]
        self._forget_hidden()
        return [self._header(layout, width), *rows]

    def _header(self, layout: Sequence[tuple[Column, int]], width: int) -> Strip:
        muted, marked = self.palette.style("muted"), self.palette.style("accent", bold=True)
        line = Line()
        for column, cells in layout:
            sorted_by = column.key == self.sort_key
            line.add(fit(column.title, cells, column.align), marked if sorted_by else muted)
            if line.width < width:
                line.add(("↓" if self.descending else "↑") if sorted_by else " ", marked)
        return line.strip(width, self.base)

    def _row(self, key: K, layout: Sequence[tuple[Column, int]], width: int) -> Strip:
        cells = tuple(self._cells(key))
        selected = key == self.model.selected
        bold = selected and self.has_focus
        brief = self.in_brief(key) if width < NARROW else ""
        stamp = (cells, brief, selected, bold, width, self.palette)
        cached = self._row_cache.get(key)
        if cached is not None and cached[0] == stamp:
            return cached[1]
        by_column = dict(zip((column.key for column in self.columns), cells, strict=True))
        style = self.palette.style
        blank = style("text", selected=selected)
        line = Line()
        for column, room in layout:
            text, role = by_column[column.key]
            line.pad(line.width + bool(line.width), blank)
            fitted = fit_ends(text, room) if column.ends else fit(text, room, column.align)
            line.add(fitted, style(role, bold=bold, selected=selected))
            if brief:
                line.add(" ", blank).add(fit(brief, width - line.width), style("muted", selected=selected))
                break
        strip = line.strip(width, blank)
        self._row_cache[key] = (stamp, strip)
        return strip

    def _forget_hidden(self) -> None:
        if len(self._row_cache) > 4 * self.model.visible + 64:
            view = set(self.model.in_view())
            self._row_cache = {key: value for key, value in self._row_cache.items() if key in view}

    def click_header(self, x: int) -> None:
        left = 0
        for column, cells in placed(self.columns, self.body_size[0]):
            if left <= x < left + cells:
                self.post_message(self.SortAsked(self, column.key))
            left += cells + 1
