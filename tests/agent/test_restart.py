"""Agents and recorders that end at any moment and come again: every step of a rank arrives exactly once, in order."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from distmon.agent.intake import Intake, marked_anchor_ns
from distmon.agent.journal import Journal
from distmon.agent.sampler import Sampler
from distmon.core.batches import single_events
from distmon.core.events import AnyEvent, ClockOffsetEstimated, EpochStarted, GapFound, WorkerIdentified
from distmon.probe.ring import UNSEEN, RingWriter, boot_id, monotonic_ns
from distmon.wire.clock import SteadyClock
from distmon.wire.publisher import Publisher
from distmon.wire.subscription import Subscription

LIMIT_S = 60.0
MOVES = ["write", "write", "say", "collect", "flush", "exchange", "exchange", "kill agent", "restart recorder"]
IDENTITY = {"type": "identity", "rank": 3, "size": 4, "local_rank": 0, "local_size": 1, "generation": 0, "script": "s" * 300}


class Node:
    """Ranks' rings, an agent's intake and journal, and a recorder, each of which can be taken away."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "rings").mkdir(mode=0o700)
        self.address = f"ipc://{folder}/run/a.sock"
        self.recorded: list[AnyEvent] = []
        self.position: dict[str, int] = {}
        self.start_agent()
        self.start_recorder()

    def start_agent(self) -> None:
        self.journal = Journal(self.folder / "journal", os.urandom(4).hex(), boot_id(), 1 << 20, 1e6)
        mark = self.journal.mark
        self.clock = SteadyClock(anchor_ns=marked_anchor_ns(mark))
        self.publisher = Publisher("n", self.journal.boot, [self.address], store=self.journal)
        sampler = Sampler("n", sources=())
        self.intake = Intake("n", self.clock, sampler, self.publisher, [str(self.folder / "rings")], 1.0, mark)

    def kill_agent(self) -> None:
        """Without a word: what it holds in memory is gone."""
        self.intake.close()
        self.publisher.close()
        self.journal.close()

    def start_recorder(self) -> None:
        self.viewer = Subscription([self.address], since_start=True, resume=self.position)

    def record(self, seconds: float = 0.0) -> None:
        self.recorded.extend(event for event in self.viewer.poll(seconds) if not isinstance(event, ClockOffsetEstimated))
        self.position = self.viewer.position()

    def until(self, last: int) -> None:
        deadline = time.monotonic() + LIMIT_S
        while last not in steps(self.recorded):
            assert time.monotonic() < deadline, self.recorded[-3:]
            self.intake.collect(last=True)
            self.publisher.serve(0.01)
            self.record(0.01)

    def close(self) -> None:
        self.viewer.close()
        self.kill_agent()


def steps(events: list[AnyEvent]) -> list[int]:
    batches = [batch for event in events for batch in single_events(event)]
    return [batch.first_step + place for batch in batches for place in range(len(batch.duration_ns))]


def write(ring: RingWriter, first: int, count: int) -> None:
    for number in range(first, first + count):
        ring.step(number, 0, number // 50, monotonic_ns(), 1000, UNSEEN, UNSEEN, UNSEEN, UNSEEN, 8, 1)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_ends_whenever_nothing_is_lost_and_nothing_comes_twice(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    node = Node(tmp_path)
    ring = RingWriter.create(str(tmp_path / "rings"), capacity=4096)
    made, said, arrivals = 0, False, 0
    try:
        for _ in range(60):
            move = dice.choice(
                ["write", "write", "say", "collect", "flush", "exchange", "exchange", "kill agent", "restart recorder"]
            )
            if move == "write":
                write(ring, made, count := dice.randrange(1, 40))
                made += count
            elif move == "say" and not said:
                ring.message(IDENTITY)
                said = True
            elif move in ("collect", "flush"):
                node.intake.collect(last=move == "flush")
            elif move == "exchange":
                for _ in range(dice.randrange(1, 12)):
                    node.publisher.serve(0.01)
                    node.record(0.01)
                arrivals += bool(node.recorded)
            elif move == "kill agent":
                node.kill_agent()
                node.start_agent()
            elif move == "restart recorder":
                node.viewer.close()
                node.start_recorder()
        if not said:
            ring.message(IDENTITY)
        write(ring, made, 1)
        assert arrivals > 3
        node.until(made)
        assert steps(node.recorded) == list(range(made + 1))
        assert sum(isinstance(event, WorkerIdentified) for event in node.recorded) == 1
        assert [event.epoch for event in node.recorded if isinstance(event, EpochStarted)] == list(range(made // 50 + 1))
        assert not [event for event in node.recorded if isinstance(event, GapFound)]
        numbers = [event.seq for event in node.recorded]
        assert numbers == list(range(1, len(numbers) + 1))
        assert len({event.stream for event in node.recorded}) == 1
    finally:
        node.close()


def test_a_recorder_that_comes_late_gets_all_that_the_journal_holds(tmp_path: Path) -> None:
    node = Node(tmp_path)
    ring = RingWriter.create(str(tmp_path / "rings"), capacity=4096)
    try:
        node.viewer.close()
        ring.message(IDENTITY)
        for turn in range(30):
            write(ring, turn * 100, 100)
            node.intake.collect(last=True)
        assert node.publisher.held_bytes < node.journal.held_bytes
        node.kill_agent()
        node.start_agent()
        assert node.publisher.held_bytes == 0
        node.start_recorder()
        write(ring, 3000, 1)
        node.until(3000)
        assert steps(node.recorded) == list(range(3001))
    finally:
        node.close()


def test_what_the_journal_had_to_let_go_is_a_gap_with_its_length(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.kill_agent()
    node.journal = Journal(tmp_path / "journal", "b", boot_id(), 64 << 10, 1e6)
    node.publisher = Publisher("n", node.journal.boot, [node.address], store=node.journal, limit_bytes=4096)
    node.intake = Intake("n", node.clock, Sampler("n", sources=()), node.publisher, [str(tmp_path / "rings")], 1.0)
    ring = RingWriter.create(str(tmp_path / "rings"), capacity=4096)
    try:
        ring.message(IDENTITY)
        for turn in range(60):
            write(ring, turn * 100, 100)
            node.intake.collect(last=True)
        node.until(5999)
        (gap,) = [event for event in node.recorded if isinstance(event, GapFound)]
        published = node.journal.next_seqs[f"n/{node.journal.boot}/ranks"] - 1
        arrived = [event for event in node.recorded if event.stream]
        assert gap.lost_records > 0
        assert gap.lost_records + len(arrived) == published
        assert [event.seq for event in arrived][-1] == published
        assert any(isinstance(event, WorkerIdentified) for event in arrived)
    finally:
        node.close()


def test_a_ring_that_was_read_to_its_end_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent dies after it stored the last steps, and before it removed the file."""
    node = Node(tmp_path)
    ring = RingWriter.create(str(tmp_path / "rings"), capacity=64)
    try:
        ring.message(IDENTITY)
        write(ring, 0, 10)
        ring.close()
        monkeypatch.setattr("distmon.agent.intake._removed", lambda memory: False)
        node.intake.collect(last=True)
        assert list((tmp_path / "rings").iterdir())
        node.kill_agent()
        monkeypatch.undo()
        node.start_agent()
        node.until(9)
        for _ in range(3):
            node.intake.collect(last=True)
            node.publisher.serve(0.05)
            node.record(0.05)
        assert steps(node.recorded) == list(range(10))
        assert not list((tmp_path / "rings").iterdir())
    finally:
        node.close()


def test_a_screen_gets_the_last_seconds_and_what_they_need(tmp_path: Path) -> None:
    node = Node(tmp_path)
    ring = RingWriter.create(str(tmp_path / "rings"), capacity=4096)
    try:
        node.viewer.close()
        ring.message(IDENTITY)
        write(ring, 0, 100)
        node.intake.collect(last=True)
        time.sleep(0.6)
        write(ring, 100, 50)
        node.intake.collect(last=True)
        node.viewer = Subscription([node.address], history_s=0.5)
        write(ring, 150, 1)
        node.until(150)
        assert isinstance(node.recorded[0], WorkerIdentified)
        assert steps(node.recorded)[0] >= 100
        assert not [event for event in node.recorded if isinstance(event, GapFound)]
    finally:
        node.close()
