"""The agent's side: numbers and encodes events once, keeps the last ones, sends each viewer what it wants and has room for."""

from __future__ import annotations

import math
import time
from collections import Counter

import msgspec
import zmq

from distmon.core.codec import encode_msgpack
from distmon.core.events import AnyEvent
from distmon.wire.backlog import DEFAULT_LIMIT_BYTES, Backlog, Slice
from distmon.wire.context import make_context
from distmon.wire.frames import WIRE_VERSION, BadFrame, Header, Request, decode_request, encode_header
from distmon.wire.gate import Gate, user_of
from distmon.wire.sockets import bind_router, make_room_for_strangers

MAX_VIEWERS = 64
MAX_STRANGERS = 4096
"""Connections that may wait for their refusal at once."""
FORGET_VIEWER_AFTER_S = 9.0
_REQUESTS_PER_TURN = 256
_LINGER_MS = 300


class _Viewer:
    """Where one viewer is. It is known by the routing id of its connection, which ends with it."""

    def __init__(self, request: Request, user: str) -> None:
        self.user = user
        """The key that it holds; empty on a unix socket."""
        self.session = request.session
        self.window = request.window
        self.cursors = dict(request.cursors)
        self.received = self.sent = request.received
        self.heard = time.monotonic()

    def hear(self, request: Request) -> None:
        self.received = max(self.received, min(request.received, self.sent))
        self.window = request.window
        self.heard = time.monotonic()

    @property
    def room(self) -> int:
        return self.window - (self.sent - self.received)


class Publisher:
    """Owned by one thread. Raises DistmonError when an address cannot be bound. A `gate` or `context` given stays the giver's."""

    def __init__(
        self,
        node: str,
        boot: str,
        addresses: list[str],
        *,
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
        context: zmq.Context[zmq.Socket[bytes]] | None = None,
        gate: Gate | None = None,
        group: int | None = None,
    ) -> None:
        self.node = node
        self.boot = boot
        self.bad_requests: Counter[str] = Counter()
        """Messages that were no request, by reason."""
        self._limit_bytes = limit_bytes
        self._streams: dict[str, Backlog] = {}
        self._viewers: dict[bytes, _Viewer] = {}
        self._gate = gate
        given = gate.context if gate is not None else context
        used = given or make_context()
        self._own_context = None if given else used
        try:
            self._router, self.addresses = bind_router(used, addresses, gate, group)
        except BaseException:
            self._end_context(0)
            raise
        self._poller = zmq.Poller()
        self._poller.register(self._router, zmq.POLLIN)
        if gate is not None:
            make_room_for_strangers(MAX_STRANGERS)
            gate.register(self._router, self._poller)

    def publish(self, stream: str, event: AnyEvent, *, keep: str = "") -> None:
        """Takes an event into a stream's backlog; `send` or `serve` brings it on its way.

        An event with a `keep` name is one that later events need: viewers get the last one of each name however late they come.
        """
        name = f"{self.node}/{self.boot}/{stream}"
        backlog = self._streams.get(name)
        if backlog is None:
            backlog = self._streams[name] = Backlog(self._limit_bytes)
        numbered = msgspec.structs.replace(event, stream=name, seq=backlog.next_seq)
        backlog.append(encode_msgpack(numbered), keep)

    @property
    def viewers(self) -> int:
        return len(self._viewers)

    @property
    def held_bytes(self) -> int:
        return sum(backlog.held_bytes for backlog in self._streams.values())

    @property
    def refused(self) -> Counter[str]:
        """Clients that were not let in, and messages that were no request, by reason."""
        return self.bad_requests + self._gate.refused if self._gate is not None else self.bad_requests

    def wake_on(self, descriptor: int) -> None:
        """Lets `serve` return as soon as this file descriptor can be read."""
        self._poller.register(descriptor, zmq.POLLIN)

    def serve(self, timeout_s: float) -> None:
        """Sends what is due, then waits up to `timeout_s` for viewers' requests and answers them."""
        self.send()
        if self._poller.poll(math.ceil(max(0.0, timeout_s) * 1000)):
            if self._gate is not None:
                self._gate.answer()
            self._take_requests()
            self.send()

    def send(self) -> None:
        """Sends every viewer what follows its cursors, as far as its credit goes."""
        now = time.monotonic()
        for routing_id, viewer in list(self._viewers.items()):
            gone = now - viewer.heard > FORGET_VIEWER_AFTER_S or not self._admits(viewer.user)
            if gone or not self._send_to(routing_id, viewer):
                del self._viewers[routing_id]

    def flush(self, timeout_s: float) -> bool:
        """Waits until every viewer has been sent everything; False when time runs out first."""
        deadline = time.monotonic() + timeout_s
        while True:
            self.send()
            if all(self._has_everything(viewer) for viewer in self._viewers.values()):
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self.serve(left)

    def close(self) -> None:
        """Gives what was sent a moment to leave."""
        self._router.close(linger=_LINGER_MS)
        self._end_context(_LINGER_MS)

    def _end_context(self, linger_ms: int) -> None:
        if self._own_context is not None:
            self._own_context.destroy(linger=linger_ms)

    def _has_everything(self, viewer: _Viewer) -> bool:
        return all(viewer.cursors.get(name, 0) > backlog.newest_seq for name, backlog in self._streams.items())

    def _admits(self, user: str) -> bool:
        """A connection outlives the permission that it was made with: ZeroMQ asks at its beginning only."""
        return not user or self._gate is None or self._gate.admits(user)

    def _take_requests(self) -> None:
        for _ in range(_REQUESTS_PER_TURN):
            try:
                routing_id, *frames = self._router.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            user = user_of(routing_id)
            if user is None or not self._admits(user):
                self.bad_requests["revoked" if user else "key"] += 1
                continue
            try:
                self._hear(routing_id.bytes, decode_request([frame.bytes for frame in frames]), user)
            except BadFrame as bad:
                self.bad_requests[bad.reason] += 1

    def _hear(self, routing_id: bytes, request: Request, user: str) -> None:
        viewer = self._viewers.get(routing_id)
        if viewer is not None and viewer.session == request.session:
            viewer.hear(request)
        elif viewer is not None or len(self._viewers) < MAX_VIEWERS:
            self._viewers[routing_id] = _Viewer(request, user)
        else:
            self.bad_requests["viewers"] += 1

    def _send_to(self, routing_id: bytes, viewer: _Viewer) -> bool:
        """False when the viewer's connection is gone."""
        for name, backlog in self._streams.items():
            while viewer.room > 0:
                piece = backlog.slice_from(viewer.cursors.get(name, 0))
                if piece is None:
                    break
                try:
                    self._router.send_multipart([routing_id, self._header(name, piece), piece.body], zmq.NOBLOCK)
                except zmq.Again:
                    return True
                except zmq.ZMQError as error:
                    if error.errno == zmq.EHOSTUNREACH:
                        return False
                    raise
                viewer.cursors[name] = piece.seq + piece.events
                viewer.sent += 1
        return True

    def _header(self, name: str, piece: Slice) -> bytes:
        return encode_header(
            Header(
                v=WIRE_VERSION,
                node=self.node,
                boot=self.boot,
                stream=name,
                seq=piece.seq,
                count=piece.events,
                history=piece.history,
            )
        )
