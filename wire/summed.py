"""For a viewer that cannot take each step: the same events with sums in place of steps, under the same numbers."""

from __future__ import annotations

from msgspec.structs import replace

from distmon.core.codec import decode_batch, encode_msgpack, join_batch
from distmon.core.events import NodeStepsRecorded, StepsRecorded
from distmon.core.step_sums import summed
from distmon.wire.backlog import Slice


def in_sums(piece: Slice) -> Slice:
    """The slice with a NodeStepsSummed for each event that tells of steps. What could not be read stays as it is."""
    events, bad = decode_batch(piece.body)
    if bad or not any(isinstance(event, StepsRecorded | NodeStepsRecorded) for event in events):
        return piece
    told = [(summed(event) or event) if isinstance(event, StepsRecorded | NodeStepsRecorded) else event for event in events]
    return replace(piece, body=join_batch([encode_msgpack(event) for event in told]))
