"""Epochs side by side: what two runs took, epoch by epoch, from steps and metrics or from what was printed."""

import csv
import json
from pathlib import Path

import pytest

from distmon.core import events as ev
from distmon.core.codec import encode_json
from distmon.core.epoch_comparison import compare_epochs, epoch_run
from distmon.core.fold import apply
from distmon.core.printed import read_printed
from distmon.core.state import SessionState
from distmon.replay.report.epochs import epoch_sections, summarise_epochs
from distmon.replay.report.render import to_text
from distmon.tui.cli.main import main

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
ROWS = list(csv.DictReader((GOLDEN / "elastic_epochs.csv").read_text().splitlines()))
EVENTS = list(csv.DictReader((GOLDEN / "elastic_events.csv").read_text().splitlines()))
START = 1_000.0


def steps(epoch: int, started: float, seconds: float, rank: int = 0, generation: int = 0, first: int = 0) -> ev.StepsRecorded:
    return ev.StepsRecorded(
        at=started + seconds,
        node="n",
        worker=f"w{rank}",
        rank=rank,
        generation=generation,
        first_step=first,
        origin=started,
        start_ns=[0],
        duration_ns=[round(seconds * 1e9)],
        samples=[8],
        epoch=epoch,
    )


def events_of(side: str) -> list[ev.AnyEvent]:
    """A run as the write-up's table has it: its epochs, and the rest of its total time before the first one."""
    seconds = [float(row[f"{side}_s"]) for row in ROWS]
    total = next(float(row["seconds"]) for row in EVENTS if row["run"] == side and row["event"] == "total train time")
    events: list[ev.AnyEvent] = [ev.JobStarted(at=START, job="j", command=["x"], np=8, elastic=True)]
    at = START + total - sum(seconds)
    for row, duration in zip(ROWS, seconds, strict=True):
        if side == "elastic" and row["epoch"] in ("12", "19"):
            change: ev.ElasticKind = "host_left" if row["epoch"] == "12" else "host_joined"
            events.append(ev.MembershipChanged(at=at + 1, change=change, host="elastic-1", slots=1))
        epoch = int(row["epoch"])
        events.append(steps(epoch, at, duration, first=epoch))
        at += duration
        values = {"loss": float(row[f"{side}_loss"]), "accuracy": float(row[f"{side}_acc"]), "top5": float(row[f"{side}_top5"])}
        events.append(ev.MetricsLogged(at=at, worker="w0", rank=0, epoch=epoch, values=values))
    return [*events, ev.JobEnded(at=START + total, exit_code=0)]


def run_of(side: str) -> SessionState:
    state = SessionState()
    for event in events_of(side):
        apply(state, event)
    return state


def test_the_elastic_benchmark_comes_out_as_its_author_derived_it() -> None:
    found = compare_epochs(epoch_run(run_of("fixed")), epoch_run(run_of("elastic")))
    assert found is not None
    for pair, row in zip(found.pairs, ROWS, strict=True):
        assert pair.difference_s == pytest.approx(float(row["difference_printed_s"]), abs=0.0101)
        assert pair.base is not None and pair.other is not None
        assert pair.base.metrics["loss"] == float(row["fixed_loss"]) and pair.other.metrics["top5"] == float(row["elastic_top5"])
    assert (found.base.epochs_s, found.other.epochs_s) == pytest.approx((1343.90, 2502.75), abs=0.006)
    assert (found.base.outside_s, found.other.outside_s) == pytest.approx((304.17, 269.66), abs=0.006)
    assert (found.base.total_s, found.other.total_s) == pytest.approx((1648.07, 2772.41), abs=0.006)
    assert found.metrics == ["loss", "accuracy", "top5"] and not found.metrics_printed
    told = {pair.epoch: pair.other.events for pair in found.pairs if pair.other and pair.other.events}
    assert told == {12: ["host left elastic-1"], 19: ["host joined elastic-1"]}


def test_an_epoch_lasts_from_its_first_step_to_its_last_over_all_ranks_and_generations() -> None:
    state = SessionState()
    for size, generation in ((2, 0), (1, 1)):
        apply(state, ev.RanksAssigned(at=1.0, generation=generation, world_size=size, places=[]))
    again = steps(0, 20.0, 1.0, generation=1)
    for event in (steps(0, 10.0, 2.0, 1), steps(0, 9.5, 1.0), again, steps(1, 22.0, 1.0, 0, 1, 1)):
        apply(state, event)
    first, second = epoch_run(state).epochs.values()
    assert (first.seconds, first.ranks, first.samples) == (11.5, (1, 2), 24)
    assert (second.seconds, second.ranks) == (1.0, (1, 1))


@pytest.mark.parametrize(
    ("line", "right"),
    [
        ("epoch 3/10: loss 0.4100, accuracy 0.87", (3, {"loss": 0.41, "accuracy": 0.87})),
        ("[Epoch 7] train_loss=1.5e-3 top5: 0.9 lr 0.1", (7, {"train_loss": 0.0015, "top5": 0.9, "lr": 0.1})),
        ("Epoch: 12, Val-Acc 91.25", (12, {"val-acc": 91.25})),
        ("epoch 4: 2 ranks, loss 2.5", (4, {"loss": 2.5})),
        ("epoch 4 started", None),
        ("loss 0.5", None),
        ("reepoch 4 loss 0.5", None),
    ],
)
def test_what_a_script_prints_of_an_epoch_is_read(line: str, right: tuple[int, dict[str, float]] | None) -> None:
    assert read_printed(line) == right


def test_printed_metrics_stand_in_where_none_are_logged_and_count_from_one() -> None:
    state = SessionState()
    for epoch in range(2):
        apply(state, steps(epoch, 10.0 + epoch, 1.0, first=epoch))
        line = f"epoch {epoch + 1}: loss {2 - epoch}.5"
        apply(state, ev.OutputWritten(at=11.0, rank=0, host="a", local_rank=0, output="stdout", lines=[line]))
    apply(state, ev.OutputWritten(at=11.0, rank=1, host="a", local_rank=1, output="stdout", lines=["epoch 1: loss 9.9"]))
    found = compare_epochs(epoch_run(state), epoch_run(state))
    assert found is not None and found.metrics_printed
    assert [pair.base.metrics for pair in found.pairs if pair.base] == [{"loss": 2.5}, {"loss": 1.5}]


def test_runs_without_epochs_cannot_be_compared_by_them() -> None:
    assert compare_epochs(epoch_run(SessionState()), epoch_run(SessionState())) is None


def test_epochs_that_one_side_lacks_are_no_gain_and_none_are_no_zero() -> None:
    three, two = SessionState(), SessionState()
    for state, epochs in ((three, 3), (two, 2)):
        apply(state, ev.JobStarted(at=START, job="j", command=["x"], np=1))
        for epoch in range(epochs):
            apply(state, steps(epoch, START + 10 * epoch, 9.0, first=epoch))
    found = compare_epochs(epoch_run(three), epoch_run(two))
    assert found is not None
    assert (found.both, found.both_s, found.base.epochs_s, found.other.epochs_s) == (2, (18.0, 18.0), 27.0, 18.0)
    report = summarise_epochs(epoch_run(three), epoch_run(two))
    assert report is not None
    shown = to_text(epoch_sections(report))
    assert "sum of the 2 of both" in shown and "-9" not in shown
    none = compare_epochs(epoch_run(three), epoch_run(SessionState()))
    assert none is not None and (none.other.epochs_s, none.other.outside_s, none.both_s) == (None, None, None)


def test_the_command_prints_epoch_by_epoch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side in ("fixed", "elastic"):
        first = ev.SessionStarted(at=START, session_id=side, distmon_version="0")
        events = [first, *events_of(side), ev.SessionEnded(at=1e6)]
        (tmp_path / f"{side}.jsonl").write_bytes(b"".join(encode_json(event) + b"\n" for event in events))
    words = ["compare", str(tmp_path / "fixed.jsonl"), str(tmp_path / "elastic.jsonl")]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["epochs"]
    assert [row["difference_s"] for row in found["rows"]] == pytest.approx(
        [float(row["difference_printed_s"]) for row in ROWS], abs=0.0101
    )
    assert found["rows"][12]["other"]["events"] == ["host left elastic-1"]
    assert found["other"]["outside_s"] == pytest.approx(269.66, abs=0.006)
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "+625.44 s" in shown and "other, epoch 13: host left elastic-1" in shown and "outside them" in shown
