"""Sections as plain text for a terminal and as Markdown."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence

from distmon.core.printable import cells
from distmon.replay.report.tables import Section, Table

WIDTH = 118
_GAP = "  "
_NARROWEST = 8
"""Of a header whose words stand below one another."""


def to_text(sections: list[Section], width: int = WIDTH, columns: int | None = None) -> str:
    """Plain text, ended by a line end. Sentences are wrapped at `width` cells.

    Tables are as wide as their rows are; where that is more than the `columns` of a terminal they go on below, with their first
    column again.
    """
    blocks = []
    for section in sections:
        lines = textwrap.wrap(section.title.upper(), width)
        indent = "  " if section.title else ""
        label_width = max((len(label) for label, _ in section.facts), default=0)
        for label, value in section.facts:
            lines += _wrapped(f"{indent}{label:<{label_width}}  ", value, width)
        for line in section.lines:
            lines += _wrapped(indent, line, width)
        if section.table:
            most = None if columns is None else columns - len(indent)
            lines += [(indent + line).rstrip() for line in _text_table(section.table, width - len(indent), most)]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def _wrapped(start: str, text: str, width: int) -> list[str]:
    body = text.lstrip()
    start += text[: len(text) - len(body)]
    return textwrap.wrap(
        body, width, initial_indent=start, subsequent_indent=" " * len(start), break_long_words=False, break_on_hyphens=False
    ) or [start.rstrip()]


def _text_table(table: Table, width: int, most: int | None) -> list[str]:
    """Where the header makes it wider than `width`, its words stand below one another; in parts that are no wider than `most`."""
    body = table.in_brief()
    rows = [table.header, *body]
    if _wide(rows) > width:
        rows = [*_stacked(table.header, body), *body]
    if most is None or _wide(rows) <= most:
        return _aligned(rows, range(len(table.header)), table.left)
    widths, lines = _widths(rows), list[str]()
    for part in _parts(widths, most):
        shown = [[row[column] for column in part] for row in rows]
        left = tuple(place for place, column in enumerate(part) if column in table.left)
        room = most - widths[0] - len(_GAP)
        if len(part) == 2 and widths[part[1]] > room >= _NARROWEST:
            shown = [line for key, text in shown for line in _folded(key, text, room)]
        lines += [""] * bool(lines) + [_cut(line, most) for line in _aligned(shown, range(len(part)), left)]
    return lines


def _folded(key: str, text: str, room: int) -> Iterator[list[str]]:
    """Rows of a column that alone is too wide for a terminal, its words below one another."""
    for place, line in enumerate(textwrap.wrap(text, room) or [""]):
        yield ["" if place else key, line]


def _widths(rows: list[list[str]]) -> list[int]:
    return [max(map(cells, column)) for column in zip(*rows, strict=True)]


def _wide(rows: list[list[str]]) -> int:
    widths = _widths(rows)
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _parts(widths: list[int], most: int) -> Iterator[list[int]]:
    """The columns of each part: the first one, and as many of the others as there is room for, one at least."""
    part, used = [0], widths[0]
    for column, width in enumerate(widths[1:], 1):
        if len(part) > 1 and used + len(_GAP) + width > most:
            yield part
            part, used = [0], widths[0]
        part.append(column)
        used += len(_GAP) + width
    yield part


def _aligned(rows: list[list[str]], part: Sequence[int], left: tuple[int, ...]) -> list[str]:
    """Lines of some columns. What a stacked header has above all of them is no line."""
    widths, lines = _widths(rows), []
    for row in rows:
        padded = []
        for column in part:
            gap = " " * (widths[column] - cells(row[column]))
            padded.append(row[column] + gap if column in left else gap + row[column])
        if line := _GAP.join(padded).rstrip():
            lines.append(line)
    return lines


def _cut(line: str, most: int) -> str:
    """Of a terminal that is too narrow for two columns, what fits."""
    if cells(line) <= most:
        return line
    while cells(line) > most - 1:
        line = line[:-1]
    return line + "…"


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
