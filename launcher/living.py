"""Which ranks run and where, as the launcher has told: what can be signalled, and what a change of hosts does."""

from __future__ import annotations

from distmon.core.errors import DistmonError, UsageError
from distmon.core.events import AnyEvent, MembershipChanged, RanksAssigned, WorkerExited, WorkerStarted

BARRED = "is barred for the rest of the job and gets no rank; a restart takes it again"
ONLY_HOST = "is the job's only host, and without it the job ends; add another first, or stop the job"
_LISTED = 8


class LivingRanks:
    """Fed with every event of the session. Used under the caller's lock."""

    def __init__(self) -> None:
        self._workers: set[tuple[str, int]] = set()
        """Host and local rank of the processes that run."""
        self._slots: dict[int, tuple[str, int]] = {}
        """Rank -> who holds it since the last round."""
        self._barred: set[str] = set()
        """Hosts that never come back."""

    def observe(self, event: AnyEvent) -> None:
        if isinstance(event, RanksAssigned):
            self._slots = {place.rank: (place.host, place.local_rank) for place in event.places}
        elif isinstance(event, WorkerStarted):
            slot = self._slots[event.rank] = (event.host, event.local_rank)
            self._workers.add(slot)
        elif isinstance(event, WorkerExited):
            self._workers.discard((event.host, event.local_rank))
        elif isinstance(event, MembershipChanged) and event.change == "host_blacklisted" and event.until is None:
            self._barred.add(event.host)

    def any_on(self, host: str) -> bool:
        """Whether a rank runs there."""
        return any(name == host for name, _ in self._workers)

    def expect_admitted(self, host: str) -> None:
        """Raises UsageError where the job takes no rank to the host any more."""
        if host in self._barred:
            raise UsageError(f"{host} {BARRED}")

    def expect(self, rank: int) -> None:
        """Raises UsageError where no process holds the rank, DistmonError where none holds any."""
        running = sorted(number for number, slot in self._slots.items() if slot in self._workers)
        if not running:
            raise DistmonError("no rank runs yet")
        if rank not in running:
            shown = ", ".join(map(str, running[:_LISTED])) + f" and {len(running) - _LISTED} more" * (len(running) > _LISTED)
            raise UsageError(f"there is no rank {rank}: those that run are {shown}")
