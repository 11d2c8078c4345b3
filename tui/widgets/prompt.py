"""What is written on: fields of one row, and the prompt at the foot of the screen, for a filter or for a name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding
from textual.message import Message
from textual.widgets import Input


class Field(Input):
    """Shows a question mark for each character that a terminal would obey or not print: it may come from a recording or a file.

    The text itself stays as it is, with as many characters, so that what is run is what was recorded.
    """

    @property
    def _value(self) -> Text:
        shown = "".join(character if character.isprintable() else "?" for character in self.value)
        return Text(shown, no_wrap=True, overflow="ignore", end="")


class FilterPrompt(Field):
    """Filters while the user types; Enter keeps the filter, Escape and Ctrl-C drop it."""

    DEFAULT_CSS = """
    FilterPrompt { height: 1; border: none; padding: 0 1; background: $surface; }
    FilterPrompt:focus { border: none; }
    """
    BINDINGS: ClassVar = [Binding("escape,ctrl+c", "drop", "drop the filter", show=False)]

    @dataclass
    class Typed(Message):
        """The text as it stands; `done` once the prompt is to close, `dropped` if without an answer."""

        text: str
        done: bool
        dropped: bool = False

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, select_on_focus=False)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Typed(event.value, False))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Typed(event.value, True))

    def action_drop(self) -> None:
        with self.prevent(Input.Changed):
            self.value = ""
        self.post_message(self.Typed("", True, dropped=True))
