"""A heat map of many things at once: a cell for each, or for as many neighbours as must share one. It never pages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Generic, TypeVar

from rich.style import Style
from textual import events
from textual.message import Message
from textual.strip import Strip

from distmon.tui.format import fit, fit_ends
from distmon.tui.glyphs import SPARKS, STATES
from distmon.tui.widgets.heat import UNKNOWN, Scale
from distmon.tui.widgets.line import Line, spread
from distmon.tui.widgets.panel import Panel

K = TypeVar("K", bound=Hashable)
WIDTHS = (8, 4, 2, 1)
"""Cells that one value may take: with its figure, and as a bar ever narrower."""
LABEL = 14


@dataclass(frozen=True)
class HeatData(Generic[K]):
    """What is shown: a value for each key, in groups (nodes) of neighbouring keys."""

    keys: Sequence[K] = ()
    values: Sequence[float | None] = ()
    groups: Sequence[tuple[str, int]] = ()
    """(name, how many of the keys in order) of each group."""
    scale: Scale = field(default_factory=lambda: Scale(0.0, 1.0, str, ""))
    troubled: frozenset[K] = frozenset()
    """Keys with a sign of their own: something is wrong with them."""
    figure: str = "value"
    """What a file calls the values, with their unit, which may not be the unit they are shown in."""
    label: Callable[[str], str] = str
    """What the name of a group is on the screen."""


@dataclass(frozen=True)
class HeatLayout:
    """How the cells lie: `width` cells a value, `share` neighbours a value, groups of `span` values, `across` groups a row."""

    width: int
    share: int
    span: int
    across: int
    gap: int
    labelled: bool
    merged: int = 1
    """So many groups are one value, where there are more groups than cells."""


def layout_for(groups: int, largest: int, width: int, height: int) -> HeatLayout:
    """The roomiest layout in which everything fits at once."""
    room = width - LABEL
    for cells in WIDTHS[:3]:
        if groups <= height and largest * cells <= room:
            return HeatLayout(cells, 1, largest, 1, 1, True)
        across = (width + 1) // (largest * cells + 1)
        if across and -(-groups // across) <= height:
            return HeatLayout(cells, 1, largest, across, 1, False)
    share = 1
    while share <= largest:
        span = -(-largest // share)
        for gap in (1, 0):
            across = (width + gap) // (span + gap)
            if across and -(-groups // across) <= height:
                return HeatLayout(1, share, span, across, gap, False)
        share = share + 1 if share < 4 else share * 2
    merged = max(-(-groups // max(width * height, 1)), 1)
    return HeatLayout(1, largest, 1, max(width, 1), 0, False, merged)


class HeatMap(Panel, Generic[K]):
    """Cells in groups, a legend, and one selected key that stays selected whatever is drawn around it."""

    @dataclass
    class Selected(Message):
        """Another key is selected."""

        heatmap: HeatMap[Any]

    @dataclass
    class Opened(Message):
        """Enter, or a second click."""

        heatmap: HeatMap[Any]

    def __init__(self, title: str, number: int, *, empty: str, id: str | None = None) -> None:
        super().__init__(id=id)
        self.title, self.number, self.empty = title, number, empty
        self.selected: K | None = None
        self._left: tuple[K, str] | None = None
        """What was selected until it left, with what it was called, while what stands in for it is selected."""
        self._data: HeatData[K] = HeatData()
        self._describe: Callable[[K], str] = str
        self._caption: tuple[tuple[str, str], ...] = ()
        self._layout = HeatLayout(1, 1, 1, 1, 0, False)
        self._starts: list[int] = [0]

    def show(
        self,
        data: HeatData[K],
        describe: Callable[[K], str],
        caption: Sequence[tuple[str, str]] = (),
        *,
        filtered: bool = False,
    ) -> None:
        """Take what there is now. `describe` says in one line what a key is. One that a filter hides has not left."""
        before, called = self._data.keys, self._describe
        there = set(data.keys) if self.selected is not None else frozenset[K]()
        if self.selected is not None and self.selected not in there:
            gone, self.selected = self.selected, None if filtered else _stands_in(self.selected, before, there)
            if self.selected is not None:
                self._left = gone, called(gone).partition(":")[0]
                self.post_message(self.Selected(self))
        elif self._left is not None and self._left[0] in there:
            self._left = None
        self._data, self._describe, self._caption = data, describe, tuple(caption)
        self._starts = [0, *accumulate(count for _, count in data.groups)]
        self.redraw()

    @property
    def keys(self) -> Sequence[K]:
        return self._data.keys

    def caption(self) -> Line:
        return Line((text, self.palette.style(role)) for text, role in self._caption)

    def file_names(self) -> Sequence[str]:
        return ("group", "key", self._data.figure)

    def records(self) -> list[dict[str, object]]:
        """Every value, with the name of its group."""
        names = [name for name, count in self._data.groups for _ in range(count)]
        triples = zip(names, self._data.keys, self._data.values, strict=True)
        return [{"group": name, "key": _key_words(key), self._data.figure: value} for name, key, value in triples]

    def selected_records(self) -> list[dict[str, object]]:
        return [{"line": self._describe(self.selected)}] if self.selected is not None else self.records()

    # --- drawing --------------------------------------------------------------------------------------------------

    def draw_body(self, width: int, height: int) -> list[Strip]:
        data = self._data
        if not data.keys:
            return self.blank(width)
        rows = max(height - 1, 1)
        self._layout = layout_for(len(data.groups), max(count for _, count in data.groups), width, rows)
        lines = [self._row(row) for row in range(self._row_count())][:rows]
        lines += [Line()] * (rows - len(lines))
        return [line.strip(width, self.base) for line in [*lines, self._foot(width)][:height]]

    def _foot(self, width: int) -> Line:
        """What the selected cell is, and the legend."""
        legend = self._data.scale.legend(self.palette)
        style = self.palette.style
        if self.selected is None:
            share = self._layout.share * self._layout.merged
            words = f"each cell is the worst of {share}" if share > 1 else ""
            return spread(Line([(words, style("muted"))]), legend, width, style("text"))
        left = f"{self._left[1]} left; " if self._left is not None else ""
        words = fit(left + self._describe(self.selected), max(width - legend.width - 2, 12)).rstrip()
        return spread(Line([(words, style("text", bold=True))]), legend, width, style("text"))

    def _row_count(self) -> int:
        groups = -(-len(self._data.groups) // self._layout.merged)
        return -(-groups // self._layout.across)

    def _row(self, row: int) -> Line:
        layout, style = self._layout, self.palette.style
        line = Line()
        first = row * layout.across
        count = -(-len(self._data.groups) // layout.merged)
        for place in range(first, min(first + layout.across, count)):
            if layout.labelled:
                name = self._data.label(self._data.groups[place][0])
                line.add(fit_ends(name, LABEL - 1) + " ", style("muted"))
            elif place > first and layout.gap:
                line.add(" " * layout.gap, style("text"))
            for cell in range(layout.span):
                self._add_cell(line, place, cell)
        return line

    def _add_cell(self, line: Line, place: int, cell: int) -> None:
        indices, width = self._indices(place, cell), self._layout.width
        if not indices:
            line.add(" " * width, self.base)
            return
        data = self._data
        known = [value for i in indices if (value := data.values[i]) is not None]
        value = data.scale.of(known) if known else None
        troubled = bool(data.troubled) and any(data.keys[i] in data.troubled for i in indices)
        chosen = self.selected is not None and any(data.keys[i] == self.selected for i in indices)
        text, cell_style = self._cell(value, troubled, width)
        line.add(text, cell_style + Style(reverse=True) if chosen else cell_style)

    def _cell(self, value: float | None, troubled: bool, width: int) -> tuple[str, Style]:
        style, scale = self.palette.style, self._data.scale
        glyph = STATES["bad"] if troubled else UNKNOWN if value is None else SPARKS[scale.level(value) + 1]
        role = "bad" if troubled else "muted" if value is None else f"{scale.ramp}{scale.level(value)}"
        if width == WIDTHS[0]:
            return fit(glyph + " " + scale.words(value), width - 1) + " ", style(role)
        if width == 1:
            return glyph, style(role)
        return (glyph + " " * (width - 1) if troubled or value is None else glyph * (width - 1) + " "), style(role)

    def _indices(self, place: int, cell: int) -> range:
        """The keys that share a cell of a place, by their number."""
        layout = self._layout
        if layout.merged > 1:
            last = min((place + 1) * layout.merged, len(self._data.groups))
            return range(self._starts[place * layout.merged], self._starts[last])
        start, end = self._starts[place], self._starts[place + 1]
        return range(min(start + cell * layout.share, end), min(start + (cell + 1) * layout.share, end))

    # --- selecting ------------------------------------------------------------------------------------------------

    def _place_of_selected(self) -> tuple[int, int] | None:
        """(place, cell) of the selected key."""
        if self.selected is None or self.selected not in self._data.keys:
            return None
        index = self._data.keys.index(self.selected)
        group = next(g for g in range(len(self._data.groups)) if self._starts[g] <= index < self._starts[g + 1])
        if self._layout.merged > 1:
            return group // self._layout.merged, 0
        return group, (index - self._starts[group]) // self._layout.share

    def navigate(self, where: str) -> None:
        """One of left, right, up, down, page_up, page_down, first, last."""
        if not self._data.keys:
            return
        here = self._place_of_selected()
        if here is None or where == "first":
            self.select(self._data.keys[0])
        elif where == "last":
            self.select(self._data.keys[-1])
        elif where in ("left", "right"):
            self._step(here, 1 if where == "right" else -1)
        else:
            rows = {"up": -1, "down": 1, "page_up": -5, "page_down": 5}[where]
            self._jump(here[0] + rows * self._layout.across, here[1])

    def _step(self, here: tuple[int, int], by: int) -> None:
        indices = self._indices(*here)
        target = indices[-1] + 1 if by > 0 else indices[0] - 1
        if 0 <= target < len(self._data.keys):
            self.select(self._data.keys[target])

    def _jump(self, place: int, cell: int) -> None:
        count = -(-len(self._data.groups) // self._layout.merged)
        if not 0 <= place < count:
            return
        for nearest in range(cell, -1, -1):
            if indices := self._indices(place, nearest):
                self.select(self._data.keys[indices[0]])
                return

    def select(self, key: K) -> None:
        before, self.selected, self._left = self.selected, key, None
        self.redraw()
        if before != key:
            self.post_message(self.Selected(self))

    def follow(self, key: K | None) -> None:
        """Another panel's selection."""
        self.selected, self._left = key, None

    def open_selected(self) -> None:
        if self.selected is None:
            self.navigate("first")
        if self.selected is not None:
            self.post_message(self.Opened(self))

    def on_click(self, event: events.Click) -> None:
        x, y = event.x - self.body_left, event.y - self.body_top
        key = self._key_at(x, y)
        if key is not None:
            again = key == self.selected and event.chain > 1
            self.select(key)
            if again:
                self.open_selected()

    def _key_at(self, x: int, y: int) -> K | None:
        layout = self._layout
        if layout.labelled:
            x -= LABEL
        if x < 0 or not 0 <= y < self._row_count():
            return None
        across, inside = divmod(x, layout.span * layout.width + layout.gap)
        place = y * layout.across + across
        if across >= layout.across or place >= -(-len(self._data.groups) // layout.merged):
            return None
        indices = self._indices(place, min(inside // layout.width, layout.span - 1))
        return self._data.keys[indices[0]] if indices else None


def _stands_in(gone: K, before: Sequence[K], there: Collection[K]) -> K | None:
    """The nearest key after it that is still there, or else before it."""
    place = before.index(gone) if gone in before else 0
    return next((key for key in (*before[place:], *reversed(before[:place])) if key in there), None)


def _key_words(key: object) -> str:
    return " ".join(map(str, key)) if isinstance(key, tuple) else str(key)
