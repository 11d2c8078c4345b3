"""The session that comes with distmon: a real run of two ranks, that loads without a word and has something to show."""

from argparse import Namespace
from pathlib import Path

import pytest

from distmon.core import measures
from distmon.core.verdicts import verdicts
from distmon.core.wall import wall_split
from distmon.replay.paths import demo_session
from distmon.replay.player import Player
from distmon.replay.session_file import SessionFile, load_state, open_session
from distmon.tui.cli import replay


def test_it_loads_whole() -> None:
    state, notes = load_state(demo_session())
    assert notes.sentences() == []
    assert state.complete
    assert state.job.exit_code == 0
    generation = measures.current_generation(state)
    assert generation is not None
    assert sorted(generation.ranks) == [0, 1]
    assert measures.throughput(generation).median is not None
    wall = wall_split(state)
    assert wall is not None
    assert abs(wall.unexplained) < 0.02 * (measures.elapsed(state) or 0.0)


def test_it_is_small_and_minutes_long() -> None:
    assert demo_session().stat().st_size < 1 << 20
    player = Player(open_session(demo_session()))
    assert 120 < player.duration_s < 600
    player.close()


@pytest.mark.parametrize(("asked", "begins"), [(None, replay.DEMO_FROM_S), ("0", 0.0), ("1:30", 90.0)])
def test_it_is_shown_from_where_there_is_something_to_see(
    monkeypatch: pytest.MonkeyPatch, asked: str | None, begins: float
) -> None:
    shown: list[float] = []

    def play(session: SessionFile, speed: float, start: float, at: str | None, beside: Path | None) -> int:
        shown.append(start)
        return 0

    monkeypatch.setattr(replay, "can_show_app", lambda: True)
    monkeypatch.setattr(replay, "go_on", lambda code: code)
    monkeypatch.setattr(replay, "_play", play)
    assert replay.run(Namespace(session=None, demo=True, speed=1.0, start=asked, at=None, against=None)) == 0
    assert shown == [begins]


def test_where_it_begins_training_runs_and_what_holds_it_back_is_found() -> None:
    player = Player(open_session(demo_session()))
    player.seek(replay.DEMO_FROM_S)
    state = player.take_state()
    player.close()
    assert state is not None and measures.rolling_throughput(state) is not None
    assert [verdict.kind for verdict in verdicts(state)] == ["cpu_oversubscribed"]
