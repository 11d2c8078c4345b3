from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import msgspec
import pytest

from distmon.core import events as ev
from distmon.core.synthetic import Script, session
from distmon.replay.export import CSV_COLUMNS, write_chrome, write_csv
from distmon.replay.recorder import Recorder
from distmon.tui.cli.main import main

SCRIPT = Script(ranks=2, nodes=1, seconds=5, gpus_per_node=1)
EVENTS = list(session(SCRIPT))
STEPS = [event for event in EVENTS if isinstance(event, ev.StepsRecorded)]


def test_csv_has_a_row_for_each_step_of_each_rank() -> None:
    out = io.StringIO()
    count = write_csv(EVENTS, SCRIPT.start, out)
    rows = list(csv.DictReader(io.StringIO(out.getvalue())))
    assert len(rows) == count == sum(len(batch.duration_ns) for batch in STEPS)
    assert tuple(rows[0]) == CSV_COLUMNS
    first = rows[0]
    assert float(first["started_s"]) == pytest.approx(1.0)
    assert round(float(first["duration_s"]) * 1e9) == STEPS[0].duration_ns[0]
    assert (first["rank"], first["step"], first["samples"]) == ("0", "0", "32")


def test_csv_leaves_what_was_not_measured_empty() -> None:
    blind = ev.StepsRecorded(
        at=2.0, node="n", worker="w", rank=0, generation=0, first_step=7, origin=1.0, start_ns=[0], duration_ns=[10**9]
    )
    out = io.StringIO()
    write_csv([blind], 0.0, out)
    assert out.getvalue().splitlines()[1] == "0,0,7,,1.000000000,1.000000000,,,,,,1"


def test_csv_tells_micro_batches() -> None:
    out = io.StringIO()
    write_csv([msgspec.structs.replace(STEPS[0], micro_batches=[4] * len(STEPS[0].duration_ns))], SCRIPT.start, out)
    assert {row["micro_batches"] for row in csv.DictReader(io.StringIO(out.getvalue()))} == {"4"}


def test_absurd_numbers_leave_the_trace_readable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = b'{"kind":"session_started","at":1.0,"session_id":"s","distmon_version":"0"}'
    rails = b'[{"name":"a","watts":1e308,"source":"x"},{"name":"b","watts":1e308,"source":"x"}]'
    span = b'{"kind":"span_recorded","at":2.0,"node":"n","worker":"w","rank":0,"span":"sync","started":%s,"duration_s":%s}'
    sample = b'{"kind":"node_sampled","at":3.0,"node":"n","interval_s":1.0,"cpu_percent":-1e308,"power":' + rails + b"}"
    recording = tmp_path / "s.jsonl"
    lines = [header, span % (b"1e308", b"1.0"), span % (b"1.0", b"1e308"), span % (b"1.0", b"1e999"), sample]
    recording.write_bytes(b"\n".join([*lines, span % (b"2.0", b"1.0"), b""]))
    assert main(["export", str(recording), "--to", "chrome", "-o", "-"]) == 0
    said = capsys.readouterr()
    assert "skipped 4 lines that hold no event: 2, 3, 4, 5" in said.err

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    trace = json.loads(said.out, parse_constant=refuse)["traceEvents"]
    assert [line["name"] for line in trace if line["ph"] in "CX"] == ["sync"]


def test_the_trace_holds_steps_with_their_phases_inside() -> None:
    out = io.StringIO()
    notice = ev.NoticeGiven(at=SCRIPT.start + 3, severity="warning", text='a "quoted" notice')
    count = write_chrome([*EVENTS, notice], SCRIPT.start, out)
    trace = json.loads(out.getvalue())["traceEvents"]
    assert len(trace) == count
    steps = [line for line in trace if line.get("cat") == "step" and line["tid"] == 1]
    assert len(steps) == sum(len(batch.duration_ns) for batch in STEPS if batch.rank == 1)
    ends = {line["ts"]: line["ts"] + line["dur"] for line in steps}
    for line in trace:
        if line.get("cat") == "phase" and line["tid"] == 1:
            begun = max(ts for ts in ends if ts <= line["ts"])
            assert line["ts"] + line["dur"] <= ends[begun] + 0.01
    names = {line["args"]["name"] for line in trace if line["ph"] == "M"}
    assert {"node-000", "rank 0", "rank 1"} <= names
    assert {line["name"] for line in trace if line["ph"] == "C"} == {"cpu_percent", "power_w", "gpu0_percent"}
    assert trace[-1]["name"] == 'a "quoted" notice'


def test_the_verb_makes_a_new_file_and_never_overwrites(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording, target = tmp_path / "s.jsonl.zst", tmp_path / "out.csv"
    with Recorder(recording) as recorder:
        for event in EVENTS:
            recorder.write(event)
    assert main(["export", str(recording), "--to", "csv", "-o", str(target)]) == 0
    before = target.read_text()
    assert before.startswith("generation,rank")
    assert main(["export", str(recording), "--to", "csv", "-o", str(target)]) == 1
    assert "there already" in capsys.readouterr().err and target.read_text() == before
    assert main(["export", str(recording), "--to", "chrome", "-o", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["traceEvents"]
    assert main(["export", str(recording), "--to", "xls", "-o", "-"]) == 2
