"""Wall time that never jumps: the wall clock read once, carried on by CLOCK_MONOTONIC."""

from __future__ import annotations

import time
from collections.abc import Callable

from distmon.core.events import ClockStepped

STEP_SHOWN_S = 0.05


class SteadyClock:
    """Times of all events of this agent. The machine's ranks stamp the same CLOCK_MONOTONIC."""

    def __init__(self, monotonic_ns: Callable[[], int] = time.monotonic_ns, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self._monotonic_ns = monotonic_ns
        self._wall_ns = wall_ns
        self._anchor_ns = self._offset_ns()
        self._known_ns = self._anchor_ns

    def now(self) -> float:
        """Seconds since the epoch."""
        return self.at(self._monotonic_ns())

    def at(self, monotonic_ns: int) -> float:
        """Seconds since the epoch of a CLOCK_MONOTONIC reading of this machine."""
        return (self._anchor_ns + monotonic_ns) / 1e9

    def step(self, node: str) -> ClockStepped | None:
        """An event if the wall clock was set since the last call; the times given here go on as before."""
        by_ns = self._offset_ns() - self._known_ns
        if abs(by_ns) < STEP_SHOWN_S * 1e9:
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
