"""How long each finding held, as a session goes by: what the verdicts of its last moment cannot say. Bounded in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from distmon.core.finding import CALM, Key, Verdict, key_of, since_start
from distmon.core.state import SessionState
from distmon.core.verdicts import troubles

LASTING_SHARE = 0.2
"""Of the training time: a finding that held for so much of it is told even where it is gone in the end."""
END_S = 5.0
"""A finding that was seen so shortly before the end held to the end: agents leave before, and the last steps come in late."""
MOST = 256
"""Findings that are kept; past them those go that do not hold now, and have held for the shortest time."""
_SPACING = 0.01
"""The time from look to look as a share of what has gone by, within bounds: shares are as exact, and ends to half a minute."""
_LEAST_SPACING_S, _MOST_SPACING_S = 1.0, 30.0


@dataclass(slots=True)
class Held:
    """A finding over the looks that saw it. `from_s` and `to_s` are seconds since the job's start."""

    verdict: Verdict
    """As it was said when a quarter of its time or more had gone by: at its end it is about to go, and says less."""
    from_s: float
    to_s: float
    seconds: float = 0.0
    said_after: float = 0.0
    """Of its `seconds`, those before `verdict` was said."""

    def is_old_after(self, seconds: float) -> bool:
        """Whether `verdict` will be of its first quarter when it has held for so much longer."""
        return self.seconds + seconds >= 4 * self.said_after


def _seen(found: Iterable[Verdict]) -> dict[Key, Verdict]:
    """What holds, and is no good news."""
    return {key_of(verdict): verdict for verdict in found if verdict.kind not in CALM and verdict.pattern != "transient"}


def _reading_s(state: SessionState) -> float:
    """The longest time between two readings of a node: of a log it may be minutes, which are no silence."""
    return max((node.least_interval_s or 0.0 for node in state.nodes.values()), default=0.0)


@dataclass(slots=True)
class FindingsHeld:
    """Follows the findings while a job trains, or for as long as a session without a job lasts."""

    seconds: float = 0.0
    """In which was looked."""
    until_s: float = 0.0
    found: dict[Key, Held] = field(default_factory=dict)
    _first: float | None = None
    _last: float = 0.0
    _due: float = 0.0
    _trains: bool = False

    def look(self, state: SessionState) -> None:
        """To be called after every event; most calls only see that it is too early to look again."""
        passed = self._passed(state)
        if passed is None:
            return
        seen = _seen(troubles(state, in_full=False))
        if any(key not in self.found or self.found[key].is_old_after(passed) for key in seen):
            seen = _seen(troubles(state, in_full=True))
        self._add(state, passed, seen)

    def _passed(self, state: SessionState) -> float | None:
        """The time that a look now is for; None where it is too early, or where nothing is followed."""
        now = state.now
        if now < self._due:
            return None
        if self._first is None:
            self._first = self._last = now
        spacing = min(max(_SPACING * (now - self._first), _LEAST_SPACING_S), _MOST_SPACING_S)
        passed, self._last, self._due = min(now - self._last, 2 * max(spacing, _reading_s(state))), now, now + spacing
        if state.job.status == "running" and not self._trains:
            self._trains, self.seconds, passed = True, 0.0, 0.0
            self.found.clear()
        return passed if state.job.status == ("running" if self._trains else "idle") else None

    def _add(self, state: SessionState, passed: float, seen: Mapping[Key, Verdict]) -> None:
        """What is seen now is taken to have held since the last look."""
        now = since_start(state, state.now) or 0.0
        self.seconds += passed
        self.until_s = now
        for key, verdict in seen.items():
            held = self.found.setdefault(key, Held(verdict, now - passed, now))
            if held.is_old_after(passed):
                held.verdict, held.said_after = verdict, held.seconds + passed
            held.seconds += passed
            held.to_s = now
        while len(self.found) > MOST:
            del self.found[min(self.found, key=lambda key: (key in seen, self.found[key].seconds))]

    def share(self, held: Held) -> float:
        """Of the time in which was looked, 0 to 1."""
        return held.seconds / self.seconds if self.seconds > 0 else 0.0

    def to_the_end(self, held: Held) -> bool:
        """Whether it was there when training ended."""
        return held.to_s >= self.until_s - END_S

    def lasting(self) -> list[Held]:
        """Those that held for LASTING_SHARE of the time or more, the longest first."""
        return sorted((held for held in self.found.values() if self.share(held) >= LASTING_SHARE), key=lambda held: -held.seconds)
