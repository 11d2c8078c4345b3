"""Wall time that never jumps: the wall clock read once, carried on by CLOCK_MONOTONIC. And how far two such clocks differ."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from operator import itemgetter
from typing import NamedTuple

from distmon.core.events import ClockStepped

_STEP_SHOWN_NS = 50_000_000
EXCHANGES_KEPT = 12
_NEWS_S = 0.0005
"""A better estimate is told when it differs by more than this."""


class SteadyClock:
    """Times of all events of this agent. The machine's ranks stamp the same CLOCK_MONOTONIC."""

    def __init__(
        self,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        wall_ns: Callable[[], int] = time.time_ns,
        anchor_ns: int | None = None,
    ) -> None:
        """With the `anchor_ns` of an earlier clock of this boot of the machine, it goes on as that one."""
        self._monotonic_ns = monotonic_ns
        self._wall_ns = wall_ns
        self.anchor_ns = self._offset_ns() if anchor_ns is None else anchor_ns
        """Added to CLOCK_MONOTONIC it gives this clock's time."""
        self._known_ns = self.anchor_ns

    def now(self) -> float:
        """Seconds since the epoch."""
        return self.at(self._monotonic_ns())

    def at(self, monotonic_ns: int) -> float:
        """Seconds since the epoch of a CLOCK_MONOTONIC reading of this machine."""
        return (self.anchor_ns + monotonic_ns) / 1e9

    def step(self, node: str) -> ClockStepped | None:
        """An event if the wall clock was set since the last call; the times given here go on as before."""
        if abs(self._wall_ns() - self._monotonic_ns() - self._known_ns) < _STEP_SHOWN_NS:
            return None
        # Or what was interrupted between the two.
        by_ns = self._offset_ns() - self._known_ns
        if abs(by_ns) < _STEP_SHOWN_NS:
            return None
        self._known_ns += by_ns
        return ClockStepped(at=self.now(), node=node, by_s=round(by_ns / 1e9, 6))

    def _offset_ns(self) -> int:
        """Wall minus monotonic; of three tries the one that was interrupted least."""
        tries: list[tuple[int, int]] = []
        for _ in range(3):
            before = self._monotonic_ns()
            wall = self._wall_ns()
            after = self._monotonic_ns()
            tries.append((after - before, wall - (before + after) // 2))
        return min(tries)[1]


class Estimate(NamedTuple):
    """Add `offset_s` to the other side's times to get this side's; the true value lies within half of `round_trip_s` of it."""

    offset_s: float
    round_trip_s: float

    def contradicts(self, other: Estimate) -> bool:
        """Whether no one offset fits both."""
        return abs(self.offset_s - other.offset_s) > (self.round_trip_s + other.round_trip_s) / 2 + _NEWS_S


_ROUND_TRIP = itemgetter(1)


class ClockOffset:
    """From request and reply, as NTP does it (RFC 5905, section 8): of the last exchanges the one that was under way least."""

    def __init__(self) -> None:
        self._exchanges: deque[Estimate] = deque(maxlen=EXCHANGES_KEPT)
        self._told: Estimate | None = None
        self.certain_s = 0.0
        """The offset as far as it is larger than its own error, else 0."""

    def exchange(self, sent_ns: int, heard_ns: int, answered_ns: int, received_ns: int) -> Estimate | None:
        """Takes one: sent and received here, heard and answered there. Gives the estimate if it is news."""
        round_trip_ns = (received_ns - sent_ns) - (answered_ns - heard_ns)
        if round_trip_ns < 0 or answered_ns < heard_ns:
            return None  # no answer to a request of this side
        offset_ns = ((sent_ns - heard_ns) + (received_ns - answered_ns)) / 2
        new = Estimate(offset_ns / 1e9, round_trip_ns / 1e9)
        if self._contradicted_by(new):
            self._exchanges.clear()  # a clock was set
        self._exchanges.append(new)
        best = min(self._exchanges, key=_ROUND_TRIP)
        if self._told is not None and not self._is_news(best, self._told):
            return None
        self._told = best
        self.certain_s = best.offset_s if abs(best.offset_s) > best.round_trip_s / 2 else 0.0
        return best

    def _contradicted_by(self, new: Estimate) -> bool:
        """Whether any exchange is; written out, as thousands come in a second."""
        offset, round_trip = new
        return bool([known for known, wide in self._exchanges if abs(offset - known) > (round_trip + wide) / 2 + _NEWS_S])

    @staticmethod
    def _is_news(best: Estimate, told: Estimate) -> bool:
        return best.contradicts(told) or (
            abs(best.offset_s - told.offset_s) > _NEWS_S and best.round_trip_s < told.round_trip_s / 2
        )
