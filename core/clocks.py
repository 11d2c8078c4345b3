"""Events moved to the viewer's clock: nodes' clocks differ, and one that is ahead, or is set, must not take the session along."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from msgspec import structs

from distmon.core.events import (
    AnyEvent,
    ClockOffsetEstimated,
    GapFound,
    ModelDescribed,
    NodeJoined,
    PhaseUnseen,
    ProgressDeclared,
    SessionStarted,
    WorkerIdentified,
)

_TIMES = ("at", "origin", "started", "ended", "deadline", "committed_at", "since", "until")
LEAP_S, FAR_S = 60.0, 3_600.0
"""A source that is so far behind its latest event was set back; one that is so far ahead of it at once is worth a word."""
MOST_LEAPS = 64
LEAST_S = 0.002
"""Clocks that differ by less count as equal: that is within what a busy machine makes of a message's way."""


_OF_OTHER_TIMES = frozenset(
    (ClockOffsetEstimated, GapFound, ModelDescribed, NodeJoined, PhaseUnseen, ProgressDeclared, SessionStarted, WorkerIdentified)
)
"""Their times are not those of their source when it told them: others' clocks, or long ago, kept for who comes late."""


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


class Leap(NamedTuple):
    """The times of a source went on by so many seconds at once, or back by them where that is negative."""

    at: float
    """Where it stands on the session's time."""
    source: str
    by_s: float


@dataclass(slots=True)
class Clocks:
    """Where events stand on one time, the viewer's.

    A source (a stream; of events without one, the node that they tell of) sends in order: what is of long before its latest event
    was told by a clock that was set back, as of recordings that no distmon made. Its times go on from there.
    """

    offsets: dict[str, float] = field(default_factory=dict)
    """Node -> seconds that are added to its times, where its clock surely differs from the viewer's."""
    latest: dict[str, float] = field(default_factory=dict)
    """Source -> its latest time, as placed."""
    set_back: dict[str, float] = field(default_factory=dict)
    """Source -> seconds that are added to its times besides."""
    leaps: list[Leap] = field(default_factory=list)
    """The first MOST_LEAPS."""

    def time_of(self, event: AnyEvent) -> float:
        """When it was."""
        return max(event.at + self._by_s(event), 0.0, self._least(event))

    def _least(self, event: AnyEvent) -> float:
        return 0.0 if type(event) in _OF_OTHER_TIMES else self.latest.get(_source(event), 0.0) - LEAP_S

    def place(self, event: AnyEvent) -> AnyEvent:
        """The next event, with all its times where they belong."""
        by_s = self._by_s(event) if self.offsets or self.set_back else 0.0
        if type(event) not in _OF_OTHER_TIMES:  # written out: thousands come in a second
            source, at = event.stream or getattr(event, "node", ""), event.at + by_s
            latest = self.latest.get(source, at)
            if latest <= at <= latest + FAR_S:
                self.latest[source] = at
            elif at > latest or at < latest - LEAP_S:
                by_s += self._leap(source, at, latest)
        return moved(event, by_s) if by_s else event

    def _leap(self, source: str, at: float, latest: float) -> float:
        """The seconds that are added to an event's times because its source's clock was set back before it."""
        if len(self.leaps) < MOST_LEAPS:
            self.leaps.append(Leap(max(at, latest), source, at - latest))
        self.latest[source] = max(at, latest)
        back = max(latest - at, 0.0)
        if back:
            self.set_back[source] = self.set_back.get(source, 0.0) + back
        return back

    def estimate(self, event: ClockOffsetEstimated) -> None:
        """What it says of a node's clock holds for the events after it, and tells what was taken for a clock set back."""
        before, now = self.offsets.get(event.node, 0.0), certain_offset(event)
        if now is None:
            self.offsets.pop(event.node, None)
        else:
            self.offsets[event.node] = now
        by_s = (now or 0.0) - before
        for source in self.latest if abs(by_s) > LEAP_S / 2 else ():
            if source.startswith(f"{event.node}/"):
                self.latest[source] += by_s - self.set_back.pop(source, 0.0)

    def _by_s(self, event: AnyEvent) -> float:
        return self.offsets.get(node_of(event), 0.0) + self.set_back.get(_source(event), 0.0)


def _source(event: AnyEvent) -> str:
    return event.stream or getattr(event, "node", "")


def node_of(event: AnyEvent) -> str:
    """The node whose agent sent it; empty for what the viewer itself found out."""
    return event.stream.partition("/")[0]


@cache
def _times_of(kind: type) -> tuple[str, ...]:
    return tuple(name for name in _TIMES if name in kind.__struct_fields__)  # type: ignore[attr-defined]
