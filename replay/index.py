"""The side index of a recording: where each second begins, states kept on the way, step times over all of it, and moments.

It only ever saves time. It is used when it was finished for exactly this recording and by this version of the fold; else it is
made again. While a recording is written its index grows with it, in the file and in an `Index` that can be read meanwhile.
"""

from __future__ import annotations

import hashlib
import os
import threading
import weakref
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import IO

import msgspec

from distmon.core import events as ev
from distmon.core.batches import told_by
from distmon.core.clocks import aligned, note_offset
from distmon.core.codec import UnknownKind
from distmon.core.finding import CALM
from distmon.core.moments import Moment, MomentKind, moment_of
from distmon.core.pace import Pace, PacePoint
from distmon.core.state import SessionState
from distmon.core.verdicts import verdicts
from distmon.replay.beside import away, beside
from distmon.replay.keyframe import BadKeyframe, Base, decode_state, fold_fingerprint, pack, state_bytes, unpack
from distmon.replay.lines import START, Position
from distmon.replay.session_file import SessionFile

SUFFIX = ".idx"
MAGIC = b"distmon index 3\n"
KEYFRAME_BYTES = 384 << 10
"""A state is kept after this many bytes of events, or after KEYFRAME_RATIO times the size of one if that is more."""
KEYFRAME_RATIO = 2
LENT_RATIO = 6
"""Likewise, by the last one that stands by itself, for large states that a viewer lends: the index is then about as large as the
compressed recording."""
BASE_LIMIT = 16 << 20
"""Bytes of a state up to which later ones are packed against it; it is held in memory meanwhile."""
BASE_SHARE = 3
"""A state that takes more than the base's size by this is the next base."""
MOMENTS = 500
"""Of each kind at most."""
TEXT = 200
"""Characters of a moment's words that are kept."""
_RECORD_LIMIT = 1 << 20


class Head(msgspec.Struct, frozen=True, tag=True, array_like=True):
    fold: str
    first_line: bytes
    """SHA-256 of the recording's first line."""


class Second(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """All events before `position` are of `at` or earlier, and hold `steps` steps of rank 0."""

    at: float
    position: Position
    steps: int = 0


class Keyframe(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The state of all events before `position`; `at` is its time. Its bytes follow this record."""

    at: float
    position: Position
    base: int = -1
    """The keyframe, counted from 0, that it was packed against; -1 for one that stands by itself."""


class PaceKept(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Step times over the whole recording, in bins of `width_s`."""

    width_s: float
    points: list[PacePoint]


class Finish(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The recording that this index was made for, the latest time in it, and what of it could not be read, in sentences."""

    size: int
    mtime_ns: int
    end: float
    states: bool = True
    """Whether states were kept throughout."""
    notes: list[str] = []


_Any = Head | Second | Keyframe | Moment | PaceKept | Finish
_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[_Any] = msgspec.msgpack.Decoder(_Any)


def index_path(recording: Path) -> Path:
    return beside(recording, SUFFIX)


def cached_index_path(recording: Path) -> Path:
    """Where it is kept when the recording lies in a folder that is not the user's."""
    return away(recording, SUFFIX, "cache")


class IndexWriter:
    """Writes an index while the events of a recording go by, in their order. States may come from another thread."""

    def __init__(self, out: IO[bytes], first_line: bytes) -> None:
        self._out = out
        self._lock = threading.Lock()
        self._size = 0
        self._grown: Index | None = None
        self._now = 0.0
        self._offsets: dict[str, float] = {}
        """Of nodes' clocks, as a state has them."""
        self._second = -1.0
        self._bytes_since_keyframe = 0
        self._keyframes = 0
        self._usual_keyframe = 0
        """Bytes of the last state; a base that follows on states packed against another does not count, as it is rare."""
        self._base: Base | None = None
        self._base_number = -1
        self._whole_keyframe = 0
        """Bytes of the last state that stands by itself."""
        self._moments: Counter[MomentKind] = Counter()
        self._verdicts: set[tuple[str, int | None, str | None]] = set()
        self._pace = Pace()
        self._steps = 0
        out.write(MAGIC)
        self._size = len(MAGIC)
        self._write(Head(fold_fingerprint(), hashlib.sha256(first_line).digest()))

    def tell(self, grown: Index) -> None:
        """That index has all that is written from now on as well."""
        self._grown = grown

    @property
    def now(self) -> float:
        """The latest time of the events that went by."""
        return self._now

    def pass_event(self, event: ev.AnyEvent | UnknownKind, position: Position, size: int) -> None:
        """An event that begins at `position` and takes `size` bytes."""
        self._bytes_since_keyframe += size
        if isinstance(event, UnknownKind):
            return
        note_offset(event, self._offsets)
        event = aligned(event, self._offsets)
        if event.at >= self._second + 1 and self._now:
            self._write(Second(self._now, position, self._steps))
            self._second = event.at
        self._now = max(self._now, event.at)
        if told := told_by(event):
            with self._lock:
                self._pace.add(event.at, chain.from_iterable(batch.durations_ns for *_, batch in told))
            self._steps += sum(batch.steps for rank, _, batch in told if rank == 0)
        elif (moment := moment_of(event)) is not None:
            self._note(moment)

    def _note(self, moment: Moment) -> None:
        self._moments[moment.kind] += 1
        if self._moments[moment.kind] <= MOMENTS:
            self._write(msgspec.structs.replace(moment, text=moment.text[:TEXT]))

    @property
    def wants_keyframe(self) -> bool:
        return self._bytes_since_keyframe >= max(KEYFRAME_BYTES, KEYFRAME_RATIO * self._usual_keyframe)

    @property
    def wants_lent_keyframe(self) -> bool:
        return self._bytes_since_keyframe >= max(KEYFRAME_BYTES, LENT_RATIO * self._whole_keyframe)

    @property
    def _reaches_the_end(self) -> bool:
        """Whether states were kept to near the end."""
        return 0 < self._bytes_since_keyframe <= 2 * LENT_RATIO * self._whole_keyframe

    def keep(self, state: SessionState, position: Position, at: float) -> None:
        """Keeps the state of all events before `position`, the latest of which is of `at`."""
        content = state_bytes(state)
        packed = self._base.pack(content) if self._base is not None else b""
        if packed and len(packed) * BASE_SHARE <= self._whole_keyframe:
            self._write(Keyframe(at, position, self._base_number), packed)
            self._usual_keyframe = len(packed)
        else:
            packed = pack(content)
            self._write(Keyframe(at, position), packed)
            if self._base_number >= self._keyframes - 1:  # none was packed against the last base
                self._usual_keyframe = len(packed)
            self._base = Base(content) if len(content) <= BASE_LIMIT else None
            self._base_number, self._whole_keyframe = self._keyframes, len(packed)
        self._keyframes += 1
        self._bytes_since_keyframe = 0
        self._note_verdicts(state)

    def _note_verdicts(self, state: SessionState) -> None:
        """Each verdict once, where it begins to hold: looked for where states are kept and at the end."""
        begun = state.job.started.at if state.job.started else state.started
        for verdict in verdicts(state):
            what = (verdict.kind, verdict.rank, verdict.phase)
            if what not in self._verdicts and begun is not None:
                self._verdicts.add(what)
                at = begun + verdict.from_s if verdict.from_s is not None else state.now
                self._note(Moment(at, "verdict", "info" if verdict.kind in CALM else "warning", verdict.text))

    def pace(self) -> PaceKept:
        """Step times so far."""
        with self._lock:
            return PaceKept(self._pace.width_s, self._pace.points())

    def tell_pace(self) -> None:
        """For who reads the index while it is made: step times so far, in place of those told before."""
        self._write(self.pace())
        self._out.flush()

    def finish(self, recording: os.stat_result, state: SessionState | None, notes: list[str] | None = None) -> None:
        """Declares the index complete for the recording as it is now. `state` is that at its end, None where none was folded."""
        if state is not None:
            self._note_verdicts(state)
        self._write(self.pace())
        states = state is not None or self._reaches_the_end
        self._write(Finish(recording.st_size, recording.st_mtime_ns, self._now, states, notes or []))
        self._out.flush()

    def _write(self, record: _Any, attached: bytes = b"") -> None:
        packed = _encode(record)
        sizes = len(packed).to_bytes(4, "big") + len(attached).to_bytes(4, "big")
        with self._lock:
            self._out.write(sizes + packed + attached)
            if self._grown is not None:
                self._grown.take(record, self._size + len(sizes) + len(packed), len(attached))
            self._size += len(sizes) + len(packed) + len(attached)


class _Seconds:
    """Seconds in columns: a session of a day has 86,400 of them."""

    def __init__(self) -> None:
        self.steps = array("q")
        self.at = array("d")
        self._places = [array("q") for _ in Position._fields]

    def add(self, second: Second) -> None:
        """The time comes last, since another thread may look a second up by it."""
        for column, value in zip(self._places, second.position, strict=True):
            column.append(value)
        self.steps.append(second.steps)
        self.at.append(second.at)

    def __len__(self) -> int:
        return len(self.at)

    def __getitem__(self, index: int) -> Second:
        frame, skip, line = (column[index] for column in self._places)
        return Second(self.at[index], Position(frame, skip, line), self.steps[index])


class Index:
    """An index as read, and as it grows where it belongs to a recording under way. Times are those of the events."""

    def __init__(self, file: IO[bytes], writer: IndexWriter | None = None) -> None:
        """Takes the file over. With its `writer` it grows. Raises BadKeyframe when it is no whole index."""
        self._file = file
        self._writer = writer
        self.grows = writer is not None
        """Whether the recording is still being written."""
        self.trouble = ""
        """Why it will never tell of all of the recording, in words."""
        self._close = weakref.finalize(self, file.close)
        self.head: Head | None = None
        self.finish: Finish | None = None
        self.moments: list[Moment] = []
        self.readable_to = 0.0
        """The latest time up to which the recording can be read, while it grows."""
        self._pace = PaceKept(1.0, [])
        self._paced_to = 0.0
        self._seconds = _Seconds()
        self._keyframes: list[tuple[Keyframe, int, int]] = []
        self._base: tuple[int, bytes] = (-1, b"")
        """The base that was unpacked last: seeks near each other have the same."""
        self._read_to = 0
        """Bytes of the file."""
        self._read()
        if writer is not None:
            writer.tell(self)

    def _read(self) -> None:
        """Takes in what the file holds past `_read_to`, but for a last part that is not there in full."""
        file, there = self._file, os.fstat(self._file.fileno()).st_size
        file.seek(self._read_to)
        if not self._read_to:
            if there < len(MAGIC):
                return
            if file.read(len(MAGIC)) != MAGIC:
                raise BadKeyframe("no index")
            self._read_to = len(MAGIC)
        while len(sizes := file.read(8)) == 8:
            size, attached = int.from_bytes(sizes[:4], "big"), int.from_bytes(sizes[4:], "big")
            if size > _RECORD_LIMIT:
                raise BadKeyframe("record too long")
            attached_at = self._read_to + 8 + size
            if attached_at + attached > there:
                return
            try:
                record = _decoder.decode(file.read(size))
            except (msgspec.DecodeError, RecursionError) as error:
                raise BadKeyframe(str(error)) from None
            self.take(record, attached_at, attached)
            self._read_to = attached_at + attached
            if attached:
                file.seek(self._read_to)

    def take(self, record: _Any, offset: int, attached: int) -> None:
        """One more record; what is attached to it begins at `offset` in the file."""
        match record:
            case Head():
                self.head = record
            case Second():
                self._seconds.add(record)
            case Keyframe():
                self._keyframes.append((record, offset, attached))
            case Moment():
                self.moments.append(record)
            case PaceKept():
                self._pace = record
            case Finish():
                self.finish = record

    def catch_up(self) -> None:
        """Takes in what was written meanwhile, where nobody else sees to it; called often."""

    def wait(self) -> None:
        """Until it may tell of more. Raises DistmonError where it never will."""

    @property
    def pace(self) -> PaceKept:
        """Step times over the whole recording."""
        if self._writer is not None and self._paced_to != self.readable_to:
            self._pace, self._paced_to = self._writer.pace(), self.readable_to
        return self._pace

    def fits(self, session: SessionFile, recording: os.stat_result) -> bool:
        """Whether it was finished for this recording as it is now, by this version of the fold."""
        head, finish = self.head, self.finish
        return (
            head is not None
            and finish is not None
            and finish.states
            and head.fold == fold_fingerprint()
            and head.first_line == hashlib.sha256(session.first_line).digest()
            and (finish.size, finish.mtime_ns) == (recording.st_size, recording.st_mtime_ns)
        )

    def start_for(self, at: float) -> tuple[SessionState, Position]:
        """The kept state, or the empty one, from which to fold on to a time. A state that cannot be read is passed over."""
        last = bisect_right(self._keyframes, at, key=lambda kept: kept[0].at)
        for number in range(last - 1, -1, -1):
            kept = self._keyframes[number][0]
            try:
                return decode_state(self._packed(number), self._base_of(kept)), kept.position
            except BadKeyframe:
                continue
        return SessionState(), START

    def _packed(self, number: int) -> bytes:
        _, offset, size = self._keyframes[number]
        return os.pread(self._file.fileno(), size, offset)

    def _base_of(self, kept: Keyframe) -> bytes:
        """What a state was packed against; nothing for one that stands by itself. Raises BadKeyframe."""
        if kept.base < 0:
            return b""
        number, content = self._base
        if number != kept.base:
            if kept.base >= len(self._keyframes) or self._keyframes[kept.base][0].base >= 0:
                raise BadKeyframe("it was packed against a state that is not there")
            content = unpack(self._packed(kept.base))
            self._base = kept.base, content
        return content

    def size_of_state(self, at: float) -> int:
        """Bytes of the kept state that `start_for` takes; 0 for the empty one."""
        last = bisect_right(self._keyframes, at, key=lambda kept: kept[0].at)
        return self._keyframes[last - 1][2] if last else 0

    def seconds(self) -> Iterator[Second]:
        """All, in order."""
        return (self._seconds[index] for index in range(len(self._seconds)))

    def second_before(self, at: float) -> Second:
        """The last second whose earlier events all lie before the time."""
        last = bisect_left(self._seconds.at, at)
        return self._seconds[last - 1] if last else Second(0.0, START)

    def second_before_step(self, step: int) -> Second:
        """The last second before which rank 0 had done fewer steps."""
        last = bisect_left(self._seconds.steps, step, hi=len(self._seconds))
        return self._seconds[last - 1] if last else Second(0.0, START)

    def steps_at(self, at: float) -> float:
        """How many steps rank 0 had done at a time: between seconds, a straight line."""
        last = bisect_right(self._seconds.at, at)
        if not last:
            return 0.0
        before, after = self._seconds[last - 1], self._seconds[min(last, len(self._seconds) - 1)]
        share = (at - before.at) / (after.at - before.at) if after.at > before.at else 0.0
        return before.steps + share * (after.steps - before.steps)

    def time_of_steps(self, steps: float) -> float:
        """When rank 0 had done so many steps, likewise; past the last one, the latest time that is known."""
        count = len(self._seconds)
        last = bisect_right(self._seconds.steps, steps, hi=count)
        if not 0 < last < count:
            return self._seconds[0].at if count and not last else self.known_to
        before, after = self._seconds[last - 1], self._seconds[last]
        return before.at + (steps - before.steps) / (after.steps - before.steps) * (after.at - before.at)

    @property
    def keyframes(self) -> int:
        return len(self._keyframes)

    @property
    def end(self) -> float:
        """The latest time in the recording."""
        return self.finish.end if self.finish else self.readable_to

    @property
    def known_to(self) -> float:
        """The latest time of which it tells: the end, but for one that is still being made of a recording that is over."""
        return self.end

    @property
    def last_known_second(self) -> Second:
        return self._seconds[-1] if len(self._seconds) else Second(0.0, START)

    @property
    def notes(self) -> list[str]:
        """What of the recording could not be read."""
        return self.finish.notes if self.finish else [self.trouble] if self.trouble else []

    def close(self) -> None:
        self._close()
