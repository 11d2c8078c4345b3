"""What a backlog holds, gives and lets go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from distmon.core.codec import decode_batch, encode_msgpack
from distmon.core.events import Ticked
from distmon.wire.backlog import MAX_KEPT, Backlog, Slice


def encoded(number: int) -> bytes:
    return encode_msgpack(Ticked(at=float(number)))


SIZE = len(encoded(1))


def numbers(piece: Slice | None) -> list[int]:
    """The events of a slice, by what `encoded` was given."""
    if piece is None:
        return []
    events, bad = decode_batch(piece.body)
    assert not bad
    assert len(events) == piece.events
    return [int(event.at) for event in events]


def test_a_viewer_that_keeps_up_gets_each_event_once() -> None:
    backlog = Backlog()
    backlog.append(encoded(1))
    assert numbers(backlog.slice_from(0)) == [1]
    assert backlog.slice_from(2) is None
    backlog.append(encoded(2))
    assert numbers(backlog.slice_from(2)) == [2]


def test_the_oldest_go_when_it_is_full() -> None:
    backlog = Backlog(limit_bytes=3 * SIZE)
    for number in range(1, 11):
        backlog.append(encoded(number))
    assert backlog.held_bytes == 3 * SIZE
    piece = backlog.slice_from(0)
    assert piece is not None
    assert (piece.seq, numbers(piece), piece.history) == (8, [8, 9, 10], False)


def test_what_later_events_need_stays_and_goes_first_marked_as_history() -> None:
    backlog = Backlog(limit_bytes=2 * SIZE)
    backlog.append(encoded(1), keep="joined")
    backlog.append(encoded(2), keep="identity")
    backlog.append(encoded(3), keep="identity")
    for number in range(4, 9):
        backlog.append(encoded(number))
    cursor, found = 0, []
    while (piece := backlog.slice_from(cursor)) is not None:
        found.append((piece.history, numbers(piece)))
        cursor = piece.seq + piece.events
    assert found == [(True, [1]), (True, [3]), (False, [7, 8])]


def test_the_number_of_kept_events_is_bounded() -> None:
    backlog = Backlog(limit_bytes=SIZE)
    for number in range(1, MAX_KEPT + 11):
        backlog.append(encoded(number), keep=str(number))
    piece = backlog.slice_from(0)
    assert piece is not None
    assert piece.seq == 11


@given(st.integers(1, 40), st.integers(1, 60), st.integers(0, 70))
def test_from_any_cursor_the_held_events_come_in_order(limit: int, count: int, cursor: int) -> None:
    backlog = Backlog(limit_bytes=limit * SIZE)
    for number in range(1, count + 1):
        backlog.append(encoded(number))
    found: list[int] = []
    at = cursor
    while (piece := backlog.slice_from(at)) is not None:
        assert piece.seq >= at
        found.extend(numbers(piece))
        at = piece.seq + piece.events
    assert found == list(range(max(cursor, count - limit + 1, 1), count + 1))
