"""Horovod's timeline: case RR-03, and files that are cut anywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distmon.core import events as ev
from distmon.core.codec import encode_json
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


def events_of(*records: str) -> str:
    return "[\n" + ",".join(records) + "]"


def phase(kind: str, at: int, tensor: int, name: str = "", size: str = "") -> str:
    named = f'"name": "{name}", ' if name else ""
    told = f', "args": {{"dtype": "float32", "shape": "{size}"}}' if size else ""
    return f'{{"ph": "{kind}", {named}"ts": {at}, "pid": {tensor}{told}}}'


def fused(at: int, *tensors: int) -> list[str]:
    """A reduction of several tensors, as Horovod 0.28 writes it: 30 us of copies in, 20 of Gloo, 10 of copies out."""
    pieces = [("MEMCPY_IN_FUSION_BUFFER", at, at + 30), ("GLOO_ALLREDUCE", at + 30, at + 50)]
    pieces += [("MEMCPY_OUT_FUSION_BUFFER", at + 50, at + 60)]
    records = [phase("B", at, tensor, "ALLREDUCE") for tensor in tensors]
    for name, begun, ended in pieces:
        records += [phase("B", begun, tensor, name) for tensor in tensors]
        records += [phase("E", ended, tensor) for tensor in tensors]
    return records + [phase("E", at + 60, tensor, size=f"[{256 * tensor}, 2]") for tensor in tensors]


def test_many_events_on_one_line_are_all_read_and_the_fusion_buffer_told_of() -> None:
    text = events_of(
        '{"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros":1795919027401341}},\n'
        '{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "fc.weight"}}',
        '{"ph": "i", "name": "CYCLE_START", "ts": 5, "s": "g"}',
        *fused(100, 1, 2, 3),
        *fused(200, 1, 2),
        *fused(300, 2, 3),
    )
    found = parse_horovod_timeline(text)
    assert found.damaged_events == 0 and found.closed and found.started == pytest.approx(1795919027.401341)
    assert (found.memcpy_in_us, found.reduce_us, found.memcpy_out_us, found.collective_us) == (90, 60, 30, {"ALLREDUCE": 180})
    fusion = found.fusion
    assert (fusion.fillings, fusion.tensors, fusion.total_bytes, fusion.largest_bytes) == (3, 7, 2048 * 14, 2048 * 6)
    first = found.tensors[0]
    assert (first.name, first.operations, first.fused, first.size_bytes) == ("fc.weight", 2, 2, 2048)
    assert (first.memcpy_us, first.reduce_us, first.collective_us) == (80, 40, 120)


def test_a_piece_that_ends_before_it_begins_is_damage_and_takes_no_time() -> None:
    found = parse_horovod_timeline(events_of(phase("B", 100, 1, "NEGOTIATE_ALLREDUCE"), phase("E", 50, 1), *fused(200, 1)))
    assert (found.damaged_events, found.incomplete, found.collective_us) == (1, 0, {"ALLREDUCE": 60})
    (tensor,) = found.tensors
    assert (tensor.negotiate_us, tensor.collective_us) == (0, 60)


def test_a_name_with_quotes_costs_its_own_event_only() -> None:
    bad = '{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "a"b\\c"}}'
    found = parse_horovod_timeline(events_of(bad, *fused(0, 1)))
    assert (found.damaged_events, found.collective_us, found.tensors[0].name) == (1, {"ALLREDUCE": 60}, "tensor 1")


@given(st.integers(0, 6_000))
def test_a_line_of_many_events_cut_anywhere_is_read_or_refused(length: int) -> None:
    text = events_of(*fused(100, 1, 2, 3), *fused(200, 1, 2), *fused(300, 2, 3))
    try:
        found = parse_horovod_timeline(text[:length])
    except DistmonError:
        return
    assert found.damaged_events <= 1 and found.fusion.fillings <= 3
    assert 0 <= found.reduce_us <= found.communication_us <= found.last_us - found.first_us


STARTED = 1_795_919_000.0


def recorded(folder: Path, timeline: str = "") -> Path:
    """A session that ran with what its job knew of a timeline."""
    job = ev.JobStarted(at=STARTED, job="j", command=["x"], np=2, timeline=timeline, fusion_threshold_bytes=1 << 20)
    events: list[ev.AnyEvent] = [
        ev.SessionStarted(at=STARTED, session_id="s", distmon_version="0"),
        job,
        ev.JobEnded(at=STARTED + 60, exit_code=0),
        ev.SessionEnded(at=STARTED + 61),
    ]
    path = folder / "s.jsonl"
    path.write_bytes(b"".join(encode_json(event) + b"\n" for event in events))
    return path


def written(path: Path, started: float) -> Path:
    anchor = f'{{"start_time_since_epoch_in_micros":{round(started * 1e6)}}}'
    path.write_text(events_of(f'{{"name": "process_name", "ph": "M", "pid": 0, "args": {anchor}}}', *fused(100, 1, 2)))
    return path


def told_by(capsys: pytest.CaptureFixture[str], *words: str | Path) -> dict[str, Any]:
    assert main(["report", *map(str, words), "--json"]) == 0
    session: dict[str, Any] = json.loads(capsys.readouterr().out)["sessions"][0]
    return session


def test_the_report_finds_the_timeline_that_the_job_was_told_to_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = recorded(tmp_path, str(written(tmp_path / "t.json", STARTED + 8)))
    found = told_by(capsys, session)["horovod_timeline"]
    assert (found["reduce_us"], found["memcpy_in_us"]) == (20, 30)
    assert found["fusion"] == {
        "reductions": 1,
        "tensors_per_reduction": 2.0,
        "bytes_per_reduction": 6144.0,
        "largest_bytes": 6144,
        "threshold_bytes": 1 << 20,
    }
    assert main(["report", str(session)]) == 0
    shown = capsys.readouterr().out
    assert "HOROVOD'S TIMELINE" in shown and "2 tensors a time with 6 KiB" in shown and "of its 1 MiB" in shown


def test_a_timeline_that_is_gone_or_of_another_run_is_told_and_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session = recorded(tmp_path, str(tmp_path / "t.json"))
    gone = told_by(capsys, session)
    assert gone["horovod_timeline"] is None and "No such file" in gone["reasons"]["horovod_timeline"]
    later = written(tmp_path / "t.json", STARTED + 4_000)
    over = told_by(capsys, session)
    assert over["horovod_timeline"] is None and "of another run" in over["reasons"]["horovod_timeline"]
    named = told_by(capsys, session, "--timeline", later)["horovod_timeline"]
    assert named["reduce_us"] == 20 and "it was not written while this session ran" in named["notes"]
    assert "horovod_timeline" not in told_by(capsys, recorded(tmp_path))["reasons"]


def test_a_named_timeline_is_of_one_session_and_must_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = str(recorded(tmp_path))
    assert main(["report", session, session, "--timeline", str(CASE / "ok.json")]) == 2
    assert main(["report", session, "--timeline", str(CASE / "empty.json")]) == 1
    assert main(["report", session, "--timeline", "/dev/zero"]) == 1
    assert "not a plain file" in capsys.readouterr().err
