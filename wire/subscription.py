"""The viewer's side: follows any number of agents, and sees what is lost. Owned by one thread, which may be any."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import zmq

from distmon.core.codec import UnknownKind
from distmon.core.events import AnyEvent, GapFound
from distmon.wire.frames import WIRE_VERSION, BadFrame, Header, Request, decode_body, decode_header, encode_request
from distmon.wire.sockets import connect_dealer, make_context

_REQUEST_EVERY_S = 1.0
_WINDOW = 32
_FRAMES_PER_TURN = 64
_RECONNECT_MS = 100
_RECONNECT_SPREAD_MS = 400
_GAP_CAUSE = "the agent no longer held these events when the viewer asked for them"


class LinkStatus(NamedTuple):
    """How one agent is doing, as seen from the wire."""

    address: str
    node: str
    """Empty until the agent was heard."""
    heard: float | None
    """time.monotonic() of the last good frame."""
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
    """One agent: its socket, cursors and credit."""

    def __init__(self, address: str, socket: zmq.Socket[bytes], since_start: bool) -> None:
        self.address = address
        self.socket = socket
        self.session = os.urandom(8).hex()
        self.node = ""
        self.boot = ""
        self.since_start = since_start
        self.cursors: dict[str, _Cursor] = {}
        self.received = 0
        self.told = 0
        self.request_due = 0.0
        self.heard: float | None = None
        self.bad: Counter[str] = Counter()
        self.last_refusal = ""

    def receive(self, events: list[AnyEvent]) -> None:
        """Takes the frames that have arrived, a bounded number at a time."""
        for _ in range(_FRAMES_PER_TURN):
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self.received += 1
            try:
                self._take(frames, events)
            except BadFrame as bad:
                self._refuse(bad.reason, str(bad))

    def request_if_due(self, now: float) -> None:
        """Tells the agent where to begin and how much room there is; silently later when it cannot be reached."""
        if now < self.request_due and self.received - self.told < _WINDOW // 2:
            return
        cursors = {name: cursor.next_seq for name, cursor in self.cursors.items() if cursor.next_seq is not None}
        request = Request(v=WIRE_VERSION, session=self.session, cursors=cursors, received=self.received, window=_WINDOW)
        self.request_due = now + _REQUEST_EVERY_S
        try:
            self.socket.send(encode_request(request), zmq.NOBLOCK)
        except zmq.Again:
            self.request_due = now + _REQUEST_EVERY_S / 10
            return
        self.told = self.received

    def _take(self, frames: list[bytes], events: list[AnyEvent]) -> None:
        header = decode_header(frames)
        new, bad = decode_body(header, frames[1])
        if header.boot != self.boot:
            self._begin(header)
        self.heard = time.monotonic()
        cursor = self.cursors.setdefault(header.stream, _Cursor(1 if self.since_start else None))
        known_before = cursor.next_seq or 0
        fresh = [event for event in new if event.seq >= known_before]
        self._advance(cursor, header, fresh, events)
        events.extend(fresh)
        for error in bad:
            if isinstance(error, UnknownKind):
                self._refuse("kind", str(error))
            else:
                self._refuse("event", str(error))

    def _begin(self, header: Header) -> None:
        """First frame of a run of the agent. Whoever knew an earlier run is owed this one from its start."""
        self.since_start = self.since_start or self.boot != ""
        self.node, self.boot = header.node, header.boot
        self.cursors.clear()

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
            events.append(self._gap(cursor, fresh[0].at))
            cursor.lost = 0
        cursor.last_at = fresh[-1].at

    def _gap(self, cursor: _Cursor, ended: float) -> GapFound:
        started = ended if cursor.last_at is None else cursor.last_at
        return GapFound(at=ended, node=self.node, started=started, ended=ended, lost_records=cursor.lost, cause=_GAP_CAUSE)

    def _refuse(self, reason: str, detail: str) -> None:
        self.bad[reason] += 1
        self.last_refusal = detail


class Subscription:
    """Follows the agents at these addresses, now or whenever they appear.

    `since_start` says that events missed before the first contact are a gap too. Raises UsageError for an address that is not
    allowed.
    """

    def __init__(self, addresses: Iterable[str] = (), *, since_start: bool = False) -> None:
        self._since_start = since_start
        self._links: dict[str, _Link] = {}
        self._by_socket: dict[zmq.Socket[bytes], _Link] = {}
        self._context = make_context(max_sockets=4096)
        self._poller = zmq.Poller()
        try:
            for address in addresses:
                self.add(address)
        except BaseException:
            self.close()
            raise

    def add(self, address: str) -> None:
        """Follows one more agent."""
        if address in self._links:
            return
        delay = _RECONNECT_MS + int.from_bytes(os.urandom(2), "big") % _RECONNECT_SPREAD_MS
        link = _Link(address, connect_dealer(self._context, address, delay), self._since_start)
        self._links[address] = self._by_socket[link.socket] = link
        self._poller.register(link.socket, zmq.POLLIN)

    def remove(self, address: str) -> None:
        """Follows an agent no longer."""
        link = self._links.pop(address, None)
        if link is not None:
            self._poller.unregister(link.socket)
            del self._by_socket[link.socket]
            link.socket.close(linger=0)

    def poll(self, timeout_s: float) -> list[AnyEvent]:
        """The events that have arrived; waits up to `timeout_s` for the first, and gives [] when there are none."""
        deadline = time.monotonic() + timeout_s
        events: list[AnyEvent] = []
        while True:
            now = time.monotonic()
            due = self._request(now)
            wait = max(0.0, min(deadline, due) - now)
            for socket, _ in self._poller.poll(math.ceil(wait * 1000)):
                self._by_socket[socket].receive(events)
            if events or time.monotonic() >= deadline:
                self._request(time.monotonic())
                return events

    def status(self) -> list[LinkStatus]:
        """One entry per address."""
        return [
            LinkStatus(link.address, link.node, link.heard, dict(link.bad), link.last_refusal) for link in self._links.values()
        ]

    @property
    def bad_frames(self) -> Counter[str]:
        """Messages refused, by reason, over all agents."""
        return sum((link.bad for link in self._links.values()), Counter())

    def close(self) -> None:
        for address in list(self._links):
            self.remove(address)
        self._context.destroy(linger=0)

    def _request(self, now: float) -> float:
        """Sends the requests that are due; gives the time of the next."""
        for link in self._links.values():
            link.request_if_due(now)
        return min((link.request_due for link in self._links.values()), default=now + _REQUEST_EVERY_S)
