"""Plays a recording: a source of events like the live one, with a position that can be moved.

The recording's clock is the latest time that an event has given. The state made by playing to a time, by seeking to it, and by
folding live up to it is the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from distmon.core.batches import single_events, step_ends, steps_ended_by, told_by
from distmon.core.clocks import node_of, note_offset, time_of
from distmon.core.codec import UnknownKind
from distmon.core.errors import DistmonError
from distmon.core.events import AnyEvent, SessionEnded
from distmon.core.fold import apply
from distmon.core.moments import Moment
from distmon.core.pace import PacePoint
from distmon.core.state import OutputLine, SessionState
from distmon.replay.background import Beside
from distmon.replay.index import Index
from distmon.replay.lines import START, Position, after
from distmon.replay.marks import NamedMark, load_marks, plain_name, save_marks
from distmon.replay.open_index import open_index
from distmon.replay.search import OutputSearch
from distmon.replay.session_file import Notes, SessionFile, no_garbage_collection

SLOWEST, FASTEST = 0.1, 1000.0
AT_ONCE_BYTES = 512 << 10
"""A state that is larger than this in the index takes long to read, and so do the events that follow it."""


TOLD_WITHIN_S = 5.0
"""After its end a step is looked for among what was told for so long."""

ROUNDING_S = 1e-6
"""Of seconds since the epoch that were told as seconds since the recording's start."""


class NotReadYet(DistmonError):
    """The moment is not in what was read of the recording; it may be in the rest."""


class Player:
    """Times are seconds since the recording's start. `clock` is the viewer's, in seconds."""

    def __init__(
        self,
        session: SessionFile,
        *,
        speed: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        index: Index | None = None,
        beside: bool = True,
    ) -> None:
        """Large states are sought in a thread `beside` the caller's, unless that is one already."""
        self._session = session
        self._index = index if index is not None else open_index(session)
        self._clock, self._beside = clock, beside
        self._start = session.header.at
        self._reader = Reader(session)
        self._pending: AnyEvent | None = self._reader.next()
        self._may_grow = self._index.grows
        """Whether there may be more after what was read as its end."""
        self._complete = False
        """Whether the session had ended in good order at the moment that is shown."""
        self._now = 0.0
        self._offsets: dict[str, float] = {}
        """Of nodes' clocks, as the state of the moment has them."""
        self._target = self._start
        self._reached = True
        self._played_to = 0.0
        """The latest target that was reached by playing."""
        self._playing = True
        self._last_clock = clock()
        self._speed = _within(speed)
        self._by_step = False
        self._marks = load_marks(session.path)
        self._moments: list[Moment] = []
        self._moments_of = -1
        self._sought: SessionState | None = None
        self._going: Beside[Arrival] | None = None
        """A seek that is on its way in a thread of its own."""
        self._wanted: tuple[float, bool] | None = None
        """Where to go after it, and whether exactly."""
        self._ahead = False
        """The state has steps that were told later: what follows is not folded onto it."""

    @property
    def position_s(self) -> float:
        return max((self._target if self._reached else self._now) - self._start, 0.0)

    @property
    def duration_s(self) -> float:
        return self._end - self._start

    @property
    def _end(self) -> float:
        return max(self._index.end, self._start)

    @property
    def reach_s(self) -> float:
        """As far as one can seek: the end, but where the index is still being made."""
        return max(self._index.known_to, self._played_to, self._start) - self._start

    @property
    def unread(self) -> str:
        """In words, why it is not the end up to which one can seek; empty where it is."""
        if self._index.known_to >= self._index.end:
            return ""
        share = (self._index.known_to - self._start) / (self._end - self._start)
        read = f"{int(max(share, 0.0) * 100)}% of the recording"
        return f"{read} was read ({self._index.trouble})" if self._index.trouble else f"{read} is read so far"

    def read_on(self) -> None:
        """Waits until more may be known of the recording. Raises DistmonError where no more will be."""
        self._index.wait()

    @property
    def behind_s(self) -> float | None:
        """Seconds behind what was recorded last; None for a recording that is over."""
        return self.duration_s - self.position_s if self._index.grows else None

    @property
    def live(self) -> bool:
        """Never: a recording is shown, and can be steered."""
        return False

    @property
    def present(self) -> None:
        """A recording is of what was."""

    @property
    def news(self) -> str:
        """None is told: what is read is shown."""
        return ""

    @property
    def started_at(self) -> float:
        """When the recording began, in seconds since the epoch."""
        return self._start

    @property
    def speed(self) -> float:
        return self._speed

    @property
    def playing(self) -> bool:
        return self._playing

    @property
    def at_end(self) -> bool:
        return self._pending is None

    @property
    def cut_off(self) -> bool:
        """Whether it stands at the end of a recording whose writer is gone and has not recorded the session's end."""
        return self.at_end and self._reached and not (self._may_grow or self.busy or self._complete)

    @property
    def by_step(self) -> bool:
        """Whether `speed` is in steps of rank 0 per second, in place of session seconds."""
        return self._by_step

    @property
    def moments(self) -> Sequence[Moment]:
        """What is worth a tick on the bar, in order of time; the viewer's own marks are among it."""
        known = len(self._index.moments)
        if known != self._moments_of:
            named = [Moment(mark.at, "mark", "info", mark.name) for mark in self._marks]
            self._moments = sorted([*self._index.moments[:known], *named], key=lambda moment: moment.at)
            self._moments_of = known
        return self._moments

    @property
    def pace(self) -> tuple[float, Sequence[PacePoint]]:
        """Step times over the whole recording, and the seconds that each point stands for."""
        pace = self._index.pace
        return pace.width_s, pace.points

    @property
    def notes(self) -> list[str]:
        """What of the recording could not be read, in sentences."""
        return self._index.notes

    def poll(self) -> Iterator[AnyEvent]:
        """What has happened since the last call. Events that the caller does not take stay for the next."""
        self._index.catch_up()
        if self._going is not None or self._sought is not None:
            return
        before = self._target
        self._advance()
        if self._ahead:
            if self._target > before:
                self.seek(self._target - self._start)
            return
        self._reached = False
        if self._pending is None and self._may_grow:
            self._may_grow = self._index.grows
            self._pending = self._reader.next()
        while self._pending is not None:
            at = max(self._now, time_of(self._pending, self._offsets))
            if at > self._target:
                break
            note_offset(self._pending, self._offsets)
            event, self._pending, self._now = self._pending, self._reader.next(), at
            self._complete = self._complete or isinstance(event, SessionEnded)
            yield event
        self._reached, self._played_to = True, max(self._played_to, self._target)
        if self._pending is None and self._target >= self._end and not self._index.grows:
            self._playing = False

    def play(self) -> None:
        """Goes on; from the start, when it had come to the end."""
        if self.at_end and not self._index.grows:
            self.seek(0.0)
        self._playing, self._last_clock = True, self._clock()

    def pause(self) -> None:
        self._advance()
        self._target = self._start + self.position_s
        self._playing = False

    def set_speed(self, speed: float) -> None:
        """Session seconds per second, 0.1 to 1000."""
        self._advance()
        self._speed = _within(speed)

    def set_by_step(self, by_step: bool) -> None:
        """Plays so many steps of rank 0 a second, whatever time they took; what lies between steps is passed over."""
        self._advance()
        self._by_step = by_step

    def name_mark(self, position_s: float, name: str) -> None:
        """Names a moment, or names it anew; without a name the mark goes. Raises DistmonError where it cannot be kept."""
        if not self._session.path.exists():
            raise DistmonError(f"the mark cannot be kept: {self._session.path} was deleted")
        at = self._start + position_s
        marks = [mark for mark in self._marks if mark.at != at]
        if name := plain_name(name):
            marks.append(NamedMark(at, name))
        save_marks(self._session.path, marks)
        self._marks, self._moments_of = sorted(marks), -1

    def output_search(self, passes: Callable[[OutputLine], bool], words: Sequence[Sequence[str]] = ()) -> OutputSearch:
        """Looks for a line of output in all of it, from any thread; every line that passes has one of each of `words`."""
        return OutputSearch(self._session, self._index, passes, words)

    def position_of_mark(self, name: str) -> float:
        """Of a viewer's mark or one that the training script set. Raises DistmonError when there is none of this name."""
        found = [moment for moment in self.moments if moment.kind == "mark"]
        for moment in found:
            if moment.text == name:
                return max(moment.at - self._start, 0.0)
        if self.unread:
            raise NotReadYet(f"there is no mark {name!r} yet: {self.unread}")
        names = ", ".join(sorted({moment.text for moment in found})[:8]) or "none yet; m sets one"
        raise DistmonError(f"there is no mark {name!r} in this recording; its marks: {names}")

    def position_of_step(self, step: int) -> float:
        """For an exact `seek`: when rank 0 had done so many steps; of steps that came as sums or late, when they were told.

        Raises DistmonError when it never had.
        """
        if self.unread and step > (known := self._index.last_known_second.steps):
            raise NotReadYet(f"step {step:,} is not known yet: {self.unread}, up to step {known:,}")
        second = self._index.second_before_step(step)
        steps, now = second.steps, second.at
        for event in self._session.events(Notes(), second.position):
            now = max(now, time_of(event, self._offsets))
            told = sum(batch.steps for rank, _, batch in told_by(event) if rank == 0)
            if told and steps + told >= step:
                ends = [end for one in single_events(event) if one.rank == 0 for end in step_ends(one)]
                ended = ends[max(step - steps, 1) - 1] + self._offsets.get(node_of(event), 0.0) if ends else now
                return max((ended if now - ended <= TOLD_WITHIN_S else now) - self._start, 0.0)
            steps += told
        raise DistmonError(f"there is no step {step:,} in this recording: rank 0 did {steps:,}")

    def position_about_step(self, step: float) -> float:
        """When rank 0 had done so many steps, within a second or so; quick, and never beyond the end."""
        return max(self._index.time_of_steps(step) - self._start, 0.0)

    def step(self, count: int = 1) -> None:
        """Pauses, then moves to the next (1) or the last (-1) moment at which something happened."""
        self.pause()
        if count > 0 and self._ahead and self._pending is not None:
            self.seek(max(self._now, time_of(self._pending, self._offsets)) - self._start)
        elif count > 0 and self._pending is not None and self._going is None:
            self._target = max(self._now, time_of(self._pending, self._offsets), self._target)
        elif count < 0:
            self.seek(self._moment_before(self._now) - self._start)

    def seek(self, position_s: float, *, exact: bool = False) -> None:
        """Moves to a time, or as far as `reach_s`; `take_state` then has the state of it, after a while where states are large.

        That is what had been told by then; an `exact` one also has what had happened by then and was told within some seconds, as
        the steps of a second are told together. What is played on from there is without that. At the end of a recording under way
        it plays along. Raises DistmonError, and stays, where the file is gone.
        """
        if self._session.size is None:
            raise DistmonError(f"{self._session.path.name} is not there any more: no other moment of it can be read")
        at = self._start + min(max(position_s, 0.0), self.reach_s)
        if self._index.grows and at >= self._end:
            self._playing = True
        self._target, self._now, self._reached, self._sought = at, at, True, None
        self._last_clock, self._ahead = self._clock(), False
        if self._going is not None:
            self._wanted = at, exact
        elif self._beside and (at > self._index.known_to or self._index.size_of_state(at) > AT_ONCE_BYTES):
            self._going = Beside(partial(self._fold_to, at, exact=exact))
        else:
            self._arrive(self._fold_to(at, exact=exact))

    @property
    def busy(self) -> bool:
        """Whether the state of the moment is still being read."""
        return self._going is not None

    def _fold_to(self, at: float, *, exact: bool) -> Arrival:
        with no_garbage_collection():
            state, position = self._index.start_for(at)
            reader = Reader(self._session, position)
            while (event := reader.next()) is not None and time_of(event, state.clock_offsets) <= at:
                apply(state, event)
                position = reader.position
        ahead = exact and event is not None and self._fold_ahead(state, position, at)
        return Arrival(state, reader, event, ahead)

    def _fold_ahead(self, state: SessionState, position: Position, at: float) -> bool:
        """What had happened by `at` of what was told later, from `position` on; False where that is nothing."""
        events, at = state.events, at + ROUNDING_S
        for event in self._session.events(Notes(), position):
            told = time_of(event, state.clock_offsets)
            if told > at + TOLD_WITHIN_S:
                break
            ended = [event] if told <= at else steps_ended_by(event, at - state.clock_offsets.get(node_of(event), 0.0))
            for one in ended:
                apply(state, one)
        return state.events > events

    def _arrive(self, found: Arrival) -> None:
        self._reader.close()
        self._sought, self._reader, self._pending, self._ahead = found
        self._offsets = dict(found.state.clock_offsets)
        self._now, self._complete = max(found.state.now, self._start), found.state.complete

    def _arrive_if_there(self) -> None:
        if self._going is None or (found := self._going.result()) is None:
            return
        self._going = None
        if self._wanted is not None:
            (wanted, exact), self._wanted = self._wanted, None
            self.seek(wanted - self._start, exact=exact)
        else:
            self._arrive(found)
            self._last_clock = self._clock()

    def take_state(self) -> SessionState | None:
        """After a seek, once: the state to go on from, which the next events of `poll` continue."""
        self._arrive_if_there()
        state, self._sought = self._sought, None
        return state

    def close(self) -> None:
        """Closes the files; the player plays no more."""
        self._reader.close()
        self._index.close()

    def _advance(self) -> None:
        """Moves the target by the time that went by. Where the caller could not keep up, it counts from what was taken."""
        now = self._clock()
        if self._playing and self._going is None:
            base = self._target if self._reached else max(self._now, self._start)
            passed = (now - self._last_clock) * self._speed
            there = self._index.time_of_steps(self._index.steps_at(base) + passed) if self._by_step else base + passed
            self._target = min(max(there, base), self._end)
            self._reached = True
        self._last_clock = now

    def _moment_before(self, at: float) -> float:
        second = self._index.second_before(at)
        before = max(second.at, self._start)
        for event in self._session.events(Notes(), second.position):
            if (there := time_of(event, self._offsets)) >= at:
                break
            before = max(before, there)
        return before


class Arrival(NamedTuple):
    """The state of a moment, the reader of what follows, the event that follows first, and whether the state has some of that."""

    state: SessionState
    reader: Reader
    pending: AnyEvent | None
    ahead: bool


class Reader:
    """The events of a recording from a position on. At the end it looks for more whenever the file has grown."""

    def __init__(self, session: SessionFile, position: Position = START) -> None:
        self._session = session
        self._next = position
        self._records = session.records(Notes(), position)
        self._size = 0
        """Of the file, at least, when `_records` began."""
        self._ended = False

    def next(self) -> AnyEvent | None:
        """The next event; None where there is no more yet."""
        if self._ended:
            size = self._session.size
            if size is None or size == self._size:
                return None
            self._records, self._size, self._ended = self._session.records(Notes(), self._next), size, False
        for event, position, length in self._records:
            self._next = after(position, length)
            if not isinstance(event, UnknownKind):
                return event
        self._ended = True
        return None

    @property
    def position(self) -> Position:
        """Of the next event."""
        return self._next

    def close(self) -> None:
        self._records.close()


def _within(speed: float) -> float:
    return min(max(speed, SLOWEST), FASTEST)
