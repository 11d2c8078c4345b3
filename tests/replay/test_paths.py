from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from distmon.core.errors import DistmonError, UsageError
from distmon.replay.paths import find_session, new_recording, passing_recording, recordings, remove_old, sessions_folder

DAY = 86_400.0
NOW = 1_700_000_000.0


def make(folder: Path, name: str, age_days: float, size: int = 10) -> Path:
    path = folder / name
    path.write_bytes(b"x" * size)
    os.utime(path, (NOW - age_days * DAY, NOW - age_days * DAY))
    return path


def test_the_folder_follows_xdg_and_ignores_a_relative_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert sessions_folder({"XDG_STATE_HOME": "/state"}) == Path("/state/distmon/sessions")
    for environment in ({}, {"XDG_STATE_HOME": "state"}):
        assert sessions_folder(environment) == Path("/home/someone/.local/state/distmon/sessions")


def test_a_new_recording_is_named_for_its_date_script_and_session(tmp_path: Path) -> None:
    path = new_recording("../my jobs/träin.py", "0123456789abcdef", NOW, tmp_path / "a" / "sessions")
    assert path.name.endswith("-tr-in-0123456789ab.jsonl.zst") and path.name.startswith("2023-11-1")
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert new_recording("...", "s", NOW, tmp_path).name.endswith("-job-s.jsonl.zst")


def test_a_folder_that_cannot_be_made_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DistmonError, match="--record"):
        new_recording("train.py", "s", NOW, tmp_path / "file" / "sessions")


def test_old_recordings_go_by_age_and_by_size_and_the_newest_stay(tmp_path: Path) -> None:
    young = [make(tmp_path, f"{i}.jsonl", i) for i in range(6)]
    old = make(tmp_path, "old.jsonl.zst", 91)
    index = make(tmp_path, "old.jsonl.zst.idx", 91)
    notes = make(tmp_path, "notes.txt", 999)
    assert remove_old(tmp_path, NOW) == [old]
    assert not index.exists() and notes.exists() and all(p.exists() for p in young)
    make(tmp_path, "0.jsonl.idx", 0, size=100)
    assert remove_old(tmp_path, NOW, keep_bytes=160) == []
    assert remove_old(tmp_path, NOW, keep_bytes=155) == [young[5]]


def test_a_session_is_a_path_a_name_or_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "sessions"
    folder.mkdir()
    first, second = make(folder, "2024-train-aa.jsonl.zst", 2), make(folder, "2024-train-bb.jsonl", 1)
    local = make(tmp_path, "here.jsonl", 0)
    monkeypatch.chdir(tmp_path)
    assert find_session("here.jsonl", folder) == Path(local.name)
    assert find_session("last", folder) == second == next(recordings(folder))[0]
    assert find_session("aa", folder) == first
    assert find_session("2024-train-bb", folder) == second
    assert find_session("/nowhere/x.jsonl", folder) == Path("/nowhere/x.jsonl")
    with pytest.raises(UsageError, match="could be"):
        find_session("train", folder)
    for unknown in ("zz", "gone.jsonl"):
        with pytest.raises(DistmonError, match=unknown):
            find_session(unknown, folder)
    with pytest.raises(DistmonError, match="no recording"):
        find_session("last", tmp_path / "empty")


def test_a_passing_recording_goes_with_its_screen_and_those_of_dead_screens_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    dead = tmp_path / "distmon" / "passing" / "999999999-x"
    dead.mkdir(parents=True)
    with passing_recording() as first, passing_recording() as second:
        first.write_text("")
        assert first.parent != second.parent and not dead.exists()
        assert stat.S_IMODE(first.parent.stat().st_mode) == 0o700
    assert list((tmp_path / "distmon" / "passing").iterdir()) == []
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with passing_recording() as elsewhere:
        elsewhere.write_text("")
    assert not elsewhere.parent.exists()
