"""Logs of tegrastats as sessions: times, gaps, faults, and the report on them."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distmon.core import events as ev
from distmon.core.codec import decode_json, encode_json
from distmon.core.errors import DistmonError
from distmon.core.fold import apply
from distmon.core.measures import node_means
from distmon.core.state import SessionState
from distmon.replay.importers.base import ImportNotes, ImportOptions
from distmon.replay.importers.tegrastats import import_tegrastats
from distmon.replay.importers.times import reading_times
from distmon.replay.report.summarise import summarise
from distmon.replay.report.words import number
from distmon.replay.session_file import load_state
from distmon.tui.cli.main import main

DATA = Path(__file__).parents[1] / "data"
TWO_RUNS = DATA / "jetson" / "two_runs.log"
REAL = Path(os.environ.get("DISTMON_REAL_DATA", Path(__file__).parents[3] / "shared" / "realdata"))


def options(start: float | None = 100.0, interval_s: float | None = None) -> ImportOptions:
    return ImportOptions(session_id="s", distmon_version="0", host="board", start=start, interval_s=interval_s)


def imported(path: Path, given: ImportOptions) -> tuple[list[ev.AnyEvent], ImportNotes]:
    notes = ImportNotes()
    return list(import_tegrastats(path, given, notes)), notes


def log(folder: Path, *seconds: int | str, watts: Sequence[float] = ()) -> Path:
    """A log whose lines have these seconds of one minute, or the given text."""
    path = folder / "tegrastats.log"
    powers = [*watts, *[5.0] * (len(seconds) - len(watts))]
    reading = "10-01-2025 20:05:{:02d} RAM 1/2MB CPU [5%@1] VDD_IN {:.0f}mW/1mW"
    lines = [
        second if isinstance(second, str) else reading.format(second, power * 1000)
        for second, power in zip(seconds, powers, strict=True)
    ]
    path.write_text("\n".join(lines))
    return path


def samples(events: Sequence[ev.AnyEvent]) -> list[ev.NodeSampled]:
    return [event for event in events if isinstance(event, ev.NodeSampled)]


# --- times ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clocks", "start", "interval_s", "times", "usual"),
    [
        ([None, None, None], 50.0, None, [50.0, 51.0, 52.0], 1.0),
        ([None, None], None, 0.5, [0.0, 0.5], 0.5),
        ([10.0, 11.0, 12.0], None, None, [10.0, 11.0, 12.0], 1.0),
        ([10.0, 11.0, 12.0], 0.0, None, [0.0, 1.0, 2.0], 1.0),
        ([10.0, 10.0, 11.0, 11.0], None, None, [10.0, 10.5, 11.0, 11.5], 0.5),
        ([10.0, 11.0, 41.0, 42.0], None, None, [10.0, 11.0, 41.0, 42.0], 1.0),
        ([10.0, 11.0, 13.0], None, None, [10.0, 11.0, 13.0], 1.5),
        ([10.0, None, 12.0, 13.0], None, None, [10.0, 11.0, 12.0, 13.0], 1.0),
        ([None, 10.0, 11.0], None, None, [9.0, 10.0, 11.0], 1.0),
        ([10.0, 4e10], None, None, [10.0, 4e10], 1.0),
        ([10.0], None, None, [10.0], 1.0),
        ([], None, None, [], 1.0),
    ],
)
def test_times_of_readings(
    clocks: list[float | None], start: float | None, interval_s: float | None, times: list[float], usual: float
) -> None:
    found = reading_times(clocks, start, interval_s)
    assert (found.times, found.interval_s) == (times, usual)


def test_a_clock_that_goes_back_does_not_turn_time_round() -> None:
    found = reading_times([10.0, 11.0, 7.0, 8.0, 9.0], None, None)
    assert (found.times, found.went_back) == ([10.0, 11.0, 12.0, 13.0, 14.0], [2])


# --- events ---------------------------------------------------------------------------------------------------------


def test_a_log_without_times_starts_when_it_is_told_to() -> None:
    events, _ = imported(TWO_RUNS, options(start=100.0, interval_s=2.0))
    assert isinstance(events[0], ev.SessionStarted) and events[0].origin == "tegrastats" and events[0].at == 100.0
    assert isinstance(events[1], ev.NodeJoined) and (events[1].cores, events[1].memory_bytes) == (2, 7850 << 20)
    assert [(sample.at, sample.interval_s) for sample in samples(events)] == [(100.0, 2.0), (102.0, 2.0), (104.0, 2.0)]
    assert isinstance(events[-1], ev.SessionEnded)


def test_a_log_without_times_ends_when_its_file_was_last_changed(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(TWO_RUNS.read_bytes())
    os.utime(path, (5_000.0, 5_000.0))
    events, notes = imported(path, options(start=None))
    assert [sample.at for sample in samples(events)] == [4_998.0, 4_999.0, 5_000.0]
    assert any("holds no times" in sentence for sentence in notes.sentences())


def test_a_sample_says_what_is_absent_and_why() -> None:
    first, second, third = samples(imported(TWO_RUNS, options())[0])
    assert (first.cpu_percent, first.cores_percent, first.cores_mhz) == (10.0, [10, None], [2035, None])
    assert first.gpus[0].utilization_percent is None and "only for root" in first.gpus[0].unavailable["utilization_percent"]
    assert (second.gpus[0].utilization_percent, second.gpus[0].sm_clock_mhz, second.gpus[0].temperature_c) == (18, 1134, 43.0)
    assert second.gpus[0].power_w is None and "rails" in second.gpus[0].unavailable["power_w"]
    assert second.engines == [ev.EngineReading(name="EMC", utilization_percent=7, clock_mhz=1600)]
    assert [(rail.name, rail.watts, rail.within) for rail in second.power] == [("VDD_IN", 5.0, ""), ("VDD_CPU", 0.8, "VDD_IN")]
    assert third.gpus[0].temperature_c is None and third.unavailable["temperatures"] == "switched off: GPU"


def test_lines_that_are_none_and_pieces_that_are_cut_are_named_with_their_numbers() -> None:
    events, notes = imported(TWO_RUNS, options())
    assert notes.sentences() == ["no line of tegrastats: line 1", "not understood: 'VDD_CPU N': line 5"]
    assert [event.text for event in events if isinstance(event, ev.NoticeGiven)] == notes.sentences()


def test_faults_without_end_stay_few(tmp_path: Path) -> None:
    words = [f"RAM 1/2MB {chr(97 + i % 26)}{chr(97 + i // 26)}x" for i in range(300)]
    _, notes = imported(log(tmp_path, *words), options())
    assert len(notes.sentences()) == 51
    assert notes.sentences()[-1].startswith("more that is not understood: 250 lines: 51, 52,")
    assert notes.sentences()[-1].endswith("and 230 more")


def test_a_gap_is_told_and_adds_no_energy(tmp_path: Path) -> None:
    events, _ = imported(log(tmp_path, 0, 1, 2, 40, 41, watts=[5, 5, 5, 9, 9]), options(start=None))
    gaps = [event for event in events if isinstance(event, ev.GapFound)]
    assert [(gap.ended - gap.started, gap.lost_records) for gap in gaps] == [(38.0, 37)]
    state = SessionState()
    for event in events:
        apply(state, event)
    node = summarise(state).nodes[0]
    assert node.energy_j == 33.0
    assert node.power_mean_w == pytest.approx(6.6)


def test_a_clock_that_goes_back_is_named(tmp_path: Path) -> None:
    _, notes = imported(log(tmp_path, "# two runs", 10, 11, 3, 4), options(start=None))
    assert "the log's clock goes back, time goes on from there: line 4" in notes.sentences()


def test_swapped_rails_are_doubted(tmp_path: Path) -> None:
    line = "RAM 1/2MB CPU [5%] POM_5V_GPU 8949/8742 POM_5V_IN 3227/3086"
    events, notes = imported(log(tmp_path, line), options())
    state = SessionState()
    for event in events:
        apply(state, event)
    assert [sentence.partition(":")[0] for sentence in notes.sentences()] == [
        "POM_5V_GPU draws more than POM_5V_IN, which should hold it"
    ]
    assert summarise(state).notes == notes.sentences()


@pytest.mark.parametrize("content", [b"", b"hello\n", b"\xff\x00" * 200_000])
def test_files_of_other_kinds_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(content)
    with pytest.raises(DistmonError, match="holds no line of tegrastats"):
        imported(path, options())


def test_a_fifo_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.log")
    with pytest.raises(DistmonError, match="not a regular file"):
        imported(tmp_path / "x.log", options())


# --- the command ----------------------------------------------------------------------------------------------------


def test_import_then_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "s.jsonl"
    assert main(["import", "tegrastats", str(TWO_RUNS), "-o", str(out), "--start", "2026-05-09T18:42:06", "--host", "nano"]) == 0
    told = capsys.readouterr()
    assert told.out == f"{out}: 3 readings of nano\n"
    assert f"distmon: warning: {TWO_RUNS}: no line of tegrastats: line 1\n" in told.err
    assert main(["report", "--json", str(out)]) == 0
    session = json.loads(capsys.readouterr().out)["sessions"][0]
    assert (session["started"], session["duration_s"], session["complete"]) == ("2026-05-09T18:42:06.000Z", 2.0, True)
    (node,) = session["nodes"]
    assert (node["host"], node["power_mean_w"], node["energy_j"], node["energy_covers"]) == ("nano", 4.0, 12.0, "VDD_IN")
    assert node["rails"] == [
        {"name": "VDD_CPU", "mean_w": pytest.approx(0.7), "within": "VDD_IN"},
        {"name": "VDD_IN", "mean_w": 4.0, "within": ""},
    ]
    assert node["cores"] == [{"core": 0, "mean_percent": 20.0}, {"core": 1, "mean_percent": None}]
    assert node["gpus"][0]["utilization_mean_percent"] == 19.0
    assert node["temperatures"] == [{"name": "GPU", "mean_c": 42.0, "max_c": 43.0}]
    assert main(["report", str(out)]) == 0
    text = capsys.readouterr().out
    assert "without a job" in text and "THROUGHPUT" not in text and "POWER RAILS" in text


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["import", "tegrastats", "LOG", "-o", "OUT", "--interval", "0"], 2, "--interval 0: not a number of seconds above 0"),
        (["import", "tegrastats", "LOG", "-o", "OUT", "--start", "noon"], 2, "--start noon: not a time"),
        (["import", "wattmeter", "LOG", "-o", "OUT"], 2, "invalid choice"),
        (["import", "tegrastats", "/nowhere/x.log", "-o", "OUT"], 1, "/nowhere/x.log cannot be read: No such file"),
        (["import", "tegrastats", "LOG", "-o", "LOG"], 1, "ends in .jsonl"),
    ],
)
def test_wrong_use_is_one_line(
    words: list[str], code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(TWO_RUNS.read_bytes())
    out = tmp_path / "s.jsonl"
    assert main([str({"LOG": path, "OUT": out}.get(word, word)) for word in words]) == code
    told = capsys.readouterr().err
    assert said in told and told.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == TWO_RUNS.read_bytes()


def test_a_failure_on_the_way_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(path: Path, given: ImportOptions, notes: ImportNotes) -> object:
        yield ev.SessionStarted(at=1.0, session_id="s", distmon_version="0")
        raise DistmonError("the log cannot be read any more")

    monkeypatch.setitem(main.__globals__["importlib"].import_module("distmon.replay.importers").KINDS, "tegrastats", broken)
    assert main(["import", "tegrastats", str(TWO_RUNS), "-o", str(tmp_path / "s.jsonl")]) == 1
    assert "any more" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "rails", "gpu_percent"),
    [
        ("xaviernx-jp5-6834MB-burn", {"VDD_IN": 12.791777, "VDD_CPU_GPU_CV": 6.841563, "VDD_SOC": 1.951476}, 89.087),
        ("nano-jp4-sudo", {"POM_5V_IN": 4.208618, "POM_5V_GPU": 1.957013, "POM_5V_CPU": 0.495553}, 69.513),
        ("tx2-jp4-two-runs", {"VDD_IN": 3.65074, "VDD_CPU": 0.700678, "VDD_WIFI": 0.01006}, 16.738),
    ],
)
def test_a_real_logs_known_means_come_out_of_its_report(
    name: str, rails: dict[str, float], gpu_percent: float, tmp_path: Path
) -> None:
    path = REAL / "tegrastats" / f"{name}.log"
    if not path.is_file():
        pytest.skip(f"no real logs in {REAL}; DISTMON_REAL_DATA names another folder")
    assert main(["import", "tegrastats", str(path), "-o", str(tmp_path / "s.jsonl.zst")]) == 0
    state, _ = load_state(tmp_path / "s.jsonl.zst")
    node = summarise(state).nodes[0]
    found = {rail.name: rail.mean_w for rail in node.rails}
    assert {rail: found[rail] for rail in rails} == pytest.approx(rails, abs=5e-7)
    assert node.gpus[0].utilization_mean_percent == pytest.approx(gpu_percent, abs=5e-4)
    assert node.power_mean_w == pytest.approx(next(iter(rails.values())), abs=5e-7)


def test_every_real_log_s_truth_values_come_out_of_its_report(tmp_path: Path) -> None:
    """Those of its index: of each rail the mean of its readings, of the GPU's load too; and each line is read or named."""
    index = REAL / "INDEX.md"
    if not index.is_file():
        pytest.skip(f"no real logs in {REAL}; DISTMON_REAL_DATA names another folder")
    rows = re.findall(r"^\| `tegrastats/([^`]+)\.log`.*\|([^|]*)\|$", index.read_text(), re.MULTILINE)
    assert len(rows) >= 17
    for name, truth in rows:
        log, out = REAL / "tegrastats" / f"{name}.log", tmp_path / f"{name}.jsonl"
        assert main(["import", "tegrastats", str(log), "-o", str(out)]) == 0
        state, _ = load_state(out)
        node = summarise(state).nodes[0]
        milliwatts = re.findall(r"(\w+) n=\d+ first \d+ last \d+ mean ([\d.]+) mW", truth)
        expected = {rail: pytest.approx(float(mean) / 1000, abs=5e-7) for rail, mean in milliwatts}
        assert {rail.name: rail.mean_w for rail in node.rails} == expected, name
        load = re.search(r"GR3D% n=\d+ mean ([\d.]+)", truth)
        found = node.gpus[0].utilization_mean_percent
        assert found is None if load is None else found == pytest.approx(float(load[1]), abs=5e-4), name
        _, notes = imported(log, options())
        unread = [sentence for sentence in notes.sentences() if sentence.startswith(("no line of", "not understood"))]
        assert unread == (["no line of tegrastats: 2 lines: 1, 2"] if name == "tx2-l4t28-terminal" else []), name


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.sampled_from([line.encode() for line in TWO_RUNS.read_text().splitlines()]),
            st.sampled_from([b"10-01-2025 20:05:55 RAM 1/2MB", b"10-01-1900 20:05:55 RAM 1/2MB CPU [off]", b"\r", b""]),
        ),
        max_size=8,
    )
)
def test_any_bytes_are_imported_in_order_or_refused(lines: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.log"
        path.write_bytes(b"\n".join(lines))
        try:
            events, _ = imported(path, options(start=None))
        except DistmonError:
            return
    times = [event.at for event in events]
    assert times == sorted(times)
    for event in events:
        assert decode_json(encode_json(event)) == event


def test_a_folder_of_logs_becomes_sessions_and_one_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs, sessions, page = tmp_path / "logs", tmp_path / "sessions", tmp_path / "page.html"
    logs.mkdir()
    for name in ("nano.log", "nano.txt", "board.log"):
        shutil.copy(TWO_RUNS, logs / name)
    (logs / "notes.md").write_text("no log\n")
    assert main(["import", "tegrastats", str(logs), "-o", str(sessions)]) == 0
    said = capsys.readouterr()
    assert sorted(path.name for path in sessions.glob("*.zst")) == ["board.jsonl.zst", "nano.log.jsonl.zst", "nano.txt.jsonl.zst"]
    assert "left out" in said.err and "notes.md holds no line of tegrastats" in said.err
    assert f"distmon report {sessions} --html" in said.out
    assert main(["report", str(sessions), "--html", str(page), "--markdown"]) == 0
    text, html = capsys.readouterr().out, page.read_text()
    means = load_state(sessions / "board.jsonl.zst")[0].nodes["board"]
    for name, mean in node_means(means).rails:
        row = f"| board | {name} | {number(mean)} W |"
        assert row in text.replace("\\_", "_")
    assert "Power of nano.log" in html and "Load of board" in html
    assert "| library |" not in text


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["LOGS", "-o", "x.jsonl"], 2, "name a folder"),
        (["LOGS", "gone.log", "-o", "out"], 1, "gone.log cannot be read"),
        (["EMPTY", "-o", "out"], 1, "holds no file"),
        (["OTHER", "-o", "out"], 1, "nothing was imported"),
    ],
)
def test_what_cannot_be_meant_of_folders_is_one_line(
    words: list[str], code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("LOGS", "EMPTY", "OTHER"):
        (tmp_path / name).mkdir()
    shutil.copy(TWO_RUNS, tmp_path / "LOGS" / "a.log")
    (tmp_path / "OTHER" / "a.txt").write_text("nothing\n")
    assert main(["import", "tegrastats", *words]) == code
    assert said in capsys.readouterr().err.splitlines()[-1]
