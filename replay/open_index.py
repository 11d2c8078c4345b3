"""Opening the index of a recording: the one beside it where it fits, else a new one; one that grows where it is being written."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from distmon.core.codec import UnknownKind
from distmon.core.fold import apply
from distmon.core.state import SessionState
from distmon.replay.beside import is_own_folder
from distmon.replay.index import Index, IndexWriter, cached_index_path, index_path
from distmon.replay.keyframe import BadKeyframe
from distmon.replay.lines import START, after
from distmon.replay.recorder import is_being_written
from distmon.replay.session_file import Notes, SessionFile

LOOK_S, READ_S = 0.5, 0.01
"""A recording under way is looked at again after so long, and then read on for at most so long at a time."""


def open_index(session: SessionFile, progress: Callable[[float], None] | None = None) -> Index:
    """The index beside a recording, made first where there is none that fits. `progress` is told the share done, 0 to 1."""
    if is_being_written(session.path):
        return GrowingIndex(session, progress)
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
            writer.keep(state, position, writer.now)
            if progress:
                progress(min(max(position.frame, done) / size, 1.0))
        writer.pass_event(event, position, length)
        if not isinstance(event, UnknownKind):
            apply(state, event)
        done += length if not position.frame else 0
    writer.finish(recording, state, notes.sentences())


class GrowingIndex(Index):
    """The index of a recording that another process is writing: kept for this process alone, it reads on when it is asked to."""

    def __init__(self, session: SessionFile, progress: Callable[[float], None] | None = None) -> None:
        """Reads what there is so far."""
        self._session = session
        self._scratch = tempfile.TemporaryFile("w+b", buffering=0)  # noqa: SIM115 closed with the index
        self._made = IndexWriter(self._scratch, session.first_line)
        super().__init__(self._scratch, self._made)
        self._state = SessionState()
        self._next, self._size, self._looked_at = START, 0, 0.0
        self._read_on(None, progress)

    def catch_up(self) -> None:
        """Reads on for a moment, where there is more; the rest waits for the next call."""
        now = time.monotonic()
        if self.grows and now - self._looked_at >= LOOK_S and self._read_on(now + READ_S, None):
            self._looked_at = now
            self.grows = not self._state.complete and is_being_written(self._session.path)

    def _read_on(self, deadline: float | None, progress: Callable[[float], None] | None) -> bool:
        """Whether it came to the end of what there is."""
        size = self._session.path.stat().st_size
        if size == self._size:
            return True
        for count, (event, position, length) in enumerate(self._session.records(Notes(), self._next)):
            if self._made.wants_keyframe:
                self._made.keep(self._state, position, self._made.now)
                if progress:
                    progress(min(max(position.frame, position.skip) / size, 1.0))
            self._made.pass_event(event, position, length)
            if not isinstance(event, UnknownKind):
                apply(self._state, event)
            self._next = after(position, length)
            if deadline is not None and count % 64 == 63 and time.monotonic() > deadline:
                return False
        self._size, self.readable_to = size, self._made.now
        return True


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
