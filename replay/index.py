"""The side index of a recording: where each second begins, states kept on the way, step times over all of it, and moments.

It only ever saves time. It is used when it was finished for exactly this recording and by this version of the fold; else it is
made again, beside the recording where the folder can be written, for this process alone where not.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import weakref
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec

from distmon.core import events as ev
from distmon.core.codec import UnknownKind
from distmon.core.finding import CALM
from distmon.core.fold import apply
from distmon.core.moments import Moment, MomentKind, moment_of
from distmon.core.pace import Pace, PacePoint
from distmon.core.state import SessionState
from distmon.core.verdicts import verdicts
from distmon.replay.beside import away, beside, is_own_folder
from distmon.replay.keyframe import BadKeyframe, decode_state, encode_state, fold_fingerprint
from distmon.replay.lines import START, Position
from distmon.replay.session_file import Notes, SessionFile

SUFFIX = ".idx"
MAGIC = b"distmon index 2\n"
KEYFRAME_BYTES = 512 << 10
"""A state is kept after this many bytes of events, or after KEYFRAME_RATIO times the size of the last one if that is more."""
KEYFRAME_RATIO = 2
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
    """Writes an index while the events of a recording go by, in their order."""

    def __init__(self, out: IO[bytes], first_line: bytes) -> None:
        self._out = out
        self._now = 0.0
        self._second = -1.0
        self._bytes_since_keyframe = 0
        self._last_keyframe = 0
        self._moments: Counter[MomentKind] = Counter()
        self._verdicts: set[tuple[str, int | None, str | None]] = set()
        self._pace = Pace()
        self._steps = 0
        out.write(MAGIC)
        self._write(Head(fold_fingerprint(), hashlib.sha256(first_line).digest()))

    def pass_event(self, event: ev.AnyEvent | UnknownKind, position: Position, size: int) -> None:
        """An event that begins at `position` and takes `size` bytes."""
        self._bytes_since_keyframe += size
        if isinstance(event, UnknownKind):
            return
        if event.at >= self._second + 1 and self._now:
            self._write(Second(self._now, position, self._steps))
            self._second = event.at
        self._now = max(self._now, event.at)
        if isinstance(event, ev.StepsRecorded):
            self._pace.add(event)
            self._steps += len(event.duration_ns) if event.rank == 0 else 0
        elif (moment := moment_of(event)) is not None:
            self._note(moment)

    def _note(self, moment: Moment) -> None:
        self._moments[moment.kind] += 1
        if self._moments[moment.kind] <= MOMENTS:
            self._write(msgspec.structs.replace(moment, text=moment.text[:TEXT]))

    @property
    def wants_keyframe(self) -> bool:
        return self._bytes_since_keyframe >= max(KEYFRAME_BYTES, KEYFRAME_RATIO * self._last_keyframe)

    def keep(self, state: SessionState, position: Position) -> None:
        """Keeps the state of all events before `position`."""
        packed = encode_state(state)
        self._write(Keyframe(self._now, position), packed)
        self._bytes_since_keyframe, self._last_keyframe = 0, len(packed)
        self._note_verdicts(state)

    def _note_verdicts(self, state: SessionState) -> None:
        """Each verdict once, where it begins to hold: looked for where states are kept and at the end."""
        begun = state.job.started.at if state.job.started else state.started
        for verdict in verdicts(state):
            if verdict.kind in CALM:
                continue
            what = (verdict.kind, verdict.rank, verdict.phase)
            if what not in self._verdicts and begun is not None:
                self._verdicts.add(what)
                at = begun + verdict.from_s if verdict.from_s is not None else self._now
                self._note(Moment(at, "verdict", "warning", verdict.text))

    def finish(self, recording: os.stat_result, state: SessionState | None, notes: list[str] | None = None) -> None:
        """Declares the index complete for the recording as it is now. `state` is that at its end, None where none were kept."""
        if state is not None:
            self._note_verdicts(state)
        self._write(PaceKept(self._pace.width_s, self._pace.points()))
        self._write(Finish(recording.st_size, recording.st_mtime_ns, self._now, state is not None, notes or []))
        self._out.flush()

    def _write(self, record: _Any, attached: bytes = b"") -> None:
        packed = _encode(record)
        self._out.write(len(packed).to_bytes(4, "big") + len(attached).to_bytes(4, "big") + packed + attached)


class Index:
    """An index as read. Times are those of the events."""

    def __init__(self, file: IO[bytes]) -> None:
        """Takes the file over. Raises BadKeyframe when it is no whole index."""
        self._file = file
        self._close = weakref.finalize(self, file.close)
        self.head: Head | None = None
        self.finish: Finish | None = None
        self.moments: list[Moment] = []
        self.pace = PaceKept(1.0, [])
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
            case Moment():
                self.moments.append(record)
            case PaceKept():
                self.pace = record
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

    def second_before_step(self, step: int) -> Second:
        """The last second before which rank 0 had done fewer steps."""
        last = bisect_left(self._seconds, step, key=lambda second: second.steps)
        return self._seconds[last - 1] if last else Second(0.0, START)

    def steps_at(self, at: float) -> float:
        """How many steps rank 0 had done at a time: between seconds, a straight line."""
        last = bisect_right(self._seconds, at, key=lambda second: second.at)
        if not last:
            return 0.0
        before, after = self._seconds[last - 1], self._seconds[min(last, len(self._seconds) - 1)]
        share = (at - before.at) / (after.at - before.at) if after.at > before.at else 0.0
        return before.steps + share * (after.steps - before.steps)

    def time_of_steps(self, steps: float) -> float:
        """When rank 0 had done so many steps, likewise; the recording's end past the last one."""
        last = bisect_right(self._seconds, steps, key=lambda second: second.steps)
        if not 0 < last < len(self._seconds):
            return self.end if last else self._seconds[0].at if self._seconds else self.end
        before, after = self._seconds[last - 1], self._seconds[last]
        return before.at + (steps - before.steps) / (after.steps - before.steps) * (after.at - before.at)

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
    recording = session.path.stat()
    for path in (index_path(session.path), cached_index_path(session.path)):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue
        file = os.fdopen(descriptor, "rb")
        try:
            index = Index(file)
            if index.fits(session, recording):
                return index
        except (BadKeyframe, OSError):
            pass
        file.close()
    return None


def build_index(session: SessionFile, progress: Callable[[float], None] | None = None) -> Index:
    """Reads the recording through once. Keeps the index beside it, or in the cache where that folder is not the user's."""
    recording = session.path.stat()
    target = _place_for_index(session.path)
    out = _scratch_file(target)
    try:
        _write_index(session, recording, out, progress)
    except BaseException:
        _drop(out)
        raise
    _publish(out, target)
    return Index(out)


def _write_index(
    session: SessionFile, recording: os.stat_result, out: IO[bytes], progress: Callable[[float], None] | None
) -> None:
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
    writer.finish(recording, state, notes.sentences())


def _place_for_index(recording: Path) -> Path:
    if is_own_folder(recording):
        return index_path(recording)
    target = cached_index_path(recording)
    with suppress(OSError):  # without a place the index is for this process alone
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return target


def _scratch_file(target: Path) -> IO[bytes]:
    try:
        return tempfile.NamedTemporaryFile("w+b", dir=target.parent, prefix=f".{target.name}.", delete=False)
    except OSError:
        return tempfile.TemporaryFile("w+b")


def _publish(out: IO[bytes], target: Path) -> None:
    """Gives a scratch file that has a name its place; a folder that became unwritable costs only the index."""
    if isinstance(out.name, str):
        try:
            Path(out.name).replace(target)
        except OSError:
            _drop(out)


def _drop(out: IO[bytes]) -> None:
    if isinstance(out.name, str):
        Path(out.name).unlink(missing_ok=True)
