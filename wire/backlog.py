"""The last events of one stream, encoded once, for viewers that come late or read slowly. Bounded in bytes.

This is all that an agent holds in memory; an on-disk journal would stand behind it and answer for older sequence numbers.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from distmon.core.codec import join_batch
from distmon.wire.frames import MAX_BODY_BYTES

DEFAULT_LIMIT_BYTES = 4 << 20
TARGET_BODY_BYTES = 128 * 1024
MAX_KEPT = 4096


class Slice(NamedTuple):
    """Consecutive events, ready to send: the first number, how many, and the frame body."""

    seq: int
    events: int
    body: bytes
    history: bool


class Backlog:
    def __init__(self, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self.next_seq = 1
        self.oversized = 0
        """Events that were too large for any frame; their sequence numbers are missing from what is sent."""
        self._limit_bytes = limit_bytes
        self._seqs: list[int] = []
        self._encoded: list[bytes] = []
        self._start = 0
        self._bytes = 0
        self._kept: dict[str, tuple[int, bytes]] = {}

    def append(self, encoded: bytes, keep: str = "") -> None:
        """Takes the next event. One with a `keep` name stays after it fell out of the backlog, until the next of that name."""
        seq = self.next_seq
        self.next_seq += 1
        if len(encoded) > MAX_BODY_BYTES:
            self.oversized += 1
            return
        if keep:
            self._kept.pop(keep, None)
            self._kept[keep] = (seq, encoded)
            if len(self._kept) > MAX_KEPT:
                del self._kept[next(iter(self._kept))]
        self._seqs.append(seq)
        self._encoded.append(encoded)
        self._bytes += len(encoded)
        while self._bytes > self._limit_bytes:
            self._drop_oldest()

    @property
    def oldest_seq(self) -> int:
        """Of what is held in full; `next_seq` when that is nothing."""
        return self._seqs[self._start] if self._start < len(self._seqs) else self.next_seq

    @property
    def newest_seq(self) -> int:
        """0 when nothing is held."""
        return self._seqs[-1] if self._start < len(self._seqs) else 0

    @property
    def held_bytes(self) -> int:
        return self._bytes

    def slice_from(self, cursor: int) -> Slice | None:
        """The next events at or after `cursor`, for one frame; None when there are none."""
        oldest = self.oldest_seq
        if cursor < oldest:
            kept = sorted(item for item in self._kept.values() if cursor <= item[0] < oldest)
            if kept:
                return _joined(kept, history=True)
        chosen: list[tuple[int, bytes]] = []
        size = 0
        for index in range(bisect_left(self._seqs, cursor, self._start), len(self._seqs)):
            chosen.append((self._seqs[index], self._encoded[index]))
            size += len(self._encoded[index])
            if size >= TARGET_BODY_BYTES:
                break
        return _joined(chosen, history=False)

    def _drop_oldest(self) -> None:
        self._bytes -= len(self._encoded[self._start])
        self._encoded[self._start] = b""
        self._start += 1
        if self._start > 64 and self._start * 2 > len(self._seqs):
            del self._seqs[: self._start], self._encoded[: self._start]
            self._start = 0


def _joined(items: list[tuple[int, bytes]], *, history: bool) -> Slice | None:
    """The leading run of consecutive numbers, as one body."""
    if not items:
        return None
    first = items[0][0]
    run = [encoded for offset, (seq, encoded) in enumerate(items) if seq == first + offset]
    return Slice(first, len(run), join_batch(run), history)
