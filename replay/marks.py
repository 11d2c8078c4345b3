"""Moments that viewers named, in a file beside the recording, which itself is never changed: a JSON object per line."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

import msgspec

from distmon.core.errors import DistmonError
from distmon.replay.beside import away, beside, is_own_folder

SUFFIX = ".marks"
MARKS = 1_000
NAME_LENGTH = 80
SIZE_LIMIT = 1 << 20


class NamedMark(msgspec.Struct, frozen=True, order=True):
    """`at` is in seconds since the epoch, on the recording's clock."""

    at: float
    name: str


_decoder = msgspec.json.Decoder(NamedMark)


def plain_name(text: str) -> str:
    """A name as it is kept: in one line, and not too long."""
    return " ".join(text.split())[:NAME_LENGTH]


def marks_path(recording: Path) -> Path:
    """Beside the recording, or among the user's own files where that folder is not the user's."""
    own = is_own_folder(recording)
    return beside(recording, SUFFIX) if own else away(recording, SUFFIX, "state")


def load_marks(recording: Path) -> list[NamedMark]:
    """In order of time. A file that is not there or cannot be read has none; a line that is no mark is passed over."""
    try:
        descriptor = os.open(marks_path(recording), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            content = file.read(SIZE_LIMIT)
    except OSError:
        return []
    found = []
    for line in content.splitlines():
        try:
            found.append(_decoder.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    return sorted(found)[:MARKS]


def save_marks(recording: Path, marks: Iterable[NamedMark]) -> None:
    """Replaces the file as a whole; raises DistmonError where that cannot be written."""
    kept = sorted(marks)
    if len(kept) > MARKS:
        raise DistmonError(f"a recording has at most {MARKS} marks; remove some first")
    target = marks_path(recording)
    try:
        if not kept:
            target.unlink(missing_ok=True)
            return
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
            file.write(b"".join(msgspec.json.encode(mark) + b"\n" for mark in kept))
        Path(file.name).replace(target)
    except OSError as error:
        raise DistmonError(f"{target} cannot be written: {error.strerror}") from None
