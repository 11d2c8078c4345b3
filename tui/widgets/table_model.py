"""Which row is selected and which rows are in view: by identity, never by row number."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass
class TableModel(Generic[K]):
    """The rows' keys in order, the selected key and the first row in view.

    The selection follows its row through every refresh. When that row leaves, the row that moves into its place is selected
    and `departed` names what left, once.
    """

    keys: list[K] = field(default_factory=list)
    selected: K | None = None
    top: int = 0
    visible: int = 1 << 20
    """Rows that there is room for; before that is known, as many as one likes."""
    departed: K | None = None

    def refresh(self, keys: Sequence[K]) -> None:
        """Take the new order; the view moves only as far as the selected row needs to stay in it."""
        new = list(keys)
        if new == self.keys:
            return
        was_in_view = self._in_view()
        old_keys, self.keys = self.keys, new
        if self.selected is not None and self.selected not in set(new):
            self.departed = self.selected
            self.selected = _neighbour(old_keys, set(new), self.selected)
        self.top = self._clamped(self.top)
        if was_in_view:
            self.reveal()

    def move(self, rows: int) -> None:
        """Move the selection; without one, the first row in view is taken."""
        if not self.keys:
            return
        index = self.index()
        target = self.top if index is None else index + rows
        self.select(self.keys[min(max(target, 0), len(self.keys) - 1)])

    def select(self, key: K) -> None:
        if key in self.keys:
            self.selected = key
            self.departed = None
            self.reveal()

    def scroll(self, rows: int) -> None:
        """Move the view and leave the selection alone."""
        self.top = self._clamped(self.top + rows)

    def resize(self, visible: int) -> None:
        was_in_view = self._in_view()
        self.visible = max(visible, 1)
        self.top = self._clamped(self.top)
        if was_in_view:
            self.reveal()

    def reveal(self) -> None:
        """Scroll as little as needed for the selected row to be in view."""
        index = self.index()
        if index is None:
            return
        if index < self.top:
            self.top = index
        elif index >= self.top + self.visible:
            self.top = index - self.visible + 1

    def index(self) -> int | None:
        return self.keys.index(self.selected) if self.selected in self.keys else None

    def in_view(self) -> list[K]:
        return self.keys[self.top : self.top + self.visible]

    def _in_view(self) -> bool:
        index = self.index()
        return index is not None and self.top <= index < self.top + self.visible

    def _clamped(self, top: int) -> int:
        return max(0, min(top, len(self.keys) - self.visible))


def _neighbour(old_keys: Sequence[K], remaining: set[K], departed: K) -> K | None:
    """The next of the old rows that is still there, or else the one before."""
    index = old_keys.index(departed) if departed in old_keys else len(old_keys)
    for key in (*old_keys[index + 1 :], *reversed(old_keys[:index])):
        if key in remaining:
            return key
    return None
