"""Alerts: errors at once, findings that hold, each once, and nothing that is old."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from distmon.core import events as ev
from distmon.core.events import AnyEvent
from distmon.core.fold import apply
from distmon.core.state import SessionState
from distmon.core.synthetic import Script, session
from distmon.core.verdicts import Verdict
from distmon.launcher.settings import AlertSettings
from distmon.tui.alerts import FORGOTTEN_S, HOLDS_S, Alert, Alerts, PlainAlerts, run_command
from distmon.tui.view.facts import Facts, facts

if TYPE_CHECKING:
    from tests.tui.conftest import FakePlayer, Grid, OpenApp, Settle

Fold = Callable[[Iterable[AnyEvent]], SessionState]
EVENTS: list[AnyEvent] = [
    e
    for e in session(Script(ranks=2, nodes=1, seconds=20))
    if not isinstance(e, (ev.WorkerExited, ev.JobEnded, ev.SessionEnded))
]
FINDING = Verdict(kind="input_bound", text="all wait for input", evidence="", try_first="")


@pytest.fixture
def before(folded: Fold) -> Facts:
    return facts(folded(EVENTS))


def at(before: Facts, seconds: float, *found: Verdict) -> tuple[SessionState, list[Verdict]]:
    apply(before.state, ev.Ticked(at=EVENTS[-1].at + seconds))
    return before.state, list(found)


def test_an_error_is_told_once_and_what_was_there_before_never(before: Facts) -> None:
    alerts = Alerts()
    assert alerts.update(before.state, before.verdicts) == []
    died = ev.WorkerExited(at=before.state.now, host="h", local_rank=0, rank=1, exit_code=137, signal="SIGKILL")
    apply(before.state, died)
    told = alerts.update(before.state, before.verdicts)
    assert [(a.text, a.severity, a.screen) for a in told] == [("rank 1 died: SIGKILL", "error", "events")]
    assert alerts.update(before.state, before.verdicts) == []


@pytest.mark.parametrize("failed", [False, True])
def test_a_stop_is_no_error_but_a_failure_before_it_is(before: Facts, failed: bool) -> None:
    alerts, at = Alerts(), before.state.now
    alerts.update(before.state, before.verdicts)
    apply(before.state, ev.ActionTaken(at=at, action="stop", detail="politely"))
    failure = ev.Failure(rank=1, host="h", signal="SIGKILL") if failed else None
    apply(before.state, ev.JobEnded(at=at, exit_code=143, reason="stopped", failure=failure))
    told = [(a.text, a.severity) for a in alerts.update(before.state, before.verdicts)]
    assert told == ([("job stopped, exit code 143", "error")] if failed else [])
    assert before.state.log[-1].text.startswith("job stopped" + " by an operator" * (not failed) + ", exit code 143")


def test_only_what_is_wanted_is_told(before: Facts) -> None:
    alerts = Alerts(["verdicts"])
    alerts.update(before.state, before.verdicts)
    apply(before.state, ev.NoticeGiven(at=before.state.now, severity="error", text="bad"))
    assert alerts.update(before.state, before.verdicts) == []


def test_old_news_of_a_late_node_is_no_alert(before: Facts) -> None:
    alerts = Alerts()
    alerts.update(before.state, before.verdicts)
    apply(before.state, ev.NoticeGiven(at=before.state.now - 60, severity="error", text="long ago"))
    assert alerts.update(before.state, before.verdicts) == []


def test_a_finding_is_told_when_it_holds_and_again_only_after_it_was_gone_for_long(before: Facts) -> None:
    alerts, told = Alerts(["verdicts"]), []
    alerts.update(*at(before, 0))
    for second in range(1, 200):
        present = second < 20 or 30 <= second < 50 or second >= 50 + FORGOTTEN_S + 1
        told += [second for _ in alerts.update(*at(before, second, *([FINDING] if present else [])))]
    assert told == [1 + HOLDS_S, 50 + FORGOTTEN_S + 1 + HOLDS_S]


def test_another_state_after_a_seek_is_no_news(before: Facts, folded: Fold) -> None:
    alerts = Alerts()
    alerts.update(before.state, before.verdicts)
    other = facts(folded([*EVENTS, ev.NoticeGiven(at=EVENTS[-1].at, severity="error", text="bad")]))
    assert alerts.update(other.state, other.verdicts) == []


def test_the_command_gets_the_words_and_no_shell(tmp_path: Path) -> None:
    out = tmp_path / "told"
    code = f"import os; open({str(out)!r}, 'w').write(os.environ['DISTMON_ALERT'])"
    assert run_command(f'{sys.executable} -c "{code}"', "rank 1 died; $(rm -rf x)") == ""
    deadline = time.monotonic() + 30
    while not (out.exists() and out.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert out.read_text() == "rank 1 died; $(rm -rf x)"
    assert "cannot be run" in run_command("/no/such/program", "x")
    assert "cannot be run" in run_command("'unclosed", "x")


async def test_a_toast_says_it_and_a_goes_to_its_moment(
    open_app: OpenApp, settle: Settle, fake_player: type[FakePlayer], text_grid: Grid
) -> None:
    player = fake_player(EVENTS)
    async with open_app(EVENTS, size=(100, 30), player=player) as (app, pilot, source):
        app.frame()
        moment = EVENTS[-1].at + 1
        source.waiting += [ev.NoticeGiven(at=moment, severity="error", text="the disk is full"), ev.Ticked(at=moment)]
        app.frame()
        source.waiting.append(ev.Ticked(at=moment + 1))
        app.frame()
        await settle(pilot)
        assert app._last_alert == Alert(moment, "the disk is full", "error", "events")
        assert any("the disk is full" in row for row in text_grid(app))
        await pilot.press("a")
        assert app.cockpit.page.screen_name == "events"
        assert player.asked == [f"seek {moment - EVENTS[0].at:g}"]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_toast_leaves_the_replay_bar_the_prompt_and_the_footer_alone(
    open_app: OpenApp, settle: Settle, text_grid: Grid, fake_player: type[FakePlayer], size: tuple[int, int]
) -> None:
    async with open_app(EVENTS, size=size, player=fake_player(EVENTS), toasts=True) as (app, pilot, _):
        await pilot.press("slash")
        before = text_grid(app)[-3:]
        app.notify("the disk is full " * 4, title="a shows it")
        await settle(pilot)
        assert any("the disk is full" in row for row in text_grid(app)[:-3])
        assert text_grid(app)[-3:] == before and any("playing" in row for row in before) and "quit" in before[-1]


@pytest.mark.parametrize("key", ["e", "question_mark", "ctrl+p"])
async def test_no_toast_lies_over_a_question_the_help_or_the_palette(
    open_app: OpenApp, settle: Settle, text_grid: Grid, fake_player: type[FakePlayer], key: str
) -> None:
    async with open_app(EVENTS, player=fake_player(EVENTS), toasts=True) as (app, pilot, _):
        for _ in range(2):
            app.notify("the disk is full", title="a shows it", timeout=600)
        await settle(pilot)
        assert any("the disk is full" in row for row in text_grid(app))
        await pilot.press(key)
        app.notify("the disk is full", title="a shows it", timeout=600)
        await pilot.pause()
        await pilot.pause()
        assert not any("the disk is full" in row for row in text_grid(app)[2:12])
        await pilot.press("escape")
        await settle(pilot)
        assert any("the disk is full" in row for row in text_grid(app))


def told_of(at: float) -> list[AnyEvent]:
    return [ev.NoticeGiven(at=at, severity="error", text="the disk is full"), ev.Ticked(at=at)]


@pytest.fixture
def commanded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the user's command was run for."""
    told: list[str] = []

    def run(command: str, text: str) -> str:
        told.append(text)
        return ""

    monkeypatch.setattr("distmon.tui.app.run_command", run)
    return told


@pytest.mark.parametrize(("just_now", "calls"), [(False, 0), (True, 1)])
async def test_a_recording_calls_for_nothing_that_is_long_past(
    open_app: OpenApp,
    fake_player: type[FakePlayer],
    monkeypatch: pytest.MonkeyPatch,
    commanded: list[str],
    just_now: bool,
    calls: int,
) -> None:
    """But for the last moments of one that is still being written."""
    moment, rung = EVENTS[-1].at + 1, []
    async with open_app(EVENTS, player=fake_player(EVENTS)) as (app, _, source):
        app._alert_settings = AlertSettings(bell=True, command="call-me")
        monkeypatch.setattr(app, "bell", lambda: rung.append("bell"))
        app.frame()
        source.waiting += told_of(moment)
        monkeypatch.setattr("distmon.tui.app.time.time", lambda: moment + (2 if just_now else 3600))
        app.frame()
        assert app._last_alert == Alert(moment, "the disk is full", "error", "events")
        assert len(commanded) == len(rung) == calls


async def test_what_happens_now_calls_also_while_the_screens_show_another_moment(
    open_app: OpenApp, folded: Fold, fake_player: type[FakePlayer], commanded: list[str]
) -> None:
    present = folded(EVENTS)
    player = fake_player(EVENTS, live=True, present=present)
    async with open_app(state=present, player=player) as (app, pilot, _):
        app._alert_settings = AlertSettings(command="call-me")
        app.frame()
        player.live, player._sought = False, folded(EVENTS[:200])
        app.frame()
        assert app.state is not present
        await app.workers.wait_for_complete()
        for event in told_of(EVENTS[-1].at + 1):
            apply(present, event)
        app._unseen_due = 0.0
        app.frame()
        await app.workers.wait_for_complete()
        assert commanded == ["the disk is full"]
        player.live, player._sought = True, present
        app.frame()
        await pilot.pause()
        assert app.state is present and commanded == ["the disk is full"]


async def test_without_an_alert_a_says_so(open_app: OpenApp) -> None:
    async with open_app(EVENTS) as (app, pilot, _):
        await pilot.press("a")
        assert "nothing has called" in app.cockpit.note


@pytest.fixture
def without_screen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The commands that were run without a screen, and for what; `gone` is none of this machine."""
    ran: list[tuple[str, str]] = []

    def run(command: str, text: str) -> str:
        ran.append((command, text))
        return "the alerts' command cannot be run: gone" if command == "gone" else ""

    monkeypatch.setattr("distmon.tui.alerts.run_command", run)
    monkeypatch.setattr("distmon.tui.alerts.LOOK_EVERY_S", 0.0)
    monkeypatch.setattr("distmon.tui.alerts.LONGEST_PAUSE_S", 0.0)
    return ran


def told_in_lines(settings: AlertSettings, events: Iterable[AnyEvent]) -> list[str]:
    alerts, state, lines = PlainAlerts(settings), SessionState(), list[str]()
    for event in events:
        apply(state, event)
        if isinstance(event, ev.Ticked):
            lines += alerts.lines(state)
    return lines


def test_without_a_screen_an_error_and_a_finding_run_the_command_and_are_a_line_each(
    without_screen: list[tuple[str, str]],
) -> None:
    slow = list(session(Script(ranks=2, nodes=1, seconds=60, slow_rank=1, delay_s=0.03)))
    moment = slow[-1].at
    lines = told_in_lines(AlertSettings(command="call-me"), [*slow, *told_of(moment)])
    late = [line for line in lines if line.startswith("alert: rank 1 is late")]
    assert len(late) == 1 and lines[-1] == "alert: the disk is full"
    assert without_screen == [("call-me", line.removeprefix("alert: ")) for line in lines]


def test_without_a_screen_a_command_that_cannot_be_run_is_told(without_screen: list[tuple[str, str]]) -> None:
    lines = told_in_lines(AlertSettings(command="gone"), [*EVENTS, *told_of(EVENTS[-1].at)])
    assert lines[-2:] == ["alert: the disk is full", "warning: the alerts' command cannot be run: gone"]


def test_without_a_screen_and_without_anything_to_call_with_nothing_is_looked_for(
    without_screen: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("distmon.tui.alerts.verdicts")
    assert not told_in_lines(AlertSettings(), [*EVENTS, *told_of(EVENTS[-1].at)]) and not without_screen


@pytest.mark.parametrize("terminal", [True, False])
def test_without_a_screen_bell_and_desktop_note_are_for_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: bool
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    assert told_in_lines(AlertSettings(bell=True, desktop=True), [*EVENTS, *told_of(EVENTS[-1].at)]) != []
    assert capsys.readouterr().err == ("\a\x1b]9;distmon: the disk is full\x07" if terminal else "")
