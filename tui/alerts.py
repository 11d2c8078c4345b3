"""What deserves a call while nobody looks: errors, warnings and findings that hold, each said once."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Literal

from distmon.core.finding import CALM, Key, by_key
from distmon.core.printable import clean
from distmon.core.state import LogEntry, SessionState
from distmon.core.verdicts import Verdict, verdicts
from distmon.tui.budget import LONGEST_PAUSE_S, SHARE

if TYPE_CHECKING:
    from distmon.launcher.settings import AlertSettings

KINDS = ("errors", "warnings", "verdicts")
HOLDS_S = 5.0
"""A finding is told once it has been there for so long without a break."""
FORGOTTEN_S = 60.0
"""A finding that went and comes again is told again only after so long."""
FRESH_S = 10.0
"""What is older than this when it is first seen is no news: a recording was opened, or a late node told its past."""
MOST_AT_ONCE = 3
LOOK_EVERY_S = 1.0
"""Without a screen the findings are looked for this often, and less often where that takes long."""


def desktop_note(text: str) -> str:
    """What has a terminal show a notification of its desktop, where it passes that on (OSC 9)."""
    return f"\x1b]9;distmon: {text}\x07"


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
        self._session: SessionState | None = None
        self._last: LogEntry | None = None
        self._since: dict[Key, float] = {}
        self._seen: dict[Key, float] = {}
        self._told: set[Key] = set()

    def update(self, state: SessionState, found: Sequence[Verdict]) -> list[Alert]:
        """What is new, the gravest first; at most MOST_AT_ONCE. `found` are the state's findings.

        Another state (after a seek) is taken as known.
        """
        present = by_key(found)
        if self._session is not state:
            self._session = state
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


class PlainAlerts:
    """Alerts where there is no screen: calls as the settings ask for it, and gives a line for each call."""

    def __init__(self, settings: AlertSettings) -> None:
        self._settings = settings
        self._wanted = bool(settings.command or settings.bell or settings.desktop)
        self._alerts = Alerts(settings.on)
        self._found: list[Verdict] = []
        self._look_at = 0.0

    def lines(self, state: SessionState) -> list[str]:
        """What there was to call for since the last call."""
        if not self._wanted:
            return []
        begun = time.monotonic()
        if "verdicts" in self._settings.on and begun >= self._look_at:
            self._found = verdicts(state)
            ended = time.monotonic()
            self._look_at = ended + max(LOOK_EVERY_S, min((ended - begun) / SHARE, LONGEST_PAUSE_S))
        return [line for alert in self._alerts.update(state, self._found) for line in self._call(alert)]

    def _call(self, alert: Alert) -> list[str]:
        settings = self._settings
        if sys.stderr.isatty():
            sys.stderr.write("\a" * settings.bell + desktop_note(alert.text) * settings.desktop)
        failure = run_command(settings.command, alert.text) if settings.command else ""
        return [f"alert: {alert.text}", *([f"warning: {failure}"] if failure else [])]
