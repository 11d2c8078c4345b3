"""User-made text cannot speak to the terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distmon.core.printable import clean


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain", "plain"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]52;c;aGFjaw==\x1b\\copy", "copy"),
        ("\x9b31mc1", "c1"),
        ("bell\x07back\x08", "bellback"),
        ("a\tb", "a   b"),
        ("right\u202eto left", "rightto left"),
        ("[red]markup[/red] nœud-ü", "[red]markup[/red] nœud-ü"),
        ("two\nlines", "twolines"),
        ("\x1bPdevice control", ""),
    ],
)
def test_clean(raw: str, shown: str) -> None:
    assert clean(raw) == shown


@given(st.text(max_size=200))
def test_clean_leaves_nothing_that_a_terminal_obeys(text: str) -> None:
    cleaned = clean(text)
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in cleaned)
    assert clean(cleaned) == cleaned
