"""Events of a node, moved to the viewer's clock: nodes' clocks differ, and one that is ahead must not take the session along."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from msgspec import structs

from distmon.core.events import AnyEvent, ClockOffsetEstimated

_TIMES = ("at", "origin", "started", "ended", "deadline", "committed_at")
LEAST_S = 0.002
"""Clocks that differ by less count as equal: that is within what a busy machine makes of a message's way."""


def certain_offset(estimate: ClockOffsetEstimated) -> float | None:
    """The seconds to add to a node's times; None where the estimate is no larger than its own error."""
    error_s = estimate.round_trip_s / 2
    return estimate.offset_s if abs(estimate.offset_s) > max(error_s, LEAST_S) else None


def moved(event: AnyEvent, offset_s: float) -> AnyEvent:
    """The event with all its times on the viewer's clock."""
    times: dict[str, Any] = {}
    for name in _times_of(type(event)):
        time = getattr(event, name)
        if time is not None:
            times[name] = max(time + offset_s, 0.0)
    return structs.replace(event, **times)


def time_of(event: AnyEvent, offsets: Mapping[str, float]) -> float:
    """When it was on the viewer's clock; `offsets` are the seconds that are added to nodes' times, as a state has them."""
    if offsets and (offset_s := offsets.get(node_of(event))) is not None:
        return max(event.at + offset_s, 0.0)
    return event.at


def aligned(event: AnyEvent, offsets: Mapping[str, float]) -> AnyEvent:
    """The event with all its times on the viewer's clock."""
    if offsets and (offset_s := offsets.get(node_of(event))) is not None:
        return moved(event, offset_s)
    return event


def note_offset(event: AnyEvent, offsets: dict[str, float]) -> None:
    """What an event says of a node's clock holds for the events after it."""
    if isinstance(event, ClockOffsetEstimated):
        offset_s = certain_offset(event)
        if offset_s is None:
            offsets.pop(event.node, None)
        else:
            offsets[event.node] = offset_s


def node_of(event: AnyEvent) -> str:
    """The node whose agent sent it; empty for what the viewer itself found out."""
    return event.stream.partition("/")[0]


@cache
def _times_of(kind: type) -> tuple[str, ...]:
    return tuple(name for name in _TIMES if name in kind.__struct_fields__)  # type: ignore[attr-defined]
