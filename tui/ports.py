"""What the app needs from outside: a source of events, and, where there is one, a player and a job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from distmon.core.events import AnyEvent
from distmon.core.state import SessionState


class Source(Protocol):
    """Yields what has happened since the last call and never blocks.

    Events that the caller does not take stay for the next call. "Now" comes as Ticked events.
    """

    def poll(self) -> Iterator[AnyEvent]: ...


class Player(Protocol):
    """A recording under way. Times are seconds since its start."""

    @property
    def position_s(self) -> float: ...

    @property
    def duration_s(self) -> float: ...

    @property
    def speed(self) -> float: ...

    @property
    def playing(self) -> bool: ...

    @property
    def marks(self) -> Sequence[tuple[float, str]]:
        """Moments worth a tick on the bar: (seconds, severity: info, warning or error)."""
        ...

    def play(self) -> None: ...

    def pause(self) -> None: ...

    def set_speed(self, speed: float) -> None: ...

    def step(self, count: int = 1) -> None:
        """Pause, then move to the next (1) or the last (-1) moment at which something happened."""
        ...

    def seek(self, position_s: float) -> None: ...

    def take_state(self) -> SessionState | None:
        """After a seek, once: the state to go on from, which the next events of the source continue."""
        ...


class Job(Protocol):
    """A job that this process started."""

    @property
    def running(self) -> bool: ...

    def stop(self) -> None:
        """Begin to end it; returns at once."""
        ...
