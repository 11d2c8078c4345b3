"""Building one line of cells from styled pieces."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from distmon.tui.format import fit

Piece = tuple[str, Style]
"""Printable text and how it looks. User-made text has been through `clean` before it becomes a piece."""


def cells(text: str) -> int:
    """How many terminal cells the text takes."""
    return len(text) if text.isascii() else cell_len(text)


class Line:
    """A line under construction; `width` is what it takes so far."""

    def __init__(self, pieces: Iterable[Piece] = ()) -> None:
        self.pieces: list[Piece] = []
        self.width = 0
        for text, style in pieces:
            self.add(text, style)

    def add(self, text: str, style: Style) -> Line:
        if text:
            pieces = self.pieces
            if pieces and pieces[-1][1] is style:
                pieces[-1] = pieces[-1][0] + text, style
            else:
                pieces.append((text, style))
            self.width += len(text) if text.isascii() else cell_len(text)
        return self

    def extend(self, other: Line) -> Line:
        self.pieces.extend(other.pieces)
        self.width += other.width
        return self

    def pad(self, width: int, style: Style, fill: str = " ") -> Line:
        """Fill up to `width` cells."""
        return self.add(fill * (width - self.width), style)

    def strip(self, width: int, style: Style) -> Strip:
        """The finished line in exactly `width` cells, cut with an ellipsis where it is too long."""
        if self.width > width:
            return cut(self, width).strip(width, style)
        self.pad(width, style)
        return Strip([Segment(text, piece_style) for text, piece_style in self.pieces], width)


def cut(line: Line, width: int) -> Line:
    """The line's first `width` cells, the last of them an ellipsis; a line that fits is left as it is."""
    if line.width <= width:
        return line
    result = Line()
    for text, style in line.pieces:
        room = width - result.width
        if cells(text) >= room:
            return result.add(fit(text + "  ", room), style)
        result.add(text, style)
    return result


def folded(line: Line, width: int, rows: int, indent: str = "") -> list[Line]:
    """The line in so many rows at most, broken at blanks, and the last one cut where that is too few; later ones are indented."""
    done, row = list[Line](), Line()
    for word, style in ((word, style) for text, style in line.pieces for word in re.findall(r"\s*\S+|\s+$", text)):
        if len(done) < rows - 1 and row.width + cells(word) > width:
            done.append(row)
            row, word = Line([(indent, style)]), word.lstrip()
        row.add(word, style)
    return [*done, row]


def spread(left: Line, right: Line, width: int, style: Style) -> Line:
    """`left` and `right` at the two ends of `width` cells; the right end gives way first when there is no room for both."""
    if left.width + right.width + 1 > width:
        return left
    return Line(left.pieces).pad(width - right.width, style).extend(right)
