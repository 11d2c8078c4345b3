"""`distmon audit` as its user sees it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distmon.tui.cli.main import main

TABLE = "model,workers,images_per_s,speedup_printed\nnet\x1b[31m,1,100,1\nnet\x1b[31m,2,150,1.9\n"


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "speed.csv").write_text(TABLE)
    return str(tmp_path / "speed.csv")


def test_a_contradiction_comes_first_and_nothing_moves_the_cursor(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", path]) == 3
    said = capsys.readouterr().out
    assert "1 contradiction in 2 printed numbers and sums" in said
    assert "net, workers 2: speedup computes to 1.500, printed 1.9" in said and "\x1b" not in said
    assert main(["audit", path, "--markdown"]) == 3
    assert "## Contradicts itself" in capsys.readouterr().out


def test_json_has_findings_and_derived_columns(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", path, path, "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["format"] == 1 and len(found["tables"]) == 2
    one = found["tables"][0]
    assert [f["kind"] for f in one["findings"]] == ["agrees", "contradicts"]
    assert one["derived"][1] == {"group": "net", "workers": "2", "speedup": "1.500", "efficiency_percent": "75.0"}


def test_a_table_of_something_else_says_what_is_understood(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text("a,b\nx,y\n")
    assert main(["audit", str(tmp_path / "t.csv")]) == 1
    assert "no column here is understood: see distmon audit --help" in capsys.readouterr().out
    (tmp_path / "t.csv").write_text("gpus,loss\n1,2.5\n")
    assert main(["audit", str(tmp_path / "t.csv")]) == 1
    assert "nothing follows from gpus alone" in capsys.readouterr().out
    assert main(["audit", str(tmp_path / "gone.csv")]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_a_table_without_contradiction_ends_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text("epoch,a_s,b_s,difference_s\n0,10,12,2\n1,10,13,3\n2,10,13,3\n")
    assert main(["audit", str(tmp_path / "t.csv")]) == 0
    assert "no contradiction in 3 printed numbers" in capsys.readouterr().out


def test_what_is_left_out_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text("gpus,images/s,Loss\n1,100,0.5\n2,190,0.4\n")
    assert main(["audit", str(tmp_path / "t.csv")]) == 0
    assert "not understood, and left out: Loss" in capsys.readouterr().out
    assert main(["audit", "--json", str(tmp_path / "t.csv")]) == 0
    assert json.loads(capsys.readouterr().out)["tables"][0]["left_out"] == ["Loss"]
