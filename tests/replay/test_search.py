"""A line is found wherever it is in the recording, as a look at all lines would find it."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from distmon.core.events import AnyEvent, OutputWritten, SessionStarted, Ticked
from distmon.core.state import OutputLine
from distmon.replay import search
from distmon.replay.open_index import open_index
from distmon.replay.recorder import Recorder
from distmon.replay.search import OutputSearch
from distmon.replay.session_file import open_session

START = 1_000.0
SECONDS = 300


def recorded(path: Path) -> list[OutputLine]:
    """A recording of five minutes; all its lines of output, in order."""
    source, lines = random.Random(1), list[OutputLine]()
    with Recorder(path) as recorder:
        recorder.write(SessionStarted(at=START, session_id="s", distmon_version="0"))
        for second in range(SECONDS):
            events: list[AnyEvent] = []
            for rank in range(3):
                at = START + second + rank / 10
                bad = [source.random() < 0.01 for _ in range(9)]
                texts = [f'step {second} "rank" {rank} loss {"NaN" if is_bad else source.random()}' for is_bad in bad]
                events.append(OutputWritten(at=at, rank=rank, host="h", local_rank=rank, output="stdout", lines=texts))
                lines += [OutputLine(at, rank, "h", "stdout", text) for text in texts]
            for event in [*events, Ticked(at=START + second + 0.9)]:
                recorder.write(event)
    return lines


@pytest.mark.parametrize("name", ["s.jsonl", "s.jsonl.zst"])
@pytest.mark.parametrize("words", [(), [("nan",)], [("nan", "no such word"), ("loss",)]])
def test_the_nearest_line_is_found_in_both_directions(
    name: str, words: Sequence[Sequence[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "BLOCK_BYTES", 2_000)
    lines = [line for line in recorded(tmp_path / name) if "NaN" in line.text]
    session = open_session(tmp_path / name)
    index, source = open_index(session), random.Random(2)
    for _ in range(40):
        at = START + source.uniform(-1, SECONDS + 1)
        looked = OutputSearch(session, index, lambda line: "NaN" in line.text, words)
        assert looked.earlier(at) == next((line for line in reversed(lines) if line.at < at), None)
        assert looked.later(at) == next((line for line in lines if line.at > at), None)
    index.close()


@pytest.mark.parametrize("name", ["s.jsonl", "s.jsonl.zst"])
def test_all_lines_before_a_moment_come_stretch_by_stretch_from_the_latest(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "BLOCK_BYTES", 2_000)
    lines = [line for line in recorded(tmp_path / name) if "1" in line.text]
    session = open_session(tmp_path / name)
    index, source = open_index(session), random.Random(3)
    for _ in range(10):
        place = source.randrange(len(lines))
        at = lines[place].at
        known = sum(line.at == at for line in lines[place:])
        stretches = list(OutputSearch(session, index, lambda line: "1" in line.text).back_from(at, known))
        found = [line for stretch in reversed(stretches) for line in stretch.lines]
        assert found == lines[:place] and stretches[-1].since == -math.inf
        for later, earlier in pairwise(stretches):
            assert all(line.at <= later.since for line in earlier.lines)
    index.close()


def test_one_that_is_cancelled_gives_up_at_once(tmp_path: Path) -> None:
    recorded(tmp_path / "s.jsonl")
    session = open_session(tmp_path / "s.jsonl")
    index, asked = open_index(session), list[OutputLine]()

    def passes(line: OutputLine) -> bool:
        asked.append(line)
        looked.cancel()
        return False

    looked = OutputSearch(session, index, passes)
    assert looked.later(START) is None
    assert len(asked) <= 9
    index.close()
