"""The agent's side: numbers and encodes events once, stores them, sends each viewer what it wants and has room for."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import msgspec
import zmq

from distmon.core.batches import single_events, told_by
from distmon.core.codec import encode_msgpack
from distmon.core.events import AnyEvent, GapFound, NodeStepsRecorded
from distmon.wire.backlog import DEFAULT_LIMIT_BYTES, LIMIT_WITH_STORE_BYTES, Backlog, Part, Slice, Store
from distmon.wire.context import make_context
from distmon.wire.frames import MAX_BODIES, MAX_BODY_BYTES, WIRE_VERSION, BadFrame, Header, Request, decode_request, encode_header
from distmon.wire.gate import Gate, user_of
from distmon.wire.older import NODE_STEPS_SINCE, for_older
from distmon.wire.sockets import bind_router, make_room_for_strangers
from distmon.wire.summed import in_sums
from distmon.wire.waiting import Waiting

MAX_VIEWERS = 64
MAX_STRANGERS = 4096
"""Connections that may wait for their refusal at once."""
FORGET_VIEWER_AFTER_S = 9.0
_REQUESTS_PER_TURN = 256
_AT_ONCE, _MORE_FOLLOW = int(zmq.NOBLOCK), int(zmq.NOBLOCK) | int(zmq.SNDMORE)
_LINGER_MS = 300


class _Viewer:
    """Where one viewer is. It is known by the routing id of its connection, which ends with it."""

    def __init__(self, request: Request, user: str) -> None:
        self.user = user
        """The key that it holds; empty on a unix socket."""
        self.session = request.session
        self.cursors = dict(request.cursors)
        self.history_s = request.history_s
        self.begins: dict[str, int] = {}
        """Where a stream begins of which it asked for the last seconds only."""
        self.stored: dict[str, int] = {}
        """What is on its disk; empty for a viewer that does not record."""
        self.received = self.sent = request.received
        self.asked_ns: tuple[int, int] | None = None
        """When its last request left there and came here, until it is answered."""

    def hear(self, request: Request, now_ns: int) -> None:
        self.received = max(self.received, min(request.received, self.sent))
        self.window = request.window
        self.bodies = min(request.bodies, MAX_BODIES)
        self.older = request.minor < NODE_STEPS_SINCE
        self.summed = request.summed
        self.heard = time.monotonic()
        self.stored.update(request.stored)
        self.asked_ns = None if request.sent_ns is None else (request.sent_ns, now_ns)

    def has(self, stream: str, newest: int) -> bool:
        """Whether it is done with a stream: on its disk where it records, else sent to it."""
        return (self.stored or self.cursors).get(stream, 0) > newest

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
        limit_bytes: int | None = None,
        store: Store | None = None,
        clock: Callable[[], float] = time.time,
        context: zmq.Context[zmq.Socket[bytes]] | None = None,
        gate: Gate | None = None,
        group: int | None = None,
    ) -> None:
        self.node = node
        self.boot = boot
        self.bad_requests: Counter[str] = Counter()
        """Messages that were no request, by reason."""
        self.oversized = 0
        """Events that were too large for any frame; a gap took the place of each."""
        self._clock = clock
        self._store = store
        self._limit_bytes = limit_bytes or (DEFAULT_LIMIT_BYTES if store is None else LIMIT_WITH_STORE_BYTES)
        self._streams = {} if store is None else {name: self._backlog(name) for name in store.streams()}
        self._new: dict[str, Part] = {}
        """Published, and not yet stored, by stream: nothing is sent before."""
        self._stored = True
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
        self._waiting = Waiting()
        self._waiting.add(self._router)
        if gate is not None:
            make_room_for_strangers(MAX_STRANGERS)
            self._reports = gate.watch(self._router, self._waiting)

    def publish(self, stream: str, event: AnyEvent, *, keep: str = "") -> None:
        """Takes an event into a stream; `send` or `serve` brings it on its way.

        An event with a `keep` name is one that later events need: viewers get the last one of each name however late they come.
        """
        name = f"{self.node}/{self.boot}/{stream}"
        backlog = self._streams.get(name)
        if backlog is None:
            backlog = self._streams[name] = self._backlog(name)
        if (part := self._new.get(name)) is None:
            part = self._new[name] = Part(name, backlog.next_seq, [], {})
        seq = part.seq + len(part.events)
        if isinstance(event, NodeStepsRecorded) and len(event.workers) >= seq:
            for one in single_events(event):  # a number this low leaves no room for what `older` does
                self.publish(stream, one)
            return
        encoded = encode_msgpack(msgspec.structs.replace(event, stream=name, seq=seq))
        if len(encoded) > MAX_BODY_BYTES:
            self.oversized += 1
            keep, encoded = "", encode_msgpack(self._too_large(event, len(encoded), name, seq))
        if keep:
            part.keep[len(part.events)] = keep
        part.events.append(encoded)

    def commit(self, mark: bytes = b"") -> bool:
        """Stores what was published since the last call, as a whole or not at all, with where the sources are after it.

        False while it is in memory alone, because the store cannot take it.
        """
        new, self._new = self._new, {}
        if self._store is not None and (new or mark or not self._stored):
            self._stored = self._store.write(list(new.values()), mark, time.time())
        for name, part in new.items():
            for place, encoded in enumerate(part.events):
                self._streams[name].append(encoded, part.keep.get(place, ""))
        return self._stored

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

    @property
    def has_refused(self) -> bool:
        """Whether `refused` has any."""
        return bool(self.bad_requests) or (self._gate is not None and bool(self._gate.refused))

    def wake_on(self, descriptor: int) -> None:
        """Lets `serve` return as soon as this file descriptor can be read."""
        self._waiting.add_descriptor(descriptor)

    def serve(self, timeout_s: float) -> None:
        """Sends what is due, then waits up to `timeout_s` for viewers' requests and answers them."""
        self.send()
        ready = self._waiting.wait(timeout_s)
        if self._gate is not None:
            self._gate.count(self._reports)
        if ready:
            if self._gate is not None:
                self._gate.answer()
            self._take_requests()
            self.send()

    def send(self) -> None:
        """Sends every viewer what follows its cursors, as far as its credit goes."""
        if self._new:
            self.commit()
        now = time.monotonic()
        for routing_id, viewer in list(self._viewers.items()):
            gone = now - viewer.heard > FORGET_VIEWER_AFTER_S or not self._admits(viewer.user)
            if gone or not self._send_to(routing_id, viewer):
                del self._viewers[routing_id]

    def flush(self, timeout_s: float, recorders_timeout_s: float) -> bool:
        """Waits until every viewer has everything, on its disk where it records; False when time runs out first."""
        begun = time.monotonic()
        while True:
            self.send()
            behind = [viewer for viewer in self._viewers.values() if not self._has_everything(viewer)]
            if not behind:
                return True
            limit_s = recorders_timeout_s if any(viewer.stored for viewer in behind) else timeout_s
            left = begun + limit_s - time.monotonic()
            if left <= 0:
                return False
            self.serve(left)

    def close(self) -> None:
        """Gives what was sent a moment to leave."""
        if self._gate is not None:
            self._reports.close(linger=0)
        self._router.close(linger=_LINGER_MS)
        self._end_context(_LINGER_MS)

    def _end_context(self, linger_ms: int) -> None:
        if self._own_context is not None:
            self._own_context.destroy(linger=linger_ms)

    def _has_everything(self, viewer: _Viewer) -> bool:
        return all(viewer.has(name, backlog.newest_seq) for name, backlog in self._streams.items())

    def _admits(self, user: str) -> bool:
        """A connection outlives the permission that it was made with: ZeroMQ asks at its beginning only."""
        return not user or self._gate is None or self._gate.admits(user)

    def _take_requests(self) -> None:
        for _ in range(_REQUESTS_PER_TURN):
            try:
                routing_id, *frames = self._router.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            user = user_of(routing_id) if self._gate is not None else ""
            if user is None or not self._admits(user):
                self.bad_requests["revoked" if user else "key"] += 1
                continue
            try:
                self._hear(routing_id.bytes, decode_request([frame.bytes for frame in frames]), user)
            except BadFrame as bad:
                self.bad_requests[bad.reason] += 1

    def _hear(self, routing_id: bytes, request: Request, user: str) -> None:
        viewer = self._viewers.get(routing_id)
        if viewer is None and len(self._viewers) >= MAX_VIEWERS:
            self.bad_requests["viewers"] += 1
            return
        if viewer is None or viewer.session != request.session:
            viewer = self._viewers[routing_id] = _Viewer(request, user)
        viewer.hear(request, self._now_ns())

    def _send_to(self, routing_id: bytes, viewer: _Viewer) -> bool:
        """Streams take turns, so that a long one that is behind does not hold up the others. False when the viewer is gone."""
        waiting = list(self._streams.values())
        while waiting and viewer.room > 0:
            pieces = self._next_message(viewer, waiting)
            if not pieces:
                return True
            clock = None if viewer.asked_ns is None else (*viewer.asked_ns, self._now_ns())
            headers = [self._header(name, piece, None if i else clock) for i, (name, piece) in enumerate(pieces)]
            bodies = [piece.body for _, piece in pieces]
            try:
                self._send([routing_id, encode_header(*headers), *bodies])
            except zmq.Again:
                return True
            except zmq.ZMQError as error:
                if error.errno == zmq.EHOSTUNREACH:
                    return False
                raise
            for name, piece in pieces:
                viewer.cursors[name] = piece.seq + piece.events
            viewer.sent += 1
            viewer.asked_ns = None
        return True

    def _send(self, frames: list[bytes]) -> None:
        """As send_multipart, which puts its flags together anew for every frame."""
        for frame in frames[:-1]:
            self._router.send(frame, _MORE_FOLLOW)
        self._router.send(frames[-1], _AT_ONCE)

    def _next_message(self, viewer: _Viewer, waiting: list[Backlog]) -> list[tuple[str, Slice]]:
        """(stream, slice) of as many streams as the viewer takes in a message; `waiting` keeps those with more, in their turn."""
        pieces: list[tuple[str, Slice]] = []
        size = 0
        for backlog in list(waiting):
            piece = self._next_slice(viewer, backlog)
            if piece is not None and pieces and size + len(piece.body) > MAX_BODY_BYTES:
                break
            waiting.remove(backlog)
            if piece is not None:
                if piece.seq + piece.events < backlog.next_seq:
                    waiting.append(backlog)
                pieces.append((backlog.name, piece))
                size += len(piece.body)
            if len(pieces) == viewer.bodies:
                break
        return pieces

    def _next_slice(self, viewer: _Viewer, backlog: Backlog) -> Slice | None:
        name = backlog.name
        if name not in viewer.cursors:
            viewer.cursors[name] = 0
            viewer.begins[name] = 0 if viewer.history_s is None else backlog.since(time.time() - viewer.history_s)
        piece = backlog.slice_from(viewer.cursors[name], viewer.begins.get(name, 0))
        if piece is None:
            return None
        if viewer.summed:
            return in_sums(piece)
        return for_older(piece, viewer.cursors[name]) if viewer.older else piece

    def _header(self, name: str, piece: Slice, clock: tuple[int, int, int] | None) -> Header:
        node, boot, _ = name.rsplit("/", 2)
        return Header(
            v=WIRE_VERSION,
            node=node,
            boot=boot,
            stream=name,
            seq=piece.seq,
            count=piece.events,
            history=piece.history,
            clock=clock,
        )

    def _now_ns(self) -> int:
        return int(self._clock() * 1e9)

    def _backlog(self, name: str) -> Backlog:
        return Backlog(self._limit_bytes, name=name, store=self._store)

    def _too_large(self, event: AnyEvent, size: int, name: str, seq: int) -> GapFound:
        lost = sum(batch.steps for *_, batch in told_by(event)) or 1
        kind = event.__struct_config__.tag
        cause = f"{kind} of {size} bytes is more than the {MAX_BODY_BYTES} that a message may hold"
        at = event.at
        return GapFound(at=at, started=at, ended=at, node=self.node, lost_records=lost, cause=cause, stream=name, seq=seq)
