"""Horovod's timeline: case RR-03, and files that are cut anywhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distmon.core.errors import DistmonError
from distmon.core.formats.horovod_timeline import parse_horovod_timeline
from distmon.tui.cli.main import main

CASE = Path(__file__).parents[1] / "data/cases/RR-03"
EXPECTED = json.loads((CASE / "expected.json").read_text())


@pytest.mark.parametrize("name", ["ok.json", "trailing_comma.json"])
def test_pieces_that_nest_and_overlap_are_counted_once(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["timeline", str(CASE / name), "--json"]) == 0
    found, expected = json.loads(capsys.readouterr().out), EXPECTED["ok.json"]
    assert found["ranks"] == expected["ranks"]
    assert len(found["tensors"]) == expected["tensors"]
    for key in ("negotiate_us", "allreduce_us", "communication_us"):
        assert found[key] == expected[key]
    by_name = {tensor["name"]: tensor for tensor in found["tensors"]}
    assert {t: by_name[t]["last_ready_rank"] for t in by_name} == expected["last_ready_rank"]
    assert {t: by_name[t]["wait_for_last_rank_us"] for t in by_name} == expected["wait_for_last_rank_us"]
    assert ("not closed" in " ".join(found["notes"])) == (name == "trailing_comma.json")


def test_a_cut_file_ends_what_is_open_at_the_last_time_seen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["timeline", str(CASE / "torn.json")]) == 0
    assert "the file is cut; 2 tensors incomplete" in capsys.readouterr().out
    found = parse_horovod_timeline((CASE / "torn.json").read_text())
    assert found.last_us == EXPECTED["torn.json"]["last_ts_us"]
    assert found.collective_us["ALLREDUCE"] == EXPECTED["torn.json"]["allreduce_us"]


@pytest.mark.parametrize("name", ["only_bracket.json", "empty.json"])
def test_a_file_without_events_is_refused_in_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["timeline", str(CASE / name)]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert all(word in said for word in EXPECTED[name]["message_has"])


@given(st.integers(0, 4_000))
def test_a_file_cut_anywhere_is_read_or_refused(length: int) -> None:
    text = (CASE / "ok.json").read_text()[:length]
    try:
        found = parse_horovod_timeline(text)
    except DistmonError:
        return
    assert 0 <= found.communication_us <= found.last_us - found.first_us


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_horovod_timeline(text)
    except DistmonError:
        return
