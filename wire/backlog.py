"""One stream of an agent: its last events in memory, encoded once, and behind them a store for viewers that are late or slow."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from msgspec import Struct

from distmon.core.codec import join_batch

DEFAULT_LIMIT_BYTES = 4 << 20
LIMIT_WITH_STORE_BYTES = 512 << 10
TARGET_BODY_BYTES = 128 * 1024
MAX_KEPT = 4096
_MOST_EVENTS = 4096
"""In one frame."""


class Numbered(NamedTuple):
    """An encoded event and its sequence number."""

    seq: int
    encoded: bytes


class Part(Struct, frozen=True, array_like=True):
    """Consecutive events of one stream, encoded: `seq` is the number of the first."""

    stream: str
    seq: int
    events: list[bytes]
    keep: dict[int, str] = {}
    """Place in `events` -> the name under which it stays known after it is gone from the store."""


class Store(Protocol):
    """Where events outlive the agent."""

    next_seqs: dict[str, int]
    """Stream -> the number of its next event."""

    def streams(self) -> list[str]:
        """All that there is something of, the oldest first."""
        ...

    def kept(self, stream: str) -> dict[str, tuple[int, bytes]]:
        """The last event of each name that is kept, with its number."""
        ...

    def write(self, parts: list[Part], mark: bytes, at: float) -> bool:
        """Adds a turn, as a whole or not at all; `mark` says where the sources were after it. False while it is not on disk."""
        ...

    def oldest(self, stream: str) -> int:
        """The first number that is held; the next one where there is none."""
        ...

    def since(self, stream: str, at: float) -> int:
        """The first number that was written at `at` (seconds since the epoch) or later."""
        ...

    def read(self, stream: str, cursor: int, target_bytes: int) -> list[Numbered]:
        """The next events at or after `cursor`, about `target_bytes` of them."""
        ...


class Slice(Struct, frozen=True, gc=False):
    """Consecutive events, ready to send: the first number, how many, and the frame body."""

    seq: int
    events: int
    body: bytes
    history: bool


class Backlog:
    def __init__(self, limit_bytes: int = DEFAULT_LIMIT_BYTES, *, name: str = "", store: Store | None = None) -> None:
        """With a store, the stream goes on where the store's ends."""
        self.name = name
        self._store = store
        self.next_seq = store.next_seqs.get(name, 1) if store is not None else 1
        self._limit_bytes = limit_bytes
        self._encoded: list[bytes] = []
        """The last events; those before `_start` are gone."""
        self._start = 0
        self._bytes = 0
        self._kept = store.kept(name) if store is not None else {}

    def append(self, encoded: bytes, keep: str = "") -> None:
        """Takes the next event. One with a `keep` name stays after all others of its time went, until the next of that name."""
        seq = self.next_seq
        self.next_seq += 1
        if keep:
            self._kept.pop(keep, None)
            self._kept[keep] = (seq, encoded)
            if len(self._kept) > MAX_KEPT:
                del self._kept[next(iter(self._kept))]
        self._encoded.append(encoded)
        self._bytes += len(encoded)
        while self._bytes > self._limit_bytes:
            self._drop_oldest()

    @property
    def newest_seq(self) -> int:
        """0 when there never was an event."""
        return self.next_seq - 1

    @property
    def held_bytes(self) -> int:
        """In memory."""
        return self._bytes

    @property
    def oldest_seq(self) -> int:
        """Of all that is held in full, here or in the store."""
        return min(self._oldest_here, self._store.oldest(self.name)) if self._store is not None else self._oldest_here

    def since(self, at: float) -> int:
        """The first number written at `at` or later; without a store, of what is held."""
        return self._store.since(self.name, at) if self._store is not None else 0

    def slice_from(self, cursor: int, begin: int = 0) -> Slice | None:
        """The next events at or after `cursor`, for one frame; None when there are none.

        Of those before `begin` only the ones come that later events need.
        """
        if max(cursor, begin) >= self.next_seq:
            return None
        oldest_here = self._oldest_here
        if cursor < max(oldest_here, begin):
            oldest = max(self.oldest_seq, begin)
            kept = sorted(Numbered(*item) for item in self._kept.values() if cursor <= item[0] < oldest)
            if kept:
                return _leading_run(kept, history=True)
            cursor = max(cursor, begin)
        if cursor < oldest_here and self._store is not None:
            stored = self._store.read(self.name, cursor, TARGET_BODY_BYTES)
            if stored and stored[0].seq < oldest_here:
                return _leading_run(stored, history=False)
        first = max(cursor, oldest_here)
        place = first - self.next_seq + len(self._encoded)
        events = self._encoded[place : place + _MOST_EVENTS]
        return _slice(first, events, history=False) if events else None

    @property
    def _oldest_here(self) -> int:
        """`next_seq` when nothing is held in memory."""
        return self.next_seq - len(self._encoded) + self._start

    def _drop_oldest(self) -> None:
        self._bytes -= len(self._encoded[self._start])
        self._encoded[self._start] = b""
        self._start += 1
        if self._start > 64 and self._start * 2 > len(self._encoded):
            del self._encoded[: self._start]
            self._start = 0


def _leading_run(items: list[Numbered], *, history: bool) -> Slice:
    """Of consecutive numbers."""
    run = [item.encoded for place, item in enumerate(items) if item.seq == items[0].seq + place]
    return _slice(items[0].seq, run, history=history)


def _slice(seq: int, events: list[bytes], *, history: bool) -> Slice:
    """As many as a frame holds."""
    size = count = 0
    while count < len(events) and size < TARGET_BODY_BYTES:
        size += len(events[count])
        count += 1
    return Slice(seq, count, join_batch(events[:count]), history)
