"""Making the index of a recording by reading it through, in a scratch file until it is whole."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from distmon.core.codec import UnknownKind
from distmon.core.fold import apply
from distmon.core.state import SessionState
from distmon.replay.beside import is_own_folder
from distmon.replay.index import Index, IndexWriter, cached_index_path, index_path
from distmon.replay.session_file import Notes, SessionFile

SHOWN_STEPS = 100
"""Step times are told of so often in an index that is read while it is made."""


def build_index(session: SessionFile, progress: Callable[[float], None] | None = None) -> Index:
    """Reads the recording through once. Keeps the index beside it, or in the cache where that folder is not the user's."""
    target = place_for_index(session.path)
    out = scratch_file(target)
    try:
        write_index(session, out, progress)
    except BaseException:
        drop(out)
        raise
    publish(out, target)
    return Index(out)


def write_index(
    session: SessionFile, out: IO[bytes], progress: Callable[[float], None] | None = None, *, shown: bool = False
) -> None:
    """`progress` is told the share done, 0 to 1. One that is `shown` is read by another process meanwhile."""
    recording = session.path.stat()
    writer, state, notes = IndexWriter(out, session.first_line), SessionState(), Notes()
    done, size, told = 0, max(recording.st_size, 1), 0.0
    for event, position, length in session.records(notes):
        if writer.wants_keyframe:
            writer.keep(state, position, writer.now)
            share = min(max(position.frame, done) / size, 1.0)
            if shown and share >= told + 1 / SHOWN_STEPS:
                writer.tell_pace()
                told = share
            if progress:
                progress(share)
        writer.pass_event(event, position, length)
        if not isinstance(event, UnknownKind):
            apply(state, event)
        done += length if not position.frame else 0
    writer.finish(recording, state, notes.sentences())


def place_for_index(recording: Path) -> Path:
    if is_own_folder(recording):
        return index_path(recording)
    target = cached_index_path(recording)
    with suppress(OSError):  # without a place the index is for this process alone
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return target


def scratch_file(target: Path) -> IO[bytes]:
    try:
        return tempfile.NamedTemporaryFile("w+b", dir=target.parent, prefix=f".{target.name}.", delete=False)
    except OSError:
        return tempfile.TemporaryFile("w+b")


def publish(out: IO[bytes], target: Path) -> None:
    """Gives a scratch file that has a name its place; a folder that became unwritable costs only the index."""
    if isinstance(out.name, str):
        try:
            Path(out.name).replace(target)
        except OSError:
            drop(out)


def drop(out: IO[bytes]) -> None:
    if isinstance(out.name, str):
        Path(out.name).unlink(missing_ok=True)
