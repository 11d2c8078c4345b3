"""Opening the index of a recording: the one beside it where it fits, else a new one; one that grows where it is being written."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable

from distmon.core.codec import UnknownKind
from distmon.core.fold import apply
from distmon.core.state import SessionState
from distmon.replay.build_index import build_index
from distmon.replay.index import Index, IndexWriter, cached_index_path, index_path
from distmon.replay.index_maker import MadeMeanwhile
from distmon.replay.keyframe import BadKeyframe
from distmon.replay.lines import START, after
from distmon.replay.recorder import is_being_written
from distmon.replay.session_file import Notes, SessionFile

LOOK_S, READ_S = 0.5, 0.01
"""A recording under way is looked at again after so long, and then read on for at most so long at a time."""


def open_index(session: SessionFile, progress: Callable[[float], None] | None = None, *, at_once: bool = False) -> Index:
    """The index beside a recording, made where there is none that fits: first, or `at_once` after it was opened.

    `progress` is told the share done, 0 to 1.
    """
    if is_being_written(session.path):
        return GrowingIndex(session, progress)
    if (kept := _read_kept(session)) is not None:
        return kept
    end = session.last_time() if at_once else None
    return build_index(session, progress) if end is None else MadeMeanwhile(session, end)


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
        if not self.grows or now - self._looked_at < LOOK_S:
            return
        writing = is_being_written(self._session.path)  # asked before it is read: what the writer wrote last is read then
        if self._read_on(now + READ_S, None):
            self._looked_at = now
            self.grows = writing and not self._state.complete

    def _read_on(self, deadline: float | None, progress: Callable[[float], None] | None) -> bool:
        """Whether it came to the end of what there is."""
        size = self._session.size
        if size is None or size == self._size:
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
