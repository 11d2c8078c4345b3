"""What an operator can have done to a running job, and how it is said before it is done and in the recording."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import ClassVar

from msgspec import Struct

from distmon.core.errors import UsageError

SIGNALS: Mapping[str, str] = {
    "SIGUSR1": "the script's handler runs; without one the rank ends",
    "SIGUSR2": "the script's handler runs; without one the rank ends",
    "SIGINT": "Python raises KeyboardInterrupt in it",
    "SIGTERM": "it is asked to end; without a handler it ends at once",
    "SIGKILL": "it ends at once, without a word",
    "SIGSTOP": "it freezes until SIGCONT, and the other ranks wait",
    "SIGCONT": "it goes on where SIGSTOP had frozen it",
    "SIGQUIT": "it ends, and may leave a core file",
}
"""Those that make sense for a rank -> what they do to it."""


class Action(Struct, frozen=True, tag_field="action"):
    """One thing to do. `NAME` and `detail` stand in the recording, `effect` is what the user is told before."""

    NAME: ClassVar[str] = ""

    @property
    def detail(self) -> str:
        return ""

    @property
    def effect(self) -> str:
        raise NotImplementedError


class StopJob(Action, frozen=True, tag="stop"):
    """Politely, or at once."""

    NAME: ClassVar[str] = "stop"
    firm: bool = False

    @property
    def detail(self) -> str:
        return "at once" if self.firm else "politely"

    @property
    def effect(self) -> str:
        if self.firm:
            return "Kill every rank at once (SIGKILL)?\nWhat the ranks have not saved is lost."
        return "Stop the job? Every rank gets SIGTERM, and SIGKILL\n5 s later if it is still there; the recording is closed."


class RestartJob(Action, frozen=True, tag="restart"):
    NAME: ClassVar[str] = "restart"

    @property
    def effect(self) -> str:
        return "Restart the job? It is stopped politely, and the same\ncommand runs again, with a recording of its own."


class SignalRank(Action, frozen=True, tag="signal"):
    NAME: ClassVar[str] = "signal"
    rank: int
    signal: str
    """By its name: SIGUSR1."""

    @property
    def detail(self) -> str:
        return f"{self.signal} to rank {self.rank}"

    @property
    def effect(self) -> str:
        does = SIGNALS[self.signal]
        return f"Send {self.signal} to rank {self.rank}?\n{does[0].upper()}{does[1:]}."


class AddHost(Action, frozen=True, tag="add_host"):
    NAME: ClassVar[str] = "add host"
    host: str
    """NAME:SLOTS."""

    @property
    def detail(self) -> str:
        return self.host

    @property
    def effect(self) -> str:
        return f"Add {self.host} to the job?\nAll ranks meet anew at their next commit, and it gets ranks."


class DrainHost(Action, frozen=True, tag="drain_host"):
    NAME: ClassVar[str] = "drain host"
    host: str

    @property
    def detail(self) -> str:
        return self.host

    @property
    def effect(self) -> str:
        return f"Take {self.host} out of the job? Its ranks end at their next\ncommit, and the others go on without them."


AnyAction = StopJob | RestartJob | SignalRank | AddHost | DrainHost


def signal_named(text: str) -> str:
    """SIGUSR1 for `SIGUSR1`, `usr1` or `10`. Raises UsageError for one that makes no sense for a rank."""
    word = text.strip().upper()
    if word.isdecimal() and int(word) in list(signal.Signals):
        word = signal.Signals(int(word)).name
    name = word if word.startswith("SIG") else f"SIG{word}"
    if name not in SIGNALS:
        raise UsageError(f"{text!r} is no signal for a rank; there are {', '.join(SIGNALS)}")
    return name


def signal_number(name: str) -> int:
    """Raises UsageError as `signal_named`."""
    return signal.Signals[signal_named(name)].value
