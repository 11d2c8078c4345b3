"""Whoever follows a job's recording follows it into the next one when the job is restarted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from distmon.core.events import AnyEvent
from distmon.core.synthetic import Script, session
from distmon.replay.recorder import Recorder
from distmon.tui.app import DistmonApp
from distmon.tui.cli.replay import restarted_in
from distmon.tui.cli.run import numbered

START = 1_700_000_000.0


def recorded(path: Path, start: float) -> float:
    with Recorder(path) as recorder:
        for event in session(Script(ranks=1, nodes=1, seconds=5, start=start)):
            recorder.write(event)
    return event.at


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.zst"])
def test_the_next_recording_is_the_one_that_a_restart_makes(tmp_path: Path, suffix: str) -> None:
    first = tmp_path / f"run-2026-7{suffix}"
    ended = recorded(first, START)
    assert restarted_in(first, ended) is None
    second = numbered(first)
    second.write_bytes(b"")  # as it is before its first line
    assert restarted_in(first, ended) is None
    second.unlink()
    ended_again = recorded(second, ended + 1)
    assert restarted_in(first, ended) == second
    assert restarted_in(second, ended_again) is None
    third = numbered(first)
    recorded(third, ended_again + 1)
    assert restarted_in(second, ended_again) == third


def test_what_was_recorded_before_is_not_followed(tmp_path: Path) -> None:
    recorded(tmp_path / "run-2.jsonl", START - 1_000)
    assert restarted_in(tmp_path / "run.jsonl", recorded(tmp_path / "run.jsonl", START)) is None


class Nothing:
    def poll(self) -> Iterator[AnyEvent]:
        return iter(())


async def test_the_screen_is_left_for_it(tmp_path: Path) -> None:
    found: list[Path] = []
    app = DistmonApp(Nothing(), environment={}, follow=lambda: found[0] if found else None)
    async with app.run_test():
        app.frame()
        assert app.wanted is None
        found.append(tmp_path / "run-2.jsonl")
        app.frame()
        assert app.wanted == found[0]
    assert app.return_value == 0
