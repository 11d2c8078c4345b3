"""For a viewer of an earlier minor version: what it does not know, in events that it does.

The viewer's place in a stream is a header's `seq` plus `count`, and an event counts as new by its own `seq`. So the events that
stand for one have its number, and the header's number is moved back by as many as they are more.
"""

from __future__ import annotations

from distmon.core.batches import single_events
from distmon.core.codec import decode_batch, encode_msgpack, join_batch
from distmon.core.events import AnyEvent, GapFound, NodeStepsRecorded
from distmon.wire.backlog import TARGET_BODY_BYTES, Slice

NODE_STEPS_SINCE = 3
"""The minor version of the format from which a viewer knows NodeStepsRecorded."""
_GAP_CAUSE = "the agent no longer held these events when the viewer asked for them"


def for_older(piece: Slice, cursor: int) -> Slice:
    """The beginning of a slice, or all of it, for a viewer that is at `cursor` (0: at its first contact)."""
    events, bad = decode_batch(piece.body)
    if bad or piece.history or not any(isinstance(event, NodeStepsRecorded) for event in events):
        return piece
    told: list[bytes] = []
    size = taken = 0
    for event in events:
        more = [encode_msgpack(one) for one in single_events(event)] or [encode_msgpack(event)]
        # Numbers begin at 1, which bounds how far the first one can be moved back.
        if taken and (len(told) + len(more) >= piece.seq + taken or size > TARGET_BODY_BYTES):
            break
        told += more
        size += sum(map(len, more))
        taken += 1
    if 0 < cursor < piece.seq:
        # The viewer sees a gap by the header's number: what that no longer shows is told here.
        hidden = min(piece.seq - cursor, len(told) + 1 - taken)
        told.insert(0, encode_msgpack(_gap(events[0], hidden)))
    return Slice(piece.seq + taken - len(told), len(told), join_batch(told), history=False)


def _gap(before: AnyEvent, lost: int) -> GapFound:
    at, stream = before.at, before.stream
    node = stream.partition("/")[0]
    return GapFound(at=at, started=at, ended=at, node=node, lost_records=lost, cause=_GAP_CAUSE, stream=stream, seq=before.seq)
