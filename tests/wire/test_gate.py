"""CURVE with ZAP over real TCP: who gets in, who does not, who is cut off, and that it is counted."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import zmq

from distmon.core.errors import DistmonError, UsageError
from distmon.core.events import AnyEvent, MarkSet
from distmon.wire.frames import WIRE_VERSION, Request, encode_request
from distmon.wire.gate import Gate, check_closed
from distmon.wire.keys import VIEWERS, Entry, FileList, FixedList, KeyPair, ViewerKeys, make_pair, save_entries
from distmon.wire.publisher import Publisher
from distmon.wire.subscription import Subscription

LIMIT_S = 30.0
REFUSED_WITHIN_S = 2.0


class Side:
    """An agent with its gate, on a free port of loopback."""

    def __init__(self, folder: Path, allowed: list[str]) -> None:
        self.folder = folder
        self.pair = make_pair()
        self.allow(allowed)
        self.gate = Gate(self.pair, FileList(folder))
        self.publisher = Publisher("n", "b", ["tcp://127.0.0.1:*", f"ipc://{folder.parent}/run/a.sock"], gate=self.gate)
        self.address, self.local = self.publisher.addresses
        self.marks = 0

    def allow(self, keys: list[str]) -> None:
        save_entries(self.folder, VIEWERS, [Entry(key, f"k{number}") for number, key in enumerate(keys)])

    def viewer(self, own: KeyPair, agent_key: str = "") -> Subscription:
        return Subscription([self.address], keys=ViewerKeys(own, {self.address: agent_key or self.pair.public}))

    def mark(self) -> None:
        self.marks += 1
        self.publisher.publish("s", MarkSet(at=float(self.marks), text="x"))

    def serve_until(self, done: Callable[[], bool], limit_s: float = LIMIT_S) -> float:
        """Serves, and says how long it took."""
        begun = time.monotonic()
        while not done():
            assert time.monotonic() - begun < limit_s, self.publisher.refused
            self.publisher.serve(0.01)
        return time.monotonic() - begun

    def close(self) -> None:
        self.publisher.close()
        self.gate.close()


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def own() -> KeyPair:
    return make_pair()


@pytest.fixture
def side(tmp_path: Path, own: KeyPair, opened: ExitStack) -> Side:
    return opened.enter_context(closing(Side(tmp_path / "keys", [own.public])))


def hear(side: Side, viewer: Subscription) -> list[AnyEvent]:
    """Until this viewer has something."""
    events: list[AnyEvent] = []

    def heard() -> bool:
        events.extend(event for event in viewer.poll(0.0) if isinstance(event, MarkSet))
        return bool(events)

    side.serve_until(heard)
    return events


def hears_nothing(side: Side, viewer: Subscription, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        side.publisher.serve(0.01)
        if viewer.poll(0.0):
            return False
    return True


def test_an_allowed_key_gets_in_and_a_unix_socket_needs_none(side: Side, own: KeyPair, opened: ExitStack) -> None:
    side.mark()
    for viewer in (side.viewer(own), Subscription([side.local])):
        assert len(hear(side, opened.enter_context(closing(viewer)))) == 1
    assert side.publisher.refused.total() == 0


def test_each_kind_of_stranger_is_refused_in_time_and_counted(side: Side, own: KeyPair, opened: ExitStack) -> None:
    side.mark()
    unknown = opened.enter_context(closing(side.viewer(make_pair())))
    assert side.serve_until(lambda: bool(unknown.poll(0.0)) or side.publisher.refused["key"] > 0) < REFUSED_WITHIN_S
    other_agent = opened.enter_context(closing(side.viewer(own, make_pair().public)))
    assert side.serve_until(lambda: bool(other_agent.poll(0.0)) or side.publisher.refused["protocol"] > 0) < REFUSED_WITHIN_S
    known = side.publisher.refused["protocol"]
    context = opened.enter_context(zmq.Context())
    clear = opened.enter_context(context.socket(zmq.DEALER))
    clear.setsockopt(zmq.LINGER, 0)
    clear.connect(side.address)
    clear.send(encode_request(Request(v=WIRE_VERSION, session="s")))
    assert side.serve_until(lambda: side.publisher.refused["protocol"] > known) < REFUSED_WITHIN_S
    host, port = side.address.removeprefix("tcp://").split(":")
    with socket.create_connection((host, int(port))) as silent:
        assert side.serve_until(lambda: side.publisher.refused["handshake"] > 0) < REFUSED_WITHIN_S
        silent.settimeout(5)
        while silent.recv(4096):
            pass
    assert side.publisher.viewers == 0


def test_revocation_cuts_a_live_connection_and_a_key_added_again_works(side: Side, own: KeyPair, opened: ExitStack) -> None:
    viewer = opened.enter_context(closing(side.viewer(own)))
    side.mark()
    hear(side, viewer)
    side.allow([])
    revoked = time.monotonic()
    while side.publisher.viewers:
        assert time.monotonic() - revoked < 1.0
        side.publisher.serve(0.05)
    side.mark()
    assert hears_nothing(side, viewer, 3.0)
    assert side.publisher.refused["revoked"] > 0
    side.allow([own.public])
    assert [event.at for event in hear(side, viewer)] == [2.0]


def test_a_key_that_is_added_later_works_without_a_restart(side: Side, opened: ExitStack) -> None:
    late = make_pair()
    viewer = opened.enter_context(closing(side.viewer(late)))
    side.mark()
    side.serve_until(lambda: bool(viewer.poll(0.0)) or side.publisher.refused["key"] > 0)
    side.allow([late.public])
    assert len(hear(side, viewer)) == 1


def test_a_routing_id_of_another_viewer_gains_nothing(side: Side, own: KeyPair, opened: ExitStack) -> None:
    """The name of a connection is the client's to choose; a second one of that name is not taken, and the first goes on."""
    viewer = opened.enter_context(closing(side.viewer(own)))
    side.mark()
    hear(side, viewer)
    (name,) = side.publisher._viewers
    context = opened.enter_context(zmq.Context())
    forger = opened.enter_context(context.socket(zmq.DEALER))
    forger.setsockopt(zmq.LINGER, 0)
    forger.setsockopt(zmq.ROUTING_ID, b"A" + name[1:])
    forger.connect(side.local)
    forger.send(encode_request(Request(v=WIRE_VERSION, session="forged")))
    side.mark()
    assert len(hear(side, viewer)) == 1


def test_open_settings_are_refused_at_start(monkeypatch: pytest.MonkeyPatch, own: KeyPair) -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        with pytest.raises(DistmonError, match="did not take CURVE and the server's role and the domain"):
            check_closed(router)
        router.setsockopt(zmq.CURVE_SECRETKEY, bytes.fromhex(own.secret))
        router.setsockopt(zmq.CURVE_SERVER, 1)
        # Either alone lets everybody in: no domain means that CURVE asks nobody, no enforcement that a dead handler agrees.
        router.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        with pytest.raises(DistmonError, match="did not take the domain:"):
            check_closed(router)
        router.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 0)
        router.setsockopt(zmq.ZAP_DOMAIN, b"distmon")
        with pytest.raises(DistmonError, match="did not take the domain's enforcement:"):
            check_closed(router)


def test_without_somebody_to_ask_nobody_is_let_in_and_nothing_starts(own: KeyPair, opened: ExitStack) -> None:
    gate = Gate(make_pair(), FixedList([own.public]))
    with pytest.raises(DistmonError, match="one agent per context"):
        Gate(make_pair(), FixedList([]), gate.context)
    gate._answers.close(linger=0)
    with pytest.raises(DistmonError, match="nobody would check the keys"):
        Publisher("n", "b", ["tcp://127.0.0.1:*"], gate=gate)
    gate.close()


def test_a_dead_handler_ends_the_loop_that_serves(side: Side, opened: ExitStack, own: KeyPair) -> None:
    opened.enter_context(closing(side.viewer(own)))
    side.gate._answers.close(linger=0)
    with pytest.raises(zmq.ZMQError):
        side.serve_until(lambda: False)


def test_tcp_without_keys_is_refused_on_both_sides() -> None:
    with pytest.raises(UsageError, match="needs keys first"):
        Publisher("n", "b", ["tcp://127.0.0.1:*"])
    with pytest.raises(UsageError, match="needs keys first"):
        Subscription(["tcp://127.0.0.1:5555"])


def test_a_zeromq_with_known_holes_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distmon.wire.context._OLDEST_SAFE_ZMQ", (99, 0, 0))
    with pytest.raises(DistmonError, match="has known security holes; install pyzmq"):
        Publisher("n", "b", ["ipc:///nowhere/a.sock"])
