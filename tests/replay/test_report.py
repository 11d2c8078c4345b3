"""The report: fixed keys, parts that add up, reasons for what is missing, nothing secret, nothing that moves the cursor."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from distmon.core import events as ev
from distmon.core import steps
from distmon.core.comparison import run_values
from distmon.core.epoch_comparison import epoch_run
from distmon.core.fold import apply
from distmon.core.printable import clean
from distmon.core.quantiles import RELATIVE_ERROR
from distmon.core.state import SessionState
from distmon.core.step_sums import summed
from distmon.core.synthetic import Script, session
from distmon.replay.recorder import Recorder
from distmon.replay.report import model
from distmon.replay.report.compare import Compared, compare
from distmon.replay.report.compare import sections as sections_of_comparison
from distmon.replay.report.mask import MASK, masked, masked_command
from distmon.replay.report.reasons import numbers
from distmon.replay.report.render import to_markdown, to_text
from distmon.replay.report.sections import sections
from distmon.replay.report.summarise import summarise
from distmon.replay.report.tables import Section, Table
from distmon.tui.cli.main import main

FIXED_KEYS = {
    "": "session_id started duration_s complete command exit_code world_size steps samples throughput warmup step_split_s "
    "wall_split_s ranks nodes elastic failure verdicts gaps",
    "world_size": "min max last",
    "throughput": "mean_samples_per_s median_samples_per_s p5_samples_per_s p95_samples_per_s ci95_samples_per_s",
    "warmup": "steps duration_s method",
    "step_split_s": "input_wait compute exposed_communication optimizer rest",
    "wall_split_s": "launch rendezvous initialisation warmup steady evaluation checkpoint restart redone tail unexplained",
    "ranks": "rank host steps step_median_s split_s",
    "ranks.split_s": "input_wait compute exposed_communication optimizer rest",
    "nodes": "node cpu_mean_percent power_mean_w energy_j energy_covers rails gpus",
    "nodes.rails": "name mean_w",
    "nodes.gpus": "index name utilization_mean_percent power_mean_w",
    "elastic": "generations events lost_s",
    "elastic.events": "at_s kind host rank",
    "elastic.lost_s": "detection teardown rendezvous initialisation sync redone below_capacity",
    "failure": "rank host signal exit_code last_lines",
    "verdicts": "kind rank host phase from_s to_s evidence gain_percent try",
    "gaps": "node from_s to_s lost_records",
}
ESCAPE = "\x1b[31mred\x1b]0;title\x07"


def folded(events: Sequence[ev.AnyEvent]) -> SessionState:
    state = SessionState()
    for event in events:
        apply(state, event)
    return state


def eventful() -> list[ev.AnyEvent]:
    """A session with something in every part of the report."""
    events = list(session(Script(ranks=4, nodes=2, seconds=40, slow_rank=1, delay_s=0.03, gpus_per_node=1)))
    at = events[0].at
    events[-3:-3] = [
        ev.MembershipChanged(at=at + 30, change="host_failed", host="node-[1]" + ESCAPE, detail="ssh"),
        ev.GapFound(at=at + 31, node="n0", started=at + 20, ended=at + 25, lost_records=7, cause="journal full"),
        ev.PhaseUnseen(at=at + 1, worker="w0", rank=0, field="metric loss", reason="compiled"),
    ]
    line = "export HF_TOKEN=hf_abcdefghijklmnopqrstuvwx" + ESCAPE
    failure = ev.Failure(rank=2, host="node-001", signal="SIGKILL", last_lines=[line])
    events[-2] = ev.JobEnded(at=at + 41, exit_code=137, reason="failed", failure=failure)
    return events


def as_json(state: SessionState) -> Any:
    return json.loads(msgspec.json.encode(summarise(state)))


def at_path(value: Any, path: str) -> Any:
    for key in path.split(".") if path else []:
        value = value[key]
        value = value[0] if isinstance(value, list) else value
    return value


@pytest.mark.parametrize("path", FIXED_KEYS)
def test_the_fixed_keys_are_there(path: str) -> None:
    assert set(FIXED_KEYS[path].split()) <= set(at_path(as_json(folded(eventful())), path))


@pytest.mark.parametrize("path", ["", "world_size", "throughput", "warmup", "step_split_s", "wall_split_s", "elastic"])
def test_the_fixed_keys_are_there_for_an_empty_session_too(path: str) -> None:
    assert set(FIXED_KEYS[path].split()) <= set(at_path(as_json(SessionState()), path))


def test_every_key_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "json.md").read_text()
    structs = [value for value in vars(model).values() if isinstance(value, type) and issubclass(value, msgspec.Struct)]
    keys = {key for struct in structs for key in struct.__struct_encode_fields__}
    assert {key for key in keys if f"`{key}`" not in page and f'"{key}"' not in page} == set()


def test_the_wall_split_adds_up_and_so_does_the_step() -> None:
    found = as_json(folded(list(session(Script(seconds=60)))))
    assert sum(v for v in found["wall_split_s"].values() if v is not None) == pytest.approx(found["duration_s"])
    assert sum(v for v in found["step_split_s"].values() if v is not None) == pytest.approx(found["step_s"])
    for rank in found["ranks"]:
        assert sum(rank["split_s"].values()) == pytest.approx(found["step_s"], rel=0.01)


def test_the_figures_are_those_of_the_script() -> None:
    script = Script(ranks=4, nodes=2, seconds=60, step_s=0.1, samples=32, slow_rank=1, delay_s=0.03)
    found = as_json(folded(list(session(script))))
    assert found["throughput"]["mean_samples_per_s"] == pytest.approx(4 * 32 / 0.13, rel=0.01)
    assert found["warmup"]["steps"] == 3
    assert found["samples"] == found["steps"] * 4 * 32
    assert found["verdicts"][0]["kind"] == "straggler" and found["verdicts"][0]["rank"] == 1
    assert found["world_size"] == {"min": 4, "max": 4, "last": 4}


def test_what_was_logged_is_told_with_its_last_value_and_when_that_was() -> None:
    state = folded(list(session(Script(ranks=2, seconds=5))))
    for rank, name, value, step, epoch in (
        (1, "accuracy", 0.5, 7, None),
        (1, "loss", 9.0, 9, 1),
        (0, "loss", 2.0, 8, 0),
        (0, "loss", 0.25, 1200, 1),
    ):
        logged = {name: value}
        apply(state, ev.MetricsLogged(at=state.now, worker=f"w{rank}", rank=rank, values=logged, step=step, epoch=epoch))
    assert [m for m in as_json(state)["metrics"] if m["name"] in ("loss", "accuracy")] == [
        {"name": "accuracy", "rank": 1, "value": 0.5, "step": 7, "epoch": None},
        {"name": "loss", "rank": 0, "value": 0.25, "step": 1200, "epoch": 1},
    ]
    text = to_text(sections(summarise(state)))
    assert re.search(r"^ *loss +0\.25 +1,200 +2 +0$", text, re.MULTILINE)
    assert re.search(r"^ *accuracy +0\.5 +7 +– +1$", text, re.MULTILINE)


def test_what_was_not_measured_is_null_with_its_reason() -> None:
    events = [event for event in session(Script(seconds=20)) if not isinstance(event, ev.NodeSampled)]
    blind = [
        msgspec.structs.replace(event, samples=None, optimizer_ns=None) if isinstance(event, ev.StepsRecorded) else event
        for event in events
    ]
    found = as_json(folded(blind))
    assert found["samples"] is None and found["throughput"]["mean_samples_per_s"] is None
    assert found["step_split_s"]["optimizer"] is None and found["step_split_s"]["rest"] > 0
    assert found["nodes"][0]["power_mean_w"] is None
    assert {"samples", "throughput", "nodes.n0.power_mean_w"} <= set(found["reasons"])
    assert "–" in to_text(sections(summarise(folded(blind))))


def one_rank() -> SessionState:
    return folded(list(session(Script(ranks=1, nodes=1, seconds=30))))


def no_step() -> SessionState:
    return folded([event for event in session(Script(seconds=20)) if not isinstance(event, ev.StepsRecorded)])


def cut_off() -> SessionState:
    return folded(list(session(Script(seconds=30)))[:-2])


def no_nodes() -> SessionState:
    return folded([event for event in session(Script(seconds=30)) if not isinstance(event, ev.NodeSampled)])


def few_steps() -> SessionState:
    return folded(list(session(Script(seconds=12, step_s=1.5))))


def summed_steps() -> SessionState:
    events = session(Script(seconds=40))
    return folded([summed(event) or event if isinstance(event, ev.StepsRecorded) else event for event in events])


def unsampled() -> SessionState:
    """No batch sizes and no optimizer, as the probe says too."""
    events = list(session(Script(seconds=30)))
    at = events[0].at + 1
    unseen = [ev.PhaseUnseen(at=at, worker=f"w{rank}", rank=rank, field="optimizer", reason="compiled") for rank in range(4)]
    return without([*events[:-1], *unseen, events[-1]], samples=None, optimizer_ns=None)


def many_parts() -> SessionState:
    return folded(eventful())


def half_powered() -> SessionState:
    events = list(session(Script(seconds=60)))
    return folded([event for event in events if not (isinstance(event, ev.NodeSampled) and event.at > events[0].at + 30)])


def read_once() -> SessionState:
    """Of each node's power there is its first reading alone."""
    events, seen = list[ev.AnyEvent](), set[str]()
    for event in session(Script(seconds=20)):
        if isinstance(event, ev.NodeSampled):
            event = msgspec.structs.replace(event, power=[] if event.node in seen else event.power)
            seen.add(event.node)
        events.append(event)
    return folded(events)


TELLING_NULLS = re.compile(
    r"horovod_timeline|failure(\..*)?|hangs\..*|host_silences\..*|verdicts\..*|elastic\..*|energy\.cost(_per_sample)?"
    r"|nodes\.[^.]+\.(silences|cores)\..*"
)
"""What is null says something there: docs/json.md has what."""
NAMED_BY = ("rank", "epoch", "node", "index", "core", "name")


def nulls(value: Any, path: str) -> Iterator[str]:
    """The keys of what is null; an entry of a list by its number or name."""
    if value is None and not TELLING_NULLS.fullmatch(path):
        yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from nulls(inner, f"{path}.{key}".lstrip(".")) if key not in ("reasons", "unavailable", "unseen") else ()
    if isinstance(value, list):
        for place, inner in enumerate(value):
            name = next((inner[key] for key in NAMED_BY if key in inner), place) if isinstance(inner, dict) else place
            yield from nulls(inner, f"{path}.{name}")


def numbers_in(part: str) -> set[str]:
    """As docs/json.md has it: `0+1+4-9`."""
    found: set[str] = set()
    for one in part.split("+"):
        first, _, last = one.partition("-")
        found |= {str(number) for number in range(int(first), int(last or first) + 1)}
    return found


def is_of(key: str, path: str) -> bool:
    """Whether a key of `reasons` speaks of a path: of it, or of what it lies in."""
    parts, there = key.split("."), path.replace(".split_s.", ".").split(".")
    if parts[0] == "ranks" and there[0] == "step_split_s":
        there = [*parts[:2], *there[1:]]
    return len(parts) <= len(there) and all(
        a == b or (re.fullmatch(r"\d+([+-]\d+)*", a) is not None and b in numbers_in(a))
        for a, b in zip(parts, there, strict=False)
    )


@pytest.mark.parametrize(
    "made",
    [one_rank, no_step, cut_off, no_nodes, few_steps, half_powered, read_once, summed_steps, unsampled, many_parts, SessionState],
)
def test_every_null_has_its_reason(made: Callable[[], SessionState]) -> None:
    found = as_json(made())
    own = {f"nodes.{node['node']}.{name}" for node in found["nodes"] for name in node["unavailable"]}
    said = [*found["reasons"], *own]
    assert [path for path in nulls(found, "") if not any(is_of(key, path) for key in said)] == []


def test_each_of_many_ranks_and_epochs_finds_its_reason() -> None:
    assert numbers([0, 1]) == "0+1" and numbers([7, 4, 5, 6, 0, 12, 13]) == "0+4-7+12+13"
    found = as_json(folded(list(session(Script(ranks=24, nodes=2, seconds=12, step_s=1.5)))))
    (key,) = [key for key in found["reasons"] if key.endswith(".mean_samples_per_s")]
    assert key == "ranks.0-23.mean_samples_per_s" and all(is_of(key, f"ranks.{rank}.mean_samples_per_s") for rank in range(24))
    assert not is_of(key, "ranks.24.mean_samples_per_s")


def test_the_text_names_keys_of_one_reason_together_and_not_those_of_the_summary() -> None:
    (section,) = [section for section in sections(summarise(no_step())) if section.title == "Not measured"]
    assert "samples, step_s" in "\n".join(section.lines).replace("warmup, ", "") and "summary." not in "\n".join(section.lines)
    assert len({line.rpartition(": ")[2] for line in section.lines}) == len(section.lines)


def without(events: Sequence[ev.AnyEvent], **columns: Any) -> SessionState:
    """The state of a session whose steps have some columns replaced."""
    return folded([msgspec.structs.replace(e, **columns) if isinstance(e, ev.StepsRecorded) else e for e in events])


@pytest.mark.parametrize(
    ("script", "shape", "said"),
    [
        (Script(seconds=9, step_s=0.5), "too_few_steps", "not enough steps to tell"),
        (Script(seconds=20, step_s=0.1), "warmup", ""),
    ],
)
def test_warm_up_gives_its_own_reason_where_batches_have_no_size(script: Script, shape: str, said: str) -> None:
    found = summarise(without(list(session(script)), samples=None))
    assert found.warmup.shape == shape
    assert "number of samples" in found.reasons["throughput"]
    assert said in found.reasons.get("warmup", "")
    facts = dict(next(s for s in sections(found) if s.title.startswith("Throughput")).facts)
    assert "number of samples" in facts["mean"]
    assert "number of samples" not in facts["warm-up"] and said in facts["warm-up"]


def test_no_steady_state_is_said_whatever_the_samples() -> None:
    restless = [0.1] * 40 + [0.05] * 40
    at, ns = 1_000.0, [round(d * 1e9) for d in restless]
    started = [sum(ns[:i]) for i in range(len(ns))]
    batch = ev.StepsRecorded(
        at=at + 9, node="n", worker="w", rank=0, generation=0, first_step=0, origin=at, start_ns=started, duration_ns=ns
    )
    found = summarise(folded([ev.SessionStarted(at=at, session_id="s", distmon_version="0"), batch]))
    assert found.warmup.shape == "no_steady_state", found.warmup
    assert found.reasons["warmup"].startswith("no steady state")
    assert "warm-up       – (no steady state" in to_text(sections(found))


def test_micro_batches_are_told_where_they_are_more_than_steps() -> None:
    events = list(session(Script(ranks=2, seconds=5)))
    plain_run = summarise(folded(events))
    assert [rank.micro_batches for rank in plain_run.ranks] == [rank.steps for rank in plain_run.ranks]
    assert "micro-batches" not in to_text(sections(plain_run))
    batches = [event for event in events if isinstance(event, ev.StepsRecorded)]
    found = summarise(folded([msgspec.structs.replace(b, micro_batches=[4] * len(b.duration_ns)) for b in batches]))
    assert [rank.micro_batches for rank in found.ranks] == [4 * rank.steps for rank in found.ranks]
    assert "micro-batches" in to_text(sections(found))


def test_a_phase_missing_in_some_steps_is_said_with_their_number() -> None:
    events: list[ev.AnyEvent] = []
    for event in session(Script(ranks=2, nodes=1, seconds=5)):
        if isinstance(event, ev.StepsRecorded) and event.first_step == 0:
            kept = list(event.compute_ns or [])
            event = msgspec.structs.replace(event, compute_ns=[None, *kept[1:]], optimizer_ns=[None, *kept[1:]])
        events.append(event)
    at = events[-1].at
    for rank in (0, 1):
        for phase in ("compute", "exposed_communication"):
            events.append(ev.PhaseUnseen(at=at, worker=f"w{rank}", rank=rank, field=phase, reason="traced"))
    found = summarise(folded(events))
    steps = sum(rank.steps for rank in found.ranks)
    assert found.reasons["ranks.0+1.compute"] == f"not seen in 2 of {steps} steps: traced"
    assert "ranks.0+1.exposed_communication" not in found.reasons
    blind = without(events, compute_ns=None)
    assert summarise(blind).reasons["ranks.0+1.compute"] == "traced"


def test_steps_that_came_as_sums_are_a_note() -> None:
    state = SessionState()
    for event in session(Script(ranks=2, nodes=1, seconds=20)):
        apply(state, summed(event) or event if isinstance(event, ev.StepsRecorded) and event.rank == 1 else event)
    found = summarise(state)
    [note] = [note for note in found.notes if "sums" in note]
    assert found.throughput.quantile_error is None and "sums" in found.reasons["throughput.quantile_error"]
    steps = state.generations[0].ranks[1].sums[0]
    assert note.startswith(f"{steps:,} of {2 * steps:,} steps of single ranks came as sums of about a second")


def test_lost_output_and_silent_nodes_are_notes() -> None:
    at = 1_000.0
    heard = [ev.NodeSampled(at=at + t, node=node, interval_s=1.0) for t in (1, 40) for node in ("a", "b")]
    lines = ev.OutputWritten(at=at + 1, rank=0, host="h", local_rank=0, output="stdout", lines=["x"] * 3, dropped=1_200)
    started = ev.SessionStarted(at=at, session_id="s", distmon_version="0")
    found = summarise(folded([started, *heard[:2], lines, ev.Ticked(at=at + 30), heard[2], ev.Ticked(at=at + 41)]))
    assert found.notes == [
        "1,200 of 1,203 lines of the ranks' output lost: they came faster than distmon could take",
        "nothing was heard of node a from 1.00 s to 40.00 s",
        "nothing was heard of node b from 1.00 s to the end",
    ]
    assert [[(s.from_s, s.to_s) for s in node.silences] for node in found.nodes] == [[(1.0, 40.0)], [(1.0, None)]]
    assert all(note in to_text(sections(found)) for note in found.notes)


def test_a_session_without_a_job_reports_what_it_has() -> None:
    found = summarise(folded([ev.SessionStarted(at=5.0, session_id="s", distmon_version="0"), ev.Ticked(at=9.0)]))
    assert (found.duration_s, found.steps, found.exit_code, found.complete) == (4.0, 0, None, False)
    assert found.reasons["warmup"] == "no rank reported a step"
    assert "without a job" in to_text(sections(found))


def test_sentences_are_as_wide_as_there_is_room() -> None:
    told = [Section("Findings", lines=["it holds the job back " * 9], facts=[("command", "python train.py " * 9)])]
    for width in (40, 60, 118):
        assert width - 10 < max(map(len, to_text(told, width).splitlines())) <= width


def test_nothing_secret_and_nothing_that_moves_the_cursor_is_shown() -> None:
    summary = summarise(folded(eventful()))
    for shown in (to_text(sections(summary)), to_markdown(sections(summary)), msgspec.json.encode(summary).decode()):
        assert "hf_abc" not in shown and MASK in shown.replace("\\", "")
        assert "\x1b" not in shown and "\\u001b" not in shown and "title" not in shown
        assert "SIGKILL" in shown and "journal full" in shown and "compiled" in shown


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("WANDB_API_KEY=0123456789abcdef python train.py", "0123456789abcdef"),
        ('{"access_token": "s3cr3t-value"}', "s3cr3t-value"),
        ("https://me:hunter2@registry.example/x", "hunter2"),
        ("Authorization: Bearer abcdefgh12345678", "abcdefgh12345678"),
        ("key sk-abcdefghijklmnopqrstuv used", "sk-abcdefghijklmnopqrstuv"),
        ("clone with ghp_abcdefghijklmnopqrstuvwxyz0123", "ghp_abcdefghijklmnopqrstuvwxyz0123"),
        ("id AKIAABCDEFGHIJKLMNOP", "AKIAABCDEFGHIJKLMNOP"),
        ("--hub-token=abc123 --lr 0.1", "abc123"),
    ],
)
def test_known_forms_of_secrets_are_masked(text: str, secret: str) -> None:
    assert secret not in masked(text) and MASK in masked(text)


def test_what_only_looks_like_a_secret_stays() -> None:
    for text in (
        "tokenizer: bert",
        "loss=0.31 tokens/s=1200",
        "loss per token: 0.31, done",
        "python train.py --lr 0.1",
        "max_tokens reached",
        "a@b.c: mail",
    ):
        assert masked(text) == text
    assert masked_command(["train.py", "--api-key", "xyz", "--lr", "0.1"]) == ["train.py", "--api-key", MASK, "--lr", "0.1"]


@given(st.text())
def test_plain_text_holds_no_control_characters(text: str) -> None:
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", clean(text))


def test_markdown_keeps_the_sessions_text_from_being_markup() -> None:
    state = folded([ev.SessionStarted(at=1.0, session_id="a|b*c*<b>`x`", distmon_version="0")])
    assert r"a\|b\*c\*\<b\>\`x\`" in to_markdown(sections(summarise(state)))


def compared(**script: Any) -> Compared:
    state = folded(list(session(Script(**{"seconds": 60} | script))))
    return Compared(summarise(state), run_values(state), epoch_run(state))


def test_a_comparison_gives_ratios_and_says_how_far_it_goes() -> None:
    slow, fast = compared(slow_rank=1, delay_s=0.03), compared()
    found = compare([slow], [fast])
    ratios = {measure.name: measure.ratio for measure in found.measures}
    assert ratios["throughput mean"] == pytest.approx(1.3, rel=0.02)
    assert ratios["step, input wait"] == pytest.approx(0.002 / 0.0095, rel=0.02)
    assert found.intervals_overlap is False and any("fewer than 3 runs" in note for note in found.notes)
    assert found.sizes[0].verdict == "not told"
    text = to_text(sections_of_comparison(found))
    assert "these runs differ, whether others would is not told: throughput median of other is 3" in text
    same = compare([fast], [fast])
    text = to_text(sections_of_comparison(same))
    assert same.sizes[0].shown_percent is None and "would be shown" not in text
    assert same.intervals_overlap is True and same.sizes[0].verdict == "no difference shown"
    assert "no difference shown within these runs: throughput median of other is 0.0 % higher" in text


def failed(name: str, code: int, reason: Literal["failed", "stopped"] = "failed", *, steps: bool = True) -> Compared:
    """A run that came to that end."""
    events = [event for event in session(Script(seconds=60)) if steps or not isinstance(event, ev.StepsRecorded)]
    ended = [msgspec.structs.replace(e, exit_code=code, reason=reason) if isinstance(e, ev.JobEnded) else e for e in events]
    state = folded(ended)
    return Compared(summarise(state, name), run_values(state), epoch_run(state))


def test_runs_that_failed_are_left_out_where_others_are_and_it_is_said() -> None:
    good, bad = compared(), failed("runs/np2-run1.jsonl.zst", 1)
    found = compare([good, good, bad], [good])
    assert (found.base.runs, found.other.runs) == (2, 1)
    assert "left out, without a good end: np2-run1.jsonl.zst (failed, exit 1)" in found.notes and found.ends == ""


@pytest.mark.parametrize("steps", [True, False])
def test_how_runs_ended_is_said_at_the_head_and_what_a_cut_one_took_is_no_speed(steps: bool) -> None:
    stopped, died = failed("a.jsonl", 143, "stopped"), failed("b.jsonl", 1, steps=steps)
    found = compare([stopped], [died])
    made = [one.session.steps for one in (stopped, died)]
    assert made[0] > 0 and bool(made[1]) == steps
    said = f"base: stopped, exit 143, after {made[0]:,} steps; other: failed, exit 1, after {made[1]:,} steps; "
    assert found.ends.startswith(said) and ("note", found.ends) in sections_of_comparison(found)[0].facts
    assert (found.base.end_reason, found.other.exit_code) == ("stopped", 1)
    assert not {"duration", "energy"} & {measure.name for measure in found.measures}
    text = to_text(sections_of_comparison(found))
    assert ("nothing was measured on both sides" in text) != steps and "duration" not in text
    whole = compare([compared()], [died])
    assert whole.ends.startswith("other: failed") and compare([compared()], [compared()]).ends == ""
    assert "duration" in {measure.name for measure in compare([compared()], [compared()]).measures}


def test_a_header_that_is_wider_than_the_text_stands_in_lines() -> None:
    wide = Section("", table=Table(["epoch", "accuracy, base", "accuracy, other"], [["1", "0.25", "0.3125"]]))
    assert to_text([wide], 40) == "epoch  accuracy, base  accuracy, other\n1                0.25           0.3125\n"
    assert to_text([wide], 30) == (
        "       accuracy,  accuracy,\n"
        "epoch       base      other\n"
        "1           0.25     0.3125\n"
    )  # fmt: skip


def test_a_table_wider_than_a_terminal_goes_on_below_with_its_first_column() -> None:
    wide = Section("Ranks", table=Table(["rank", "host", "steps", "wait"], [["0", "node-0", "1,178", "2.00 ms"]], left=(1,)))
    assert to_text([wide], 40, 40) == "RANKS\n  rank  host    steps     wait\n     0  node-0  1,178  2.00 ms\n"
    assert to_text([wide], 24, 24) == (
        "RANKS\n"
        "  rank  host    steps\n"
        "     0  node-0  1,178\n"
        "\n"
        "  rank     wait\n"
        "     0  2.00 ms\n"
    )  # fmt: skip
    assert to_text([wide], 10, 10).splitlines()[1:3] == ["  rank  h…", "     0  n…"]
    said = Section("", table=Table(["epoch", ""], [["2", "160 samples done again"], ["3", ""]], left=(1,)))
    assert to_text([said], 19, 19) == "epoch\n    2  160 samples\n       done again\n    3\n"
    told = sections(summarise(folded([*session(Script(ranks=4, nodes=2, seconds=20, gpus_per_node=1))])))
    for columns in (60, 80):
        assert max(map(len, to_text(told, columns, columns).splitlines())) <= columns


def test_other_work_is_said_at_the_head() -> None:
    found = compare([compared(seconds=90)], [compared()])
    assert re.match(r"the work differs: base trained .*[0-9] samples, other .*[0-9] samples;", found.sizes[0].other_work)
    assert ("note", found.sizes[0].other_work) in sections_of_comparison(found)[0].facts
    assert compare([compared()], [compared(seed=3)]).sizes[0].other_work == ""


def test_other_work_of_repeated_runs_is_told_as_means_in_five_digits() -> None:
    base = [compared(seconds=90), compared(seconds=90), compared(seconds=91)]
    found = compare(base, [compared()]).sizes[0].other_work
    mean = sum(one.session.samples or 0 for one in base) / 3
    assert mean != round(mean) and f"{mean:,.0f} samples (means of 3 runs), other " in found
    assert found.count("(means of") == 1


def test_energy_of_a_part_of_the_time_is_not_compared_and_its_share_is_said() -> None:
    events = list(session(Script(seconds=60)))
    cut = [event for event in events if not (isinstance(event, ev.NodeSampled) and event.at > events[0].at + 30)]
    whole, part = folded(events), folded(cut)
    found = compare(*([Compared(summarise(state), run_values(state), epoch_run(state))] for state in (whole, part)))
    assert "energy" in run_values(whole) and not {"energy", "energy per sample"} & {m.name for m in found.measures}
    assert any("power was measured for " in note and "none is compared" in note for note in found.notes)
    assert "energy.per_sample_j" in summarise(part).reasons and "energy.per_sample_j" not in summarise(whole).reasons


@pytest.mark.parametrize(("base_gpus", "other_gpus", "comparable"), [(0, 1, False), (1, 1, True), (1, 2, False)])
def test_energies_that_cover_other_things_are_not_compared(base_gpus: int, other_gpus: int, comparable: bool) -> None:
    found = compare([compared(gpus_per_node=base_gpus)], [compared(gpus_per_node=other_gpus)])
    assert ({"energy", "energy per sample"} & {measure.name for measure in found.measures} != set()) == comparable
    notes = [note for note in found.notes if note.startswith("energies that cover other things are not compared")]
    assert len(notes) == (not comparable) and all("package-0 + gpu0" in note for note in notes)


def test_energies_of_nodes_of_which_one_has_no_gpu_reading_are_not_compared() -> None:
    events = list(session(Script(seconds=60, gpus_per_node=1)))
    without = [msgspec.structs.replace(e, gpus=[]) if isinstance(e, ev.NodeSampled) and e.node == "n1" else e for e in events]
    sides = ([Compared(summarise(state, "r"), run_values(state), epoch_run(state))] for state in map(folded, (events, without)))
    found = compare(*sides)
    assert "energy" not in {measure.name for measure in found.measures}
    assert any("package-0, on other nodes package-0 + gpu0" in note for note in found.notes)


def test_energy_of_one_reading_has_no_error_and_says_so() -> None:
    found = summarise(read_once())
    assert found.energy is not None and found.energy.error_j is None and found.energy.readings[0].error_j is None
    assert found.reasons["energy.error_j"] == (
        "watts that were read fewer than three times, or were the same each time, do not tell how the power changed between: "
        "of package-0 on node-000, and of 1 more"
    )
    assert "J (of watts that were read fewer than three times, or were the same each time" in to_text(sections(found))


def test_a_run_of_too_few_steps_has_no_interval_and_is_named() -> None:
    found = compare([compared()], [compared(step_s=2.0)])
    first = found.measures[0]
    assert (first.name, first.ratio_ci95, first.verdict) == ("throughput median", None, None) and found.sizes[0].verdict is None
    assert first.no_interval == "other has too few steady steps for one, and fewer than 3 runs"
    text = to_text(sections_of_comparison(found))
    assert "no difference can be told from chance: throughput median of other is 9" in text and "no interval: other has" in text
    assert any("the rows are judged together" in note for note in found.notes)


def test_a_generation_that_never_trained_gives_no_size() -> None:
    """An elastic job ends as the last round of 1 rank comes up: speed and ranks are those of the 4 that trained."""
    events = list(session(Script(ranks=4, seconds=60)))
    at = events[-1].at
    last = ev.RanksAssigned(at=at, generation=1, world_size=1, places=[])
    found = summarise(folded([*events[:-1], last, events[-1]]))
    assert (found.world_size.min, found.world_size.max, found.world_size.last, found.summary.ranks) == (4, 4, 4, 4)
    assert found.throughput.generation == 0 and found.throughput.steps and found.throughput.steps <= found.steps
    assert f"{found.throughput.steps} steps with 4 ranks (generation 0, the last that trained)" in to_text(sections(found))
    assert summarise(folded([last])).world_size.last == 1


def test_where_quantiles_are_not_exact_their_error_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    events = list(session(Script(seconds=30)))
    exact = summarise(folded(events))
    assert exact.throughput.quantile_error == 0 and exact.throughput.quantile_steps == exact.throughput.steps
    assert "±" not in dict(next(s for s in sections(exact) if s.title == "Throughput after warm-up").facts)["median"]
    monkeypatch.setattr(steps, "MAX_SERIES", 128)
    monkeypatch.setattr(steps, "EXACT_LIMIT", 64)
    monkeypatch.setattr(steps, "_APART", 1)
    found = summarise(folded(events))
    assert found.throughput.median_samples_per_s == pytest.approx(exact.throughput.median_samples_per_s, rel=RELATIVE_ERROR)
    assert found.throughput.quantile_error == found.ranks[0].step_median_error == RELATIVE_ERROR
    text = to_text(sections(found))
    assert re.search(r"median +\S+ samples/s, p5 \S+, p95 \S+, each ± 0.2 %\n", text) and re.search(r" ms ± 0.2 % ", text)


def test_repeated_runs_show_a_difference_size_by_size() -> None:
    base = [compared(ranks=n, nodes=1, step_s=0.1 * spread, seed=i) for n in (1, 2) for i, spread in enumerate((0.99, 1.0, 1.01))]
    other = [compared(ranks=n, nodes=1, step_s=0.104 * spread, seed=9) for n in (2, 4) for spread in (0.991, 1.0, 1.009)]
    found = compare(base, other)
    assert [(size.ranks, size.base_runs, size.other_runs, size.basis) for size in found.sizes] == [(2, 3, 3, "between runs")]
    assert found.sizes[0].verdict == "lower"
    assert any("6 runs left out" in note for note in found.notes)
    assert "different, over 3 and 3 runs: throughput median of other is 3." in to_text(sections_of_comparison(found))


@pytest.fixture
def recordings(tmp_path: Path) -> tuple[str, str]:
    paths = []
    for name, script in (("a.jsonl.zst", Script(seconds=20)), ("b.jsonl", Script(seconds=20, seed=1, slow_rank=0, delay_s=0.02))):
        with Recorder(tmp_path / name) as recorder:
            for event in session(script):
                recorder.write(event)
        paths.append(str(tmp_path / name))
    return paths[0], paths[1]


def test_the_verbs_print_each_form(recordings: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", *recordings, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["format"] == 1 and [s["complete"] for s in report["sessions"]] == [True, True]
    assert main(["report", recordings[0]]) == 0
    said = capsys.readouterr()
    assert "THROUGHPUT AFTER WARM-UP" in said.out and said.err == ""
    assert main(["report", *recordings, "--markdown"]) == 0
    assert "# a.jsonl.zst" in capsys.readouterr().out
    assert main(["compare", *recordings, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["measures"][0]["ratio"] == pytest.approx(0.83, rel=0.03)
    assert main(["compare", *recordings]) == 0
    assert "OTHER AGAINST BASE" in capsys.readouterr().out


def test_a_session_against_itself_is_said_to_be_that(recordings: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """By its path, and as a copy of another name."""
    copy = Path(recordings[1]).with_name("copy.jsonl")
    copy.write_bytes(Path(recordings[1]).read_bytes())
    for other in (recordings[1], str(copy)):
        assert main(["compare", recordings[1], other]) == 1
        said = capsys.readouterr()
        assert said.out == "" and said.err.count("\n") == 1 and "are the same session, synthetic-1: there is nothing" in said.err


@pytest.mark.parametrize("form", [[], ["--json"], ["--markdown"]])
def test_a_locale_without_dashes_is_no_obstacle(recordings: tuple[str, str], form: list[str]) -> None:
    command = [sys.executable, "-m", "distmon.tui.cli.main", "report", recordings[0], *form]
    result = subprocess.run(command, capture_output=True, check=False, env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert result.returncode == 0 and result.stderr == b""
    assert b"synthetic-0" in result.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["report"], "needs a SESSION"),
        (["report", "x.jsonl", "--json", "--markdown"], "not allowed with"),
        (["replay"], "needs one SESSION"),
        (["replay", "x.jsonl", "--speed", "5000"], "0.1 to 1000"),
        (["replay", "x.jsonl", "--from", "soon"], "--from soon"),
        (["compare", "x.jsonl"], "required"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_columns_stand_below_one_another_whatever_the_width_of_characters() -> None:
    table = Table(["host", "steps"], [["計算機-壱号機", "12"], ["node-1", "1,234"], ["nodé", "7"]], left=(0,))
    lines = to_text([Section("", table=table)]).splitlines()
    assert {cell_len(line) for line in lines} == {cell_len("計算機-壱号機  1,234")}


def test_time_without_a_name_is_said_with_what_names_it() -> None:
    """Eight seconds between two steps, of which no hook knows."""
    state = SessionState()
    for event in session(Script(ranks=2, nodes=1, seconds=20)):
        later = event.at > 1_700_000_010
        moved = {"at": event.at + 8.0} | ({"origin": event.origin + 8.0} if isinstance(event, ev.StepsRecorded) else {})
        apply(state, msgspec.structs.replace(event, **moved) if later else event)
    (note,) = (note for note in summarise(state).notes if "has no name" in note)
    assert note.startswith(("27%", "28%", "29%")) and "probe.span" in note
