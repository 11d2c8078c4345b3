"""A second recording that follows another session: it is moved to the moment that belongs to the other's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from distmon.core.fold import apply
from distmon.core.side_by_side import LOCKS, End, Landmarks, Lock, Side, Standing, curve, end_of, landmarks, place, side
from distmon.core.state import SessionState
from distmon.replay.open_index import open_index
from distmon.replay.player import Player
from distmon.replay.session_file import open_session

NEAR_S = 30.0
"""A moment so little later is played to; any other is sought."""


class Whole(NamedTuple):
    """What is told of the recording as a whole."""

    marks: Landmarks
    end: End
    curves: dict[Lock, list[tuple[float, float | None]]]


class Counterpart:
    """Everything here takes its time: it is for a thread beside the screen."""

    def __init__(self, path: Path, progress: Callable[[float], None] | None = None) -> None:
        """Reads the recording's end. `progress` is told the share done of reading one that has no index yet, 0 to 1.

        Raises DistmonError where it cannot be read.
        """
        session = open_session(path)
        self._time = 0.0
        self._player = Player(session, clock=lambda: self._time, index=open_index(session, progress), beside=False)
        self._state = SessionState()
        self._seek(self._player.duration_s)
        self.whole = Whole(landmarks(self._state), end_of(self._state), {lock: curve(self._state, lock) for lock in LOCKS})

    def at(self, lock: Lock, of: Standing) -> Side | None:
        """What it had measured where the other session stands now; None where that place is not known."""
        found = place(lock, of, self.whole.marks)
        if found is None:
            return None
        kind, where = found
        there = self._player.position_about_step(where) if kind == "step" else where - self._player.started_at
        self._go(min(max(there, 0.0), self._player.duration_s))
        return side(self._state)

    def close(self) -> None:
        self._player.close()

    def _go(self, there: float) -> None:
        ahead = there - self._player.position_s
        if not 0 <= ahead <= NEAR_S:
            self._seek(there)
        elif ahead:
            self._time += ahead
            for event in self._player.poll():
                apply(self._state, event)

    def _seek(self, there: float) -> None:
        self._player.seek(there)
        self._state = self._player.take_state() or self._state
        if not self._player.at_end:
            self._player.play()
