"""The side index of a recording: where each second begins, states kept on the way, and moments worth a mark.

It only ever saves time. It is used when it was finished for exactly this recording and by this version of the fold; else it is
made again, beside the recording where the folder can be written, for this process alone where not.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import weakref
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import IO, Literal

import msgspec

from distmon.core import events as ev
from distmon.core.codec import UnknownKind
from distmon.core.fold import apply
from distmon.core.state import SessionState
from distmon.replay.keyframe import BadKeyframe, decode_state, encode_state, fold_fingerprint
from distmon.replay.lines import START, Position
from distmon.replay.session_file import Notes, SessionFile

MAGIC = b"distmon index 1\n"
KEYFRAME_BYTES = 512 << 10
"""A state is kept after this many bytes of events, or after KEYFRAME_RATIO times the size of the last one if that is more."""
KEYFRAME_RATIO = 4
MARKS = 500
_RECORD_LIMIT = 1 << 20


class Head(msgspec.Struct, frozen=True, tag=True, array_like=True):
    fold: str
    first_line: bytes
    """SHA-256 of the recording's first line."""


class Second(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """All events before `position` are of `at` or earlier."""

    at: float
    position: Position


class Keyframe(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The state of all events before `position`; `at` is its time. Its bytes follow this record."""

    at: float
    position: Position


class Mark(msgspec.Struct, frozen=True, tag=True, array_like=True):
    at: float
    severity: Literal["info", "warning", "error"]


class Finish(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The recording that this index was made for, the latest time in it, and what of it could not be read, in sentences."""

    size: int
    mtime_ns: int
    end: float
    states: bool = True
    """Whether states were kept throughout."""
    notes: list[str] = []


_Any = Head | Second | Keyframe | Mark | Finish
_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[_Any] = msgspec.msgpack.Decoder(_Any)


def index_path(recording: Path) -> Path:
    return recording.with_name(recording.name + ".idx")


class IndexWriter:
    """Writes an index while the events of a recording go by, in their order."""

    def __init__(self, out: IO[bytes], first_line: bytes) -> None:
        self._out = out
        self._now = 0.0
        self._second = -1.0
        self._bytes_since_keyframe = 0
        self._last_keyframe = 0
        self._marks = 0
        out.write(MAGIC)
        self._write(Head(fold_fingerprint(), hashlib.sha256(first_line).digest()))

    def pass_event(self, event: ev.AnyEvent | UnknownKind, position: Position, size: int) -> None:
        """An event that begins at `position` and takes `size` bytes."""
        self._bytes_since_keyframe += size
        if isinstance(event, UnknownKind):
            return
        if event.at >= self._second + 1 and self._now:
            self._write(Second(self._now, position))
            self._second = event.at
        self._now = max(self._now, event.at)
        if self._marks < MARKS and (severity := severity_of(event)) is not None:
            self._marks += 1
            self._write(Mark(event.at, severity))

    @property
    def wants_keyframe(self) -> bool:
        return self._bytes_since_keyframe >= max(KEYFRAME_BYTES, KEYFRAME_RATIO * self._last_keyframe)

    def keep(self, state: SessionState, position: Position) -> None:
        """Keeps the state of all events before `position`."""
        packed = encode_state(state)
        self._write(Keyframe(self._now, position), packed)
        self._bytes_since_keyframe, self._last_keyframe = 0, len(packed)

    def finish(self, recording: os.stat_result, *, states: bool = True, notes: list[str] | None = None) -> None:
        """Declares the index complete for the recording as it is now."""
        self._write(Finish(recording.st_size, recording.st_mtime_ns, self._now, states, notes or []))
        self._out.flush()

    def _write(self, record: _Any, attached: bytes = b"") -> None:
        packed = _encode(record)
        self._out.write(len(packed).to_bytes(4, "big") + len(attached).to_bytes(4, "big") + packed + attached)


def severity_of(event: ev.AnyEvent) -> Literal["info", "warning", "error"] | None:
    """How an event is marked on the time line; None for most."""
    match event:
        case ev.WorkerExited(exit_code=code, expected=expected) if code and not expected:
            return "error"
        case ev.JobEnded(exit_code=code) if code:
            return "error"
        case ev.NoticeGiven(severity=severity) if severity != "info":
            return severity
        case ev.MembershipChanged(change="host_failed" | "host_blacklisted" | "host_left") | ev.GapFound() | ev.ClockStepped():
            return "warning"
        case ev.MembershipChanged(change="host_joined" | "resumed") | ev.MarkSet() | ev.JobEnded() | ev.ActionTaken():
            return "info"
    return None


class Index:
    """An index as read. Times are those of the events."""

    def __init__(self, file: IO[bytes]) -> None:
        """Takes the file over. Raises BadKeyframe when it is no whole index."""
        self._file = file
        self._close = weakref.finalize(self, file.close)
        self.head: Head | None = None
        self.finish: Finish | None = None
        self.marks: list[Mark] = []
        self._seconds: list[Second] = []
        self._keyframes: list[tuple[Keyframe, int, int]] = []
        self._read()

    def _read(self) -> None:
        file = self._file
        file.seek(0)
        if file.read(len(MAGIC)) != MAGIC:
            raise BadKeyframe("no index")
        while len(sizes := file.read(8)) == 8:
            size, attached = int.from_bytes(sizes[:4], "big"), int.from_bytes(sizes[4:], "big")
            if size > _RECORD_LIMIT:
                raise BadKeyframe("record too long")
            try:
                record = _decoder.decode(file.read(size))
            except (msgspec.DecodeError, RecursionError) as error:
                raise BadKeyframe(str(error)) from None
            self._take(record, file.tell(), attached)
            if attached:
                file.seek(attached, os.SEEK_CUR)

    def _take(self, record: _Any, offset: int, attached: int) -> None:
        match record:
            case Head():
                self.head = record
            case Second():
                self._seconds.append(record)
            case Keyframe():
                self._keyframes.append((record, offset, attached))
            case Mark():
                self.marks.append(record)
            case Finish():
                self.finish = record

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
        for kept, offset, size in reversed(self._keyframes[:last]):
            self._file.seek(offset)
            try:
                return decode_state(self._file.read(size)), kept.position
            except BadKeyframe:
                continue
        return SessionState(), START

    def second_before(self, at: float) -> Second:
        """The last second whose earlier events all lie before the time."""
        last = bisect_right(self._seconds, at, key=lambda second: second.at)
        while last and self._seconds[last - 1].at >= at:
            last -= 1
        return self._seconds[last - 1] if last else Second(0.0, START)

    @property
    def keyframes(self) -> int:
        return len(self._keyframes)

    @property
    def end(self) -> float:
        """The latest time in the recording."""
        return self.finish.end if self.finish else 0.0

    @property
    def notes(self) -> list[str]:
        """What of the recording could not be read."""
        return self.finish.notes if self.finish else []

    def close(self) -> None:
        self._close()


def open_index(session: SessionFile, progress: Callable[[float], None] | None = None) -> Index:
    """The index beside a recording, made first where there is none that fits. `progress` is told the share done, 0 to 1."""
    kept = _read_kept(session)
    return kept if kept is not None else build_index(session, progress)


def _read_kept(session: SessionFile) -> Index | None:
    try:
        descriptor = os.open(index_path(session.path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    file = os.fdopen(descriptor, "rb")
    try:
        index = Index(file)
        if index.fits(session, session.path.stat()):
            return index
    except (BadKeyframe, OSError):
        pass
    file.close()
    return None


def build_index(session: SessionFile, progress: Callable[[float], None] | None = None) -> Index:
    """Reads the recording through once. Keeps the index beside it if the folder can be written."""
    recording = session.path.stat()
    out = _scratch_file(session.path)
    writer, state, notes = IndexWriter(out, session.first_line), SessionState(), Notes()
    done, size = 0, max(recording.st_size, 1)
    for event, position, length in session.records(notes):
        if writer.wants_keyframe:
            writer.keep(state, position)
            if progress:
                progress(min(max(position.frame, done) / size, 1.0))
        writer.pass_event(event, position, length)
        if not isinstance(event, UnknownKind):
            apply(state, event)
        done += length if not position.frame else 0
    writer.finish(recording, notes=notes.sentences())
    _publish(out, index_path(session.path))
    return Index(out)


def _scratch_file(recording: Path) -> IO[bytes]:
    try:
        return tempfile.NamedTemporaryFile("w+b", dir=recording.parent, prefix=f".{recording.name}.", suffix=".idx", delete=False)
    except OSError:
        return tempfile.TemporaryFile("w+b")


def _publish(out: IO[bytes], target: Path) -> None:
    """Gives a scratch file that has a name its place; a folder that became unwritable costs only the index."""
    name = getattr(out, "name", None)
    if isinstance(name, str):
        try:
            Path(name).replace(target)
        except OSError:
            Path(name).unlink()
