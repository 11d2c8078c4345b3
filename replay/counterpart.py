"""A second recording that follows another session: it is moved to the moment that belongs to the other's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from distmon.core.batches import first_steps, told_by
from distmon.core.events import AnyEvent
from distmon.core.fold import apply
from distmon.core.measures import steps
from distmon.core.side_by_side import LOCKS, End, Landmarks, Lock, Side, Standing, curve, end_of, landmarks, place, side
from distmon.core.state import SessionState
from distmon.replay.open_index import open_index
from distmon.replay.player import Player
from distmon.replay.session_file import open_session

NEAR_S = 30.0
"""A moment so little later is played to; any other is sought."""
BEFORE_S = 2.0
"""Where a step is sought, so much earlier: about when it was is known to a second."""


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
        self._split = False
        """Only the first steps of the last event were folded. What follows is not folded onto that, but from before the event
        anew: a state must not depend on how its moment was come to."""
        self._seek(self._player.duration_s)
        self.whole = Whole(landmarks(self._state), end_of(self._state), {lock: curve(self._state, lock) for lock in LOCKS})

    def at(self, lock: Lock, of: Standing) -> Side | None:
        """What it had measured where the other session stands now; None where that place is not known."""
        found = place(lock, of, self.whole.marks)
        if found is None:
            return None
        kind, where = found
        if kind == "step":
            self._go_to_step(round(where))
        else:
            self._go(min(max(where - self._player.started_at, 0.0), self._player.duration_s))
        return side(self._state)

    def close(self) -> None:
        self._player.close()

    def _go(self, there: float) -> None:
        ahead = there - self._player.position_s
        if self._split or not 0 <= ahead <= NEAR_S:
            self._seek(there)
        elif ahead:
            self._time += ahead
            for event in self._player.poll():
                apply(self._state, event)

    def _go_to_step(self, step: int) -> None:
        """Where rank 0 has done so many steps and no more, as far as steps were recorded one by one."""
        about, before = self._player.position_about_step(step), BEFORE_S
        if self._split or steps(self._state) >= step or about - self._player.position_s > NEAR_S:
            self._seek(max(about - before, 0.0))
            while steps(self._state) >= step and about > before:
                before *= 2
                self._seek(max(about - before, 0.0))
        left = step - steps(self._state)
        if left <= 0:
            return
        self._time += self._player.duration_s
        for event in self._player.poll():
            told: Sequence[AnyEvent] = [event]
            if sum(batch.steps for rank, _, batch in told_by(event) if rank == 0) > left:
                told, self._split = first_steps(event, left) or told, True
            for one in told:
                apply(self._state, one)
            left = step - steps(self._state)
            if left <= 0:
                return

    def _seek(self, there: float) -> None:
        self._split = False
        self._player.seek(there)
        self._state = self._player.take_state() or self._state
        if not self._player.at_end:
            self._player.play()
