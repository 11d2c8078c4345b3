"""`--slow-link` goes with every verb and stays out of the training's own words."""

from __future__ import annotations

import os

import pytest

from distmon.tui.app import SLOW_FRAME_S, DistmonApp
from distmon.tui.cli.main import _without_screen_flags
from distmon.tui.ports import Source


@pytest.mark.parametrize(
    ("words", "left", "slow"),
    [
        (["run", "--slow-link", "-np", "2", "--", "x"], ["run", "-np", "2", "--", "x"], True),
        (["--slow-link"], [], True),
        (["run", "--", "train", "--slow-link"], ["run", "--", "train", "--slow-link"], False),
        (["replay", "s"], ["replay", "s"], False),
    ],
)
def test_the_flag_is_taken_before_the_command_only(
    monkeypatch: pytest.MonkeyPatch, words: list[str], left: list[str], slow: bool
) -> None:
    monkeypatch.setenv("DISTMON_SLOW_LINK", "")
    assert _without_screen_flags(words) == left
    assert (os.environ["DISTMON_SLOW_LINK"] == "1") is slow


class Nothing(Source):
    def poll(self):  # type: ignore[no-untyped-def]
        return iter(())


def test_a_slow_link_gets_a_frame_every_few_seconds() -> None:
    assert DistmonApp(Nothing(), environment={"DISTMON_SLOW_LINK": "1"})._spacing_s == SLOW_FRAME_S
    assert DistmonApp(Nothing(), environment={})._spacing_s == 0
