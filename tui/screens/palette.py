"""The palette of commands, which goes away once: the framework's own takes the screen below along at a second click."""

from __future__ import annotations

from contextlib import suppress

from textual.await_complete import AwaitComplete
from textual.command import CommandPalette, Hit, Hits
from textual.system_commands import SystemCommandsProvider
from textual.worker import Worker

IN_HELP = 0.5
"""What a letter found in the description counts for, beside one in the name."""


class Commands(SystemCommandsProvider):
    """The commands of the table, found by their names and by what they do."""

    async def search(self, query: str) -> Hits:
        """The framework's own looks at names alone."""
        matcher, words = self.matcher(query), query.lower().split()
        for name, described, callback, *_ in self.app.get_system_commands(self.screen):
            score, shown = matcher.match(name), matcher.highlight(name)
            if all(word in described.lower() for word in words):
                score = max(score, IN_HELP)
            if score > 0:
                yield Hit(score, shown, callback, help=described)


class OncePalette(CommandPalette):
    """As the framework has it, but for keys and clicks that come while it goes."""

    def _gather_commands(self, search_value: str) -> Worker[None]:
        """What it gathers for may be gone before it is done, which ends the gathering and nothing else."""
        worker = super()._gather_commands(search_value)
        worker.exit_on_error = False
        return worker

    def dismiss(self, result: None = None) -> AwaitComplete:
        return super().dismiss(result) if self.is_current else AwaitComplete()

    def _action_command_list(self, action: str) -> None:
        """A page up or down, but not where the list has no room: it does not know then on which line an option stands."""
        with suppress(KeyError, IndexError):
            super()._action_command_list(action)
