"""`distmon keys` as people type it."""

from __future__ import annotations

from pathlib import Path

import pytest

from distmon.tui.cli.main import main
from distmon.wire.keys import AGENTS, VIEWERS, entries, load_own, make_pair


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "distmon" / "keys"


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(["keys", *words])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def test_from_nothing_to_a_revoked_key(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "show")[1].rstrip().endswith("make one: distmon keys init")
    assert said(capsys, "init")[0] == 0
    own = load_own(folder)
    assert said(capsys, "show") == (0, own.public + "\n")
    anna, node = make_pair().public, make_pair().public
    assert said(capsys, "add", "anna", anna) == (0, "anna may follow this user's agents now\n")
    assert said(capsys, "add", "node1", node, "--agent", "tcp://node1:7070") == (0, "node1 at tcp://node1:7070 is known now\n")
    listed = said(capsys, "list")[1]
    assert own.secret not in listed
    assert listed.splitlines() == [f"viewer  {anna}  anna", f"agent   {node}  node1  tcp://node1:7070"]
    assert said(capsys, "revoke", "anna")[0] == 0
    assert entries(folder, VIEWERS) == []
    assert [entry.name for entry in entries(folder, AGENTS)] == ["node1"]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["add", "anna", "short"], 2, "64 hexadecimal digits"),
        (["add", "an na", "0" * 64], 2, "is no name for a key"),
        (["add", "node1", "0" * 64, "--agent", "ipc:///x/y"], 2, "needs no key"),
        (["add", "node1", "0" * 64, "--agent", "tcp://node1"], 2, "is no TCP address"),
        (["revoke", "nobody"], 1, "there is no nobody here"),
        (["init"], 1, "there is a key already"),
        (["add", "anna", "1" * 64], 1, "anna is there already"),
        (["add", "ben", "2" * 64], 1, "anna is there already"),
    ],
)
def test_each_mistake_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, says: str
) -> None:
    said(capsys, "init")
    said(capsys, "add", "anna", "2" * 64)
    got, text = said(capsys, *words)
    assert got == code
    assert says in text
    assert text.count("\n") == 1


def test_an_open_folder_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "init")
    folder.chmod(0o755)
    code, text = said(capsys, "list")
    assert (code, text.count("\n")) == (1, 1)
    assert f"run: chmod 700 {folder}" in text
