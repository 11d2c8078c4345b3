"""`distmon sweep` with a stand-in for the runs: order, resuming, failures, signals, and the report at the end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from distmon.tui.cli import sweep_runs
from distmon.tui.cli.main import main

STAND_IN = '''
import sys, time, pathlib, dataclasses
import msgspec
from distmon.core import events as ev
from distmon.core.synthetic import Script, session
from distmon.replay.recorder import Recorder
words = sys.argv[1:]
ranks = int(words[words.index("-np") + 1])
path = pathlib.Path(words[words.index("--record") + 1])
command = words[words.index("--") + 1 :]
folder = pathlib.Path(command[0])
with (folder / "started").open("a") as file:
    file.write(f"{ranks} {' '.join(words[words.index('--record') + 2 : words.index('--')])}\\n")
if (folder / "fail").exists() and str(ranks) in (folder / "fail").read_text().split():
    sys.exit("the script broke \\x1b[31m")
if (folder / "die").exists() and str(ranks) in (folder / "die").read_text().split():
    exit_code = 7
else:
    exit_code = 0
if (folder / "hang").exists():
    try:
        (folder / "hanging").touch()
        time.sleep(600)
    except KeyboardInterrupt:
        sys.exit(130)
seed = ranks * 100 + len((folder / "started").read_text().splitlines())
script = Script(ranks=ranks, nodes=1, seconds=60 // ranks, step_s=0.1, seed=seed, steps_per_epoch=60 // ranks)
with Recorder(path) as recorder:
    for event in session(script):
        if isinstance(event, ev.StepsRecorded) and (folder / "no_samples").exists():
            event = msgspec.structs.replace(event, samples=None)
        if isinstance(event, ev.StepsRecorded) and (folder / "no_steps").exists():
            continue
        recorder.write(msgspec.structs.replace(event, exit_code=exit_code) if isinstance(event, ev.JobEnded) else event)
sys.exit(exit_code)
'''


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in which the stand-in notes its starts; runs are its."""
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    monkeypatch.setattr(sweep_runs, "RUN", [sys.executable, str(tmp_path / "stand_in.py")])
    monkeypatch.chdir(tmp_path)
    yield tmp_path


def started(job: Path) -> list[str]:
    return (job / "started").read_text().splitlines()


def test_a_sweep_runs_every_size_in_turns_and_reports(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", "-np", "2,1", "--repeat", "3", "--folder", "out", "--json"]
    assert main([*words, "--samples-per-step", "8", "--timeline-mark-cycles", "--", str(job)]) == 0
    said = capsys.readouterr()
    assert [line.split()[0] for line in started(job)] == ["1", "2", "2", "1", "1", "2"]
    assert {line.split(" ", 1)[1] for line in started(job)} == {"--samples-per-step 8 --timeline-mark-cycles"}
    lines = said.err.splitlines()
    assert lines[0] == "distmon: 6 runs into out; should it break: distmon sweep --resume out"
    assert lines[1] == "distmon: run 1 of 6: 1 rank, repeat 1 begins"
    assert re.fullmatch(r"distmon: run 1 of 6: 1 rank, repeat 1: [\d,.]+ samples/s, .* left", lines[2])
    assert len(lines) == 1 + 2 * 6 and "\x1b" not in said.err, "a line as each run begins and ends"
    scaling = json.loads(said.out)["scaling"]
    assert [(p["ranks"], p["runs"]) for p in scaling["points"]] == [(1, 3), (2, 3)]
    two = scaling["points"][1]
    assert two["speedup_by_speed"]["estimate"] == pytest.approx(2, rel=0.03)
    assert two["speedup_by_speed"]["basis"] == "between runs"
    assert two["speedup_by_wall"]["estimate"] == pytest.approx(
        two["work_factor"] * two["speed_factor"] * two["share_factor"], rel=1e-9
    )
    assert (scaling["kind"], scaling["kind_from"]) == ("strong", "samples of an epoch")


def test_a_break_is_made_good_and_nothing_runs_twice(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (job / "fail").write_text("2")
    assert main(["sweep", "-np", "1,2", "--repeat", "2", "--folder", "out", "--weak", "--", str(job)]) == 1
    said = capsys.readouterr()
    assert "the script broke" in said.err and "\x1b" not in said.err and "2 of 4 runs failed" in said.err
    (job / "fail").unlink()
    (job / "out" / "np1-run2.jsonl.zst").write_bytes(b"torn")
    before = len(started(job))
    assert main(["sweep", "--resume", "out", "--headless", "--markdown"]) == 0
    assert [line.split()[0] for line in started(job)[before:]] == ["2", "2", "1"]
    said = capsys.readouterr()
    assert "1 of 4 runs are there already" in said.err and re.search(r"run 4 of 4: 1 rank, repeat 2: [\d,.]+ samples/s", said.err)
    assert "weak: the samples of an epoch grow with the ranks" in said.out and "## Why the two speedups differ" in said.out


def test_a_size_that_died_is_marked_and_the_missing_scaling_is_explained(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (job / "die").write_text("2")
    assert main(["sweep", "-np", "1,2", "--folder", "out", "--", str(job)]) == 1
    said = capsys.readouterr().out
    rows = {line.split()[0]: line for line in said.splitlines() if line.startswith("  np")}
    assert rows["np2-run1"].endswith("exit 7") and "samples/s" in rows["np2-run1"] and "exit" not in rows["np1-run1"]
    assert "SCALING" in said and "only 1 rank had one; left out: np2-run1 (exit 7)" in " ".join(said.split())
    assert main(["report", "out", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["scaling"] is None and "np2-run1 (exit 7" in found["no_scaling"]


def test_runs_whose_samples_were_not_seen_say_so_with_the_mend_and_the_wall_times(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (job / "no_samples").touch()
    assert main(["sweep", "-np", "1,2", "--folder", "out", "--", str(job)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "left out: np1-run1, np2-run1 (the number of samples in a batch was not seen). " in said
    assert "exit 0" not in said and "--samples-per-step N" in said and "distmon.probe.step(samples=N)" in said
    assert "By wall time alone: 61.10 s with 1 rank, 31.10 s with 2 ranks; speedup, if all trained the same work: 1.965" in said
    assert main(["report", "out", "--json"]) == 0
    assert "--samples-per-step N" in json.loads(capsys.readouterr().out)["no_scaling"]


def test_runs_without_a_step_are_left_out_by_that_name(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "-np", "1,2", "--folder", "out", "--", str(job)]) == 0
    (job / "no_steps").touch()
    assert main(["sweep", "-np", "1,4", "--folder", "more", "--", str(job)]) == 0
    capsys.readouterr()
    assert main(["report", "out", "more/np4-run1.jsonl.zst", "--json"]) == 0
    assert "left out: np4-run1 (no rank reported a step)" in json.loads(capsys.readouterr().out)["scaling"]["notes"]


def test_the_kind_can_be_stated_after_the_runs(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "-np", "1,2", "--folder", "out", "--", str(job)]) == 0
    for words in (["sweep", "--resume", "out", "--weak"], ["report", "out", "--weak"]):
        capsys.readouterr()
        assert main([*words, "--json"]) == 0
        scaling = json.loads(capsys.readouterr().out)["scaling"]
        assert (scaling["kind"], scaling["kind_from"]) == ("weak", "stated")
    assert main(["report", "out/np1-run1.jsonl.zst", "--weak"]) == 2
    assert "how a job scales" in capsys.readouterr().err


def test_sizes_stand_in_order_and_what_is_no_recording_is_left_out(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "-np", "2,16", "--folder", "out", "--", str(job)]) == 0
    capsys.readouterr()
    (job / "out" / "notes.jsonl").write_text('{"of": "another program"}\n')
    for words in (["report", "out", "--json"], ["compare", "out", "out/np2-run1.jsonl.zst", "--json"]):
        assert main(words) == 0
        said = capsys.readouterr()
        assert said.err.count("left out: ") == 1 and "notes.jsonl" in said.err
        if words[0] == "report":
            assert [one["world_size"]["last"] for one in json.loads(said.out)["sessions"]] == [2, 16]
    assert main(["report", "out/notes.jsonl"]) == 1


@pytest.mark.parametrize(
    ("flags", "warned"),
    [
        ([], True),
        (["-H", "localhost:64"], True),
        (["-H=127.0.0.1:64"], True),
        (["--hostfile", "here"], True),
        (["--host-discovery-script", "echo localhost:64"], True),
        (["-H", "localhost:1,no-such-host.invalid:63"], False),
        (["--hostfile", "away"], False),
    ],
)
def test_ranks_that_share_this_machine_are_warned_of(
    flags: list[str], warned: bool, job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    (job / "fail").write_text("64")
    (job / "here").write_text("localhost slots=64\n")
    (job / "away").write_text("localhost slots=1\nno-such-host.invalid slots=63\n")
    assert main(["sweep", "-np", "64", "--folder", "out", *flags, "--", str(job)]) == 1
    assert ("warning: 64 ranks share the 2 cores of this machine" in capsys.readouterr().err) is warned


def test_two_failures_in_a_row_end_it(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (job / "fail").write_text("1 2 4")
    assert main(["sweep", "-np", "1,2,4", "--folder", "out", "--", str(job)]) == 1
    assert len(started(job)) == 2
    assert "no run came to a good end" in capsys.readouterr().err


def test_ctrl_c_ends_the_run_and_tells_how_to_go_on(job: Path) -> None:
    (job / "hang").touch()
    sweep = (
        "import sys; from distmon.tui.cli import sweep_runs; from distmon.tui.cli.main import main; "
        f"sweep_runs.RUN = {sweep_runs.RUN!r}; sys.exit(main(sys.argv[1:]))"
    )
    words = ["sweep", "-np", "1,2", "--folder", "out", "--", str(job)]
    with subprocess.Popen([sys.executable, "-c", sweep, *words], stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_for(job / "hanging", process)
            assert main(["sweep", "--resume", "out"]) == 1, "the folder is in use"
        finally:
            os.kill(process.pid, signal.SIGINT)
            _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped after 0 of 2 runs; go on with: distmon sweep --resume out" in error
    assert sorted(path.name for path in (job / "out").iterdir()) == ["sweep.json"]
    (job / "hang").unlink()
    assert main(["sweep", "--resume", "out"]) == 0


def test_a_folder_that_is_there_says_what_helps(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (job / "notes").mkdir()
    assert main(["sweep", "-np", "1", "--folder", "notes", "--", str(job)]) == 1
    assert "notes is there already; it holds no sweep: give --folder another name" in capsys.readouterr().err
    (job / "notes" / "sweep.json").write_text("{}")
    assert main(["sweep", "-np", "1", "--folder", "notes", "--", str(job)]) == 1
    assert "notes is there already; --resume notes goes on with it" in capsys.readouterr().err


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert process.poll() is None and time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["-np", "1,2"], 2, "no command to run"),
        (["--", "true"], 2, "which numbers of ranks"),
        (["-np", "1,x", "--", "true"], 2, "set apart by commas"),
        (["-np", "2,2", "--", "true"], 2, "names 2 twice; --repeat K"),
        (["-np", "1", "--repeat", "0", "--", "true"], 2, "from 1 up"),
        (["--resume", "gone"], 1, "holds no sweep"),
        (["--resume", "gone", "-np", "1"], 2, "give it no sizes"),
        (["-np", "1", "--folder", ".", "--", "true"], 1, "is there already"),
        (["-np", "1", "--no-such-flag", "--", "true"], 2, "there is no flag"),
    ],
)
def test_what_cannot_be_meant_is_one_line(
    words: list[str], code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", *words]) == code
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_report_of_the_folder_has_the_plots_of_scaling(job: Path) -> None:
    assert main(["sweep", "-np", "1,2,4", "--folder", "out", "--html", "sweep.html", "--", str(job)]) == 0
    page = (job / "sweep.html").read_text()
    specs: dict[str, Any] = {
        name: json.loads(text)
        for name, text in re.findall(r'<script type="application/json" id="spec-0-(\w+)">(.*?)</script>', page, re.DOTALL)
    }
    assert set(specs) == {f"scaling_{name}" for name in ("time", "throughput", "speedup", "efficiency", "parts")}
    rows = [row for rows in specs["scaling_speedup"]["datasets"].values() for row in rows]
    ideal = {row["n"]: row["v"] for row in rows if row["s"] == "ideal"}
    assert ideal == {1: 1, 2: 2, 4: 4}
    assert {row["s"] for row in rows} == {"ideal", "by steady speed", "by wall time"}
