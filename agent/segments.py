"""The files of a journal: records with a length and a checksum, one after the other, and how to find them again after damage.

A segment is a file of records. Its first one is a snapshot: all that must be known to go on without the segments before it. The
others are commits: what one turn of the agent's loop published. A record is a mark of four bytes, length and crc32 of what
follows, then msgpack. A record that does not check is passed over; the next one is found by its mark.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from msgspec import Struct

from distmon.wire.backlog import Part

SUFFIX = ".journal"
_MARK = b"\xd5JR1"
_HEAD = struct.Struct("<4sII")
HEAD_BYTES = _HEAD.size
MOST_RECORD_BYTES = 64 << 20


class Commit(Struct, frozen=True, array_like=True, tag=0):
    """One turn: all of it is there, or none. `mark` is where the agent's sources were after it; empty: where they were before."""

    at: float
    parts: list[Part]
    mark: bytes = b""


class KeptEvent(Struct, frozen=True, array_like=True):
    stream: str
    seq: int
    encoded: bytes


class Extent(Struct, array_like=True):
    """What a segment holds, so that it need not be read to know."""

    number: int
    size: int = 0
    first_at: float = 0.0
    last_at: float = 0.0
    ranges: dict[str, tuple[int, int]] = {}
    """Stream -> the first and last sequence number."""

    def add(self, commit: Commit) -> None:
        self.first_at = self.first_at or commit.at
        self.last_at = max(self.last_at, commit.at)
        for part in commit.parts:
            last = part.seq + len(part.events) - 1
            first = self.ranges.get(part.stream, (part.seq, 0))[0]
            self.ranges[part.stream] = (first, last)


class Snapshot(Struct, frozen=True, array_like=True, tag=1):
    """What went before a segment."""

    boot: str
    next_seqs: dict[str, int]
    kept: list[tuple[str, KeptEvent]]
    mark: bytes
    extents: list[Extent]


Record = Snapshot | Commit
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


class Found(NamedTuple):
    """A whole record, and where it is."""

    offset: int
    size: int
    record: Record


class Scan:
    """Reads a segment from its start. After the end, `damaged` says how many bytes in the middle were passed over, `end` where
    the last whole record ends, and `torn` whether something follows it."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)
        self.damaged = 0
        self.end = 0

    def __iter__(self) -> Iterator[Found]:
        at = 0
        while at < len(self._data):
            found = self._record_at(at)
            if found is None:
                at = self._data.find(_MARK, at + 1)
                if at < 0:
                    return
                continue
            self.damaged += found.offset - self.end
            self.end = at = found.offset + found.size
            yield found

    def first(self) -> Record | None:
        """The record that the segment begins with, if that one is whole."""
        found = self._record_at(0)
        return None if found is None else found.record

    @property
    def torn(self) -> bool:
        return self.end < len(self._data)

    def _record_at(self, at: int) -> Found | None:
        if self._data[at : at + len(_MARK)] != _MARK or at + HEAD_BYTES > len(self._data):
            return None
        _, length, check = _HEAD.unpack_from(self._data, at)
        begin = at + HEAD_BYTES
        if length > MOST_RECORD_BYTES or begin + length > len(self._data):
            return None
        record = decode(self._data[begin : begin + length], check)
        return None if record is None else Found(at, HEAD_BYTES + length, record)


def encode(record: Record) -> bytearray:
    """The bytes of a record in its file."""
    content = bytearray(HEAD_BYTES)
    _encoder.encode_into(record, content, HEAD_BYTES)
    with memoryview(content) as view:
        _HEAD.pack_into(content, 0, _MARK, len(content) - HEAD_BYTES, zlib.crc32(view[HEAD_BYTES:]))
    return content


def decode(payload: bytes, check: int) -> Record | None:
    """None for what is damaged."""
    if zlib.crc32(payload) != check:
        return None
    try:
        return _decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def read_at(descriptor: int, offset: int, size: int) -> Record | None:
    """The record of a known place; None if it is no longer whole."""
    data = os.pread(descriptor, size, offset)
    if len(data) < size or size < HEAD_BYTES or data[:4] != _MARK:
        return None
    _, length, check = _HEAD.unpack_from(data)
    return decode(data[HEAD_BYTES : HEAD_BYTES + length], check)
