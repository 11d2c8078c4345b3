"""Moments at a fixed rate that no lateness shifts."""

from __future__ import annotations


def next_on_grid(due: float, interval: float, now: float) -> float:
    """The first grid point after `now`: a late sample is followed by one on time, and missed ones are not made up for."""
    return due + interval * max(1, int((now - due) / interval) + 1)
