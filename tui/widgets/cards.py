"""Rows several lines high, in as many columns as fit: one card per node."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from textual.strip import Strip

from distmon.tui.theme import Palette
from distmon.tui.widgets.line import Line
from distmon.tui.widgets.rows import Cell, RowsPanel

K = TypeVar("K", bound=Hashable)
CardWriter = Callable[[K, Palette, int, int, bool], Sequence[Line]]
"""Lines of one card: key, palette, width, height, selected."""


class Cards(RowsPanel[K]):
    """Cards of equal height, one below the other; the height follows the space and the number of cards."""

    def __init__(self, title: str, number: int, heights: Sequence[int], *, empty: str, id: str | None = None) -> None:
        super().__init__(title, number, empty=empty, id=id)
        self._heights = tuple(sorted(heights, reverse=True))
        """Heights that a card can be written in."""
        self._write: CardWriter[K] = lambda key, palette, width, height, selected: ()

        self._stamp: Callable[[K], object] | None = None
        self._written: dict[K, tuple[object, list[Strip]]] = {}

    def show(
        self,
        keys: Sequence[K],
        write: CardWriter[K],
        caption: Sequence[Cell] = (),
        stamp: Callable[[K], object] | None = None,
    ) -> None:
        """`stamp` says what a card's looks depend on: while it stays the same the card is not written again."""
        self._write, self._stamp = write, stamp
        self.take(keys, caption)

    def draw_body(self, width: int, height: int) -> list[Strip]:
        keys = self.model.keys
        self.row_height = self._fitting_height(len(keys), height)
        self.model.resize(height // self.row_height)
        if not keys:
            return self.blank(width)
        cards = {key: self._card(key, width) for key in self.model.in_view()}
        self._written = cards
        return [strip for _, strips in cards.values() for strip in strips]

    def _card(self, key: K, width: int) -> tuple[object, list[Strip]]:
        """What the card's looks depend on, and its lines."""
        selected = key == self.model.selected
        stamp = (self._stamp(key) if self._stamp else object(), selected, width, self.row_height, self.palette)
        before = self._written.get(key)
        if before is not None and before[0] == stamp:
            return before
        blank = self.palette.style("text", selected=selected)
        card = list(self._write(key, self.palette, width, self.row_height, selected))[: self.row_height]
        card.extend(Line() for _ in range(self.row_height - len(card)))
        return stamp, [line.strip(width, blank) for line in card]

    def _fitting_height(self, count: int, height: int) -> int:
        """The tallest card with which all of them are in view, or else the lowest."""
        for candidate in self._heights:
            if candidate * count <= height:
                return candidate
        return min(self._heights[-1], max(height, 1))
