"""Splitting raw output into pieces."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distmon.launcher.driver.lines import PART_LIMIT, LineSplitter, Piece


def split(*chunks: bytes) -> list[Piece]:
    splitter = LineSplitter()
    return [piece for chunk in chunks for piece in splitter.feed(chunk)] + splitter.feed(b"", final=True)


@pytest.mark.parametrize(
    ("chunks", "pieces"),
    [
        ([b"a\nb\n"], [("a", "\n"), ("b", "\n")]),
        ([b"a\r\nb"], [("a", "\n"), ("b", "")]),
        ([b"a\r", b"\nb"], [("a", "\n"), ("b", "")]),
        ([b"10%\r20%\r"], [("10%", "\r"), ("20%", "\r")]),
        ([b"\n\n"], [("", "\n"), ("", "\n")]),
        ([b"caf\xc3", b"\xa9\n"], [("café", "\n")]),
        ([b"\xff\n", b"\xc3"], [("�", "\n"), ("�", "")]),
        ([b""], []),
    ],
)
def test_pieces(chunks: list[bytes], pieces: list[Piece]) -> None:
    assert split(*chunks) == pieces


def test_a_line_without_end_is_bounded_and_whole() -> None:
    pieces = split(b"x" * 100_000, b"y\n")
    assert max(len(text) for text, _ in pieces) == PART_LIMIT
    assert "".join(text for text, _ in pieces) == "x" * 100_000 + "y"
    assert [end for _, end in pieces] == [""] * (len(pieces) - 1) + ["\n"]


def test_what_waits_can_be_told_at_once() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"Password? ") == [] and splitter.unfinished
    assert splitter.flush() == [("Password? ", "")] and not splitter.unfinished
    assert splitter.flush() == []
    assert splitter.feed(b"50%\r") == []
    assert splitter.flush() == [("50%", "\r")]


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=6))
def test_cutting_the_stream_anywhere_changes_nothing(data: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(cut for cut in cuts if cut <= len(data)), len(data)]
    assert split(*(data[a:b] for a, b in itertools.pairwise(edges))) == split(data)
