"""Presets are written into distmon.toml, and nothing else in it changes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from distmon.core.errors import DistmonError, UsageError
from distmon.launcher.presets import delete_preset, save_preset
from distmon.launcher.settings import FILE_NAME, load_settings

THEIRS = """\
# our four boards
hosts = [
    "a:1",  # the slow one
    "b:1",
]

[presets]  # by hand
big = ["-np", "4"]   # nightly

[alerts]
bell = true
"""
WORDS = ["-np", "2", "--", "python", "train.py", "--name", 'a "b"']


def test_a_preset_is_kept_and_their_comments_stay(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text(THEIRS)
    save_preset(tmp_path, "digits", WORDS)
    settings = load_settings(tmp_path)
    assert settings.presets == {"big": ["-np", "4"], "digits": WORDS} and settings.alerts.bell
    kept = (tmp_path / FILE_NAME).read_text().splitlines()
    assert [line for line in kept if "digits" not in line] == THEIRS.splitlines()
    delete_preset(tmp_path, "digits")
    assert (tmp_path / FILE_NAME).read_text() == THEIRS


def test_a_preset_of_the_same_name_is_replaced(tmp_path: Path) -> None:
    save_preset(tmp_path, "one", ["-np", "1"])
    save_preset(tmp_path, "one", WORDS)
    assert load_settings(tmp_path).presets == {"one": WORDS}
    delete_preset(tmp_path, "one")
    assert load_settings(tmp_path).presets == {}


@pytest.mark.parametrize("name", ["", "a b", "x" * 41, "a\nb", "ä"])
def test_a_name_that_could_not_be_given_again_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="letters from a to z, digits, dots, dashes and underscores, at most 40 of them"):
        save_preset(tmp_path, name, WORDS)
    assert not list(tmp_path.iterdir())


def test_a_wrong_file_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("hosts = [\n")
    with pytest.raises(UsageError, match="is wrong"):
        save_preset(tmp_path, "one", WORDS)
    assert (tmp_path / FILE_NAME).read_text() == "hosts = [\n"
    with pytest.raises(UsageError):
        delete_preset(tmp_path, "one")


def test_deleting_what_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no preset 'one'"):
        delete_preset(tmp_path, "one")


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / f".{FILE_NAME}.{os.getpid()}").mkdir()  # where the new file would be written first
    with pytest.raises(DistmonError, match="cannot be written"):
        save_preset(tmp_path, "one", WORDS)


def test_a_link_to_a_shared_file_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "shared.toml").write_text(THEIRS)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / FILE_NAME).symlink_to(tmp_path / "shared.toml")
    save_preset(tmp_path / "here", "digits", WORDS)
    assert (tmp_path / "here" / FILE_NAME).is_symlink() and "digits" in (tmp_path / "shared.toml").read_text()
