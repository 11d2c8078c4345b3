"""Without a screen the same is said in lines."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import pytest

from distmon.core import events as ev
from distmon.core.codec import encode_json
from distmon.core.fold import apply
from distmon.core.state import SessionState
from distmon.core.synthetic import Script, session
from distmon.replay.report.render import to_text
from distmon.replay.report.sections import sections
from distmon.replay.report.summarise import summarise
from distmon.tui.cli.main import main
from distmon.tui.plain import PlainView, _throughput, progress_line, summary_lines
from distmon.tui.terminal import can_show_app
from distmon.tui.theme import DARK
from distmon.tui.view.chart import TimeView, throughput_chart
from distmon.tui.view.facts import facts
from distmon.tui.view.header import header, verdict
from tests.core.test_hangs import died_frozen, died_of_a_hang, loading

EVENTS = list(session(Script(ranks=2, nodes=1, seconds=60, slow_rank=1, delay_s=0.03)))


def test_each_event_is_said_once_and_progress_comes_every_ten_seconds() -> None:
    state, view, lines = SessionState(), PlainView(), []
    for event in EVENTS:
        apply(state, event)
        lines += view.lines(state)
    assert lines.count("job started: python train.py --lr 0.1") == 1
    progress = [line for line in lines if "samples/s" in line]
    assert len(progress) in (6, 7)
    assert all("epoch" in line and "2 ranks" in line and "ETA" in line for line in progress)
    assert len([line for line in lines if line.startswith("rank 1 is late")]) == 1
    assert lines[-1] == "job finished, exit code 0"


def test_a_job_that_goes_past_its_epochs_is_not_told_to_be_done() -> None:
    state = SessionState()
    for event in EVENTS[: len(EVENTS) // 2]:
        apply(state, event)
    within = facts(state)
    assert within.progress.epochs and "ETA" in progress_line(within)
    apply(state, ev.EpochStarted(at=state.now, worker="w", rank=0, epoch=within.progress.epochs))
    past, epoch = facts(state), within.progress.epochs + 1
    header_lines = "".join(line.strip(120, DARK.style("text")).text for line in header(past, [], "", DARK, 120, 2))
    for told in (progress_line(past), header_lines):
        assert f"epoch {epoch} " in told and f"{epoch}/" not in told and "ETA" not in told and "100%" not in told


def test_the_summary_has_the_end_the_speed_the_split_the_node_and_the_verdict() -> None:
    state = SessionState()
    for event in EVENTS:
        apply(state, event)
    text = "\n".join(summary_lines(state))
    for part in (
        "finished after 1:01: 2 ranks",
        "samples/s steady",
        "exposed comm",
        "node-000: cpu",
        "verdict     rank 1 is late",
    ):
        assert part in text


def test_a_failure_names_rank_host_signal_and_last_lines() -> None:
    failure = ev.Failure(rank=2, host="n2", signal="SIGKILL", last_lines=["out of \x1b[31mmemory"])
    state = SessionState()
    apply(state, ev.JobStarted(at=0.0, job="j", command=["python", "t.py"], np=4))
    apply(state, ev.JobEnded(at=3.0, exit_code=137, reason="failed", failure=failure))
    assert summary_lines(state)[:4] == [
        "failed, exit 137 after 0:03: 0 ranks, 0 steps, samples –",
        "first failure: rank 2 on n2: SIGKILL",
        "  | out of memory",
        "throughput  – samples/s over the session; steady –: no steps yet",
    ]


@pytest.mark.parametrize("first", [0, 1])
def test_a_job_that_died_of_a_hang_says_who_hung(first: int) -> None:
    """In the closing summary, on the screen's first lines and in the report."""
    state = died_of_a_hang(first)
    failure = ev.Failure(rank=first, host="localhost", exit_code=1, last_lines=["HorovodInternalError"])
    apply(state, ev.JobEnded(at=135.0, exit_code=1, reason="failed", failure=failure))
    assert summary_lines(state)[1:4] == [
        "first failure: rank 1 on localhost: hung for 33 s, stopped or deaf to signals, at train.py:40 train",
        f"  then rank {first} on localhost: exit code 1",
        "  | HorovodInternalError",
    ]
    headline = "".join(text for text, _ in verdict(facts(state), DARK, 120)[0].pieces)
    then = "it" if first == 1 else "rank 0 on localhost"
    assert headline.startswith(f" ✖ rank 1 on localhost hung for 33 s; then {then} died: exit code 1  HorovodInternalError")
    report = " ".join(to_text(sections(summarise(state))).split())
    assert f"rank 1 hung for 33.00 s; first to die: rank {first} on localhost, exit code 1" in report


def test_a_rank_that_an_operator_stopped_is_named_before_and_after_the_job_dies_of_it() -> None:
    """Before the first step there is no stack to tell of it."""
    state = loading()
    apply(state, ev.LaunchProgressed(at=99.0, stage="first_step", detail="all ranks have met"))
    apply(state, ev.ActionTaken(at=100.0, action="signal", detail="SIGSTOP to rank 1"))
    apply(state, ev.Ticked(at=130.0))
    headline = "".join(text for text, _ in verdict(facts(state), DARK, 160)[0].pieces)
    assert "rank 1 on localhost is under an operator's SIGSTOP since 30 s" in headline and "try: let it go on" in headline
    state = died_frozen()
    failure = ev.Failure(rank=0, host="localhost", exit_code=1, last_lines=["HorovodInternalError"])
    apply(state, ev.JobEnded(at=147.0, exit_code=1, reason="failed", failure=failure))
    assert summary_lines(state)[1:3] == [
        "first failure: rank 1 on localhost: hung for 38 s under an operator's SIGSTOP",
        "  then rank 0 on localhost: exit code 1",
    ]
    headline = "".join(text for text, _ in verdict(facts(state), DARK, 160)[0].pieces)
    assert headline.startswith(" ✖ rank 1 on localhost hung for 38 s under an operator's SIGSTOP; then rank 0 on localhost died")
    report = " ".join(to_text(sections(summarise(state))).split())
    assert "rank 1 hung for 38.00 s under an operator's SIGSTOP; first to die: rank 0 on localhost, exit code 1" in report


class FakeTerminal:
    closed = False

    def __init__(self, terminal: bool) -> None:
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.mark.parametrize(
    ("term", "terminals", "expected"),
    [
        ("xterm-256color", (True, True, True), True),
        ("dumb", (True, True, True), False),
        ("", (True, True, True), False),
        ("xterm", (False, True, True), False),
        ("xterm", (True, False, True), False),
        ("xterm", (True, True, False), False),
    ],
)
def test_the_app_is_not_started_without_a_terminal_that_can_show_it(
    monkeypatch: pytest.MonkeyPatch, term: str, terminals: tuple[bool, bool, bool], expected: bool
) -> None:
    for name, terminal in zip(("__stdin__", "__stdout__", "__stderr__"), terminals, strict=True):
        monkeypatch.setattr(sys, name, FakeTerminal(terminal))
    assert can_show_app({"TERM": term}) is expected


def test_a_closed_stream_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: TextIO | None = None
    monkeypatch.setattr(sys, "__stdin__", closed)
    assert not can_show_app({"TERM": "xterm"})


@pytest.mark.parametrize(("dropped", "said"), [(0, []), (1, ["1 line lost"]), (12_345, ["12,345 lines lost"])])
def test_the_summary_says_how_many_lines_of_output_were_lost(dropped: int, said: list[str]) -> None:
    state = SessionState()
    apply(state, ev.OutputWritten(at=1.0, host="a", local_rank=0, rank=0, output="stdout", lines=["kept"], dropped=dropped))
    assert [line[12:].partition(":")[0] for line in summary_lines(state) if line.startswith("output ")] == said


def test_the_summary_of_a_job_that_was_refused_says_why() -> None:
    state = SessionState()
    apply(state, ev.JobEnded(at=3.0, exit_code=1, reason="failed", detail="no \x1b[31mslots"))
    assert summary_lines(state)[1].startswith("reason      no ")
    assert "\x1b" not in summary_lines(state)[1]


def test_a_recording_is_told_in_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "--demo"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "    0:00  node vm joined"
    assert "    2:48  job finished, exit code 0" in said
    assert any(line.startswith("finished after 2:47: 2 ranks") for line in said)
    assert said[-1].startswith("verdict     ")
    progress = [line for line in said[:-9] if line.endswith("samples/s")]
    assert progress and all(line[8:].startswith("  epoch") for line in progress), "the time is told once"


def test_a_recording_that_is_cut_off_is_not_told_as_going_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, events = tmp_path / "cut.jsonl", list(session(Script(ranks=2, nodes=1, seconds=20)))
    path.write_bytes(b"".join(encode_json(event) + b"\n" for event in events if event.at < events[0].at + 15))
    assert main(["replay", str(path)]) == 0
    said = capsys.readouterr().out
    assert "its end was not recorded: cut off after 0:1" in said and "training after" not in said


def test_what_needs_a_screen_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "--demo", "--at", "0:10"]) == 2
    assert main(["launch", "-np", "2"]) == 1
    assert [line.split(";")[0] for line in capsys.readouterr().err.splitlines()] == [
        "distmon: --at and --against need a terminal to draw on",
        "distmon: a form needs a terminal to draw on",
    ]


def test_a_machine_without_a_job_tells_its_readings() -> None:
    state, view, lines = SessionState(), PlainView(), []
    apply(state, ev.NodeJoined(at=0.0, node="n", host="box", cores=8, memory_bytes=1000))
    for second in range(1, 25):
        sample = ev.NodeSampled(at=float(second), node="n", interval_s=1.0, cpu_percent=12.0, memory_used_bytes=340)
        apply(state, sample)
        lines += view.lines(state)
    assert lines[0] == "node box joined"
    assert len(lines) == 4
    assert all(line.startswith("box: cpu 12%, memory ") for line in lines[1:])


def test_a_speed_is_called_steady_only_where_a_steady_state_was_found() -> None:
    state = SessionState()
    for event in session(Script(ranks=2, nodes=1, seconds=30)):
        apply(state, event)
    found = facts(state)
    unsteady = replace(found, steady=replace(found.steady, reason="no steady state: it changes"))
    for moment, word in ((found, "steady "), (unsteady, "past the start ")):
        assert throughput_chart(moment, TimeView()).caption[0][0] == word
        assert word.strip() in _throughput(moment)
    assert "samples/s steady" not in _throughput(unsteady) and "it changes" in _throughput(unsteady)
