"""Recordings of clocks that were set: durations hold, and what such a leap lies in is not told."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from distmon.core import events as ev
from distmon.core import steps
from distmon.core.books import books
from distmon.core.clocks import moved
from distmon.core.comparison import run_values
from distmon.core.energy import energy
from distmon.core.epoch_throughput import epoch_throughputs
from distmon.core.fold import apply
from distmon.core.held import FindingsHeld
from distmon.core.leaps import MOST_LEAPS, REASON, all_leaps, note_leap
from distmon.core.measures import elapsed, rolling_throughput, session_mean_throughput
from distmon.core.reconcile import ENDS_BEFORE_START, run_figures, why_no_figures
from distmon.core.state import SessionState
from distmon.core.steps import RankSteps
from distmon.core.synthetic import Script, session
from distmon.core.verdicts import verdicts
from distmon.core.wall import wall_split
from distmon.replay.report.summarise import summarise

SCRIPT = Script(seconds=120, gpus_per_node=1)
Setting = Callable[[float, str], float]
"""(seconds since the start, node) -> by how much its clock is ahead then."""


def told(setting: Setting) -> SessionState:
    state = SessionState()
    for event in session(SCRIPT):
        if isinstance(event, (ev.NodeSampled, ev.StepsRecorded)):
            event = moved(event, setting(event.at - SCRIPT.start, event.node))
        apply(state, event)
    return state


def one(by_s: float, since: float = 60.0) -> Setting:
    return lambda at, node: by_s if at > since and node == "n1" else 0.0


def every(by_s: float, since: float = 60.0) -> Setting:
    return lambda at, node: by_s if at > since else 0.0


SET = [one(-5), one(-61), one(50), one(3_500), every(-5), every(-59), every(50), every(86_400), every(50, 0), every(-50, 0)]


@pytest.mark.parametrize("setting", SET)
def test_the_books_close_whatever_a_clock_was_set_to(setting: Setting) -> None:
    """What only such a clock tells, here a tail of 0.13 s, is in unexplained; of a clock that was wrong from the start on also
    the initialisation of 0.5 s.
    """
    state = told(setting)
    found, wall = books(state), wall_split(state)
    assert found is not None and wall is not None
    late = setting(0.5, "n1") == 0.0
    assert 0 <= found.parts["unexplained"] <= (0.14 if late else 0.64) * found.ranks
    assert sum(found.parts.values()) == pytest.approx(found.total)
    assert all(seconds >= -1e-6 for seconds in found.parts.values())
    lead_was_set = setting(100.0, "n0") != 0.0
    assert (wall.tail is None) == lead_was_set
    assert 0 <= wall.unexplained + 1e-6 <= 0.64


@pytest.mark.parametrize("setting", SET[:8])
def test_what_spans_a_leap_is_not_told_and_the_rest_is_right(setting: Setting) -> None:
    state, usual = told(setting), told(lambda at, node: 0.0)
    mean = session_mean_throughput(state)
    assert mean is None or mean == pytest.approx(session_mean_throughput(usual), rel=0.001)
    rolling = rolling_throughput(state)
    assert rolling is None or rolling == pytest.approx(rolling_throughput(usual), rel=0.01)
    rates = [epoch.samples_per_s for epoch in epoch_throughputs(usual)]
    for epoch, rate in zip(epoch_throughputs(state), rates, strict=True):
        assert epoch.reason == REASON if epoch.samples_per_s is None else epoch.samples_per_s == pytest.approx(rate)
    assert any(epoch.reason == REASON for epoch in epoch_throughputs(state))
    spent, truly = energy(state), energy(usual)
    assert spent is not None and truly is not None and spent.idle_joules is None
    joules = {epoch.epoch: epoch.joules for epoch in truly.epochs}
    assert all(epoch.joules == pytest.approx(joules[epoch.epoch], rel=0.05) for epoch in spent.epochs)
    assert REASON in spent.no_epoch.values()


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (one(-61), "the times of node-001 and of the others differ by 61.0 s from 60.0 s on: a clock was set"),
        (every(-61), "the times of node-000, node-001 go back by 61.0 s at 60.0 s"),
        (one(50), "the times of node-001 and of the others differ by 50.0 s from 60.0 s on"),
        (lambda at, node: 86_400.0 if 40 < at <= 60 and node == "n1" else 0.0, "by 86,400.0 s from 40.0 s on, and leap again"),
        (one(-50, 0), "the times of node-001 begin 49.0 s before the job: its clock and the viewer's differ"),
    ],
)
def test_the_report_says_in_one_line_whose_clock_was_set_and_by_how_much(setting: Setting, said: str) -> None:
    report = summarise(told(setting))
    assert sum(said in note for note in report.notes) == 1
    assert "agent_silent" not in [found.kind for found in report.verdicts]
    without = [epoch for epoch in report.epochs if epoch.duration_s is None]
    assert all(epoch.training_s is None and epoch.samples_per_s is None for epoch in without)
    assert not without or any(key.endswith(".duration_s") for key in report.reasons)


@pytest.mark.parametrize("by_s", [-5.0, -50.0, -3_600.0])
def test_a_clock_that_was_set_back_costs_no_epoch_before_it(by_s: float) -> None:
    """The leap lies in one epoch. Where one node's clock was set, all that follow begin by one clock and end by another."""
    usual = [epoch.samples_per_s for epoch in epoch_throughputs(told(lambda at, node: 0.0))]
    alike, apart = (epoch_throughputs(told(setting)) for setting in (every(by_s), one(by_s)))
    leapt = [epoch.epoch for epoch in alike if epoch.samples_per_s is None]
    assert len(leapt) == 1
    assert [epoch.samples_per_s for epoch in alike if epoch.epoch not in leapt] == pytest.approx(
        [rate for number, rate in enumerate(usual) if number not in leapt]
    )
    assert [epoch.samples_per_s for epoch in apart[: leapt[0]]] == pytest.approx(usual[: leapt[0]])
    assert all(epoch.reason == REASON for epoch in apart[leapt[0] :])


def test_epochs_on_a_node_whose_clock_is_behind_from_the_start_on_are_not_told() -> None:
    """They were told as 49 s longer than they are."""
    assert {epoch.reason for epoch in epoch_throughputs(told(one(-50, 0)))} == {REASON}
    assert not any(epoch.reason for epoch in epoch_throughputs(told(every(-50, 0))))


def test_clocks_that_hold_are_no_leap(monkeypatch: pytest.MonkeyPatch) -> None:
    for compiled in (True, False):
        if not compiled:
            monkeypatch.setattr(steps, "compiled_fold", None)
        calm = told(lambda at, node: -0.05 if at > 60 and node == "n1" else 0.0)
        assert not any(all_leaps(calm))
        by_s = [sum(leap.by_s for leap in leaps) for leaps in all_leaps(told(one(-5)))]
        assert by_s == pytest.approx([0, 0, -5, -5], abs=0.1)


def test_pauses_are_no_leaps() -> None:
    """Everything, the viewer too, stands for 50 s."""
    state = SessionState()
    for event in session(SCRIPT):
        apply(state, moved(event, 50.0) if event.at - SCRIPT.start > 60 else event)
    found = books(state)
    assert found is not None and not any(all_leaps(state))
    assert [len(made.pauses) for made in state.generations[0].ranks.values()] == [1] * 4
    assert found.parts["unexplained"] == pytest.approx(4 * 50.0, abs=0.1)
    assert all(epoch.samples_per_s is not None for epoch in epoch_throughputs(state))


def test_a_viewer_that_stood_still_sets_no_clock() -> None:
    """For 80 s it ticks not, and takes in nothing of a node; then all comes at once."""
    state, late = SessionState(), list[ev.AnyEvent]()
    for event in session(SCRIPT):
        stood = 20 < event.at - SCRIPT.start < 100
        if stood and isinstance(event, ev.Ticked):
            continue
        if stood and isinstance(event, (ev.StepsRecorded, ev.NodeSampled)) and event.node == "n1":
            late.append(event)
            continue
        while late and not stood:
            apply(state, late.pop(0))
        apply(state, event)
    found = books(state)
    assert found is not None and abs(found.unexplained_share) <= 0.005
    assert not any(all_leaps(state))


def test_no_more_leaps_are_kept_than_a_recording_may_need() -> None:
    made = RankSteps(0, last_end=100.0)
    for step in range(10 * MOST_LEAPS):
        assert note_leap(made, 99.0, step) and not note_leap(made, 110.0, step)
    assert len(made.set_back) == len(made.pauses) == MOST_LEAPS


def test_a_worker_told_again_by_its_agent_sets_no_clock() -> None:
    state, batches = SessionState(), []
    for event in session(Script(seconds=20)):
        apply(state, event)
        if isinstance(event, ev.StepsRecorded):
            batches.append(event)
    for event in batches[-8:]:
        apply(state, replace(event, seq=event.seq + 100))
    assert not any(all_leaps(state))


def test_a_job_whose_end_is_dated_before_its_start_has_no_duration_and_says_why() -> None:
    state = SessionState()
    for event in session(SCRIPT):
        later = isinstance(event, (ev.StepsRecorded, ev.JobEnded)) and event.at - SCRIPT.start > 60
        apply(state, moved(event, -3_600.0) if later else event)
    assert elapsed(state) is None and wall_split(state) is None and books(state) is None
    assert run_figures(state) is None and why_no_figures(state) == ENDS_BEFORE_START
    assert "duration" not in run_values(state)
    report = summarise(state)
    assert report.duration_s is None
    assert {report.reasons[key] for key in ("duration_s", "wall_split_s", "rank_seconds")} == {ENDS_BEFORE_START}


@pytest.mark.parametrize("setting", [every(-50), every(-3_600), one(-3_600)])
def test_no_finding_lasts_over_a_leap(setting: Setting) -> None:
    """Steps go on all the time; ticks are of the viewer's clock, which was not set."""
    state, held = SessionState(), FindingsHeld()
    for event in session(Script(seconds=120, slow_rank=2, delay_s=0.03)):
        if isinstance(event, (ev.NodeSampled, ev.StepsRecorded)):
            event = moved(event, setting(event.at - SCRIPT.start, event.node))
        apply(state, event)
        held.look(state)
    report = summarise(state, held=held)
    assert "straggler" in [found.kind for found in report.verdicts]
    assert "stall" not in {found.verdict.kind for found in held.found.values()}
    assert all(found.from_s is None or 0 <= found.from_s <= (found.to_s or 0.0) for found in report.verdicts)


def test_of_a_clock_that_holds_a_standstill_is_told_as_before() -> None:
    state = SessionState()
    for event in session(SCRIPT):
        if event.at - SCRIPT.start > 60:
            break
        apply(state, event)
    last = state.now
    for passed in range(1, 20):
        apply(state, ev.Ticked(at=last + passed))
    assert "stall" in [found.kind for found in verdicts(state)]


def test_of_a_node_whose_offset_is_estimated_anew_no_clock_is_named() -> None:
    """Its clock may have been set, or the viewer's."""
    state = SessionState()
    for event in session(SCRIPT):
        if event.at - SCRIPT.start > 60 and not state.clock_offsets:
            apply(state, ev.ClockOffsetEstimated(at=event.at, node="n1", offset_s=-20.0, round_trip_s=0.001))
        of_n1 = isinstance(event, (ev.StepsRecorded, ev.NodeSampled)) and event.node == "n1"
        apply(state, replace(event, stream="n1/agent") if of_n1 else event)
    (said,) = [note for note in summarise(state).notes if "clock" in note]
    assert said.startswith("the times of node-001 and of the others differ by 20.0 s from 60.0 s on: a clock was set")
