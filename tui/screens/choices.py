"""What the user has chosen to see of one screen: everything about it that is not in the session."""

from __future__ import annotations

from dataclasses import dataclass, field

from distmon.tui.view.details import Subject

ASCENDING = (
    "rank", "node", "host", "state", "as listed", "run", "name", "kind", "who", "text", "command", "measure", "generation",
    "device", "cause", "time", "slot", "end",
)  # fmt: skip
"""Columns that begin in ascending order; figures begin with the largest."""


@dataclass
class Choices:
    focused: str = ""
    zoomed: str | None = None
    details: Subject | None = None
    window: int = 0
    """Index of the charts' time window."""
    end: float | None = None
    """Where that window ends; None follows the session."""
    log: bool = False
    """Whether charts have a logarithmic value axis."""
    sorts: dict[str, tuple[str, bool]] = field(default_factory=dict)
    """Column and whether it descends, per table."""
    filters: dict[str, str] = field(default_factory=dict)
    only_rank: int | None = None
    problems: bool = False
    """Only rows that need a look."""
    metric: int = 0
    """Which measure the heat maps show, by its number on the screen."""

    def next_sort(self, panel: str, columns: tuple[str, ...]) -> None:
        column = (
            columns[(columns.index(self.sorts[panel][0]) + 1) % len(columns)]
            if self.sorts[panel][0] in columns
            else columns[0]
        )
        self.sorts[panel] = (column, column not in ASCENDING)

    def reverse_sort(self, panel: str, columns: tuple[str, ...] = ()) -> None:
        column, descending = self.sorts[panel]
        self.sorts[panel] = (column, not descending)

    def sort_by(self, panel: str, column: str) -> None:
        """A click on a column: sort by it, or reverse when it is the one already."""
        if self.sorts[panel][0] == column:
            self.reverse_sort(panel)
        else:
            self.sorts[panel] = (column, column not in ASCENDING)
