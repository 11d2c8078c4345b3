"""The fields of the launch form: the framework's own inputs, one row each, with what is said of them beside."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.suggester import Suggester
from textual.widget import Widget
from textual.widgets import Button, Input, Select, Static

from distmon.core.printable import clean
from distmon.launcher.form import BACKENDS, FIELDS, Form
from distmon.tui.widgets.prompt import Field

NO_PRESET = "no preset"
NARROW = 76
"""In fewer cells the longest rows are two each."""
ROWS, NARROW_ROWS = 8, 10
NOTES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "command": ("what runs: → completes, ↑ recalls an earlier one", ("command",)),
    "ranks": ("min and max make it elastic", ("np", "min_np", "max_np")),
    "hosts": ("empty: this machine", ("hosts",)),
    "network": ("empty: found by itself", ("backend", "interface")),
    "options": ("other flags of distmon run", ("options",)),
}
"""Row -> what is said there while nothing is wrong, and the fields that it has."""
NAMES = {"np": "ranks", "min_np": "min", "max_np": "max"}


class CommandSuggester(Suggester):
    """Completes a command: with an earlier one that begins so, or else its last word with the path of a file.

    Neither with what a terminal would obey: a file can be called anything.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._folder = folder
        self.history: Sequence[str] = ()

    async def get_suggestion(self, value: str) -> str | None:
        earlier = next((command for command in self.history if command.startswith(value) and command.isprintable()), None)
        if earlier is not None or not value:
            return earlier
        before, space, word = value.rpartition(" ")
        path = completed_path(self._folder, word)
        return f"{before}{space}{path}" if path is not None else None


def completed_path(folder: Path, word: str) -> str | None:
    """The word with the rest of the first path that begins so; a folder ends with a slash."""
    parent, slash, start = word.rpartition("/")
    if not start:
        return None
    try:
        with os.scandir(folder / Path(parent + slash).expanduser()) as entries:
            fitting = (entry for entry in entries if entry.name.startswith(start) and entry.name.isprintable())
            found = sorted((entry.name, entry.is_dir()) for entry in fitting)
    except (OSError, RuntimeError):  # there is no such folder, or no such user
        return None
    if not found or found[0] == (start, False):
        return None
    name, is_folder = found[0]
    rest = shlex.quote(name) if shlex.quote(name) == name else name.replace(" ", "\\ ")
    return f"{parent}{slash}{rest}{'/' * is_folder}"


class Choice(Select[str]):
    """A select that may be taken away while it is being put up: its label is then never made."""

    @property
    def is_whole(self) -> bool:
        return bool(self.query("#label"))

    def _on_mount(self, event: events.Mount) -> None:
        if not self.is_whole:
            event.prevent_default()


class LaunchForm(VerticalScroll, can_focus=False):
    """Holds a form as it is written, and tells of every change."""

    DEFAULT_CSS = """
    LaunchForm { height: 1fr; scrollbar-size-vertical: 1; background: $background; }
    LaunchForm Horizontal { height: 1; }
    LaunchForm .word { width: auto; color: $secondary; padding: 0 1 0 2; }
    LaunchForm .label { width: 10; padding: 0 0 0 1; }
    LaunchForm .note { width: 2fr; color: $secondary; padding: 0 0 0 2; text-wrap: nowrap; text-overflow: ellipsis; }
    LaunchForm .wrong { color: $error; text-style: bold; }
    LaunchForm .word:ansi, LaunchForm .note:ansi { color: ansi_default; }
    LaunchForm Input > .input--suggestion, LaunchForm SelectCurrent Static#label { color: $secondary; }
    LaunchForm SelectCurrent.-has-value Static#label { color: $foreground; }
    LaunchForm Input { width: 3fr; }
    LaunchForm Input.number { width: 6; }
    LaunchForm Input.short { width: 16; }
    LaunchForm Select { width: 16; }
    LaunchForm Select#preset { width: 28; }
    LaunchForm Select:focus > SelectCurrent { border: none; text-style: reverse; }
    LaunchForm Button { width: auto; min-width: 0; border: none !important; margin: 0 0 0 1; padding: 0; }
    LaunchForm Button:focus { text-style: bold reverse !important; }
    LaunchForm .buttons { width: auto; }
    LaunchForm.-narrow .two { layout: grid; grid-size: 2 2; grid-columns: 10 1fr; grid-rows: 1; height: 2; }
    LaunchForm.-narrow .two > .buttons { column-span: 2; }
    LaunchForm.-narrow .two > .word { width: 10; padding: 0 0 0 1; }
    LaunchForm.-narrow .note, LaunchForm.-narrow .nameless { display: none; }
    LaunchForm.-narrow #note_command { display: block; }
    LaunchForm.-narrow Button { margin: 0; }
    LaunchForm.-narrow .word { padding: 0 1; }
    LaunchForm.-narrow Input.number { width: 5; }
    LaunchForm.-narrow Input.short { width: 1fr; }
    """

    @dataclass
    class Changed(Message):
        """What is written now."""

        form: Form

    @dataclass
    class PresetChosen(Message):
        name: str

    @dataclass
    class Pressed(Message):
        """A button; its id is the action that it stands for."""

        action: str

    def __init__(self, folder: Path, buttons: Mapping[str, str], *, id: str | None = None) -> None:
        """Buttons by the actions that they stand for: those of the whole form, then those of presets."""
        super().__init__(id=id)
        self.suggester = CommandSuggester(folder)
        suggesters = {"command": self.suggester}
        self.inputs = {
            name: Field(id=f"field_{name}", compact=True, select_on_focus=False, suggester=suggesters.get(name))
            for name in FIELDS
            if name != "backend"
        }
        backends = [(name, name) for name in BACKENDS]
        self.backend = Choice(backends, value=BACKENDS[0], allow_blank=False, compact=True, id="backend")
        self.presets = Choice([], prompt=NO_PRESET, compact=True, id="preset")
        self.hints = {row: hint for row, (hint, _) in NOTES.items()}
        self.notes = {row: Static(hint, classes="note", markup=False, id=f"note_{row}") for row, hint in self.hints.items()}
        made = {action: Button(label, id=action, compact=True) for action, label in buttons.items()}
        self.of_presets = [button for action, button in made.items() if action.endswith("_preset")]
        self.buttons = [button for button in made.values() if button not in self.of_presets]
        self._recalled = -1

    def compose(self) -> ComposeResult:
        np, least, most = (self.inputs[name] for name in ("np", "min_np", "max_np"))
        for field in (np, least, most):
            field.add_class("number")
        self.inputs["interface"].add_class("short")
        yield _row("preset", self.presets, Horizontal(*self.of_presets, classes="buttons"), classes="two")
        yield _row("command", self.inputs["command"])
        yield _row("", self.notes["command"])
        yield _row("ranks", np, _word("min"), least, _word("max"), most, self.notes["ranks"])
        yield _row("hosts", self.inputs["hosts"], self.notes["hosts"])
        interface = (_word("interface"), self.inputs["interface"], self.notes["network"])
        yield _row("backend", self.backend, *interface, classes="two")
        yield _row("options", self.inputs["options"], self.notes["options"])
        yield _row("", *self.buttons)

    def on_resize(self) -> None:
        self.set_class(self.outer_size.width < NARROW, "-narrow")

    # --- the form -------------------------------------------------------------------------------------------------

    @property
    def form(self) -> Form:
        backend = self.backend.value
        texts = {name: field.value for name, field in self.inputs.items()}
        return Form(**texts, backend=backend if isinstance(backend, str) else BACKENDS[0])

    def fill(self, form: Form) -> None:
        """Write a form in place of what is there; tells of it once."""
        if not self.backend.is_whole:
            return
        with self.prevent(Input.Changed, Select.Changed):
            for name, field in self.inputs.items():
                field.value = getattr(form, name)
                field.cursor_position = len(field.value)
            self.backend.value = form.backend
        self.post_message(self.Changed(form))

    def offer(self, presets: Sequence[str], chosen: str = "") -> None:
        """The presets that there are, and the one that is shown."""
        if not self.presets.is_whole:
            return
        with self.prevent(Select.Changed):
            self.presets.set_options([(Content(clean(name)), name) for name in presets])
            self.presets.value = chosen if chosen in presets else Select.NULL

    def say(self, wrong: Mapping[str, str]) -> None:
        """What is wrong with which field, beside it; the first of them in full below the command, where there is room."""
        for row, (_, fields) in NOTES.items():
            text = next((wrong[field] for field in fields if field in wrong), "")
            if row == "command" and not text:
                text = next((f"{NAMES.get(field, field)}: {words}" for field, words in wrong.items()), "")
            self.notes[row].update(f"✖ {clean(text)}" if text else self.hints[row])
            self.notes[row].set_class(bool(text), "wrong")

    def recall(self, step: int) -> bool:
        """An earlier command in place of the one that is written; False where there is none."""
        commands, position = self.suggester.history, self._recalled + step
        if not 0 <= position < len(commands):
            return False
        self._recalled = position
        self.inputs["command"].value = commands[position]
        self.inputs["command"].cursor_position = len(commands[position])
        return True

    # --- the keys -------------------------------------------------------------------------------------------------

    @property
    def ring(self) -> list[Widget]:
        """What Tab goes through."""
        return [
            self.inputs["command"], self.inputs["np"], self.inputs["min_np"], self.inputs["max_np"], self.inputs["hosts"],
            self.backend, self.inputs["interface"], self.inputs["options"], *self.buttons, self.presets, *self.of_presets,
        ]  # fmt: skip

    def field_of(self, name: str) -> Widget:
        """Where a field is written."""
        return self.backend if name == "backend" else self.inputs[name]

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if event.input is self.inputs["command"] and not event.value:
            self._recalled = -1
        self.post_message(self.Changed(self.form))

    def on_select_changed(self, event: Select.Changed) -> None:
        event.stop()
        if event.select is self.presets:
            if isinstance(event.value, str):
                self.post_message(self.PresetChosen(event.value))
        else:
            self.post_message(self.Changed(self.form))

    def on_button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        self.post_message(self.Pressed(event.button.id or ""))


def _row(label: str, *parts: Widget, classes: str = "") -> Horizontal:
    name = Static(label, classes="word label" + " nameless" * (not label), markup=False)
    return Horizontal(name, *parts, classes=classes)


def _word(text: str) -> Static:
    return Static(text, classes="word", markup=False)
