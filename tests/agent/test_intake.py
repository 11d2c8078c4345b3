"""Rings written by the probe's own writer, taken over by the intake, received by a viewer."""

from __future__ import annotations

import faulthandler
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from distmon.agent.intake import Intake
from distmon.agent.sampler import Sampler
from distmon.core.batches import single_events
from distmon.core.events import AnyEvent, ClockOffsetEstimated, GapFound, NoticeGiven, StackTaken, WorkerIdentified
from distmon.probe import stacks
from distmon.probe.ring import UNSEEN, RingWriter, monotonic_ns
from distmon.wire.clock import SteadyClock
from distmon.wire.publisher import Publisher
from distmon.wire.subscription import Subscription

IDENTITY: dict[str, Any] = {"type": "identity", "rank": 0, "size": 1, "local_rank": 0, "local_size": 1, "generation": 0}
WRITER = """
import sys
from distmon.probe.ring import RingWriter, monotonic_ns
ring = RingWriter.create(sys.argv[1], capacity=16)
ring.message({"type": "identity", "rank": 1, "size": 2, "local_rank": 1})
ring.step(0, 0, -1, monotonic_ns(), 1000, -1, -1, -1, -1, 8, 1)
print("written", flush=True)
sys.stdin.read()
"""


class Node:
    """An intake with its surroundings, and a viewer of what it publishes."""

    def __init__(self, folder: Path, socket_folder: Path) -> None:
        address = f"ipc://{socket_folder}/a.sock"
        self.publisher = Publisher("n", "boot", [address])
        self.sampler = Sampler("n", sources=())
        self.intake = Intake("n", SteadyClock(), self.sampler, self.publisher, [str(folder)], steps_hz=1.0)
        self.viewer = Subscription([address], since_start=True)

    def receive(self, done: Callable[[list[AnyEvent]], bool]) -> list[AnyEvent]:
        events: list[AnyEvent] = []
        for _ in range(400):
            self.publisher.serve(0.01)
            events.extend(event for event in self.viewer.poll(0.01) if not isinstance(event, ClockOffsetEstimated))
            if done(events):
                return events
        raise AssertionError(events)

    def close(self) -> None:
        self.viewer.close()
        self.intake.close()
        self.publisher.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "rings"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def node(folder: Path, tmp_path: Path) -> Iterator[Node]:
    node = Node(folder, tmp_path / "run")
    yield node
    node.close()


def write_steps(ring: RingWriter, first: int, count: int) -> None:
    for number in range(first, first + count):
        ring.step(number, 0, -1, monotonic_ns(), 1000, UNSEEN, UNSEEN, UNSEEN, UNSEEN, 8, 1)


def steps_of(events: list[AnyEvent]) -> list[int]:
    """Step numbers, in the order of arrival."""
    batches = [batch for event in events for batch in single_events(event)]
    return [batch.first_step + i for batch in batches for i in range(len(batch.duration_ns))]


def test_every_step_written_arrives_once_and_in_order(node: Node, folder: Path) -> None:
    node.intake.collect()
    ring = RingWriter.create(str(folder), capacity=4096)
    ring.message(IDENTITY)
    for turn in range(10):
        write_steps(ring, turn * 100, 100)
        node.intake.collect()
    node.intake.collect(last=True)
    events = node.receive(lambda events: len(steps_of(events)) >= 1000)
    assert isinstance(events[0], WorkerIdentified)
    assert steps_of(events) == list(range(1000))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


def test_records_overwritten_before_they_were_read_are_counted_exactly(node: Node, folder: Path) -> None:
    ring = RingWriter.create(str(folder), capacity=64)
    ring.message({**IDENTITY, "type": "identity"})
    node.intake.collect()
    write_steps(ring, 0, 1000)
    node.intake.collect(last=True)
    events = node.receive(lambda events: 999 in steps_of(events))
    (gap,) = [event for event in events if isinstance(event, GapFound)]
    assert gap.lost_records + len(steps_of(events)) == 1000
    assert steps_of(events) == list(range(gap.lost_records, 1000))


def test_the_rank_is_watched_and_its_interface_marked(node: Node, folder: Path) -> None:
    ring = RingWriter.create(str(folder), capacity=64)
    ring.message(IDENTITY)
    node.intake.collect()
    sample = node.sampler.sample(at=1.0)
    assert [(process.rank, process.cpu_percent) for process in sample.processes] == [(0, None)]
    assert sample.processes[0].memory_bytes
    assert [rate.name for rate in sample.networks if rate.used_by_training] == ["lo"]


def test_a_worker_is_asked_for_its_stacks_though_its_steps_come_with_other_records(
    node: Node, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = RingWriter.create(str(folder), capacity=64)
    stacks.offer(ring.path)
    try:
        for step in range(9):
            ring.message(IDENTITY)
            write_steps(ring, step, 1)
        node.intake.collect()
        clock = time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: clock() + 60)

        def told(events: list[AnyEvent]) -> bool:
            node.intake.collect(last=True)
            return any(isinstance(event, StackTaken) for event in events)

        node.receive(told)
    finally:
        faulthandler.unregister(int(Path(ring.path).with_suffix(stacks.SUFFIX).read_text().split()[1]))


def test_a_closed_ring_is_read_to_its_end_and_removed(node: Node, folder: Path) -> None:
    ring = RingWriter.create(str(folder), capacity=64)
    ring.message(IDENTITY)
    write_steps(ring, 0, 3)
    ring.close()
    node.intake.collect(last=True)
    events = node.receive(lambda events: len(steps_of(events)) == 3)
    assert isinstance(events[0], WorkerIdentified)
    assert list(folder.iterdir()) == []
    assert node.sampler.sample(at=1.0).processes == []


def test_a_killed_writer_s_last_records_arrive_and_its_ring_goes(
    node: Node, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distmon.agent.rings._SILENT_BEFORE_GONE_S", 0.0)
    monkeypatch.setattr("distmon.agent.rings._LOOK_AT_WRITER_S", 0.0)
    command = [sys.executable, "-c", WRITER, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"written\n"
        node.intake.collect()
        node.intake.collect()
        assert len(list(folder.iterdir())) == 1
        writer.kill()
    node.intake.collect(last=True)
    events = node.receive(lambda events: steps_of(events) == [0])
    assert [event.rank for event in events if isinstance(event, WorkerIdentified)] == [1]
    assert list(folder.iterdir()) == []


def test_a_file_that_is_no_ring_is_told_once(node: Node, folder: Path) -> None:
    (folder / "1-1.ring").write_bytes(b"not a ring")
    for _ in range(3):
        node.intake.collect()
    ring = RingWriter.create(str(folder), capacity=64)
    ring.message(IDENTITY)
    node.intake.collect(last=True)
    events = node.receive(lambda events: any(isinstance(event, WorkerIdentified) for event in events))
    assert [type(event) for event in events] == [NoticeGiven, WorkerIdentified]
