"""Publisher and subscription over real sockets: what arrives, what is lost, and that it is told."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path

import msgspec
import pytest
import zmq

from distmon.core.errors import DistmonError, UsageError
from distmon.core.events import AnyEvent, ClockOffsetEstimated, GapFound, MarkSet, NodeJoined, Ticked
from distmon.wire.frames import MAX_BODY_BYTES, WIRE_VERSION, Header, Request, encode_header, encode_request
from distmon.wire.gate import Gate
from distmon.wire.keys import FixedList, ViewerKeys, make_pair
from distmon.wire.publisher import FORGET_VIEWER_AFTER_S, Publisher
from distmon.wire.sockets import make_room
from distmon.wire.subscription import Subscription

CASE = Path(__file__).parents[1] / "data" / "cases" / "LE-13"
TURNS = 600
JOINED = NodeJoined(at=0.0, node="n", host="h")


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/run/a.sock"


@pytest.fixture
def publisher(address: str) -> Iterator[Publisher]:
    publisher = Publisher("n", "b", [address])
    yield publisher
    publisher.close()


@pytest.fixture
def viewer(address: str) -> Iterator[Subscription]:
    viewer = Subscription([address])
    yield viewer
    viewer.close()


@pytest.fixture
def plain_socket() -> Iterator[Callable[[int], zmq.Socket[bytes]]]:
    """Makes sockets for peers that do not follow the rules."""
    context = zmq.Context()
    made: list[zmq.Socket[bytes]] = []

    def make(kind: int) -> zmq.Socket[bytes]:
        made.append(context.socket(kind))
        return made[-1]

    yield make
    context.destroy(linger=0)


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    """Closes what a test opens, also when it fails: a context that is only forgotten hangs."""
    with ExitStack() as stack:
        yield stack


def exchange(
    publisher: Publisher, viewer: Subscription, done: Callable[[list[AnyEvent]], bool], into: list[AnyEvent] | None = None
) -> list[AnyEvent]:
    """Runs both sides until `done` says so of what the viewer got."""
    events: list[AnyEvent] = [] if into is None else into
    for _ in range(TURNS):
        publisher.serve(0.01)
        events.extend(heard(viewer, 0.01))
        if done(events):
            return events
    raise AssertionError(events[-5:])


def test_streams_that_are_due_together_come_in_one_message_to_whom_understands_that(
    publisher: Publisher, viewer: Subscription, address: str, plain_socket: Callable[[int], zmq.Socket[bytes]]
) -> None:
    older = plain_socket(zmq.DEALER)
    older.setsockopt(zmq.RCVTIMEO, 5000)
    older.connect(address)
    older.send(msgspec.msgpack.encode({"v": WIRE_VERSION, "session": "older"}))
    viewer.poll(0.0)
    while publisher.viewers < 2:
        publisher.serve(0.01)
        viewer.poll(0.01)
    for stream in ("one", "two"):
        publisher.publish(stream, MarkSet(at=1.0, text=stream))
    assert len(exchange(publisher, viewer, lambda events: len(events) == 2)) == 2
    assert [status.frames for status in viewer.status()] == [1]
    assert [len(older.recv_multipart()) for _ in range(2)] == [2, 2]


def heard(viewer: Subscription, timeout_s: float) -> list[AnyEvent]:
    """What came from agents, without what the viewer found out about their clocks."""
    return [event for event in viewer.poll(timeout_s) if not isinstance(event, ClockOffsetEstimated)]


def publish(publisher: Publisher, first: int, last: int, size: int = 0) -> None:
    for number in range(first, last + 1):
        publisher.publish("s", MarkSet(at=float(number), text="x" * size))


def times(events: list[AnyEvent]) -> list[float]:
    return [event.at for event in events if isinstance(event, MarkSet)]


def gaps(events: list[AnyEvent]) -> list[int]:
    return [event.lost_records for event in events if isinstance(event, GapFound)]


def got(last: int) -> Callable[[list[AnyEvent]], bool]:
    return lambda events: last in times(events)


def test_events_arrive_in_order_with_their_stream_and_number(publisher: Publisher, viewer: Subscription) -> None:
    publish(publisher, 1, 1000)
    events = exchange(publisher, viewer, got(1000))
    assert times(events) == [float(number) for number in range(1, 1001)]
    assert {event.stream for event in events} == {"n/b/s"}
    assert [event.seq for event in events] == list(range(1, 1001))


@pytest.mark.parametrize("listen", ["tcp://127.0.0.1:*", "tcp://[::1]:*"])
def test_over_loopback(listen: str, opened: ExitStack) -> None:
    agent, viewer_pair = make_pair(), make_pair()
    gate = opened.enter_context(closing(Gate(agent, FixedList([viewer_pair.public]))))
    publisher = opened.enter_context(closing(Publisher("n", "b", [listen], gate=gate)))
    keys = ViewerKeys(viewer_pair, {publisher.addresses[0]: agent.public})
    viewer = opened.enter_context(closing(Subscription(publisher.addresses, keys=keys)))
    publish(publisher, 1, 3)
    assert times(exchange(publisher, viewer, got(3))) == [1.0, 2.0, 3.0]


def test_a_late_viewer_gets_what_is_still_there_and_what_it_needs(address: str, opened: ExitStack) -> None:
    publisher = opened.enter_context(closing(Publisher("n", "b", [address], limit_bytes=2000)))
    publisher.publish("s", JOINED, keep="joined")
    publish(publisher, 1, 1000)
    viewer = opened.enter_context(closing(Subscription([address])))
    complete = opened.enter_context(closing(Subscription([address], since_start=True)))
    events = exchange(publisher, viewer, got(1000))
    assert events[0] == msgspec.structs.replace(JOINED, stream="n/b/s", seq=1)
    held = times(events)
    assert held == [float(number) for number in range(1001 - len(held), 1001)]
    assert gaps(events) == []
    assert gaps(exchange(publisher, complete, got(1000))) == [1000 - len(held)]


def test_a_viewer_that_was_too_slow_sees_one_gap_with_its_count(address: str, opened: ExitStack) -> None:
    publisher = opened.enter_context(closing(Publisher("n", "b", [address], limit_bytes=20_000)))
    viewer = opened.enter_context(closing(Subscription([address])))
    publish(publisher, 1, 1)
    events = exchange(publisher, viewer, got(1))
    publish(publisher, 2, 5000)
    exchange(publisher, viewer, got(5000), events)
    assert len(gaps(events)) == 1
    assert len(times(events)) + gaps(events)[0] == 5000
    gap = next(event for event in events if isinstance(event, GapFound))
    assert (gap.node, gap.started, gap.ended) == ("n", 1.0, times(events)[1])


def test_several_viewers_are_served_each_at_its_place(
    publisher: Publisher, viewer: Subscription, address: str, opened: ExitStack
) -> None:
    publish(publisher, 1, 10)
    exchange(publisher, viewer, got(10))
    other = opened.enter_context(closing(Subscription([address])))
    publish(publisher, 11, 20)
    assert times(exchange(publisher, other, got(20))) == [float(number) for number in range(1, 21)]
    assert times(exchange(publisher, viewer, got(20))) == [float(number) for number in range(11, 21)]


def test_a_viewer_that_starts_anew_gets_what_is_there_and_the_old_one_is_forgotten(
    publisher: Publisher, address: str, monkeypatch: pytest.MonkeyPatch, opened: ExitStack
) -> None:
    first = opened.enter_context(closing(Subscription([address])))
    publish(publisher, 1, 5)
    exchange(publisher, first, got(5))
    first.close()
    second = opened.enter_context(closing(Subscription([address])))
    assert times(exchange(publisher, second, got(5))) == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert publisher.viewers == 2
    monkeypatch.setattr("distmon.wire.publisher.FORGET_VIEWER_AFTER_S", 0.0)
    publisher.send()
    assert publisher.viewers == 0


def test_an_agent_that_starts_anew_counts_from_one_again(address: str, opened: ExitStack) -> None:
    viewer = opened.enter_context(closing(Subscription([address])))
    first = opened.enter_context(closing(Publisher("n", "b1", [address])))
    publish(first, 1, 5)
    exchange(first, viewer, got(5))
    first.close()
    second = opened.enter_context(closing(Publisher("n", "b2", [address], limit_bytes=400)))
    publish(second, 101, 200)
    events = exchange(second, viewer, got(200))
    assert {event.stream for event in events if isinstance(event, MarkSet)} == {"n/b2/s"}
    assert [event.seq for event in events if isinstance(event, MarkSet)][-1] == 100
    assert len(times(events)) + sum(gaps(events)) == 100


def test_each_message_is_dated_when_it_is_read(tmp_path: Path, opened: ExitStack) -> None:
    """Also of several that are read in one turn: an answer must not seem to have come before it was sent."""
    addresses = [f"ipc://{tmp_path}/run/{number}.sock" for number in range(8)]
    agents = [opened.enter_context(closing(Publisher(f"n{i}", "b", [address]))) for i, address in enumerate(addresses)]
    readings = map(float, count(1_000_000_000))
    viewer = opened.enter_context(closing(Subscription(addresses, clock=lambda: next(readings))))
    dated: list[float] = []
    for turn in range(TURNS):
        for agent in agents:
            if turn == 0:
                agent.publish("node", MarkSet(at=1e9, text="m"))
            agent.serve(0)
        dated += [event.at for event in viewer.poll(0.01) if isinstance(event, ClockOffsetEstimated)]
        if len(dated) >= len(agents):
            break
    assert len(set(dated)) == len(dated) >= len(agents)


def test_an_agent_that_comes_later_is_found(address: str, opened: ExitStack) -> None:
    viewer = opened.enter_context(closing(Subscription([address])))
    assert viewer.poll(0.05) == []
    publisher = opened.enter_context(closing(Publisher("n", "b", [address])))
    publish(publisher, 1, 1)
    exchange(publisher, viewer, got(1))


def test_nothing_is_sent_beyond_the_credit(
    publisher: Publisher, address: str, plain_socket: Callable[[int], zmq.Socket[bytes]]
) -> None:
    silent = plain_socket(zmq.DEALER)
    silent.connect(address)
    silent.send(encode_request(Request(v=WIRE_VERSION, session="s", window=2)))
    publish(publisher, 1, 4000, size=1000)
    publisher.serve(1.0)
    for _ in range(20):
        publisher.serve(0.0)
    silent.setsockopt(zmq.RCVTIMEO, 2000)
    received = [silent.recv_multipart(), silent.recv_multipart()]
    assert all(len(frames) == 2 for frames in received)
    assert silent.poll(100) == 0


STOPPED_VIEWER = """
import sys
from distmon.wire.sockets import make_room
from distmon.wire.subscription import Subscription
viewer = Subscription([sys.argv[1]])
while True:
    for event in viewer.poll(0.1):
        if event.stream or hasattr(event, "lost_records"):
            print(int(event.at), getattr(event, "lost_records", 0), flush=True)
"""


def test_a_stopped_viewer_costs_the_agent_nothing_and_is_told_what_it_missed(address: str, opened: ExitStack) -> None:
    publisher = opened.enter_context(closing(Publisher("n", "b", [address], limit_bytes=1 << 20)))
    with subprocess.Popen([sys.executable, "-c", STOPPED_VIEWER, address], stdout=subprocess.PIPE) as viewer:
        publish(publisher, 1, 1)
        text = _serve_until(publisher, viewer, b"1 0\n")
        viewer.send_signal(signal.SIGSTOP)
        gc.collect()
        before = _resident_bytes()
        for turn in range(200):
            publish(publisher, 2 + turn * 200, 1 + (turn + 1) * 200, size=1000)
            publisher.serve(0)
        assert publisher.held_bytes <= 1 << 20
        assert _resident_bytes() - before < 32 << 20
        viewer.send_signal(signal.SIGCONT)
        text += _serve_until(publisher, viewer, b"\n40001 0\n")
        viewer.kill()
    numbers = [[int(word) for word in line.split()] for line in text.splitlines()]
    lost = sum(number[1] for number in numbers)
    assert lost > 0
    assert sum(number[1] == 0 for number in numbers) + lost == 40_001


def _serve_until(publisher: Publisher, viewer: subprocess.Popen[bytes], last: bytes) -> bytes:
    assert viewer.stdout is not None
    os.set_blocking(viewer.stdout.fileno(), False)
    text = b""
    for _ in range(10 * TURNS):
        publisher.serve(0.01)
        text += viewer.stdout.read() or b""
        if text.endswith(last):
            return text
    raise AssertionError(text[-100:])


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_le_13_a_rogue_agent_is_counted_and_the_healthy_one_loses_nothing(
    publisher: Publisher, viewer: Subscription, tmp_path: Path, plain_socket: Callable[[int], zmq.Socket[bytes]]
) -> None:
    rogue = plain_socket(zmq.ROUTER)
    rogue_address = f"ipc://{tmp_path}/run/rogue.sock"
    rogue.bind(rogue_address)
    viewer.add(rogue_address)
    rogue.setsockopt(zmq.RCVTIMEO, 5000)
    while not rogue.poll(10):
        viewer.poll(0.01)
    peer = rogue.recv_multipart()[0]
    payloads = [path.read_bytes() for path in sorted(CASE.iterdir()) if path.name != "expected.json"]
    future = msgspec.msgpack.encode({"v": 99, "kind": "sample", "node": "node-x"})
    messages = [[payload, b"\x90"] for payload in payloads] + [[future, b"\x90"], [b"x"], [b"x"] * 6]
    events: list[AnyEvent] = []
    for number, message in enumerate(messages, 1):
        rogue.send_multipart([peer, *message])
        publish(publisher, number, number)
        exchange(publisher, viewer, lambda events, n=number: got(n)(events) and viewer.bad_frames.total() == n, events)  # type: ignore[misc]
    assert times(events) == [float(number) for number in range(1, len(messages) + 1)]
    (refused,) = [status for status in viewer.status() if status.address == rogue_address]
    assert refused.bad_frames["version"] == 1
    assert refused.bad_frames["frames"] == 2


def test_le_13_a_huge_message_takes_no_memory(
    publisher: Publisher, viewer: Subscription, tmp_path: Path, plain_socket: Callable[[int], zmq.Socket[bytes]]
) -> None:
    rogue = plain_socket(zmq.ROUTER)
    rogue.bind(f"ipc://{tmp_path}/run/rogue.sock")
    viewer.add(f"ipc://{tmp_path}/run/rogue.sock")
    while not rogue.poll(10):
        viewer.poll(0.01)
    header = Header(v=WIRE_VERSION, node="r", boot="b", stream="r/b/s", seq=1, count=1)
    huge = bytes(50 << 20)
    rogue.send_multipart([rogue.recv_multipart()[0], encode_header(header), huge])
    before = _resident_bytes()
    for number in range(1, 51):
        publish(publisher, number, number)
        exchange(publisher, viewer, got(number))
    assert _resident_bytes() - before < 100 << 20


def test_a_rogue_viewer_is_counted_and_the_healthy_one_loses_nothing(
    publisher: Publisher, viewer: Subscription, address: str, plain_socket: Callable[[int], zmq.Socket[bytes]]
) -> None:
    rogue = plain_socket(zmq.DEALER)
    rogue.connect(address)
    payloads = [path.read_bytes() for path in sorted(CASE.iterdir()) if path.name != "expected.json"]
    for payload in payloads:
        rogue.send(payload)
    rogue.send_multipart([b"a", b"b"])
    publish(publisher, 1, 10)
    expected = len(payloads) + 1
    events = exchange(publisher, viewer, lambda events: got(10)(events) and publisher.bad_requests.total() == expected)
    assert times(events) == [float(number) for number in range(1, 11)]


def test_an_unknown_kind_of_event_is_counted_and_the_rest_of_its_frame_taken(
    viewer: Subscription, tmp_path: Path, plain_socket: Callable[[int], zmq.Socket[bytes]]
) -> None:
    agent = plain_socket(zmq.ROUTER)
    agent.bind(f"ipc://{tmp_path}/later.sock")
    viewer.add(f"ipc://{tmp_path}/later.sock")
    while not agent.poll(10):
        viewer.poll(0.01)
    body = msgspec.msgpack.encode([{"kind": "of_a_later_version", "at": 1.0}, Ticked(at=2.0, stream="n/b/s", seq=2)])
    header = Header(v=WIRE_VERSION, node="n", boot="b", stream="n/b/s", seq=1, count=2)
    agent.send_multipart([agent.recv_multipart()[0], encode_header(header), body])
    events: list[AnyEvent] = []
    while not events:
        events = heard(viewer, 1.0)
    assert events == [Ticked(at=2.0, stream="n/b/s", seq=2)]
    assert viewer.bad_frames == {"kind": 1}


def test_a_frame_that_comes_twice_is_taken_once(
    viewer: Subscription, tmp_path: Path, plain_socket: Callable[[int], zmq.Socket[bytes]]
) -> None:
    agent = plain_socket(zmq.ROUTER)
    agent.bind(f"ipc://{tmp_path}/again.sock")
    viewer.add(f"ipc://{tmp_path}/again.sock")
    while not agent.poll(10):
        viewer.poll(0.01)
    peer = agent.recv_multipart()[0]
    for seq in (1, 2, 1, 2, 3):
        header = Header(v=WIRE_VERSION, node="n", boot="b", stream="n/b/s", seq=seq, count=1)
        body = msgspec.msgpack.encode([MarkSet(at=float(seq), text="x", stream="n/b/s", seq=seq)])
        agent.send_multipart([peer, encode_header(header), body])
    events: list[AnyEvent] = []
    while not got(3)(events):
        events.extend(heard(viewer, 1.0))
    assert times(events) == [1.0, 2.0, 3.0]
    assert gaps(events) == []


def test_a_frame_that_comes_before_its_turn_leaves_a_gap_and_the_late_one_is_dropped(
    viewer: Subscription, tmp_path: Path, plain_socket: Callable[[int], zmq.Socket[bytes]]
) -> None:
    agent = plain_socket(zmq.ROUTER)
    agent.bind(f"ipc://{tmp_path}/order.sock")
    viewer.add(f"ipc://{tmp_path}/order.sock")
    while not agent.poll(10):
        viewer.poll(0.01)
    peer = agent.recv_multipart()[0]
    for seq in (1, 3, 2, 4):
        header = Header(v=WIRE_VERSION, node="n", boot="b", stream="n/b/s", seq=seq, count=1)
        body = msgspec.msgpack.encode([MarkSet(at=float(seq), text="x", stream="n/b/s", seq=seq)])
        agent.send_multipart([peer, encode_header(header), body])
    events: list[AnyEvent] = []
    while not got(4)(events):
        events.extend(heard(viewer, 1.0))
    assert times(events) == [1.0, 3.0, 4.0]
    assert gaps(events) == [1]


def test_an_event_too_large_for_any_message_is_a_gap_that_says_so(publisher: Publisher, viewer: Subscription) -> None:
    publish(publisher, 1, 1)
    publish(publisher, 2, 2, size=MAX_BODY_BYTES)
    publish(publisher, 3, 3)
    events = exchange(publisher, viewer, got(3))
    (gap,) = [event for event in events if isinstance(event, GapFound)]
    assert (gap.lost_records, gap.seq, publisher.oversized) == (1, 2, 1)
    assert "more than the 1048576 that a message may hold" in gap.cause


def test_an_agent_that_is_no_longer_followed_is_heard_no_more(
    publisher: Publisher, viewer: Subscription, address: str, tmp_path: Path, opened: ExitStack
) -> None:
    other_address = f"ipc://{tmp_path}/run/b.sock"
    other = opened.enter_context(closing(Publisher("m", "b", [other_address])))
    viewer.add(other_address)
    publish(publisher, 1, 1)
    exchange(publisher, viewer, got(1))
    viewer.remove(address)
    publish(publisher, 2, 2)
    publisher.send()
    publish(other, 3, 3)
    assert times(exchange(other, viewer, got(3))) == [3.0]
    assert [status.address for status in viewer.status()] == [other_address]


def test_more_agents_than_files_may_be_open_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda which: (256, 512))
    with pytest.raises(DistmonError, match="1 agents need 513 open files and 512 are allowed"):
        make_room(1)


def test_an_address_that_is_not_allowed_is_refused_at_once() -> None:
    with pytest.raises(UsageError):
        Subscription(["tcp://192.0.2.1:5555"])


def test_the_goodbye_leaves_before_the_socket_closes(publisher: Publisher, viewer: Subscription) -> None:
    publish(publisher, 1, 1)
    exchange(publisher, viewer, got(1))
    publish(publisher, 2, 2)
    asked = time.monotonic()
    assert publisher.flush(1.0, 1.0)
    publisher.close()
    assert time.monotonic() - asked < FORGET_VIEWER_AFTER_S
    events: list[AnyEvent] = []
    for _ in range(TURNS):
        events.extend(viewer.poll(0.01))
        if got(2)(events):
            break
    assert got(2)(events)
