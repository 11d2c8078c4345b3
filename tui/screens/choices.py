"""What the user has chosen to see: everything about a screen that is not in the session."""

from __future__ import annotations

from dataclasses import dataclass, field

from distmon.tui.view import nodes, ranks
from distmon.tui.view.details import Subject

SORTS = {"ranks": ranks.SORTS, "nodes": nodes.SORTS}
ASCENDING = ("rank", "node", "host", "state")
"""Columns that begin in ascending order; figures begin with the largest."""


@dataclass
class Choices:
    focused: str = "ranks"
    zoomed: str | None = None
    details: Subject | None = None
    window: int = 0
    """Index of the chart's time window."""
    sorts: dict[str, tuple[str, bool]] = field(
        default_factory=lambda: {"ranks": ("rank", False), "nodes": ("node", False)}
    )
    """Column and whether it descends, per table."""
    filters: dict[str, str] = field(default_factory=dict)
    only_rank: int | None = None
    prompting: bool = False
    helping: bool = False
    question: str = ""
    note: str = ""

    def next_sort(self, panel: str) -> None:
        columns = SORTS[panel]
        column = (
            columns[(columns.index(self.sorts[panel][0]) + 1) % len(columns)]
            if self.sorts[panel][0] in columns
            else columns[0]
        )
        self.sorts[panel] = (column, column not in ASCENDING)

    def reverse_sort(self, panel: str) -> None:
        column, descending = self.sorts[panel]
        self.sorts[panel] = (column, not descending)

    def sort_by(self, panel: str, column: str) -> None:
        """A click on a column: sort by it, or reverse when it is the one already."""
        if self.sorts[panel][0] == column:
            self.reverse_sort(panel)
        else:
            self.sorts[panel] = (column, column not in ASCENDING)

    @property
    def filter_target(self) -> str:
        """The panel that a filter applies to: the focused one, or the output where that has no lines to filter."""
        return self.focused if self.focused in ("ranks", "nodes", "events", "output") else "output"
