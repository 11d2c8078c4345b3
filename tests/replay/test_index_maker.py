"""A recording without an index is shown at once: played from its beginning, and sought in as far as its index has come."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import IO

import pytest

from distmon.core.errors import DistmonError
from distmon.core.fold import apply
from distmon.core.measures import steps
from distmon.core.state import SessionState
from distmon.core.synthetic import Script, session
from distmon.replay.build_index import build_index
from distmon.replay.index import Index, index_path
from distmon.replay.index_maker import MadeMeanwhile
from distmon.replay.open_index import open_index
from distmon.replay.player import NotReadYet, Player
from distmon.replay.recorder import Recorder
from distmon.replay.session_file import open_session
from tests.held_maker import HeldMaker

SCRIPT = Script(ranks=8, nodes=2, seconds=150)
EVENTS = list(session(SCRIPT))
LENGTH_S = max(event.at for event in EVENTS) - SCRIPT.start
LIMIT_S = 60.0


@pytest.fixture(scope="module", params=["s.jsonl", "s.jsonl.zst"])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded") / str(request.param)
    with Recorder(path) as recorder:
        for event in EVENTS:
            recorder.write(event)
    return path


@pytest.fixture
def path(recorded: Path, tmp_path: Path) -> Path:
    """In a folder where nothing else lies; it has no index."""
    found = tmp_path / "folder" / recorded.name
    found.parent.mkdir()
    found.hardlink_to(recorded)
    return found


@pytest.fixture
def opened(path: Path) -> Iterator[Callable[[], Index]]:
    """Opens the index at once; what is open is closed in the end."""
    found: list[Index] = []

    def open_at_once() -> Index:
        found.append(open_index(open_session(path), at_once=True))
        return found[-1]

    yield open_at_once
    for index in found:
        index.close()


def wait(index: Index, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < deadline
        index.wait()


def played(player: Player, state: SessionState) -> SessionState:
    """What the app does: the state that a seek left, once it is there, and the events that follow."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        state = player.take_state() or state
        if not player.busy:
            break
        assert time.monotonic() < deadline
    for event in player.poll():
        apply(state, event)
    return state


def folded(until_s: float) -> SessionState:
    state = SessionState()
    for event in takewhile(lambda event: event.at <= SCRIPT.start + until_s, EVENTS):
        apply(state, event)
    return state


def test_before_there_is_any_index_it_plays_and_goes_back_in_what_was_played(
    path: Path, opened: Callable[[], Index], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker, now = HeldMaker(tmp_path, 0.0, monkeypatch), 0.0
    index = opened()
    player = Player(open_session(path), clock=lambda: now, index=index)
    assert player.duration_s == pytest.approx(LENGTH_S) and player.unread == "0% of the recording is read so far"
    now = 30.2
    assert played(player, SessionState()) == folded(30.2)
    player.seek(player.duration_s)
    assert player.position_s == pytest.approx(30.2)
    player.seek(10.0)
    assert player.busy, "it may be far from what is known: keys are answered meanwhile"
    assert played(player, SessionState()) == folded(10.0)
    with pytest.raises(NotReadYet, match="0% of the recording"):
        player.position_of_step(20)
    with pytest.raises(NotReadYet, match="no mark 'x' yet"):
        player.position_of_mark("x")
    maker.let_go()
    wait(index, lambda: not player.unread)
    player.seek(player.duration_s)
    assert played(player, SessionState()) == folded(LENGTH_S)
    player.close()


@pytest.mark.parametrize("share", [0.4, 0.77])
def test_what_is_there_of_an_index_serves_and_the_rest_comes(
    path: Path, opened: Callable[[], Index], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    whole = build_index(open_session(path))
    index_path(path).unlink()
    maker = HeldMaker(tmp_path, share, monkeypatch)
    index = opened()
    wait(index, lambda: index.keyframes > 0)
    player = Player(open_session(path), clock=lambda: 0.0, index=index)
    reach_s = player.reach_s
    assert 10.0 < reach_s < LENGTH_S - 10.0
    assert player.unread == f"{int(100 * reach_s / LENGTH_S)}% of the recording is read so far"
    assert index.keyframes < whole.keyframes
    for wanted_s in (reach_s, 0.6 * reach_s, 5.0):
        player.seek(wanted_s)
        assert played(player, SessionState()) == folded(wanted_s)
    player.seek(LENGTH_S)
    assert player.position_s == reach_s
    width_s, points = player.pace
    assert points and points[-1].at + width_s < SCRIPT.start + LENGTH_S - 10.0
    last = steps(folded(LENGTH_S))
    with pytest.raises(NotReadYet, match="up to step"):
        player.position_of_step(last)
    player.set_by_step(True)
    maker.let_go()
    wait(index, lambda: not player.unread)
    assert player.reach_s == player.duration_s == pytest.approx(LENGTH_S)
    assert player.pace == (whole.pace.width_s, whole.pace.points)
    assert list(index.seconds()) == list(whole.seconds()) and index.moments == whole.moments
    player.seek(player.position_of_step(last))
    assert steps(played(player, SessionState())) == last
    player.close()
    whole.close()


def test_by_step_it_plays_no_further_than_steps_are_known(
    path: Path, opened: Callable[[], Index], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker, now = HeldMaker(tmp_path, 0.4, monkeypatch), 0.0
    index = opened()
    wait(index, lambda: index.keyframes > 0)
    player = Player(open_session(path), clock=lambda: now, index=index)
    player.set_by_step(True)
    now = 1e6
    played(player, SessionState())
    assert player.position_s == player.reach_s < LENGTH_S - 10.0 and player.playing
    maker.let_go()
    wait(index, lambda: not player.unread)
    now = 2e6
    played(player, SessionState())
    assert player.position_s == pytest.approx(LENGTH_S) and not player.playing
    player.close()


def test_once_whole_it_lies_beside_the_recording_and_the_next_opening_has_it(path: Path, opened: Callable[[], Index]) -> None:
    index = opened()
    assert isinstance(index, MadeMeanwhile)
    wait(index, lambda: index.finish is not None)
    index.close()
    assert {file.name for file in path.parent.iterdir()} == {path.name, index_path(path).name}
    again = opened()
    assert not isinstance(again, MadeMeanwhile) and again.keyframes == index.keyframes > 1


def test_who_leaves_before_leaves_nothing_behind(
    path: Path, opened: Callable[[], Index], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    HeldMaker(tmp_path, 0.4, monkeypatch)
    index = opened()
    assert isinstance(index, MadeMeanwhile)
    assert len(list(path.parent.iterdir())) == 2
    index.close()
    assert index._maker.returncode is not None
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_folder_that_cannot_be_written_costs_only_the_index_on_disk(
    path: Path, opened: Callable[[], Index], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> IO[bytes]:
        raise PermissionError

    monkeypatch.setattr("tempfile.NamedTemporaryFile", refused)
    index = opened()
    wait(index, lambda: index.finish is not None)
    player = Player(open_session(path), clock=lambda: 0.0, index=index)
    player.seek(100.0)
    assert played(player, SessionState()) == folded(100.0)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    player.close()


def test_an_index_that_cannot_be_made_leaves_what_there_is_of_it_and_says_why(
    path: Path, opened: Callable[[], Index], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    HeldMaker(tmp_path, 0.4, monkeypatch)
    index = opened()
    assert isinstance(index, MadeMeanwhile)
    wait(index, lambda: index.keyframes > 0)
    player = Player(open_session(path), clock=lambda: 0.0, index=index)
    reach_s = player.reach_s
    index._maker.kill()
    with pytest.raises(DistmonError, match="its index could not be made"):
        wait(index, lambda: False)
    assert player.unread.endswith("was read (its index could not be made: its process was ended)") and player.notes
    player.seek(LENGTH_S)
    assert player.position_s == reach_s and played(player, SessionState()) == folded(reach_s)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    player.close()


def test_what_the_maker_could_not_do_is_said_in_its_words(
    path: Path, opened: Callable[[], Index], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = tmp_path / "python"
    failing.write_text("#!/bin/sh\necho 'No space left on device' >&2\nexit 1\n")
    failing.chmod(0o700)
    monkeypatch.setattr("distmon.replay.index_maker.sys.executable", str(failing))
    index = opened()
    with pytest.raises(DistmonError, match="its index could not be made: No space left on device"):
        wait(index, lambda: False)


def test_the_maker_says_in_one_line_what_is_wrong(path: Path, tmp_path: Path) -> None:
    gone = tmp_path / "gone.jsonl"
    for recording, output, says in ((gone, "/dev/null", f"{gone}: no such file"), (path, "/dev/full", "No space left on device")):
        command = [sys.executable, "-P", "-m", "distmon.replay.index_maker", str(recording), ""]
        with Path(output).open("wb") as out:
            pipe = subprocess.PIPE
            with subprocess.Popen(command, stdin=pipe, stdout=out, stderr=pipe) as maker:
                assert maker.stderr is not None and maker.stderr.read().decode() == f"{says}\n"
        assert maker.returncode == 1


def test_the_maker_ends_when_nobody_reads_on(path: Path, tmp_path: Path) -> None:
    """As when the viewer was killed: its end of the pipe is gone."""
    scratch = tmp_path / "scratch"
    command = [sys.executable, "-P", "-m", "distmon.replay.index_maker", str(path), str(scratch)]
    with scratch.open("wb") as out:
        assert subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, timeout=LIMIT_S).returncode == 0
    assert not scratch.exists()


def test_the_end_is_told_from_the_last_lines_of_a_recording_that_is_cut(path: Path, tmp_path: Path) -> None:
    cut = tmp_path / path.name
    for share in (1.0, 0.9, 0.5):
        cut.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
        whole = build_index(open_session(cut))
        assert open_session(cut).last_time() == pytest.approx(whole.end, abs=1.5)
        whole.close()


def test_one_whose_end_cannot_be_told_is_read_first(
    path: Path, opened: Callable[[], Index], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distmon.replay.lines._PLAIN_TAIL", 10)
    monkeypatch.setattr("distmon.replay.lines._PACKED_TAIL", 10)
    index = opened()
    assert not isinstance(index, MadeMeanwhile) and index.end == SCRIPT.start + LENGTH_S
