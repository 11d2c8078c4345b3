"""Sections as plain text for a terminal and as Markdown."""

from __future__ import annotations

import re
import textwrap

from distmon.core.printable import cells
from distmon.replay.report.tables import Section, Table

WIDTH = 118
_NARROWEST = 8
"""Of a header whose words stand below one another."""


def to_text(sections: list[Section], width: int = WIDTH) -> str:
    """Plain text, ended by a line end. Sentences are wrapped at `width` cells; tables are as wide as their rows are."""
    blocks = []
    for section in sections:
        lines = [section.title.upper()] if section.title else []
        indent = "  " if section.title else ""
        label_width = max((len(label) for label, _ in section.facts), default=0)
        for label, value in section.facts:
            lines += _wrapped(f"{indent}{label:<{label_width}}  ", value, width)
        for line in section.lines:
            lines += _wrapped(indent, line, width)
        if section.table:
            lines += [indent + line for line in _text_table(section.table, width - len(indent))]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def _wrapped(start: str, text: str, width: int) -> list[str]:
    body = text.lstrip()
    start += text[: len(text) - len(body)]
    return textwrap.wrap(
        body, width, initial_indent=start, subsequent_indent=" " * len(start), break_long_words=False, break_on_hyphens=False
    ) or [start.rstrip()]


def _text_table(table: Table, width: int) -> list[str]:
    """Where the header makes it wider than `width`, its words stand below one another."""
    body = table.in_brief()
    rows = [table.header, *body]
    if sum(max(cells(row[i]) for row in rows) + 2 for i in range(len(table.header))) - 2 > width:
        rows = [*_stacked(table.header, body), *body]
    widths = [max(cells(row[i]) for row in rows) for i in range(len(table.header))]
    lines = []
    for row in rows:
        missing = [" " * (width - cells(cell)) for cell, width in zip(row, widths, strict=True)]
        padded = [cell + gap if i in table.left else gap + cell for i, (cell, gap) in enumerate(zip(row, missing, strict=True))]
        lines.append("  ".join(padded).rstrip())
    return lines


def _stacked(header: list[str], body: list[list[str]]) -> list[list[str]]:
    """Rows of a header whose words keep to the width that the body has anyway, the last ones above it."""
    stacked = [
        textwrap.wrap(name, max([_NARROWEST, *(cells(row[i]) for row in body)]), break_long_words=False, break_on_hyphens=False)
        for i, name in enumerate(header)
    ]
    most = max(len(lines) for lines in stacked)
    padded = [[""] * (most - len(lines)) + lines for lines in stacked]
    return [list(row) for row in zip(*padded, strict=True)]


def to_markdown(sections: list[Section], level: int = 2) -> str:
    """Markdown in which nothing of the session's own text is markup."""
    blocks = []
    for section in sections:
        if section.title:
            blocks.append(f"{'#' * level} {section.title}")
        if section.facts:
            rows = [[label, value] for label, value in section.facts]
            blocks.append(_markdown_table(Table(["", ""], rows, left=(0, 1))))
        if section.lines:
            blocks.append("\n".join(f"- {escaped(line.strip())}" for line in section.lines))
        if section.table:
            blocks.append(_markdown_table(section.table))
    return "\n\n".join(blocks) + "\n"


def _markdown_table(table: Table) -> str:
    rule = ["---" if i in table.left else "---:" for i in range(len(table.header))]
    rows = [[escaped(cell.strip()) for cell in row] for row in [table.header, *table.in_brief()]]
    return "\n".join("| " + " | ".join(row) + " |" for row in [rows[0], rule, *rows[1:]])


def escaped(text: str) -> str:
    """Text of which nothing is Markdown's markup."""
    return re.sub(r"([\\`*\[\]<>|~]|(?<!\w)_|_(?!\w))", r"\\\1", text)
