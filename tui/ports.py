"""What the app needs from outside: a source of events, and, where there is one, a player and a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from distmon.core.events import AnyEvent
from distmon.core.moments import Moment
from distmon.core.pace import PacePoint
from distmon.core.state import OutputLine, SessionState

if TYPE_CHECKING:
    from distmon.launcher.actions import AnyAction
    from distmon.replay.search import OutputSearch


class Source(Protocol):
    """Yields what has happened since the last call and never blocks.

    Events that the caller does not take stay for the next call. "Now" comes as Ticked events.
    """

    def poll(self) -> Iterator[AnyEvent]: ...


class Player(Protocol):
    """A recording that is played, or a live session that can be rewound. Times are seconds since its start."""

    @property
    def live(self) -> bool:
        """Whether it shows what happens now, so that there is nothing to steer yet."""
        ...

    @property
    def behind_s(self) -> float | None:
        """Seconds behind what happens now; None while it shows that, and for a recording that is over."""
        ...

    @property
    def present(self) -> SessionState | None:
        """The state of what happens now, also while another moment is shown; None for a recording."""
        ...

    @property
    def news(self) -> str:
        """What has happened since the view left what happens now, in words; empty where nothing did."""
        ...

    @property
    def busy(self) -> bool:
        """Whether the state of the moment is still being read."""
        ...

    @property
    def cut_off(self) -> bool:
        """Whether it stands at the end of a recording whose writer is gone and has not recorded the session's end."""
        ...

    @property
    def position_s(self) -> float: ...

    @property
    def duration_s(self) -> float: ...

    @property
    def reach_s(self) -> float:
        """As far as one can seek: `duration_s`, but where a recording was not read through yet."""
        ...

    @property
    def unread(self) -> str:
        """In words, why one cannot seek further; empty where all can be sought."""
        ...

    @property
    def speed(self) -> float: ...

    @property
    def playing(self) -> bool: ...

    @property
    def started_at(self) -> float:
        """The recording's start, in seconds since the epoch."""
        ...

    @property
    def by_step(self) -> bool:
        """Whether `speed` is in steps per second, in place of session seconds."""
        ...

    @property
    def moments(self) -> Sequence[Moment]:
        """What is worth a tick on the bar, in order of time."""
        ...

    @property
    def pace(self) -> tuple[float, Sequence[PacePoint]]:
        """Step times over the whole recording, and the seconds that each point stands for."""
        ...

    def play(self) -> None: ...

    def pause(self) -> None: ...

    def set_speed(self, speed: float) -> None: ...

    def set_by_step(self, by_step: bool) -> None: ...

    def name_mark(self, position_s: float, name: str) -> None:
        """Name a moment; an empty name takes the mark away. Raises DistmonError where it cannot be kept."""
        ...

    def position_of_step(self, step: int) -> float:
        """The moment at which rank 0 had done so many steps. Raises DistmonError when it never had."""
        ...

    def position_of_mark(self, name: str) -> float:
        """Raises DistmonError when there is no mark of this name."""
        ...

    def step(self, count: int = 1) -> None:
        """Pause, then move to the next (1) or the last (-1) moment at which something happened."""
        ...

    def seek(self, position_s: float, *, exact: bool = False) -> None:
        """To a moment; to the end of what goes on: with it. An `exact` one has also what was told of it later.

        Raises DistmonError, and stays, where it cannot be read.
        """
        ...

    def output_search(self, passes: Callable[[OutputLine], bool], words: Sequence[Sequence[str]] = ()) -> OutputSearch:
        """Looks for a line in all that was recorded, from any thread; every line that passes has one of each of `words`."""
        ...

    def take_state(self) -> SessionState | None:
        """After a seek, once: the state to go on from, which the next events of the source continue."""
        ...


class Target(Protocol):
    """A running job that can be acted on."""

    @property
    def stopping(self) -> bool:
        """Whether it has been told to end."""
        ...

    @property
    def hosts(self) -> Mapping[str, int] | None:
        """Slots by host, where hosts can be added and drained."""
        ...

    def told_of_host(self, host: str) -> str:
        """In words whether a host answers; may wait for seconds, and may be asked in a thread."""
        ...

    def act(self, action: AnyAction) -> str:
        """Do it, and say in words what happens now; may wait a moment. Raises DistmonError where it cannot be done."""
        ...


class Job(Target, Protocol):
    """A job that this process started."""

    @property
    def running(self) -> bool: ...

    @property
    def restarting(self) -> bool:
        """Whether it is to start again once it has ended."""
        ...

    def focus(self, node: str) -> None:
        """Of this node each step is asked for, also where the others send sums."""
        ...

    def stop(self) -> None:
        """Begin to end it; returns at once."""
        ...
