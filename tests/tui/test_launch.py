"""The launch screen: from the fields to the plan, the hosts and the command line; presets, history, and what it starts."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast
from unittest.mock import patch

import pytest
from textual.pilot import Pilot

from distmon.core import events as ev
from distmon.core.events import AnyEvent
from distmon.core.synthetic import Script, session
from distmon.launcher.check import CheckResult, HostCheck
from distmon.launcher.form import Form, form_of
from distmon.launcher.plan import Plan
from distmon.launcher.reports import Finding, HostFacts, HostReport
from distmon.launcher.settings import FILE_NAME, load_settings
from distmon.replay.recorder import Recorder
from distmon.tui.app import DistmonApp
from distmon.tui.screens.launch import Launch
from distmon.tui.widgets.launch_form import completed_path
from tests.tui.test_goldens import check

if TYPE_CHECKING:
    from tests.tui.conftest import FakeJob, FakePlayer, Grid, OpenApp, Settle

FACTS = HostFacts(python="3.11.2", packages={"horovod": "0.28.1", "torch": "2.13.0"}, gpus=2, agent="/opt/bin/distmon-agent")


class Asked:
    """Stands in for a check of hosts: node2 is not reached; answers when it is told to."""

    answer = threading.Event()
    made: list[Asked]

    def __init__(self, plan: Plan) -> None:
        self.plan, self.cancelled = plan, False

    def run(self, waiting: object) -> CheckResult:
        assert callable(waiting)
        waiting([host.name for host in self.plan.members])
        assert self.answer.wait(20)
        reports = [HostReport(host="localhost", slots=2, facts=FACTS)]
        findings = []
        if self.plan.others:
            reports.append(HostReport(host="node2", ssh_target="node2", error="timed out: no answer in 15 s"))
            findings.append(Finding(host="node2", check="ssh", severity="error", text="is not reached", mend="try: ssh node2"))
        return CheckResult(reports=reports, findings=findings, interfaces=[])

    def cancel(self) -> None:
        self.cancelled = True
        self.answer.set()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where distmon is called: with a script, and a python that the plan can name."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    Path("train.py").write_text("")
    Path("data").mkdir()
    Asked.made = []

    def asked(plan: Plan, agent: str) -> HostCheck:
        Asked.made.append(Asked(plan))
        return cast(HostCheck, Asked.made[-1])

    Asked.answer.set()
    with patch.multiple("distmon.tui.screens.launch", LOOK_AFTER_S=0.001, check_hosts=asked):
        yield Path.cwd()
    Asked.answer.set()


async def looked(app: DistmonApp, pilot: Pilot[int]) -> Launch:
    """The page, once it has looked at what is written and its hosts have answered."""
    page = app.cockpit.page
    assert isinstance(page, Launch)
    for _ in range(500):
        await pilot.pause()
        await asyncio.sleep(0.005)
        known = page.wrong or (page.planned.plan is not None and page.planned.line.endswith(page.form.form.command))
        if known and not page.planned.waiting and not [w for w in app.workers if w.group in ("look", "ask") and w.is_running]:
            await pilot.pause()
            return page
    raise AssertionError("the page is still looking")


async def write(app: DistmonApp, pilot: Pilot[int], **fields: str) -> Launch:
    page = app.cockpit.page
    assert isinstance(page, Launch)
    page.planned, page.wrong = type(page.planned)(), {}
    page._checked_as = None
    page.form.fill(Form(**fields))
    await pilot.pause()
    return await looked(app, pilot)


@pytest.mark.usefixtures("folder")
async def test_a_job_is_written_with_the_keyboard_alone_and_started(
    open_app: OpenApp, settle: Settle, text_grid: Grid
) -> None:
    async with open_app() as (app, pilot, _):
        await pilot.press("J")
        await settle(pilot)
        await pilot.press(*"python tr", "right", "tab", "2")
        page = await looked(app, pilot)
        assert text_grid(app)[-1].startswith(" ^Q quit  F1 help  F2-F9 screens  F10 start  ^Y copy line  ^R ask hosts")
        assert page.form.form == Form(command="python train.py", np="2")
        shown = "\n".join(text_grid(app))
        assert "$ distmon run -np 2 -- python train.py" in shown
        assert "● localhost (this machine): ranks 0-1" in shown and "● 1 host ready" in shown
        assert "Python 3.11.2, horovod 0.28.1" in shown
        await pilot.press("ctrl+y")
        assert app.clipboard == "distmon run -np 2 -- python train.py"
        await pilot.press("f10")
        assert app.wanted_run == ["-np", "2", "--", "python", "train.py"] and app.return_value == 0


@pytest.mark.usefixtures("folder")
async def test_keys_of_the_bar_leave_the_session_behind_the_form_where_it_is(
    open_app: OpenApp, settle: Settle, fake_player: type[FakePlayer]
) -> None:
    """Also where no field of text has the keys."""
    player = fake_player(list(session(Script(ranks=2, nodes=1, seconds=60))))
    async with open_app(player.events, player=player) as (app, pilot, _):
        await pilot.press("J")
        await settle(pilot)
        page = app.cockpit.page
        assert isinstance(page, Launch)
        for widget in (page.form.buttons[0], page.form.backend, page.plan_panel):
            widget.focus()
            await pilot.pause()
            await pilot.press("home", "end", "n", "N", "left", "right")
            assert app.focused is widget
        assert not player.asked
        await pilot.press("f2", "home")
        assert player.asked == ["seek 0"]


@pytest.mark.usefixtures("folder")
async def test_a_job_is_written_and_started_with_the_mouse(open_app: OpenApp, settle: Settle) -> None:
    async with open_app() as (app, pilot, _):
        await pilot.press("J")
        await settle(pilot)
        await write(app, pilot, command="python train.py")
        await pilot.click("#field_np", offset=(3, 0))
        await pilot.press("backspace", "3")
        await pilot.click("#backend")
        await settle(pilot)
        await pilot.press("down", "enter")
        page = await looked(app, pilot)
        assert page.form.form == Form(command="python train.py", np="3", backend="torchrun")
        await pilot.click("#start")
        assert app.wanted_run == ["-np", "3", "--backend", "torchrun", "--", "python", "train.py"]


@pytest.mark.usefixtures("folder")
async def test_what_is_wrong_stands_beside_its_field_and_is_not_started(
    open_app: OpenApp, settle: Settle, text_grid: Grid
) -> None:
    async with open_app() as (app, pilot, _):
        await pilot.press("J")
        await settle(pilot)
        await pilot.press("f10")
        assert app.wanted_run is None and app.focused is app.cockpit.page.query_one("#field_command")
        page = await write(app, pilot, command="python none.py", np="2")
        assert "✖ there is no script none.py here" in "\n".join(text_grid(app))
        page = await write(app, pilot, command="python train.py", np="2", hosts="node1")
        (row,) = [row for row in text_grid(app) if row.startswith(" hosts ")]
        assert "✖ 'node1' is not of" in row
        assert any("✖ hosts: 'node1' is not of the form name:slots" in row for row in text_grid(app))
        await pilot.press("f10")
        assert app.wanted_run is None and app.focused is page.form.inputs["hosts"]


@pytest.mark.usefixtures("folder")
async def test_each_host_says_whether_it_can_be_reached(open_app: OpenApp, settle: Settle, text_grid: Grid) -> None:
    async with open_app(size=(120, 40)) as (app, pilot, _):
        await pilot.press("J")
        await settle(pilot)
        Asked.answer.clear()
        page = app.cockpit.page
        assert isinstance(page, Launch)
        page.form.fill(Form(command="python train.py", np="4", hosts="localhost:2,node2.invalid:2"))
        for _ in range(400):
            await pilot.pause()
            await asyncio.sleep(0.005)
            if page.planned.waiting:
                break
        assert "◐ node2.invalid: ranks 2-3" in "\n".join(text_grid(app)) and "asking 2 of 2 hosts" in "\n".join(text_grid(app))
        Asked.answer.set()
        await looked(app, pilot)
        shown = "\n".join(text_grid(app))
        assert "✖ 1 error: the job would fail" in shown and "node2: is not reached; try: ssh node2" in shown
        before = len(Asked.made)
        await pilot.press("ctrl+r")
        await looked(app, pilot)
        assert len(Asked.made) == before + 1
        page.form.inputs["options"].value = "--verbose"
        await looked(app, pilot)
        assert len(Asked.made) == before + 1  # the same hosts under the same Python
        page.form.inputs["hosts"].value = "localhost:4"
        for _ in range(400):
            await asyncio.sleep(0.005)
            await pilot.pause()
            if len(Asked.made) == before + 2:
                break
        assert len(Asked.made) == before + 2


def asked(app: DistmonApp, text_grid: Grid) -> str:
    """The question that is over the screen, in one line."""
    left, top, width, height = app.cockpit.overlays["question"].region
    rows = [row[left + 1 : left + width - 1] for row in text_grid(app)[top : top + height]]
    return " ".join(" ".join(rows).split())


@pytest.mark.usefixtures("folder")
async def test_a_job_that_would_fail_is_started_only_after_a_yes(open_app: OpenApp, settle: Settle, text_grid: Grid) -> None:
    async with open_app() as (app, pilot, _):
        await pilot.press("J")
        await settle(pilot)
        await write(app, pilot, command="python train.py", np="4", hosts="localhost:2,node2.invalid:2")
        await pilot.press("f10")
        assert app.wanted_run is None
        assert "The job would fail: node2: is not reached. Start it all the same?" in asked(app, text_grid)
        await pilot.press("n")
        assert app.wanted_run is None and not app.cockpit.question
        await pilot.press("f10", "y")
        assert app.wanted_run is not None and app.wanted_run[:2] == ["-np", "4"]


@pytest.mark.parametrize("size", [(80, 24), (60, 20), (200, 50)])
async def test_what_a_preset_can_be_called_is_told_in_full(
    open_app: OpenApp, settle: Settle, text_grid: Grid, folder: Path, size: tuple[int, int]
) -> None:
    """And asked again, with what was written; a question with the longest name there can be is whole, too."""
    async with open_app(size=size) as (app, pilot, _):
        await pilot.press("J")
        await settle(pilot)
        await write(app, pilot, command="python train.py")

        def shown() -> str:
            return " ".join(" ".join(text_grid(app)).split())

        await pilot.press("ctrl+s")
        assert "a name for this preset: distmon run --preset NAME does the same" in shown()
        await pilot.press(*"two words", "enter")
        assert "digits, dots, dashes and underscores, at most 40 of them; it cannot be 'two words'" in shown()
        assert app.cockpit.prompt.value == "two words" and not (folder / FILE_NAME).exists()
        name = "a" * 40
        app.cockpit.prompt.value = name
        await pilot.press("enter")
        assert list(load_settings(folder).presets) == [name]
        await pilot.press("ctrl+l")
        assert f"Delete the preset {name} from distmon.toml? The fields stay as they are." in asked(app, text_grid)


async def test_the_preset_that_filled_the_form_is_the_chosen_one(open_app: OpenApp, settle: Settle, folder: Path) -> None:
    presets = ('a = ["-np", "1", "--", "python", "a.py"]', 'b = ["-np", "2", "--", "python", "b.py"]')
    (folder / FILE_NAME).write_text("\n".join(["[presets]", *presets, ""]))
    async with open_app() as (app, pilot, _):
        app.cockpit.go("launch", form_of(["-np", "2", "--", "python", "b.py"]))
        await settle(pilot)
        page = app.cockpit.page
        assert isinstance(page, Launch) and page.preset == "b" and page.form.presets.value == "b"


async def test_presets_are_kept_loaded_and_deleted(open_app: OpenApp, settle: Settle, text_grid: Grid, folder: Path) -> None:
    (folder / FILE_NAME).write_text('# ours\n[presets]\nelastic = ["-np", "2", "--min-np", "1", "--", "python", "train.py"]\n')
    async with open_app() as (app, pilot, _):
        await pilot.press("J")
        await settle(pilot)
        page = app.cockpit.page
        assert isinstance(page, Launch)
        page.form.presets.value = "elastic"
        await looked(app, pilot)
        assert page.form.form == Form(command="python train.py", np="2", min_np="1")
        page.form.inputs["np"].value = "1"
        await looked(app, pilot)
        await pilot.press("ctrl+s")
        assert app.cockpit.prompt.value == "elastic"
        await pilot.press("2", "enter")
        assert "kept: distmon run --preset elastic2" in text_grid(app)[-1]
        assert load_settings(folder).presets["elastic2"] == ["-np", "1", "--min-np", "1", "--", "python", "train.py"]
        await pilot.press("ctrl+l")
        assert "Delete the preset elastic2" in app.cockpit.question
        await pilot.press("y")
        assert list(load_settings(folder).presets) == ["elastic"]
        assert (folder / FILE_NAME).read_text().startswith("# ours\n") and page.form.presets.is_blank()


async def test_commands_of_recordings_are_the_history(open_app: OpenApp, settle: Settle, folder: Path) -> None:
    sessions = folder.parent / "state" / "distmon" / "sessions"
    sessions.mkdir(parents=True)
    with Recorder(sessions / "one.jsonl") as recorder:
        for event in list(session(Script(ranks=1, nodes=1, seconds=3)))[:20]:
            recorder.write(event)
    async with open_app() as (app, pilot, _):
        await pilot.press("J")
        await settle(pilot)
        await app.workers.wait_for_complete()
        page = app.cockpit.page
        assert isinstance(page, Launch)
        await pilot.press("up")
        assert page.form.form.command == "python train.py --lr 0.1"
        await pilot.press("up")
        assert "no earlier command" in app.cockpit.note


@pytest.mark.parametrize("variable", ["DISTMON_READ_ONLY", "DISTMON_SERVED"])
async def test_a_view_that_may_not_act_does_not_go_there(open_app: OpenApp, variable: str) -> None:
    async with open_app(environment={variable: "1"}) as (app, pilot, _):
        await pilot.press("J")
        assert app.cockpit.page.screen_name == "overview" and app.cockpit.note
        assert "launch" not in app.cockpit.pages


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("variable", ["DISTMON_READ_ONLY", "DISTMON_SERVED"])
async def test_a_view_that_may_not_act_starts_and_writes_nothing(open_app: OpenApp, settle: Settle, variable: str) -> None:
    async with open_app(environment={variable: "1"}) as (app, pilot, _):
        app.cockpit.go("launch")  # past the key, which refuses
        await settle(pilot)
        await write(app, pilot, command="python train.py")
        for key in ("f10", "ctrl+s"):
            await pilot.press(key)
            assert app.wanted_run is None and not app.cockpit.prompting and app.cockpit.note
        assert not Path(FILE_NAME).exists()


@pytest.mark.usefixtures("folder")
async def test_a_job_that_runs_here_is_ended_first(open_app: OpenApp, settle: Settle, fake_job: type[FakeJob]) -> None:
    async with open_app(job=fake_job()) as (app, pilot, _):
        await pilot.press("J")
        await settle(pilot)
        await write(app, pilot, command="python train.py")
        await pilot.press("f10")
        assert app.wanted_run is None and "K stops it" in app.cockpit.note


@pytest.mark.usefixtures("folder")
async def test_it_begins_with_the_job_on_the_screen(open_app: OpenApp, settle: Settle) -> None:
    started = ev.JobStarted(at=1.0, job="j", command=["python", "train.py", "a b"], np=4, min_np=2, hosts="a:2,b:2")
    async with open_app([ev.SessionStarted(at=1.0, session_id="s", distmon_version="0"), started]) as (app, pilot, _):
        await pilot.press("J")
        await settle(pilot)
        page = app.cockpit.page
        assert isinstance(page, Launch)
        assert page.form.form == Form(command="python train.py 'a b'", np="4", min_np="2", hosts="a:2,b:2")


@pytest.mark.usefixtures("folder")
async def test_letters_are_written_and_escape_goes_back(open_app: OpenApp, settle: Settle) -> None:
    async with open_app() as (app, pilot, _):
        await pilot.press("J")
        await settle(pilot)
        await pilot.press("q", "K", "1", "space", "question_mark")
        page = app.cockpit.page
        assert isinstance(page, Launch) and page.form.form.command == "qK1 ?" and not app.cockpit.helping
        for step in range(len(page.form.ring) + 1):
            assert app.focused is [*page.form.ring, page.plan_panel][step]
            page.step_focus(1)
        assert app.focused is page.form.ring[0]
        await pilot.press("shift+tab", "escape")
        assert app.cockpit.page.screen_name == "overview"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("size", [(40, 12), (40, 30), (75, 24), (76, 24)], ids=lambda s: f"{s[0]}x{s[1]}")
async def test_each_field_and_button_is_on_the_screen_when_it_has_the_keys(
    open_app: OpenApp, settle: Settle, size: tuple[int, int]
) -> None:
    async with open_app(size=size) as (app, pilot, _):
        await pilot.press("J")
        await settle(pilot)
        page = app.cockpit.page
        assert isinstance(page, Launch)
        for part in page.form.ring:
            app.cockpit.set_focus(part)
            await settle(pilot)
            place = part.region
            assert place.width >= 5 and place.height == 1 and page.form.region.contains_region(place), (part, place)
        assert page.form.inputs["interface"].region.width >= 16


@pytest.mark.parametrize(
    ("word", "path"),
    [("tr", "train.py"), ("./tr", "./train.py"), ("da", "data/"), *((w, None) for w in ("train.py", "no", "", "no/x", "~no/x"))],
)
def test_paths_are_completed(folder: Path, word: str, path: str | None) -> None:
    assert completed_path(folder, word) == path


STATES = {
    "empty": Form(),
    "filled": Form(command="python train.py --epochs 3", np="2", min_np="1", hosts="localhost:2", options="--verbose"),
    "error": Form(command="python train.py", np="4", hosts="node1", interface="eth0"),
}


@pytest.mark.usefixtures("utc", "folder")
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)], ids=lambda s: f"{s[0]}x{s[1]}")
async def test_goldens(open_app: OpenApp, settle: Settle, text_grid: Grid, style_grid: Grid, size: tuple[int, int]) -> None:
    wrong = []
    events: list[AnyEvent] = []
    async with open_app(events, size=size) as (app, pilot, _):
        await pilot.press("J")
        await settle(pilot)
        page = app.cockpit.page
        assert isinstance(page, Launch)
        page.form.inputs["command"].cursor_blink = False
        for state, form in STATES.items():
            await write(app, pilot, **{name: getattr(form, name) for name in Form.__struct_fields__})
            await settle(pilot)
            try:
                check(f"launch_{state}_{size[0]}x{size[1]}", text_grid(app), style_grid(app))
            except AssertionError as difference:
                wrong.append(f"{state}: {difference}")
    assert not wrong, "\n\n".join(wrong)
