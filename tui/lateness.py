"""Whether what agents tell keeps coming late: a link or a viewer that cannot take all of it."""

from __future__ import annotations

from collections.abc import Mapping

LATE_S = 5.0
FOR_S = 15.0
"""So long it is late before it is said: after a cut, or with much to catch up with, the delay shrinks."""


class Lateness:
    def __init__(self) -> None:
        self._late: dict[str, tuple[float, float]] = {}
        """Node -> since when it is late, and by how much it was then."""
        self._said = False

    def look(self, now: float, lags: Mapping[str, float]) -> str:
        """Takes the delays in seconds of what came since the last look. Gives a line to say, once."""
        growing: dict[str, float] = {}
        for node, lag in lags.items():
            since, first = self._late.setdefault(node, (now, lag))
            if lag < LATE_S:
                del self._late[node]
            elif now - since >= FOR_S:
                self._late[node] = (now, lag)
                if lag >= first:
                    growing[node] = lag
        if self._said or not growing:
            return ""
        self._said = True
        worst = max(growing, key=growing.__getitem__)
        who = worst if len(growing) == 1 else f"{worst} and {len(growing) - 1} more"
        return (
            f"what the agent of {who} tells comes {growing[worst]:.0f} s late, and ever later: "
            "the link or this machine cannot take it all; --summaries takes a sum per second in place of each step"
        )
