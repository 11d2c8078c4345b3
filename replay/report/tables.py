"""What a report for people consists of, once for plain text, Markdown and HTML: titled sections of facts, tables and lines."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Table:
    """The first column is text, the others are aligned to the right unless named in `left`."""

    header: list[str]
    rows: list[list[str]]
    left: tuple[int, ...] = (0,)
    brief: tuple[int, ...] | None = None
    """Rows of a long table that text and Markdown show, in order; None: all."""

    def in_brief(self) -> list[list[str]]:
        """The rows of `brief`, with a row of … for those that are left out in between."""
        if self.brief is None:
            return self.rows
        shown, following = [], 0
        for index in self.brief:
            if index > following:
                shown.append(["…", *[""] * (len(self.header) - 1)])
            shown.append(self.rows[index])
            following = index + 1
        return shown


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    facts: list[tuple[str, str]] = field(default_factory=list)
    table: Table | None = None
    lines: list[str] = field(default_factory=list)
