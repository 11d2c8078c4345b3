"""Events that a recording lacks, as the numbers of those around them tell: lines that somebody or something took out of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from distmon.core import events as ev
from distmon.core.clocks import node_of
from distmon.core.codec import UnknownKind
from distmon.core.events import AnyEvent, GapFound

_KEPT = (ev.NodeJoined, ev.WorkerIdentified, ev.ModelDescribed, ev.ProgressDeclared, ev.PhaseUnseen)
"""What an agent tells a viewer that comes late, however old: between these and what follows lies what it never had."""


@dataclass(slots=True)
class Missing:
    """Follows a recording from its beginning. What the viewer knew to be lost its GapFound tells of: it is not counted again."""

    lost: Counter[str] = field(default_factory=Counter)
    """Stream -> events."""
    _due: dict[str, int] = field(default_factory=dict)
    """Stream -> the number of its next event, once one came that no agent keeps for late viewers."""
    _told: Counter[str] = field(default_factory=Counter)
    """Node -> lost events that a gap has told of, and that were not met with yet."""

    def pass_event(self, event: AnyEvent | UnknownKind) -> None:
        """The next one."""
        stream = event.stream
        due = self._due.get(stream)
        # An agent's own gap, in its place among the agent's numbers, is of what never had a number.
        if isinstance(event, GapFound) and (not stream or (due is not None and event.seq > due)):
            self._told[node_of(event) if stream else event.node] += event.lost_records
        if not stream:
            return
        if due is not None and event.seq > due:
            self._hole(stream, event.seq - due)
        if event.seq >= (due or 0) and (due is not None or not isinstance(event, _KEPT)):
            self._due[stream] = event.seq + 1

    def _hole(self, stream: str, events: int) -> None:
        node = stream.partition("/")[0]
        told = min(self._told[node], events)
        self._told[node] -= told
        if events > told:
            self.lost[stream] += events - told
