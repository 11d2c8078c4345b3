"""What deserves a call while nobody looks: errors, warnings and findings that hold, each said once."""

from __future__ import annotations

import os
import shlex
import subprocess
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

from distmon.core.finding import CALM, Key
from distmon.core.printable import clean
from distmon.core.state import LogEntry, SessionState
from distmon.core.verdicts import Verdict
from distmon.tui.view.verdict_page import by_key

KINDS = ("errors", "warnings", "verdicts")
HOLDS_S = 5.0
"""A finding is told once it has been there for so long without a break."""
FORGOTTEN_S = 60.0
"""A finding that went and comes again is told again only after so long."""
FRESH_S = 10.0
"""What is older than this when it is first seen is no news: a recording was opened, or a late node told its past."""
MOST_AT_ONCE = 3


def run_command(command: str, text: str) -> str:
    """Starts the user's command without a shell and does not wait for it; gives why it could not, or nothing."""
    try:
        words = shlex.split(command)
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "DISTMON_ALERT": text},
        )
    except (OSError, ValueError, IndexError) as error:
        return f"the alerts' command cannot be run: {error}"
    threading.Thread(target=process.wait, name="distmon-alert", daemon=True).start()
    return ""


@dataclass(frozen=True)
class Alert:
    """One call: when it was, what it says, and the screen that shows it."""

    at: float
    text: str
    severity: Literal["warning", "error"]
    screen: str


class Alerts:
    """Compares each moment with the one before. `on` are the KINDS that are wanted."""

    def __init__(self, on: Collection[str] = KINDS) -> None:
        self._on = frozenset(on)
        self._session = 0
        self._last: LogEntry | None = None
        self._since: dict[Key, float] = {}
        self._seen: dict[Key, float] = {}
        self._told: set[Key] = set()

    def update(self, state: SessionState, found: Sequence[Verdict]) -> list[Alert]:
        """What is new, the gravest first; at most MOST_AT_ONCE. `found` are the state's findings.

        Another state (after a seek) is taken as known.
        """
        present = by_key(found)
        if self._session != id(state):
            self._session = id(state)
            self._last = state.log[-1] if state.log else None
            self._told = set(present)
            return []
        new = [*self._from_log(state), *self._from_verdicts(state.now, present)]
        return sorted(new, key=lambda alert: alert.severity != "error")[:MOST_AT_ONCE]

    def _from_log(self, state: SessionState) -> list[Alert]:
        log, last = state.log, self._last
        new = list(takewhile(lambda entry: entry is not last, reversed(log)))
        self._last = log[-1] if log else None
        wanted = {"error": "errors" in self._on, "warning": "warnings" in self._on, "info": False}
        return [
            Alert(entry.at, clean(entry.text), "error" if entry.severity == "error" else "warning", "events")
            for entry in reversed(new)
            if wanted[entry.severity] and state.now - entry.at <= FRESH_S
        ]

    def _from_verdicts(self, now: float, present: Mapping[Key, Verdict]) -> list[Alert]:
        if "verdicts" not in self._on:
            return []
        for key in present:
            self._since.setdefault(key, now)
            self._seen[key] = now
        for key in [key for key in self._since if key not in present]:
            del self._since[key]
        self._told = {key for key in self._told if now - self._seen.get(key, now) <= FORGOTTEN_S}
        new = [
            key
            for key, since in self._since.items()
            if key not in self._told and now - since >= HOLDS_S and present[key].kind not in CALM
        ]
        self._told.update(new)
        return [Alert(now, clean(present[key].text), "warning", "verdicts") for key in new]
