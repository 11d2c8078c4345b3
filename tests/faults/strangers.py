"""Clients to be refused, by the thousand, and what they do to a viewer that is let in: `python -m tests.faults.strangers`."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import NamedTuple

import zmq

from distmon.core.events import MarkSet
from distmon.wire.gate import Gate
from distmon.wire.keys import FixedList, KeyPair, ViewerKeys, make_pair, public_of
from distmon.wire.publisher import Publisher
from distmon.wire.subscription import Subscription

MARKS_PER_S = 50
_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)
"""ZMTP 3.1 in the clear."""


class Delays(NamedTuple):
    """Of what the viewer that is let in receives, in milliseconds from when it was published."""

    p50: float
    p99: float
    highest: float


class Flood(NamedTuple):
    before: Delays
    during: Delays
    bystander: Delays
    """How late a process woke meanwhile that only sleeps: what of the above is the machine's own."""
    tried: int
    seconds: float
    refused: dict[str, int]


def flood(folder: Path, count: int, rate: float, before_s: float, stay_s: float = 1.0) -> Flood:
    """An agent and a viewer for `before_s`, then the same with `count` strangers at `rate` a second.

    One that has gone before it was let connect, on a busy machine, has not been refused: then a stay has to be longer.
    """
    agent, own = make_pair(), make_pair()
    told = folder / "agent.json"
    command = [sys.executable, "-m", "tests.faults.strangers", "--agent", str(told), agent.secret, own.public]
    with subprocess.Popen(command) as publishing, contextlib.ExitStack() as stack:
        stack.callback(publishing.kill)
        while not told.exists():
            time.sleep(0.05)
        address = json.loads(told.read_text())["address"]
        viewer = Subscription([address], keys=ViewerKeys(own, {address: agent.public}))
        stack.callback(viewer.close)
        while not _delays(viewer, 0.2):
            assert publishing.poll() is None
        before = _summary(_delays(viewer, before_s))
        begun = time.monotonic()
        # They would do their own work on other machines: what this one has left is theirs.
        knocking = ["nice", "-n", "19", sys.executable, "-m", "tests.faults.strangers", "--knock", address]
        strangers = subprocess.Popen([*knocking, str(count), str(rate), agent.public, str(stay_s)])
        stack.callback(strangers.wait)
        stack.callback(strangers.kill)
        bystander = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.strangers", "--bystander"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        stack.callback(bystander.kill)
        delays: list[float] = []
        while strangers.poll() is None:
            delays += _delays(viewer, 0.2)
        seconds = time.monotonic() - begun
        woken = json.loads(bystander.communicate()[0])
        delays += _delays(viewer, 2.5)  # the last are still to be refused
        refused = json.loads(told.read_text())["refused"]
        return Flood(before, _summary(delays), Delays(*woken), count, seconds, refused)


def _delays(viewer: Subscription, seconds: float) -> list[float]:
    end = time.monotonic() + seconds
    found: list[float] = []
    while (left := end - time.monotonic()) > 0:
        events = viewer.poll(left)
        now = time.time()
        found += [(now - event.at) * 1000 for event in events if isinstance(event, MarkSet)]
    return found


def _summary(delays: list[float]) -> Delays:
    ordered = sorted(delays)
    return Delays(*(round(ordered[min(int(q * len(ordered)), len(ordered) - 1)], 1) for q in (0.5, 0.99, 1.0)))


def _publish(told: Path, secret: str, viewer: str) -> None:
    gate = Gate(KeyPair(public_of(secret), secret), FixedList([viewer]))
    publisher = Publisher("n", "b", ["tcp://127.0.0.1:*"], gate=gate)
    begun = time.monotonic()
    for turn in itertools.count():
        publisher.publish("s", MarkSet(at=time.time(), text="x"))
        while (left := begun + turn / MARKS_PER_S - time.monotonic()) > 0:
            publisher.serve(left)
        publisher.serve(0)
        if turn % MARKS_PER_S == 0:
            new = told.with_suffix(".new")
            new.write_text(json.dumps({"address": publisher.addresses[0], "refused": publisher.refused}))
            new.replace(told)


def _stand_by() -> None:
    """Sleeps as often as marks are published, until its input ends."""
    late: list[float] = []
    while not select.select([sys.stdin], [], [], 0)[0]:
        begun = time.monotonic()
        time.sleep(1 / MARKS_PER_S)
        late.append((time.monotonic() - begun - 1 / MARKS_PER_S) * 1000)
    sys.stdout.write(json.dumps(_summary(late)))


def _knock(address: str, count: int, rate: float, agent_key: str, stay_s: float) -> None:
    """In turn: in the clear, random bytes, silent, and CURVE with an unknown key, or for another agent."""
    host, port = address.removeprefix("tcp://").split(":")
    other_key = make_pair().public
    context = zmq.Context()
    open_for: deque[tuple[float, socket.socket | zmq.Socket[bytes]]] = deque()
    begun = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, begun + number / rate - time.monotonic()))
        client: socket.socket | zmq.Socket[bytes]
        if number % 4 == 3:
            own = make_pair()
            client = context.socket(zmq.DEALER)
            client.setsockopt(zmq.LINGER, 0)
            client.setsockopt(zmq.CURVE_SERVERKEY, bytes.fromhex(agent_key if number % 8 == 3 else other_key))
            client.setsockopt(zmq.CURVE_PUBLICKEY, bytes.fromhex(own.public))
            client.setsockopt(zmq.CURVE_SECRETKEY, bytes.fromhex(own.secret))
            client.connect(address)
        else:
            client = socket.create_connection((host, int(port)))
            with contextlib.suppress(OSError):
                client.sendall([_GREETING, os.urandom(200), b""][number % 4])
        open_for.append((time.monotonic() + stay_s, client))
        while open_for and open_for[0][0] < time.monotonic():
            open_for.popleft()[1].close()
    for until, client in open_for:
        time.sleep(max(0.0, until - time.monotonic()))
        client.close()
    context.destroy(linger=0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--agent", nargs=3)
    parser.add_argument("--knock", nargs=5)
    parser.add_argument("--bystander", action="store_true")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=500)
    arguments = parser.parse_args()
    if arguments.agent:
        _publish(Path(arguments.agent[0]), *arguments.agent[1:])
    elif arguments.bystander:
        _stand_by()
    elif arguments.knock:
        address, count, rate, agent_key, stay_s = arguments.knock
        _knock(address, int(count), float(rate), agent_key, float(stay_s))
    else:
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            found = flood(Path(folder), arguments.count, arguments.rate, 10.0)
        sys.stdout.write(json.dumps(found._asdict()) + "\n")


if __name__ == "__main__":
    main()
