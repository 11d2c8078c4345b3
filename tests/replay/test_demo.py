"""The session that comes with distmon: a real run of two ranks, that loads without a word and has something to show."""

from distmon.core import measures
from distmon.core.wall import wall_split
from distmon.replay.paths import demo_session
from distmon.replay.player import Player
from distmon.replay.session_file import load_state, open_session


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
