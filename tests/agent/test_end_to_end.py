"""The agent's command in a process of its own, followed over its unix socket."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from distmon.core.events import AnyEvent, ClockOffsetEstimated, NodeJoined, NodeLeft, NodeSampled
from distmon.wire.subscription import Subscription

LIMIT_S = 20.0


def private(path: Path) -> Path:
    path.mkdir(mode=0o700)
    return path


def start_agent(address: str, *flags: str) -> subprocess.Popen[bytes]:
    """An agent that is ready to be followed."""
    read, write = os.pipe()
    command = [sys.executable, "-m", "distmon.agent.main", "--listen", address, "--ready-fd", str(write), *flags]
    process = subprocess.Popen(command, pass_fds=[write], stderr=subprocess.PIPE)
    os.close(write)
    with os.fdopen(read) as ready:
        assert ready.read() == f"{address}\n"
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def until(subscription: Subscription, done: Callable[[list[AnyEvent]], bool]) -> list[AnyEvent]:
    """Everything received until `done` says so of it."""
    events: list[AnyEvent] = []
    deadline = time.monotonic() + LIMIT_S
    while not done(events):
        assert time.monotonic() < deadline, events
        events.extend(event for event in subscription.poll(0.2) if not isinstance(event, ClockOffsetEstimated))
    return events


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"ipc://{private(tmp_path / 'run')}/agent.sock"


@pytest.fixture
def agent(address: str) -> Iterator[subprocess.Popen[bytes]]:
    process = start_agent(address, "--rate", "5")
    yield process
    end(process)


def has(kind: type[AnyEvent], count: int = 1) -> Callable[[list[AnyEvent]], bool]:
    return lambda events: sum(isinstance(event, kind) for event in events) >= count


def test_samples_arrive_numbered_and_without_invented_values(agent: subprocess.Popen[bytes], address: str) -> None:
    subscription = Subscription([address], since_start=True)
    events = until(subscription, has(NodeSampled, 3))
    subscription.close()
    assert isinstance(events[0], NodeJoined)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    first = next(event for event in events if isinstance(event, NodeSampled))
    assert first.interval_s > 0.1
    assert all(rate.received_bytes_per_s is not None for rate in first.networks)
    assert first.memory_used_bytes


def test_ten_samples_a_second_without_drift(address: str) -> None:
    process = start_agent(address, "--rate", "10")
    subscription = Subscription([address], since_start=True)
    times = [event.at for event in until(subscription, has(NodeSampled, 21)) if isinstance(event, NodeSampled)]
    subscription.close()
    end(process)
    # A single sample may be late on a busy machine, but the earliest of ten tells where the grid is.
    phases = [at - times[0] - 0.1 * round((at - times[0]) / 0.1) for at in times]
    assert abs(min(phases[11:]) - min(phases[1:11])) < 0.02


def test_sigterm_says_goodbye_and_ends_within_a_second(agent: subprocess.Popen[bytes], address: str) -> None:
    subscription = Subscription([address])
    until(subscription, has(NodeSampled))
    asked = time.monotonic()
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(LIMIT_S) == 0
    assert time.monotonic() - asked < 1.0
    last = until(subscription, has(NodeLeft))[-1]
    subscription.close()
    assert isinstance(last, NodeLeft)
    assert last.reason == "SIGTERM"
