"""The viewer's side: follows any number of agents, and sees what is lost. Owned by one thread, which may be any."""

from __future__ import annotations

import math
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import zmq

from distmon.core.codec import UnknownKind
from distmon.core.events import FORMAT_MINOR, AnyEvent, ClockOffsetEstimated, GapFound
from distmon.wire.addresses import check_address
from distmon.wire.clock import ClockOffset
from distmon.wire.context import make_context
from distmon.wire.frames import MAX_BODIES, WIRE_VERSION, BadFrame, Header, Request, decode_body, decode_headers, encode_request
from distmon.wire.keys import ViewerKeys
from distmon.wire.sockets import AgentLock, connect_agent, make_room, open_viewer

_REQUEST_EVERY_S = 4.0
_REQUEST_SILENT_EVERY_S = 1.0
"""To an agent that was not heard lately: it may have started anew and not know this viewer."""
_LOOK_FOR_DUE_EVERY_S = 0.05
_LOOK_FOR_DUE_EVERY_S_PER_AGENT = 0.0004
_WINDOW = 32
_MESSAGES_PER_TURN, _BYTES_PER_TURN = 1024, 4 << 20
"""A thousand agents that come back have much to tell at once, and others want this thread's interpreter too."""
_RECONNECT_MS = 100
_RECONNECT_SPREAD_MS = 400
_RECONNECT_SPREAD_MS_PER_AGENT = 3
_CONNECTS_PER_LOOK = 25
_MAX_CURSORS = 60
Resume = Mapping[str, int]
_NOTHING: Resume = MappingProxyType({})
_GAP_CAUSE = "the agent no longer held these events when the viewer asked for them"


class LinkStatus(NamedTuple):
    """How one agent is doing, as seen from the wire."""

    address: str
    node: str
    """Empty until the agent was heard."""
    heard: float | None
    """time.monotonic() of the last good frame."""
    frames: int
    """Messages received."""
    bad_frames: dict[str, int]
    """Messages refused, by reason."""
    last_refusal: str


class _Cursor:
    """What one viewer has of one stream."""

    def __init__(self, next_seq: int | None) -> None:
        self.next_seq = next_seq
        """None before the first event: a viewer that comes late has missed nothing that it was promised."""
        self.lost = 0
        self.last_at: float | None = None


class _Link:
    """One agent: what was received of it, and the requests that it is owed."""

    def __init__(
        self, address: str, routing_id: bytes, since_start: bool, resume: Resume, history_s: float | None, summed: bool
    ) -> None:
        self.summed = summed
        """Whether it is asked for sums of steps."""
        self.lag_s: float | None = None
        """The largest delay, from its making to its arrival, of what came since this was last asked for."""
        self.address = address
        self.routing_id = routing_id
        self.connected = False
        self.session = os.urandom(8).hex()
        self.node = ""
        self.boots: dict[str, None] = {}
        """The agent's runs that were heard of, in order."""
        self.since_start = since_start
        self.resume = resume
        self.history_s = history_s
        self.cursors: dict[str, _Cursor] = {}
        self.stored: dict[str, int] = {}
        self.received = 0
        self.told = 0
        self.request_due = 0.0
        self.heard: float | None = None
        self.bad: Counter[str] = Counter()
        self.last_refusal = ""
        self.offset = ClockOffset()

    def receive(self, frames: list[bytes], now_ns: int, events: list[AnyEvent]) -> None:
        """Takes one message."""
        self.received += 1
        try:
            for header, body in zip(decode_headers(frames), frames[1:], strict=True):
                self._take(header, body, now_ns, events)
        except BadFrame as bad:
            self._refuse(bad.reason, str(bad))

    def owes_credit(self) -> bool:
        """Whether the agent should hear of the room that there is again."""
        return self.received - self.told >= _WINDOW // 2

    def request(self, now_ns: int) -> bytes:
        """Where the agent is to begin, and how much room there is."""
        cursors = {name: cursor.next_seq for name, cursor in self.cursors.items() if cursor.next_seq is not None}
        request = Request(
            v=WIRE_VERSION,
            session=self.session,
            cursors=cursors,
            history_s=self.history_s,
            stored=self.stored,
            received=self.received,
            window=_WINDOW,
            bodies=MAX_BODIES,
            minor=FORMAT_MINOR,
            summed=self.summed,
            sent_ns=now_ns,
        )
        return encode_request(request)

    def requested(self, now: float, *, sent: bool) -> None:
        """Notes that a request left, or that it found no way out."""
        if not sent:
            self.request_due = now + _REQUEST_SILENT_EVERY_S / 10
            return
        self.told = self.received
        lately = self.heard is not None and now - self.heard < _REQUEST_EVERY_S
        self.request_due = now + (_REQUEST_EVERY_S if lately else _REQUEST_SILENT_EVERY_S)

    def store(self, position: Mapping[str, int]) -> bool:
        """Notes what is on this viewer's disk, as `position` gave it earlier; whether that is news."""
        stored = {name: position[name] for name in self.cursors if name in position}
        news = stored != self.stored
        self.stored = stored
        return news

    def _take(self, header: Header, body: bytes, now_ns: int, events: list[AnyEvent]) -> None:
        if header.boot not in self.boots:
            self._begin(header)
        new, bad = decode_body(header, body)
        self.heard = time.monotonic()
        if header.clock is not None and (estimate := self.offset.exchange(*header.clock, now_ns)) is not None:
            events.append(
                ClockOffsetEstimated(
                    at=now_ns / 1e9, node=header.node, offset_s=estimate.offset_s, round_trip_s=estimate.round_trip_s
                )
            )
        cursor = self._cursor(header.stream)
        known_before = cursor.next_seq or 0
        fresh = [event for event in new if event.seq >= known_before]
        self._advance(cursor, header, fresh, events)
        if fresh and not header.history:
            lag_s = now_ns / 1e9 - fresh[-1].at - self.offset.certain_s
            if self.lag_s is None or lag_s > self.lag_s:
                self.lag_s = max(lag_s, 0.0)
        events.extend(fresh)
        for error in bad:
            if isinstance(error, UnknownKind):
                self._refuse("kind", str(error))
            else:
                self._refuse("event", str(error))

    def _begin(self, header: Header) -> None:
        """First frame of a run of the agent. Whoever knew an earlier run is owed this one from its start.

        Where this viewer goes on from an earlier subscription, the agent is asked to begin there instead of with its oldest.
        """
        self.since_start = self.since_start or bool(self.boots)
        self.node = header.node
        self.boots[header.boot] = None
        known = {
            name: seq for name, seq in self.resume.items() if name.startswith(f"{header.node}/") and name not in self.cursors
        }
        self.cursors.update((name, _Cursor(seq)) for name, seq in known.items())
        self.resume = {}
        if known:
            self.session = os.urandom(8).hex()
            self.request_due = 0.0

    def _cursor(self, stream: str) -> _Cursor:
        """The one of a stream; of very many the least recently used is forgotten."""
        cursor = self.cursors.pop(stream, None) or _Cursor(1 if self.since_start else None)
        self.cursors[stream] = cursor
        while len(self.cursors) > _MAX_CURSORS:
            del self.cursors[next(iter(self.cursors))]
        return cursor

    def _advance(self, cursor: _Cursor, header: Header, fresh: list[AnyEvent], events: list[AnyEvent]) -> None:
        """Moves the cursor past a frame, and puts the gap before it into `events`."""
        after = header.seq + header.count
        if cursor.next_seq is not None:
            cursor.lost += max(0, header.seq - cursor.next_seq)
            cursor.next_seq = max(cursor.next_seq, after)
        elif not header.history:
            cursor.next_seq = after
        if header.history or not fresh:
            return
        if cursor.lost:
            events.append(self._gap(cursor, header.node, fresh[0].at))
            cursor.lost = 0
        cursor.last_at = fresh[-1].at

    def _gap(self, cursor: _Cursor, node: str, ended: float) -> GapFound:
        started = ended if cursor.last_at is None else min(cursor.last_at, ended)
        return GapFound(at=ended, node=node, started=started, ended=ended, lost_records=cursor.lost, cause=_GAP_CAUSE)

    def _refuse(self, reason: str, detail: str) -> None:
        self.bad[reason] += 1
        self.last_refusal = detail


class Subscription:
    """Follows the agents at these addresses, now or whenever they appear.

    `since_start` says that events missed before the first contact are a gap too. `resume` is the `position` of an earlier
    subscription, which this one goes on from; of what it does not name, `history_s` asks for the last seconds only. `summed` asks
    for sums of steps instead of each, but of the node in focus; the full rate stays with the agents. Raises
    UsageError for an address that is not allowed, and DistmonError for more agents than this process may have files open.
    """

    def __init__(
        self,
        addresses: Iterable[str] = (),
        *,
        since_start: bool = False,
        keys: ViewerKeys | None = None,
        resume: Resume = _NOTHING,
        history_s: float | None = None,
        summed: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._since_start = since_start
        self._summed = summed
        self._focus = ""
        self._keys = keys
        self._resume = resume
        self._history_s = history_s
        self._clock = clock
        self._links: dict[str, _Link] = {}
        self._by_routing_id: dict[bytes, _Link] = {}
        self._names = 0
        self._look_for_due = 0.0
        self._to_connect: deque[tuple[_Link, AgentLock | None]] = deque()
        self._context = make_context()
        self._socket = open_viewer(self._context)
        try:
            for address in addresses:
                self.add(address)
        except BaseException:
            self.close()
            raise

    def add(self, address: str, agent_key: str = "") -> None:
        """Follows one more agent. Over TCP it is known by its key, which is given here or with `keys`."""
        if address in self._links:
            return
        agent_key = agent_key or (self._keys.agents.get(address, "") if self._keys else "")
        lock = AgentLock(self._keys.own, agent_key) if self._keys and agent_key else None
        make_room(len(self._links) + 1)
        self._names += 1
        link = _Link(address, b"agent %d" % self._names, self._since_start, self._resume, self._history_s, self._summed)
        check_address(address, binding=False, keyed=lock is not None)
        self._to_connect.append((link, lock))
        self._links[address] = self._by_routing_id[link.routing_id] = link
        self._look_for_due = 0.0

    def remove(self, address: str) -> None:
        """Follows an agent no longer."""
        link = self._links.pop(address, None)
        if link is not None:
            del self._by_routing_id[link.routing_id]
            if link.connected:
                self._socket.disconnect(address)

    def focus(self, node: str) -> None:
        """Of this node each step comes, where the others send sums; of none with an empty name."""
        if node == self._focus:
            return
        self._focus = node
        for link in self._links.values():
            summed = self._summed and link.node != node
            if link.summed != summed:
                link.summed = summed
                link.request_due = self._look_for_due = 0.0

    def lags(self) -> dict[str, float]:
        """Node -> the largest delay in seconds, from its making to its arrival, of what came since the last call."""
        found = {link.node: link.lag_s for link in self._links.values() if link.lag_s is not None}
        for link in self._links.values():
            link.lag_s = None
        return found

    def poll(self, timeout_s: float) -> list[AnyEvent]:
        """The events that have arrived; waits up to `timeout_s` for the first, and gives [] when there are none."""
        deadline = time.monotonic() + timeout_s
        events: list[AnyEvent] = []
        while True:
            now = time.monotonic()
            if now >= self._look_for_due:
                self._request_due(now)
            wait = max(0.0, min(deadline, self._look_for_due) - now)
            if self._socket.poll(math.ceil(wait * 1000)):
                self._receive(events)
            if events or time.monotonic() >= deadline:
                return events

    def position(self) -> dict[str, int]:
        """Stream -> the number after the last event that `poll` gave, here or in the subscription that this one goes on from."""
        position = dict(self._resume)
        for link in self._links.values():
            position.update((name, cursor.next_seq) for name, cursor in link.cursors.items() if cursor.next_seq is not None)
        return position

    def stored(self, position: Mapping[str, int], *, tell_now: bool = False) -> None:
        """All before `position` is on this viewer's disk; agents hear of it with the next request, or at once."""
        for link in self._links.values():
            if link.store(position) and tell_now:
                link.request_due = 0.0
                self._look_for_due = 0.0

    def status(self) -> list[LinkStatus]:
        """One entry per address."""
        return [
            LinkStatus(link.address, link.node, link.heard, link.received, dict(link.bad), link.last_refusal)
            for link in self._links.values()
        ]

    @property
    def bad_frames(self) -> Counter[str]:
        """Messages refused, by reason, over all agents."""
        total: Counter[str] = Counter()
        for link in self._links.values():
            total.update(link.bad)
        return total

    def close(self) -> None:
        self._socket.close(linger=0)
        self._context.destroy(linger=0)

    def _receive(self, events: list[AnyEvent]) -> None:
        """Takes what has arrived, a bounded number of messages at a time; the socket takes turns between agents."""
        receive, left = self._socket.recv, _BYTES_PER_TURN
        for _ in range(_MESSAGES_PER_TURN):
            try:
                part = receive(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            link = self._by_routing_id.get(part.bytes)
            frames = []
            while part.more:
                part = receive(copy=False)
                frames.append(part.bytes)
                left -= len(frames[-1])
            if link is None:
                continue  # sent before it was removed
            link.receive(frames, self._now_ns(), events)
            if link.owes_credit():
                self._send_request(link, time.monotonic())
            if left <= 0:
                return

    def _now_ns(self) -> int:
        return int(self._clock() * 1e9)

    def _connect_some(self) -> None:
        """A few at a time, and the same when many come back: each handshake costs both sides work, and has a time limit."""
        for _ in range(min(len(self._to_connect), _CONNECTS_PER_LOOK)):
            link, lock = self._to_connect.popleft()
            if self._links.get(link.address) is link:
                spread_ms = max(_RECONNECT_SPREAD_MS, len(self._links) * _RECONNECT_SPREAD_MS_PER_AGENT)
                delay_ms = _RECONNECT_MS + int.from_bytes(os.urandom(2), "big") % spread_ms
                connect_agent(self._socket, link.address, link.routing_id, delay_ms, lock)
                link.connected = True

    def _request_due(self, now: float) -> None:
        self._connect_some()
        next_due = now + _REQUEST_EVERY_S
        for link in self._links.values():
            if link.connected:
                if now >= link.request_due:
                    self._send_request(link, now)
                next_due = min(next_due, link.request_due)
        # Looking costs time for each agent: where there are many it is done less often.
        pause_s = _LOOK_FOR_DUE_EVERY_S + (0 if self._to_connect else _LOOK_FOR_DUE_EVERY_S_PER_AGENT * len(self._links))
        self._look_for_due = max(now if self._to_connect else next_due, now + pause_s)

    def _send_request(self, link: _Link, now: float) -> None:
        """Silently later when the agent cannot be reached: that is seen from its silence."""
        try:
            self._socket.send_multipart([link.routing_id, link.request(self._now_ns())], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                raise
            link.requested(now, sent=False)
        else:
            link.requested(now, sent=True)
