"""`distmon doctor` and `distmon run --check`, with a stand-in of ssh."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from distmon.tui.cli.main import main
from tests.launcher.driving import CASES

pytest.importorskip("horovod", reason="needs Horovod: make test sets it up")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{CASES / 'common'}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_this_machine_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json", "--python", sys.executable]) == 0
    told = json.loads(capsys.readouterr().out)
    (host,) = told["hosts"]
    assert told["ok"] and host["this_machine"] and host["packages"]["horovod"]
    assert host["python_version"] == ".".join(map(str, sys.version_info[:3]))
    assert host["agent"] == str(Path(sys.executable).parent / "distmon-agent")


def test_other_hosts_are_asked_and_what_is_wrong_has_its_mend(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "distmon.toml").write_text('hosts = ["node-ok:1", "node-refused:1"]\n')
    assert main(["doctor", "--json", "--python", sys.executable, "--network-interface", "lo"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert [(host["host"], host["reached"]) for host in told["hosts"][1:]] == [("node-ok", True), ("node-refused", False)]
    (error,) = [finding for finding in told["findings"] if finding["severity"] == "error"]
    assert (error["host"], error["check"]) == ("node-refused", "ssh") and "start sshd" in error["mend"]
    assert abs(told["hosts"][1]["clock_offset_s"]) < 1 and told["interfaces"] == ["lo"]


def test_check_shows_the_plan_and_starts_nothing(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "train.py").write_text(f"open({str(folder / 'ran')!r}, 'w')")
    command = ["-np", "2", "-H", "localhost:1,node-ok:1", "--network-interface", "lo", "--", sys.executable, "train.py"]
    assert main(["run", "--check", *command]) == 0
    out = capsys.readouterr().out
    assert out.startswith("localhost (this machine): rank 0\nnode-ok: rank 1\n")
    assert "\n0 errors, " in out and "all hosts reach one another over lo" in out and not (folder / "ran").exists()


def test_the_command_names_the_script_that_is_looked_for(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "train.py").write_text("from horovod.torch import init\n")
    assert main(["doctor", "--", sys.executable, "missing.py"]) == 2
    assert "there is no script missing.py" in capsys.readouterr().err
    assert main(["doctor", "--", sys.executable, "train.py"]) == 0
