"""Which ranks nothing is measured of, although the job runs: each is named, once, with the reason."""

from __future__ import annotations

from collections.abc import Callable

from distmon.core.events import (
    AnyEvent,
    LaunchProgressed,
    NoticeGiven,
    PhaseUnseen,
    RanksAssigned,
    WorkerIdentified,
)
from distmon.launcher.translate import SOURCE

GRACE_S = 10.0
"""After all ranks have met the probe has said who they are; the agent passes that on within a second or two."""
LOADING_GRACE_S = 60.0
"""Where the launcher does not see the ranks meet: they load their framework first."""
NOT_LOADED = (
    "its process did not load the probe: DISTMON_DISABLE is set, python -I, -E or -S, a PYTHONPATH of its own, or a script"
    " that never joins the others"
)


class RankWatch:
    """Fed with every event of the session; `unmeasured` gives what is to be told. Used under the caller's lock."""

    def __init__(self, why_host: Callable[[str], str], grace_s: float = GRACE_S) -> None:
        """`why_host` says why nothing comes from a host; empty where all seems well there."""
        self._grace_s = grace_s
        self._why_host = why_host
        self._hosts: dict[int, str] = {}
        self._silent: set[int] = set()
        """Ranks of the latest round that the probe has not reported."""
        self._told: set[int] = set()
        self._due: float | None = None

    def observe(self, event: AnyEvent) -> None:
        if isinstance(event, RanksAssigned):
            self._hosts = {place.rank: place.host for place in event.places}
            self._silent = set(self._hosts)
            self._told.clear()
            self._due = None
        elif isinstance(event, WorkerIdentified):
            self._silent.discard(event.rank)
        elif isinstance(event, LaunchProgressed) and event.stage == "first_step" and self._hosts:
            self._due = event.at + self._grace_s

    def unmeasured(self, now: float, *, at_end: bool = False) -> list[AnyEvent]:
        """What is to be told now; `at_end` without the grace, of ranks that had met."""
        if self._due is None or (now < self._due and not at_end):
            return []
        ranks = sorted(self._silent - self._told)
        self._told |= self._silent
        events: list[AnyEvent] = []
        for rank in ranks:
            host = self._hosts[rank]
            why = self._why_host(host) or NOT_LOADED
            events.append(PhaseUnseen(at=now, worker="", rank=rank, field="steps", reason=why))
            text = f"rank {rank} on {host} is not measured: {why}"
            events.append(NoticeGiven(at=now, severity="warning", text=text, source=SOURCE))
        return events
