"""Reading a session file: what it says, and in words what of it could not be read. It is never changed."""

from __future__ import annotations

import gc
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from distmon.core import fold
from distmon.core.clocks import node_of
from distmon.core.codec import BadEvent, UnknownKind, decode_json
from distmon.core.errors import DistmonError
from distmon.core.events import FORMAT_MAJOR, FORMAT_MINOR, AnyEvent, SessionStarted
from distmon.core.state import SessionState
from distmon.replay.lines import LINE_LIMIT, START, Damage, Position, near_the_end, read_lines
from distmon.replay.missing import Missing

LAST_LINES = 1_000
"""Among so many at the end of a recording its last event is looked for."""
_NODES_NAMED = 8
NOTED = 1_000
"""Lines that are named at most; further ones are counted."""


@dataclass(slots=True)
class Notes:
    """What a reading passed over. Line numbers count from 1."""

    skipped: list[tuple[int, str]] = field(default_factory=list)
    """(line, reason)."""
    skipped_count: int = 0
    unknown: list[tuple[int, str]] = field(default_factory=list)
    """(line, kind): well-formed events of a later version."""
    unknown_count: int = 0
    torn: bool = False
    """The file ends inside a line."""
    damage: list[Damage] = field(default_factory=list)
    newer_minor: int | None = None
    missing: Missing = field(default_factory=Missing)
    """Known of a reading from the beginning alone."""
    second_session: int | None = None
    """The line at which another session begins; reading ends there."""

    def skip(self, line: int, reason: str) -> None:
        self.skipped_count += 1
        if len(self.skipped) < NOTED:
            self.skipped.append((line, reason))

    def skip_unknown(self, line: int, kind: str) -> None:
        self.unknown_count += 1
        if len(self.unknown) < NOTED:
            self.unknown.append((line, kind))

    def sentences(self) -> list[str]:
        """One line for each kind of thing to say; empty when the file was read in full."""
        said = []
        if self.newer_minor is not None:
            version = f"{FORMAT_MAJOR}.{self.newer_minor}"
            said.append(f"written by a newer distmon (format {version}); what this one does not know is left out")
        if self.skipped_count:
            numbers = _named([line for line, _ in self.skipped], self.skipped_count)
            torn = "; the last one is cut off" if self.torn else ""
            hold = "holds" if self.skipped_count == 1 else "hold"
            said.append(f"skipped {_lines(self.skipped_count)} that {hold} no event: {numbers}{torn}")
        if self.unknown_count:
            kinds = ", ".join(sorted({kind for _, kind in self.unknown}))
            numbers = _named([line for line, _ in self.unknown], self.unknown_count)
            said.append(f"skipped {_lines(self.unknown_count)} of unknown kind ({kinds}): {numbers}")
        if lost := self.missing.lost.total():
            whose = Counter[str]()
            for stream, events in self.missing.lost.items():
                whose[stream.partition("/")[0]] += events
            told = ", ".join(f"{events:,} of {node}" for node, events in whose.most_common(_NODES_NAMED))
            more = f" and {len(whose) - _NODES_NAMED} more nodes" if len(whose) > _NODES_NAMED else ""
            damaged = "; those that hold no event are among them" if self.skipped_count else ""
            are = "is" if lost == 1 else "are"
            said.append(f"{_lines(lost)} {are} missing, as the numbers of the others tell: {told}{more}{damaged}")
        if self.second_session is not None:
            line = self.second_session
            said.append(f"another session begins at line {line}: it and what follows are left out; split the file there")
        said += [f"compressed part at byte {d.first_byte} is damaged ({d.reason}); the lines in it are lost" for d in self.damage]
        return said


def _lines(count: int) -> str:
    return "1 line" if count == 1 else f"{count} lines"


def _named(numbers: list[int], count: int) -> str:
    shown = ", ".join(str(n) for n in numbers[:20])
    return shown if count <= 20 else f"{shown} and {count - 20} more"


class Record(NamedTuple):
    """An event or an unknown kind, and where its line begins."""

    event: AnyEvent | UnknownKind
    position: Position
    size: int
    """Bytes of the line."""


class _Opening(msgspec.Struct):
    """The part of a header that every version keeps."""

    kind: str
    format: tuple[int, int] = (FORMAT_MAJOR, FORMAT_MINOR)


_opening = msgspec.json.Decoder(_Opening)


class SessionFile:
    """A recording on disk. `header` is its first event; `first_line` its first line's bytes."""

    def __init__(self, path: Path, header: SessionStarted, first_line: bytes) -> None:
        self.path = path
        self.header = header
        self.first_line = first_line

    @property
    def size(self) -> int | None:
        """In bytes; None where the file is not there any more."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return None

    def records(self, notes: Notes, position: Position = START) -> Generator[Record, None, None]:
        """Everything of this session from a position on, unknown kinds included; what cannot be read goes into `notes`."""
        if self.header.format[1] > FORMAT_MINOR:
            notes.newer_minor = self.header.format[1]
        begun = position != START
        for where, data, ended in read_lines(self.path, position, notes.damage):
            if data is None:
                notes.skip(where.line, f"longer than {LINE_LIMIT >> 20} MiB")
                continue
            try:
                event: AnyEvent | UnknownKind = decode_json(data)
            except UnknownKind as unknown:
                notes.skip_unknown(where.line, unknown.kind)
                event = unknown
            except BadEvent as error:
                if data and not data.isspace():
                    notes.torn = notes.torn or not ended
                    notes.skip(where.line, str(error) if ended else "cut off")
                continue
            if isinstance(event, SessionStarted):
                if begun:
                    notes.second_session = where.line
                    return
                begun = True
            if position == START:
                notes.missing.pass_event(event)
            yield Record(event, where, len(data) + 1)

    def events(self, notes: Notes, position: Position = START) -> Generator[AnyEvent, None, None]:
        """The events from a position on."""
        for event, _, _ in self.records(notes, position):
            if not isinstance(event, UnknownKind):
                yield event

    def last_time(self) -> float | None:
        """About when the recording ends, told from its last lines alone; None where they tell nothing.

        What nodes say counts only where the viewer says nothing there: their clocks may differ.
        """
        for position in near_the_end(self.path):
            lines = deque(read_lines(self.path, position), maxlen=LAST_LINES)
            ours, theirs = 0.0, 0.0
            for line in lines:
                with suppress(UnknownKind, BadEvent):
                    event = decode_json(line.data or b"")
                    ours, theirs = (ours, max(theirs, event.at)) if node_of(event) else (max(ours, event.at), theirs)
            if ours or theirs:
                return ours or theirs
        return None


def open_session(path: Path) -> SessionFile:
    """Checks the first line. Raises DistmonError, naming the file, for what is no session of this major version."""
    damage: list[Damage] = []
    lines = read_lines(path, damage=damage)
    first = next((line for line in lines if line.data is None or line.data.strip()), None)
    lines.close()
    if first is None:
        reason = f" ({damage[0].reason})" if damage else ""
        raise DistmonError(f"{path} holds no records{reason}: nothing was recorded, or it was cut off at once")
    data = first.data or b""
    try:
        opening = _opening.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        if not first.ended:
            raise DistmonError(f"{path} holds no records: cut off inside its first line, or no distmon session") from None
        raise DistmonError(f"{path} is not a distmon session: its first line is no header") from None
    if opening.kind != "session_started":
        raise DistmonError(f"{path} is not a distmon session: its first line is no header")
    major, minor = opening.format
    if major != FORMAT_MAJOR:
        raise DistmonError(
            f"{path} has format {major}.{minor} and this distmon reads {FORMAT_MAJOR}.x; use a newer distmon"
        )
    try:
        header = decode_json(data)
    except BadEvent as error:
        raise DistmonError(f"{path} is not a distmon session: its header is wrong: {error}") from None
    assert isinstance(header, SessionStarted)
    return SessionFile(path, header, data)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Building a state makes many objects that all stay, and no cycles; collections on the way double what it takes.

    Nor does one look at them afterwards: what is alive at the end is left out of later collections, and goes when nothing refers
    to it. What young garbage there was is collected before.
    """
    was_on = gc.isenabled()
    gc.collect(1)
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()


def load_state(path: Path, also: Callable[[SessionState, AnyEvent], None] | None = None) -> tuple[SessionState, Notes]:
    """The state at the end of a recording, and what could not be read; `also` is given the state after every event, and that."""
    session, state, notes = open_session(path), SessionState(), Notes()
    apply, count = fold.apply, fold.count_unknown
    with no_garbage_collection():
        for event, _, _ in session.records(notes):
            if isinstance(event, UnknownKind):
                count(state, event.kind)
            else:
                apply(state, event)
                if also is not None:
                    also(state, event)
    return state, notes
