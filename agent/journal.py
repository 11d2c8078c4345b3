"""What the agent published, on disk: it outlives the agent, and viewers that were away or are slow get it from here.

Bounded in size and age: whole segments go, the oldest first. A file system that is full or fails never stops the agent; what then
could not be written is counted, told, and the journal goes on as soon as it can.
"""

from __future__ import annotations

import fcntl
import os
from bisect import bisect_left, bisect_right
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct

from distmon.agent.segments import SUFFIX, Commit, Extent, KeptEvent, Record, Scan, Snapshot, encode, read_at
from distmon.core.errors import DistmonError
from distmon.wire.addresses import private_directory
from distmon.wire.backlog import Numbered, Part

SEGMENT_BYTES = 4 << 20
SEGMENTS_AT_LEAST = 8
"""A small journal has small segments, so that it never holds much less than it may."""
MAX_UNWRITTEN_BYTES = 4 << 20
MAX_STREAMS = 48
_LOCK, _CONTINUES = "lock", "continues"
Severity = Literal["info", "warning"]


class Place(Struct, frozen=True, gc=False):
    """A commit in a segment, as far as one stream goes."""

    offset: int
    size: int
    last_seq: int
    at: float


class _Index:
    """Where the commits of one segment are."""

    def __init__(self) -> None:
        self._places: dict[str, list[Place]] = {}

    def add(self, record: Record, offset: int, size: int) -> None:
        if isinstance(record, Commit):
            for part in record.parts:
                place = Place(offset, size, part.seq + len(part.events) - 1, record.at)
                self._places.setdefault(part.stream, []).append(place)

    def places(self, stream: str) -> list[Place]:
        return self._places.get(stream, [])


class Journal:
    """Owned by the agent's loop. Raises DistmonError for a folder that is not private, or that another agent uses."""

    def __init__(self, folder: Path, new_boot: str, machine_boot: str, limit_bytes: int, max_age_s: float) -> None:
        """`new_boot` names this run of the agent, unless it can go on as the one before: see `boot`."""
        self.folder = private_directory(folder)
        self.boot = new_boot
        """The run whose numbers go on: after `kill -9` the one before. A machine that was off may have lost what was sent."""
        self.mark = b""
        """Where the sources were at the last commit."""
        self.next_seqs: dict[str, int] = {}
        self.notices: deque[tuple[Severity, str]] = deque(maxlen=100)
        self.lost_events = 0
        """Events that could not be written, for lack of space, and were given up."""
        self._limit_bytes = limit_bytes
        self._segment_bytes = min(SEGMENT_BYTES, max(limit_bytes // SEGMENTS_AT_LEAST, 4096))
        self._max_age_s = max_age_s
        self._machine_boot = machine_boot
        self._extents: list[Extent] = []
        self._kept: dict[str, KeptEvent] = {}
        self._indexes: dict[int, _Index] = {}
        self._failed = False
        self._unwritten: deque[Commit] = deque()
        self._lock = self._take_lock()
        self._file = -1
        self._continues = False
        """Whether the marker says that this run's numbers may go on after a `kill -9`."""
        self._reading: tuple[int, int] = (0, -1)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    @property
    def held_bytes(self) -> int:
        return sum(extent.size for extent in self._extents)

    def kept(self, stream: str) -> dict[str, tuple[int, bytes]]:
        """The last event of each name that is kept, of one stream."""
        return {name: (event.seq, event.encoded) for name, event in self._kept.items() if event.stream == stream}

    def streams(self) -> list[str]:
        """All that there is something of, the oldest first; of very many the newest."""
        held = dict.fromkeys(stream for extent in self._extents for stream in extent.ranges)
        return [stream for stream in held if stream in self.next_seqs][-MAX_STREAMS:]

    def write(self, parts: list[Part], mark: bytes, at: float) -> bool:
        """Adds a turn. False if it is not on disk (yet): there is no room, or the file system fails."""
        if parts or (mark and mark != self.mark):
            self._unwritten.append(Commit(at, parts, mark))
        written = self._write_waiting()
        if written:
            self._trim(at)
        return written

    def oldest(self, stream: str) -> int:
        """The first number that is held; the next one where there is none."""
        for extent in self._extents:
            if stream in extent.ranges:
                return extent.ranges[stream][0]
        return self.next_seqs.get(stream, 1)

    def since(self, stream: str, at: float) -> int:
        """The first number that was published at `at` or later."""
        for extent in self._extents:
            if stream in extent.ranges and extent.last_at >= at:
                places = self._index(extent).places(stream)
                later = bisect_left(places, at, key=lambda place: place.at)
                if later < len(places):
                    return places[later - 1].last_seq + 1 if later else extent.ranges[stream][0]
        return self.next_seqs.get(stream, 1)

    def read(self, stream: str, cursor: int, target_bytes: int) -> list[Numbered]:
        """The next events at or after `cursor`, about `target_bytes` of them; [] where there are none."""
        found: list[Numbered] = []
        size = 0
        for extent in self._extents:
            if stream not in extent.ranges or extent.ranges[stream][1] < cursor:
                continue
            places = self._index(extent).places(stream)
            for place in places[bisect_right(places, cursor - 1, key=lambda place: place.last_seq) :]:
                for event in self._events(extent, place, stream, cursor):
                    found.append(event)
                    size += len(event.encoded)
                if size >= target_bytes:
                    return found
        return found

    def close(self) -> None:
        """The lock goes with it."""
        for descriptor in (self._file, self._reading[1], self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._lock = -1
        self._reading = (0, -1)

    # --- opening

    def _take_lock(self) -> int:
        try:
            descriptor = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise DistmonError(f"cannot use the journal {self.folder}: {error.strerror}; choose another --journal") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise DistmonError(f"the journal {self.folder} is in use by another agent; choose another --journal") from None
        return descriptor

    def _open(self) -> None:
        numbers = sorted(int(path.stem) for path in self.folder.glob("*" + SUFFIX) if path.stem.isdecimal())
        last_boot, clean = self._restore(numbers)
        if clean and last_boot and self._said_to_continue() == f"{last_boot} {self._machine_boot}":
            self.boot, self._continues = last_boot, True
        if self._extents and clean and self.boot == last_boot:
            self._file = self._open_segment(self._extents[-1].number, os.O_APPEND)
        self._write_waiting()

    def _said_to_continue(self) -> str:
        try:
            return (self.folder / _CONTINUES).read_text(encoding="utf-8")
        except (FileNotFoundError, UnicodeDecodeError):
            return ""

    def _restore(self, numbers: list[int]) -> tuple[str, bool]:
        """Reads from the newest segment that begins with a whole snapshot. Gives the last run's name, and if it ends in order."""
        boot, clean = "", True
        begin = next((n for n in reversed(numbers) if isinstance(self._scan(n).first(), Snapshot)), 0)
        known: dict[int, Extent] = {}
        for number in numbers:
            if number < begin:
                continue
            scan, extent = self._scan(number), Extent(number, ranges={})
            index = self._indexes[number] = _Index()
            for found in scan:
                index.add(found.record, found.offset, found.size)
                if isinstance(found.record, Snapshot):
                    boot = found.record.boot
                    known = {old.number: old for old in found.record.extents} | known
                    self._take_snapshot(found.record)
                else:
                    extent.add(found.record)
                    self._note(found.record)
            extent.size = scan.size
            clean = not self._tell_damage(number, scan) and clean
            known[number] = extent
        self._extents = [known[number] for number in numbers if number in known]
        return boot, clean

    def _scan(self, number: int) -> Scan:
        try:
            return Scan(self._path(number).read_bytes())
        except OSError as error:
            text = f"the journal's {self._path(number).name} cannot be read: {error.strerror}; it is passed over"
            self.notices.append(("warning", text))
            return Scan(b"")

    def _tell_damage(self, number: int, scan: Scan) -> bool:
        name = self._path(number).name
        if scan.damaged:
            self.notices.append(("warning", f"{scan.damaged} damaged bytes in the journal's {name} were passed over"))
        if scan.torn:
            self.notices.append(("warning", f"the journal's {name} ends in {scan.size - scan.end} bytes of a torn record"))
        return bool(scan.damaged or scan.torn)

    def _take_snapshot(self, snapshot: Snapshot) -> None:
        self.next_seqs.update(snapshot.next_seqs)
        self._kept = dict(snapshot.kept)
        self.mark = snapshot.mark

    def _note(self, commit: Commit) -> None:
        """What is known after it."""
        self.mark = commit.mark or self.mark
        for part in commit.parts:
            self.next_seqs[part.stream] = part.seq + len(part.events)
            for place, name in part.keep.items():
                self._kept.pop(name, None)
                self._kept[name] = KeptEvent(part.stream, part.seq + place, part.events[place])

    # --- writing

    def _write_waiting(self) -> bool:
        try:
            if self._file < 0 or self._extents[-1].size >= self._segment_bytes:
                self._begin_segment()
            while self._unwritten:
                self._append(self._unwritten[0])
                self._unwritten.popleft()
            if not self._continues:
                self._set_continues()
        except OSError as error:
            self._fail(error)
            return False
        return True

    def _begin_segment(self) -> None:
        number = self._extents[-1].number + 1 if self._extents else 1
        while self._path(number).exists():
            number += 1
        held = {stream for extent in self._extents for stream in extent.ranges}
        next_seqs = {name: seq for name, seq in self.next_seqs.items() if name in held or f"/{self.boot}/" in name}
        kept = [(name, event) for name, event in self._kept.items() if event.stream in next_seqs]
        content = encode(Snapshot(self.boot, next_seqs, kept, self.mark, self._extents))
        file = self._open_segment(number, os.O_APPEND | os.O_CREAT | os.O_EXCL)
        try:
            _write_all(file, content)
        except OSError:
            os.close(file)
            self._path(number).unlink(missing_ok=True)
            raise
        if self._file >= 0:
            os.fdatasync(self._file)
            os.close(self._file)
        self._file = file
        self._extents.append(Extent(number, len(content), ranges={}))
        self._indexes[number] = _Index()
        while len(self._indexes) > 3:
            del self._indexes[min(self._indexes)]

    def _append(self, commit: Commit) -> None:
        content = encode(commit)
        extent = self._extents[-1]
        try:
            _write_all(self._file, content)
        except OSError:
            os.ftruncate(self._file, extent.size)
            raise
        self._indexes[extent.number].add(commit, extent.size, len(content))
        extent.add(commit)
        extent.size += len(content)
        self._note(commit)

    def _fail(self, error: OSError) -> None:
        """What waits is given up, the oldest first, when it grows too large; no number that was sent may be used again."""
        if self._continues or not self._failed:
            with suppress(OSError):
                (self.folder / _CONTINUES).unlink(missing_ok=True)
            text = f"the journal {self.folder} cannot be written: {error.strerror}; viewers still get what comes now"
            self.notices.append(("warning", text))
        self._continues, self._failed = False, True
        waiting = sum(map(_size, self._unwritten))
        while waiting > MAX_UNWRITTEN_BYTES:
            dropped = self._unwritten.popleft()
            self.lost_events += sum(len(part.events) for part in dropped.parts)
            waiting -= _size(dropped)

    def _set_continues(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(self.folder / _CONTINUES, flags, 0o600), "w") as file:
            file.write(f"{self.boot} {self._machine_boot}")
        if self._failed:
            text = f"the journal {self.folder} is written again; events that are not in it: {self.lost_events}"
            self.notices.append(("warning", text))
        self._continues, self._failed, self.lost_events = True, False, 0

    def _trim(self, now: float) -> None:
        while len(self._extents) > 1:
            oldest = self._extents[0]
            if self.held_bytes <= self._limit_bytes and oldest.last_at >= now - self._max_age_s:
                return
            self._path(oldest.number).unlink(missing_ok=True)
            self._indexes.pop(oldest.number, None)
            del self._extents[0]

    # --- reading

    def _index(self, extent: Extent) -> _Index:
        if (index := self._indexes.get(extent.number)) is None:
            index = _Index()
            for found in self._scan(extent.number):
                index.add(found.record, found.offset, found.size)
            newest = self._extents[-1].number
            for number in [number for number in self._indexes if number != newest][1:]:
                del self._indexes[number]
            self._indexes[extent.number] = index
        return index

    def _events(self, extent: Extent, place: Place, stream: str, cursor: int) -> list[Numbered]:
        record = read_at(self._descriptor(extent.number), place.offset, place.size)
        if not isinstance(record, Commit):
            return []
        return [
            Numbered(part.seq + index, event)
            for part in record.parts
            if part.stream == stream
            for index, event in enumerate(part.events)
            if part.seq + index >= cursor
        ]

    def _descriptor(self, number: int) -> int:
        known, descriptor = self._reading
        if known != number:
            if descriptor >= 0:
                os.close(descriptor)
            descriptor = os.open(self._path(number), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            self._reading = (number, descriptor)
        return descriptor

    def _open_segment(self, number: int, flags: int) -> int:
        return os.open(self._path(number), os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o600)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:08d}{SUFFIX}"


def _size(commit: Commit) -> int:
    return sum(len(event) for part in commit.parts for event in part.events)


def _write_all(descriptor: int, content: bytearray) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
