"""Lines of a recording, plain or compressed, in bounded memory and past damage. Nothing here knows what a line means."""

from __future__ import annotations

import importlib
import os
import stat
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from distmon.core.errors import DistmonError

LINE_LIMIT = 16 << 20
_PLAIN_CHUNK = 1 << 18
_PACKED_CHUNK = 1 << 12
"""Small, since a few compressed bytes can unfold into megabytes."""
_FRAME_MAGIC = b"\x28\xb5\x2f\xfd"
_PLAIN_TAIL, _PACKED_TAIL = 1 << 18, 4 << 20
"""The end of a file is looked for in so much of it; one compressed frame holds at least a MiB."""


class Position(NamedTuple):
    """Where a line begins: `skip` bytes into what the compressed frame at `frame` holds (frame 0 of a plain file is the file)."""

    frame: int
    skip: int
    line: int


START = Position(0, 0, 1)


def after(position: Position, size: int) -> Position:
    """Where the line after one of `size` bytes begins."""
    return Position(position.frame, position.skip + size, position.line + 1)


class Line(NamedTuple):
    """`data` has no line end; it is None for a line over LINE_LIMIT. `ended` is False for a last line without an end."""

    position: Position
    data: bytes | None
    ended: bool


class Damage(NamedTuple):
    """A compressed part that could not be read; its lines are lost."""

    first_byte: int
    reason: str


def is_packed(path: Path) -> bool:
    """Compressed recordings are told by their name."""
    return path.name.endswith(".zst")


def open_regular(path: Path) -> IO[bytes]:
    """Opens a file, or what a link names, for reading; refuses in one line whatever is not a regular file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise DistmonError(f"{path}: no such file") from None
    except OSError as error:
        raise DistmonError(f"{path} cannot be read: {os.strerror(error.errno or 0)}") from None
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        what = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
        raise DistmonError(f"{path} is {what}; a session is a .jsonl or .jsonl.zst file")
    return os.fdopen(descriptor, "rb")


def zstd() -> Any:
    """The zstandard module, which the viewer's extra brings."""
    try:
        return importlib.import_module("zstandard")
    except ModuleNotFoundError:
        raise DistmonError("compressed recordings need zstandard: pip install 'distmon[tui]'") from None


def read_lines(path: Path, position: Position = START, damage: list[Damage] | None = None) -> Generator[Line, None, None]:
    """The lines from a position on. What could not be uncompressed is added to `damage`."""
    damage = damage if damage is not None else []
    with open_regular(path) as file:
        chunks = _unpacked(file, position, damage) if is_packed(path) else _plain(file, position)
        try:
            yield from _split(chunks, position)
        except OSError as error:
            raise DistmonError(f"{path} cannot be read: {os.strerror(error.errno or 0)}") from None


def near_the_end(path: Path) -> Iterator[Position]:
    """Where one may begin to read for the sake of the last lines, the nearest to the end first; the line numbers are made up.

    There is none where a compressed part is too long.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if not is_packed(path):
            yield Position(0, max(size - _PLAIN_TAIL, 0), 1)
            return
        begin = file.seek(max(size - _PACKED_TAIL, 0))
        tail = file.read()
    found = tail.rfind(_FRAME_MAGIC)
    while found >= 0:
        yield Position(begin + found, 0, 1)
        found = tail.rfind(_FRAME_MAGIC, 0, found)


def _split(chunks: Iterator[tuple[int, int, bytes]], position: Position) -> Iterator[Line]:
    number = position.line
    start_frame, start_skip, pending, dropping = position.frame, position.skip, b"", False
    for frame, skip, data in chunks:
        if not pending and not dropping:
            start_frame, start_skip = frame, skip
        *ended, rest = data.split(b"\n")
        used = 0
        for piece in ended:
            line = None if dropping or len(pending) + len(piece) > LINE_LIMIT else pending + piece
            yield Line(Position(start_frame, start_skip, number), line, True)
            pending, dropping = b"", False
            used += len(piece) + 1
            number += 1
            start_frame, start_skip = frame, skip + used
        pending += rest
        if len(pending) > LINE_LIMIT:
            pending, dropping = b"", True
    if pending or dropping:
        yield Line(Position(start_frame, start_skip, number), None if dropping else pending, False)


def _plain(file: IO[bytes], position: Position) -> Iterator[tuple[int, int, bytes]]:
    offset = position.skip
    file.seek(offset)
    while chunk := file.read(_PLAIN_CHUNK):
        yield 0, offset, chunk
        offset += len(chunk)


def _unpacked(file: IO[bytes], position: Position, damage: list[Damage]) -> Iterator[tuple[int, int, bytes]]:
    """(frame, offset within the frame, bytes). After a damaged frame it goes on at the next one that can be found."""
    frame: int | None = position.frame
    to_skip = position.skip
    while frame is not None:
        try:
            end = yield from _frame(file, frame, to_skip)
        except zstd().ZstdError as error:
            damage.append(Damage(frame, str(error)))
            frame = _next_frame(file, frame + 1)
        else:
            if end is None:
                damage.append(Damage(frame, "cut off"))
            frame = end if end is not None and end < os.fstat(file.fileno()).st_size else None
        to_skip = 0


def _frame(file: IO[bytes], start: int, to_skip: int) -> Generator[tuple[int, int, bytes], None, int | None]:
    """Yields what one frame holds, after its first `to_skip` bytes; returns where it ends, None if the file ends before it."""
    file.seek(start)
    unpacker = zstd().ZstdDecompressor().decompressobj()
    offset = 0
    while chunk := file.read(_PACKED_CHUNK):
        data = unpacker.decompress(chunk)
        fresh = data[max(to_skip - offset, 0) :]
        if fresh:
            yield start, offset + len(data) - len(fresh), fresh
        offset += len(data)
        if unpacker.eof:
            return file.tell() - len(unpacker.unused_data)
    return None


def _next_frame(file: IO[bytes], after: int) -> int | None:
    file.seek(after)
    base, window = after, b""
    while chunk := file.read(_PLAIN_CHUNK):
        window += chunk
        if (found := window.find(_FRAME_MAGIC)) >= 0:
            return base + found
        base += max(len(window) - 3, 0)
        window = window[-3:]
    return None
