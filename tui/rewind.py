"""A live session that can be paused and rewound while it goes on: a recording's player stands in for the live source.

What happens now is recorded and folded all the while, into a state that the screens do not show until the viewer comes back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile

from distmon.core.events import AnyEvent
from distmon.core.fold import apply
from distmon.core.moments import Moment
from distmon.core.pace import PacePoint
from distmon.core.state import OutputLine, SessionState
from distmon.replay.background import Beside
from distmon.replay.keyframe import decode_state, encode_state
from distmon.replay.player import Player
from distmon.replay.recorder import Recorder
from distmon.replay.search import OutputSearch
from distmon.replay.session_file import no_garbage_collection, open_session
from distmon.tui.ports import Source

UNSEEN_S = 0.012
"""At each call the events of now are folded unseen for at most so long; more waits for the next call."""


class Rewind:
    """A source and a player over a live source; `state` is what its events are folded into.

    A job larger than the recorder folds by itself lends its state to the recording's index from time to time: in a thread, during
    which no event is taken in.
    """

    def __init__(
        self, source: Source, state: SessionState, recorder: Recorder, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._source, self._state, self._recorder, self._clock = source, state, recorder, clock
        self._past: Player | None = None
        """Made when it is first needed."""
        self._live = True
        self._moving = False
        """In the past: whether the player has gone somewhere; else the view stands where it was paused."""
        self._stood_at = 0.0
        self._left_at = 0.0
        """Time of the session at which the view left what happens now."""
        self._handed: SessionState | None = None
        self._past_shown = False
        self._copy: Beside[SessionState] | None = None
        self._loan: Beside[None] | None = None

    # --- where the view is ------------------------------------------------------------------------------------------

    @property
    def live(self) -> bool:
        return self._live

    @property
    def started_at(self) -> float:
        return self._state.started if self._state.started is not None else self._state.now

    @property
    def duration_s(self) -> float:
        return max(self._state.now - self.started_at, 0.0)

    @property
    def reach_s(self) -> float:
        return self.duration_s

    @property
    def unread(self) -> str:
        return ""

    @property
    def position_s(self) -> float:
        if self._live:
            return self.duration_s
        return self._replay.position_s if self._moving else self._stood_at

    @property
    def behind_s(self) -> float | None:
        return None if self._live else max(self.duration_s - self.position_s, 0.0)

    @property
    def playing(self) -> bool:
        return self._live or (self._moving and self._replay.playing)

    @property
    def busy(self) -> bool:
        return not self._live and (self._replay.busy if self._moving else self._copy is not None)

    @property
    def speed(self) -> float:
        return self._replay.speed if self._moving else 1.0

    @property
    def by_step(self) -> bool:
        return self._moving and self._replay.by_step

    @property
    def moments(self) -> Sequence[Moment]:
        return self._replay.moments

    @property
    def pace(self) -> tuple[float, Sequence[PacePoint]]:
        return self._replay.pace

    @property
    def cut_off(self) -> bool:
        """Never: it goes on here."""
        return False

    @property
    def present(self) -> SessionState:
        return self._state

    @property
    def news(self) -> str:
        """In words what came since the view left what happens now: the job's end, or the errors, or the warnings."""
        if self._live:
            return ""
        if self._state.job.ended_at is not None and self._state.job.ended_at > self._left_at:
            return "the job has ended"
        new = [e.severity for e in takewhile(lambda entry: entry.at > self._left_at, reversed(self._state.log))]
        told = "error" if "error" in new else "warning"
        count = sum(severity == told for severity in new)
        return f"{count} new {told}{'s' * (count != 1)}" if count else ""

    @property
    def _replay(self) -> Player:
        if self._past is None:
            self._past = Player(open_session(self._recorder.path), clock=self._clock, index=self._recorder.index)
            self._past.pause()
        return self._past

    def output_search(self, passes: Callable[[OutputLine], bool], words: Sequence[Sequence[str]] = ()) -> OutputSearch:
        return self._replay.output_search(passes, words)

    # --- events -----------------------------------------------------------------------------------------------------

    def poll(self) -> Iterator[AnyEvent]:
        """Of the moment that is shown. In the past the events of now are folded unseen meanwhile."""
        if self._live:
            if not self._is_held():
                yield from self._lent(self._source.poll())
            return
        if self._past_shown and not self._is_held():
            self._fold_unseen()
        if self._moving:
            was_playing = self._replay.playing
            yield from self._replay.poll()
            if was_playing and self._replay.at_end and self._replay.position_s >= self._replay.duration_s:
                self._to_live()

    def _fold_unseen(self) -> None:
        deadline = time.perf_counter() + UNSEEN_S
        for count, event in enumerate(self._lent(self._source.poll())):
            apply(self._state, event)
            if count % 16 == 15 and time.perf_counter() > deadline:
                return

    def take_state(self) -> SessionState | None:
        if self._copy is not None and (copied := self._copy.result()) is not None:
            self._copy = None
            if not self._live and not self._moving:
                self._handed = copied
        sought = self._replay.take_state() if self._moving else None
        state, self._handed = sought or self._handed, None
        self._past_shown = state is not self._state if state is not None else self._past_shown
        return state

    # --- lending the state -------------------------------------------------------------------------------------------

    def _is_held(self) -> bool:
        """Whether a thread looks at the live state, or begins to, so that it must stay as it is."""
        if self._loan is not None and self._loan.done:
            self._loan = None
        if self._loan is None and (wanted := self._recorder.wanted) is not None:
            if self._state.events == wanted.events:
                self._loan = Beside(lambda: self._recorder.give(self._state))
            elif self._state.events > wanted.events:
                self._recorder.give(None)
        return self._loan is not None or (self._copy is not None and not self._copy.done)

    def _lent(self, events: Iterator[AnyEvent]) -> Iterator[AnyEvent]:
        """The events up to the place where the recorder wants the state."""
        for event in events:
            yield event
            if self._recorder.wanted is not None and self._is_held():
                return

    # --- going there -------------------------------------------------------------------------------------------------

    def play(self) -> None:
        if not self._live:
            self._move()
            self._replay.play()

    def pause(self) -> None:
        if self._moving:
            self._replay.pause()
        elif self._live:
            self._leave()
            self._stood_at = self.duration_s
            self._copy = Beside(self._copied)

    def _copied(self) -> SessionState:
        with no_garbage_collection():
            return decode_state(encode_state(self._state))

    def seek(self, position_s: float, *, exact: bool = False) -> None:
        if position_s >= self.duration_s:
            self._to_live()
            return
        if not self._moving:
            self._replay.pause()
        self._replay.seek(position_s, exact=exact)
        self._leave()
        self._moving = True

    def step(self, count: int = 1) -> None:
        if self._live and count > 0:
            self.pause()
        else:
            self._move()
            self._replay.step(count)

    def set_speed(self, speed: float) -> None:
        if not self._live:
            self._move()
            self._replay.set_speed(speed)

    def set_by_step(self, by_step: bool) -> None:
        if not self._live:
            self._move()
            self._replay.set_by_step(by_step)

    def name_mark(self, position_s: float, name: str) -> None:
        self._replay.name_mark(position_s, name)

    def position_of_step(self, step: int) -> float:
        return self._replay.position_of_step(step)

    def position_of_mark(self, name: str) -> float:
        return self._replay.position_of_mark(name)

    def close(self) -> None:
        """Waits for what looks at the state, and closes the files."""
        for work in (self._copy, self._loan):
            if work is not None:
                work.wait()
        if self._past is not None:
            self._past.close()

    def _leave(self) -> None:
        if self._live:
            self._live, self._left_at = False, self._state.now

    def _move(self) -> None:
        """From where the view stands the player goes on."""
        if not self._moving:
            here = self.position_s
            self._leave()
            self._moving = True
            self._replay.pause()
            self._replay.seek(here)

    def _to_live(self) -> None:
        if self._live:
            return
        if self._past is not None:
            self._past.pause()
        self._live, self._moving = True, False
        self._handed = self._state if self._past_shown else None
        self._past_shown = False
