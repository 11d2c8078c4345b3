"""The screen that starts a job: its fields, what is wrong with them, the plan, the hosts, and the exact command line."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import ClassVar

from textual import work
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Input

from distmon.core.errors import DistmonError
from distmon.core.events import JobStarted
from distmon.core.printable import clean
from distmon.launcher.check import CheckResult, HostCheck
from distmon.launcher.form import BACKENDS, Form, form_of, words_of
from distmon.launcher.plan import Plan
from distmon.launcher.presets import delete_preset, save_preset
from distmon.launcher.preview import Preview, command_line, preview
from distmon.launcher.settings import FILE_NAME, Settings, load_settings, preset_of
from distmon.replay.glance import glance
from distmon.replay.paths import recordings, sessions_folder
from distmon.tui.bindings import Command, bindings_for, commands_for, key_name
from distmon.tui.screens.arrange import Box
from distmon.tui.screens.page import Frame, Page
from distmon.tui.view.facts import Facts
from distmon.tui.view.launch import Planned, plan_caption, plan_lines, said_of
from distmon.tui.widgets.launch_form import NARROW, NARROW_ROWS, ROWS, LaunchForm
from distmon.tui.widgets.text_panel import TextPanel

PLAN_ROWS = 5
"""With less room than this below the form the plan is not shown."""
LOOK_AFTER_S = 0.3
"""The plan is made when nothing has been typed for so long, and not sooner after the last one."""
ASK_EVERY_S = 30.0
"""Hosts are asked again so often while the screen is shown."""
REMEMBERED = 50
"""Recordings whose commands are the history."""

BUTTONS = ("start", "copy_line", "check", "save_preset", "delete_preset")
"""Actions that have a button too."""


def _button(command: Command) -> str:
    return f"{command.label.capitalize()} {key_name(command.keys[0])}"


def form_of_job(started: JobStarted | None) -> Form:
    """The form to begin with: of the job on the screen, as far as its session tells how it was asked for."""
    if started is None or not started.command:
        return Form()
    numbers = {"np": started.np, "min_np": started.min_np, "max_np": started.max_np}
    texts = {name: "" if number is None else str(number) for name, number in numbers.items()}
    backend = started.backend if started.backend in BACKENDS else BACKENDS[0]
    hosts = "" if started.hosts == f"localhost:{started.np}" else started.hosts
    return Form(**texts, command=shlex.join(started.command), hosts=hosts, backend=backend)


def check_hosts(plan: Plan, agent: str) -> HostCheck:
    """What asks the hosts of a plan; takes the place of a real check in tests."""
    return HostCheck(plan, agent)


class Launch(Page):
    """Looking things up and asking hosts is done beside the screen; what was asked for last is shown."""

    TYPED = True
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings_for("launch"),
        # At once, before the field has the key: what is typed next, and came with it, belongs to the next field.
        Binding("tab", "screen.next_panel", priority=True, show=False),
        Binding("shift+tab", "screen.previous_panel", priority=True, show=False),
    ]

    @dataclass
    class StartAsked(Message):
        """The user wants this job, in place of what is on the screen."""

        words: list[str]

    @dataclass
    class Looked(Message):
        found: Preview

    @dataclass
    class Waiting(Message):
        """Hosts that have not answered yet, of a check under way."""

        check: HostCheck
        hosts: list[str]

    @dataclass
    class Checked(Message):
        check: HostCheck
        result: CheckResult

    def __init__(self, frame: Frame, name: str) -> None:
        super().__init__(frame, name)
        self.choices.focused = "plan"
        self.folder = Path.cwd()
        buttons = {command.action: _button(command) for command in commands_for("launch") if command.action in BUTTONS}
        self.form = LaunchForm(self.folder, buttons, id="form")
        self.plan_panel = TextPanel("plan", 1, id="plan")
        self.panels = {"plan": self.plan_panel}
        self.others = [self.form]
        self.planned = Planned()
        self.wrong: Mapping[str, str] = {}
        self.preset = ""
        self._settings = Settings()
        self._written = form_of_job(frame.facts.state.job.started)
        self._look_soon: Timer | None = None
        self._check: HostCheck | None = None
        self._checked_as: object = None
        """What the hosts were last asked about."""

    def plan(self, width: int, height: int) -> dict[str, Box]:
        rows = NARROW_ROWS if width < NARROW else ROWS
        if height < rows + PLAN_ROWS:
            return {"form": Box(0, 0, width, height)}
        return {"form": Box(0, 0, width, rows), "plan": Box(0, rows, width, height - rows)}

    def on_mount(self) -> None:
        super().on_mount()
        self._read_settings()
        self._read_history()
        self.form.fill(self._written)
        self.set_interval(ASK_EVERY_S, self._ask_again)

    def on_unmount(self) -> None:
        if self._check is not None:
            self._check.cancel()

    def open_subject(self, subject: object) -> None:
        """A form to begin with."""
        if isinstance(subject, Form):
            self._written = subject
            if self.form.is_mounted:
                self.form.fill(subject)

    def draw_parts(self, facts: Facts, shown: set[str]) -> None:
        self.plan_panel.show(partial(plan_lines, self.planned), plan_caption(self.planned))

    # --- keys -----------------------------------------------------------------------------------------------------

    def _take_wanted_focus(self) -> None:
        if self.wants_focus and self.is_current:
            self.screen.set_focus(self.form.inputs["command"])
            self.wants_focus = False

    def step_focus(self, step: int) -> None:
        ring = [*self.form.ring, *([self.plan_panel] if self.plan_panel.display else [])]
        focused = self.screen.focused
        there = ring[(ring.index(focused) + step) % len(ring)] if focused in ring else ring[0]
        self.screen.set_focus(there)
        if isinstance(there, Input) and there is not self.form.inputs["command"]:
            there.action_select_all()  # what is typed takes its place; a click sets the cursor

    def on_input_submitted(self) -> None:
        self.step_focus(1)

    def action_recall(self, step: int) -> None:
        """Earlier commands in the command's field; elsewhere the plan scrolls."""
        if self.screen.focused is not self.form.inputs["command"]:
            self.plan_panel.navigate("up" if step > 0 else "down")
        elif not self.form.recall(step):
            self.frame.say("there is no earlier command" if step > 0 else "there is no later command")

    async def on_launch_form_pressed(self, event: LaunchForm.Pressed) -> None:
        await self.run_action(event.action)

    # --- what the fields say --------------------------------------------------------------------------------------

    def on_launch_form_changed(self, event: LaunchForm.Changed) -> None:
        self._written = event.form
        if self._look_soon is not None:
            self._look_soon.stop()
        self._look_soon = self.set_timer(LOOK_AFTER_S, self._look)

    def _look(self) -> None:
        self._look_beside(self._written, self._settings)

    @work(thread=True, group="look", exclusive=True)
    def _look_beside(self, form: Form, settings: Settings) -> None:
        self.post_message(self.Looked(preview(form, settings, str(self.folder), dict(os.environ))))

    def on_launch_looked(self, event: Looked) -> None:
        if event.found.form != self._written:
            return
        self.wrong = event.found.wrong
        untouched = not self._written.command.strip()
        self.form.say({field: text for field, text in self.wrong.items() if field != "command" or not untouched})
        try:
            line = command_line(self._written) if self._written.command.strip() else ""
        except DistmonError:
            line = ""  # a quotation mark is open, which its field says
        self.planned = replace(self.planned, line=line, plan=event.found.plan)
        if event.found.plan is not None:
            self._ask(event.found.plan)
        self.redraw()

    # --- the hosts ------------------------------------------------------------------------------------------------

    def _ask(self, plan: Plan, *, again: bool = False) -> None:
        """Ask the hosts of the plan, unless they were asked the same."""
        asked = (plan.python, plan.script, plan.members, plan.given_interfaces, plan.ssh_port, plan.ssh_identity_file)
        if asked == self._checked_as and not again:
            return
        if self._check is not None:
            self._check.cancel()
        if asked != self._checked_as:
            self.planned = replace(self.planned, reports={}, findings=(), checked=False, waiting=[h.name for h in plan.members])
        self._checked_as, self._check = asked, check_hosts(plan, self._settings.agent)
        self._ask_beside(self._check)

    def _ask_again(self) -> None:
        if self.is_current and self.planned.plan is not None and self.planned.checked:
            self._ask(self.planned.plan, again=True)

    @work(thread=True, group="ask", exclusive=True)
    def _ask_beside(self, check: HostCheck) -> None:
        self.post_message(self.Checked(check, check.run(partial(self._tell_waiting, check))))

    def _tell_waiting(self, check: HostCheck, hosts: list[str]) -> None:
        self.post_message(self.Waiting(check, hosts))

    def on_launch_waiting(self, event: Waiting) -> None:
        if event.check is self._check:
            self.planned = replace(self.planned, waiting=event.hosts)
            self.redraw()

    def on_launch_checked(self, event: Checked) -> None:
        if event.check is not self._check:
            return
        self._check = None
        reports = {report.host: report for report in event.result.reports}
        self.planned = replace(self.planned, reports=reports, findings=event.result.findings, waiting=(), checked=True)
        self.redraw()

    # --- actions --------------------------------------------------------------------------------------------------

    def action_start(self) -> None:
        job = self.frame.job
        if self.frame.rights.starting_refused:
            self.frame.say(self.frame.rights.starting_refused)
        elif job is not None and job.running:
            self.frame.say("a job that was started here still runs; K stops it")
        elif self.planned.plan is None:
            field = next(iter(self.wrong), "command")
            self.screen.set_focus(self.form.field_of(field))
            self.frame.say(self.wrong.get(field, "the plan is still being made"))
        elif errors := [finding for finding in self.planned.findings if finding.severity == "error"]:
            self.focus_panel("plan")
            more = f", and {len(errors) - 1} more" * (len(errors) > 1)
            question = f"The job would fail: {said_of(errors[0])}{more}.\nStart it all the same?"
            self.frame.ask(question, self._start)
        else:
            self._start()

    def _start(self) -> None:
        # Straight to the app: what the screen itself sends, as it does after a yes, does not pass by it.
        self.app.post_message(self.StartAsked(words_of(self._written)))

    def action_copy_line(self) -> None:
        self.app.copy_to_clipboard(self.planned.line)
        self.frame.say("copied the command line" if self.planned.line else "there is no command line yet")

    def action_check(self) -> None:
        if self.planned.plan is None:
            self.frame.say("there is no plan yet, and so no hosts to ask")
        else:
            self._ask(self.planned.plan, again=True)

    # --- presets and history --------------------------------------------------------------------------------------

    def _read_settings(self) -> None:
        try:
            self._settings = load_settings(self.folder)
        except DistmonError as error:
            self.frame.say(str(error))
        self.preset = self.preset or self._preset_of(self._written)
        self.form.offer(sorted(self._settings.presets), self.preset)
        if self._settings.hosts or self._settings.hostfile:
            self.form.hints["hosts"] = f"empty: those of {FILE_NAME}"

    def _preset_of(self, form: Form) -> str:
        """The name of the preset that a form was filled from; empty where it is of none."""
        for name in sorted(self._settings.presets):
            with suppress(DistmonError):
                if form_of(preset_of(self._settings, name)) == form:
                    return name
        return ""

    def on_launch_form_preset_chosen(self, event: LaunchForm.PresetChosen) -> None:
        try:
            form = form_of(preset_of(self._settings, event.name))
        except DistmonError as error:
            self.frame.say(f"preset {event.name}: {error}")
            return
        self.preset = event.name
        self.form.fill(form)

    def action_save_preset(self) -> None:
        if self._may_write():
            what = "a name for this preset: distmon run --preset NAME does the same"
            self.frame.read_line(what, self.preset, self._save_preset)

    def _save_preset(self, name: str) -> str:
        """What is wrong with the name, which is asked for again then."""

        def save() -> None:
            save_preset(self.folder, name, words_of(self._written))

        return self._change_presets(save, f"kept: distmon run --preset {name}", name)

    def action_delete_preset(self) -> None:
        if not self.preset:
            self.frame.say("choose a preset first")
        elif self._may_write():
            self.focus_panel("plan")
            question = f"Delete the preset {clean(self.preset)} from distmon.toml?\nThe fields stay as they are."
            self.frame.ask(question, self._delete_preset)

    def _delete_preset(self) -> None:
        wrong = self._change_presets(partial(delete_preset, self.folder, self.preset), f"deleted {self.preset}", "")
        if wrong:
            self.frame.say(wrong)

    def _may_write(self) -> bool:
        refusal = self.frame.rights.starting_refused
        if refusal:
            self.frame.say(refusal)
        return not refusal

    def _change_presets(self, change: Callable[[], None], done: str, now: str) -> str:
        """Why it cannot be changed; empty where it was."""
        try:
            change()
        except DistmonError as error:
            return str(error)
        self.preset = now
        self._read_settings()
        self.frame.say(done)
        return ""

    @work(thread=True, group="history")
    def _read_history(self) -> None:
        """Commands of recent recordings, each once, the latest first."""
        found = (glance(path, info) for path, info in islice(recordings(sessions_folder()), REMEMBERED))
        commands = dict.fromkeys(shlex.join(each.command) for each in found if each.command)
        self.form.suggester.history = list(commands)
