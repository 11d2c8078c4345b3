"""Moments as people write them, and what is said of what names none."""

from __future__ import annotations

import math
from typing import Any

import pytest

from distmon.core.errors import UsageError
from distmon.core.synthetic import Script, session
from distmon.tui.moment import MOMENTS, moment_named, seconds_of
from tests.tui.conftest import FakePlayer


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90.0), ("1:30", 90.0), (" 1:00:00 ", 3600.0), ("step:5", 2.5), ("Step: 5", 2.5), ("END", math.inf)],
)
def test_a_moment_is_understood(text: str, seconds: float) -> None:
    player: Any = FakePlayer(list(session(Script(ranks=2, nodes=1, seconds=60))))
    assert moment_named(text)(player) == seconds


@pytest.mark.parametrize("text", ["1:75", "1:60:00", "-5", "soon", "5:", "end:1", ""])
def test_what_is_no_moment_is_told_with_all_forms(text: str) -> None:
    with pytest.raises(UsageError, match=f"^{text}: give {MOMENTS}$"):
        moment_named(text)


@pytest.mark.parametrize(("text", "words"), [("step:x", "step's number"), ("2026-13-01", "date and time")])
def test_what_is_half_a_moment_is_told_what_is_missing(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        moment_named(text)


def test_minutes_and_seconds_go_to_59() -> None:
    assert seconds_of("75") == 75.0 and seconds_of("1:59:59.5") == 7199.5
    for text in ("1:60", "1:60:00"):
        with pytest.raises(UsageError):
            seconds_of(text)
