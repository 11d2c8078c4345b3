"""Cases from public reports: RR-01 (torn and odd lines), ST-02 (resume), ST-04 (warm-up), and the small session."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from distmon.core import events as ev
from distmon.core.fold import apply
from distmon.core.measures import rolling_steps_per_s, rolling_throughput
from distmon.core.state import SessionState
from distmon.replay.recorder import Recorder
from distmon.replay.report import model
from distmon.replay.report.sections import sections
from distmon.replay.report.summarise import summarise
from distmon.replay.session_file import Notes, open_session
from distmon.tui.cli.main import main
from tests.replay.cases_format import CASES, case_events, convert_lines


def expected(case: str) -> Any:
    return json.loads((CASES / case / "expected.json").read_text())


@pytest.fixture
def torn(tmp_path: Path) -> Path:
    path = tmp_path / "torn.jsonl"
    path.write_bytes(convert_lines((CASES / "RR-01" / "torn.jsonl").read_bytes()))
    return path


def steps_of(path: Path) -> tuple[list[int], Notes]:
    notes = Notes()
    events = open_session(path).events(notes)
    return [event.first_step for event in events if isinstance(event, ev.StepsRecorded)], notes


def test_rr01_a_torn_file_gives_all_that_it_holds_and_names_the_rest(torn: Path) -> None:
    want = expected("RR-01")["torn.jsonl"]
    before = torn.read_bytes()
    steps, notes = steps_of(torn)
    assert steps == want["steps"] and len(steps) == want["step_records"]
    assert [line for line, _ in notes.skipped] == want["skipped_lines"]
    assert [line for line, _ in notes.unknown] == want["unknown_kind_lines"]
    assert notes.torn
    assert torn.read_bytes() == before


def test_rr01_report_on_a_torn_file_exits_0_and_warns(torn: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = torn.read_bytes()
    assert main(["report", str(torn), "--json"]) == 0
    said = capsys.readouterr()
    assert all(number in said.err for number in expected("RR-01")["torn.jsonl"]["warning_has"])
    session = json.loads(said.out)["sessions"][0]
    assert session["steps"] == 7 and session["samples"] == 7 * 32
    assert session["unknown_kinds"] == {"hologram": 1}
    assert not session["complete"]
    assert torn.read_bytes() == before


def test_rr01_recording_goes_on_after_the_torn_line(torn: Path) -> None:
    before = torn.read_bytes()
    with Recorder(torn, append=True) as recorder:
        recorder.write(case_events(CASES / "ST-02" / "resume.jsonl")[1])
    after = torn.read_bytes()
    assert after.startswith(before + b"\n")
    assert steps_of(torn)[0] == [*expected("RR-01")["torn.jsonl"]["steps"], 3800]


@pytest.mark.parametrize("verb", ["report", "replay"])
@pytest.mark.parametrize("name", ["empty.jsonl", "not_a_session.jsonl", "future.jsonl"])
def test_rr01_what_is_no_session_is_named_and_refused(
    name: str, verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_bytes(convert_lines((CASES / "RR-01" / name).read_bytes()))
    assert main([verb, str(path)]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    words = expected("RR-01")[name].get("message_has", [name, "99"])
    assert all(word in said for word in words), said


def test_st02_speed_after_a_resume_comes_from_this_session_alone() -> None:
    want = expected("ST-02")
    state, rolling = SessionState(), {}
    events = case_events(CASES / "ST-02" / "resume.jsonl")
    start = events[0].at
    for event in events:
        apply(state, event)
        rolling[round(event.at - start)] = rolling_throughput(state, want["window_s"])
    for at, value in want["rolling"].items():
        assert rolling[int(at)] == pytest.approx(value, abs=0.05)
    assert rolling_steps_per_s(state) == pytest.approx(want["steps_per_s_at_360"])
    found = summarise(state).throughput
    assert found.session_mean_samples_per_s == pytest.approx(want["session_mean_at_360"], abs=0.005)
    assert found.last_30s_samples_per_s == pytest.approx(want["rolling"]["360"])
    told = summarise(state)
    (rank,) = told.ranks
    assert rank.samples == told.samples and rank.mean_samples_per_s == pytest.approx(found.mean_samples_per_s)
    assert rank.median_samples_per_s == pytest.approx(found.median_samples_per_s)


def series_state(durations_s: list[float]) -> SessionState:
    state = SessionState()
    ns = [round(d * 1e9) for d in durations_s]
    apply(state, ev.SessionStarted(at=0.0, session_id="s", distmon_version="0"))
    apply(
        state,
        ev.StepsRecorded(
            at=sum(durations_s),
            node="n",
            worker="w",
            rank=0,
            generation=0,
            first_step=0,
            origin=0.0,
            start_ns=[sum(ns[:i]) for i in range(len(ns))],
            duration_ns=ns,
            samples=[32] * len(ns),
        ),
    )
    return state


@pytest.mark.parametrize("name", "ABCDEF")
def test_st04_the_report_sets_warmup_aside(name: str) -> None:
    want = expected("ST-04")
    series = json.loads((CASES / "ST-04" / "series.json").read_text())[name]
    report = summarise(series_state(series))
    if name == "C":
        assert report.warmup.steps is None and report.throughput.mean_samples_per_s is None
        assert "not enough steps" in report.reasons["throughput"]
        return
    assert report.warmup.steps is not None and report.throughput.median_samples_per_s is not None
    if name == "F":
        assert 1 <= report.warmup.steps <= 5
        return
    assert abs(report.warmup.steps - want["warmup_steps"][name]) <= want["tolerance_steps"]
    steady = pytest.approx(want["steady_step_s"][name], rel=want["tolerance_pct"] / 100)
    assert 32 / report.throughput.median_samples_per_s == steady
    if name == "D":
        assert report.warmup.stalls == want["D"]["stalls"]


def warm_up_told(durations_s: list[float]) -> tuple[model.Session, str]:
    """(the report, its line on warm-up)."""
    report = summarise(series_state(durations_s))
    (found,) = [section for section in sections(report) if section.title == "Throughput after warm-up"]
    return report, dict(found.facts)["warm-up"]


def test_a_spell_is_told_as_such_and_not_set_aside() -> None:
    series = [(0.5 if 200 <= i < 230 else 0.1) * (1 + 0.01 * math.sin(i)) for i in range(1_000)]
    report, line = warm_up_told(series)
    assert report.warmup.steps == 0 and report.warmup.stalls == 30
    assert report.throughput.mean_samples_per_s == pytest.approx(32_000 / sum(series))
    assert re.fullmatch(r"0 steps, 0\.00 ms; 30 stalls later; a spell of 50\d\.\d+ ms a step from step 20\d to 2[23]\d", line)


def test_a_slowdown_later_does_not_hide_the_warm_up() -> None:
    series = [(0.6 if i < 30 else 0.1 if i < 250 else 0.13) * (1 + 0.01 * math.sin(i)) for i in range(1_000)]
    report, line = warm_up_told(series)
    assert report.warmup.steps == 30 and report.warmup.stalls == 0
    assert report.throughput.mean_samples_per_s == pytest.approx(32 * 970 / sum(series[30:]))
    assert line.startswith("30 steps, 18") and line.endswith("steady steps take; the run slows down later")


def test_the_small_session_of_the_cases_becomes_a_report() -> None:
    state = SessionState()
    for event in case_events(CASES / "common" / "session_small.jsonl"):
        apply(state, event)
    report = summarise(state)
    assert [node.host for node in report.nodes] == ["node-[d]", "node-a", "node-b", "nœud-c"]
    assert len(report.ranks) == 8 and report.exit_code == 0
    assert report.duration_s == pytest.approx(30.5)
