"""When the costly measures of a frame are due: every frame on a usual job, in turn and less often on a very large one."""

from __future__ import annotations

import time
from collections.abc import Callable

from distmon.tui.view.facts import COSTLY

SHARE, LONGEST_PAUSE_S = 0.008, 3.0
"""What walks over all ranks may take this share of the time, and waits for at most so long."""
APART_S = 0.05
"""When all groups together take longer than this, they are asked for one at a time, so that no key waits for all of them."""
HEAVY_S = 0.01


class Budget:
    """Says which groups of measures the next frame should renew. `clock` is in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._events = -1
        self._stale: list[str] = []
        self._cost: dict[str, float] = {}
        self._next = 0.0

    def due(self, events: int) -> tuple[str, ...] | None:
        """The groups to renew, none of them for a cheap frame; None when nothing has happened and nothing is owed."""
        if events != self._events:
            self._stale += [group for group in COSTLY if group not in self._stale]
        elif not self._stale:
            return None
        changed, self._events = events != self._events, events
        if self._clock() < self._next:
            return () if changed else None
        apart = sum(self._cost.values()) > APART_S
        return tuple(self._stale[:1] if apart else self._stale)

    @property
    def heavy(self) -> bool:
        """Whether one group takes so long that keys should not wait for it."""
        return max(self._cost.values(), default=0.0) > HEAVY_S

    def spent(self, groups: tuple[str, ...], seconds: float) -> None:
        """What a frame that renewed these groups took."""
        for group in groups:
            self._stale.remove(group)
            self._cost[group] = seconds / len(groups)
        if groups:
            self._next = self._clock() + min(seconds / SHARE, LONGEST_PAUSE_S)
