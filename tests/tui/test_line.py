"""Lines of styled pieces: cut, and broken into rows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.style import Style

from distmon.tui.widgets.line import Line, folded

ONE, OTHER = Style(bold=True), Style(dim=True)
PIECES = st.lists(st.tuples(st.text("ab 字", min_size=1, max_size=12), st.sampled_from([ONE, OTHER])), max_size=6)


def text_of(line: Line) -> str:
    return "".join(text for text, _ in line.pieces)


@given(PIECES, st.integers(8, 40), st.integers(1, 4))
def test_a_folded_line_has_all_words_in_their_order(pieces: list[tuple[str, Style]], width: int, rows: int) -> None:
    line = Line(pieces)
    found = folded(line, width, rows, "  ")
    assert 1 <= len(found) <= rows
    assert "".join(map(text_of, found)).replace(" ", "") == text_of(line).replace(" ", "")
    assert all(row.width <= width for row in found[:-1] if len(text_of(row).split()) > 1)
    assert all(text_of(row).startswith("  ") for row in found[1:])


def test_a_line_is_broken_at_a_blank_and_keeps_its_styles() -> None:
    first, second = folded(Line([("rank 1 ", ONE), ("is late by much", OTHER)]), 12, 2, "  ")
    assert first.pieces == [("rank 1 ", ONE), ("is", OTHER)]
    assert text_of(second) == "  late by much"
