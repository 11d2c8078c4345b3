"""The comparison behind `distmon overhead`."""

import argparse
import json

import pytest

from distmon.tui.cli import overhead
from distmon.tui.cli.overhead import Usage, as_json, as_text, compare, cpu_us_per_step

WITHOUT = [Usage(10.0, 5.0, None), Usage(11.0, 5.2, None), Usage(10.5, 5.1, None)]


def test_pairs_are_compared_with_their_neighbours() -> None:
    found = compare([10.0, 20.0, 10.0], [11.0, 22.0, 10.5])
    assert found.median == pytest.approx(1.1)
    assert found.least == pytest.approx(1.05)
    assert found.greatest == pytest.approx(1.1)


def test_a_clear_cost_is_told_per_step() -> None:
    costly = [Usage(u.cpu_s + 0.5, u.wall_s + 0.1, 1000) for u in WITHOUT]
    assert cpu_us_per_step(WITHOUT, costly) == pytest.approx(500)
    assert "no difference shown" not in as_text(WITHOUT, costly)
    assert json.loads(as_json(WITHOUT, costly))["cpu_us_per_step"] == pytest.approx(500)


def test_noise_is_no_cost() -> None:
    noisy = [Usage(10.1, 5.0, 1000), Usage(10.9, 5.1, 1000), Usage(10.5, 5.2, 1000)]
    assert "no difference shown" in as_text(WITHOUT, noisy)


def test_one_pair_claims_little_and_unseen_steps_have_no_cost() -> None:
    assert "fewer than 3 pairs" in as_text(WITHOUT[:1], [Usage(10.2, 5.0, 10)])
    assert cpu_us_per_step(WITHOUT, WITHOUT) is None


def test_where_there_is_no_terminal_a_line_tells_as_each_run_begins_and_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(overhead, "_run_once", lambda words, timed: Usage(10.5, 5.0, 100 if timed else None))
    overhead.run(argparse.Namespace(pairs=1, json=True, words=[]))
    said = capsys.readouterr()
    assert said.err.splitlines() == [
        "distmon: pair 1 of 1, without timing: begins",
        "distmon: pair 1 of 1, without timing: 5.0 s, 10.5 s of CPU time",
        "distmon: pair 1 of 1, with timing: begins",
        "distmon: pair 1 of 1, with timing: 5.0 s, 10.5 s of CPU time",
    ]
    assert json.loads(said.out)["pairs"] == 1
