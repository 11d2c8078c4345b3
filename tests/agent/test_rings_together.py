"""All rings of a node read in one go tell what they tell when each is read by itself, whatever comes between."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distmon.agent import intake as intake_module
from distmon.agent.intake import Intake, marked_memories
from distmon.agent.rings import RingMemory
from distmon.agent.sampler import Sampler
from distmon.agent.stacks import StackWatch
from distmon.core.batches import single_events
from distmon.core.events import AnyEvent, StepsRecorded
from distmon.probe.ring import UNSEEN, RingReader, RingWriter
from distmon.wire.clock import SteadyClock
from distmon.wire.publisher import Publisher

MS = 1_000_000
RANKS = 3


class Overheard(Publisher):
    """Keeps what it is told."""

    def __init__(self, address: str) -> None:
        super().__init__("n", "boot", [address])
        self.told: list[AnyEvent] = []
        self.mark = b""

    def publish(self, stream: str, event: AnyEvent, *, keep: str = "") -> None:
        self.told.append(event)
        super().publish(stream, event, keep=keep)

    def commit(self, mark: bytes = b"") -> bool:
        self.mark = mark or self.mark
        return super().commit(mark)


class Node:
    def __init__(self, folder: Path, together: bool) -> None:
        self._together = together
        self._rings = str(folder / "rings")
        self.publisher = Overheard(f"ipc://{folder}/run-{together}/a.sock")
        self._clock = SteadyClock(lambda: 0, lambda: 10**18)
        self._start()

    def _start(self) -> None:
        mark = self.publisher.mark
        self.intake = Intake("n", self._clock, Sampler("n", sources=()), self.publisher, [self._rings], 1.0, mark)

    def restart(self) -> None:
        self.intake.close()
        self._start()

    def collect(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            if not self._together:
                patch.setattr(intake_module, "can_go_together", lambda rings: False)
            self.intake.collect(last=True)

    def memories(self) -> list[RingMemory]:
        return marked_memories(self.publisher.mark)

    def told(self) -> tuple[dict[int, list[tuple[object, ...]]], list[AnyEvent]]:
        """Steps by rank, and the rest."""
        steps: dict[int, list[tuple[object, ...]]] = {}
        rest: list[AnyEvent] = []
        for event in self.publisher.told:
            singles = single_events(event)
            rest.extend([event] if not singles else [])
            for one in singles:
                steps.setdefault(one.rank, []).extend(rows(one))
        return steps, rest

    def close(self) -> None:
        self.intake.close()
        self.publisher.close()


def rows(steps: StepsRecorded) -> Iterator[tuple[object, ...]]:
    for place, (start_ns, duration_ns) in enumerate(zip(steps.start_ns, steps.duration_ns, strict=True)):
        begun = round((steps.origin * 1e9 + start_ns) / 1e4)
        waits = steps.input_wait_ns[place] if steps.input_wait_ns else None
        batches = steps.micro_batches[place] if steps.micro_batches else 1
        yield (steps.worker, steps.generation, steps.epoch, steps.first_step + place, begun, duration_ns, waits, batches)


@contextmanager
def node_and_rings(*, together: tuple[bool, ...] = (True, False)) -> Iterator[tuple[list[Node], list[RingWriter]]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "rings").mkdir(mode=0o700)
        rings = [RingWriter.create(str(folder / "rings"), capacity=64) for _ in range(RANKS)]
        for rank, ring in enumerate(rings):
            ring.message({"type": "identity", "rank": rank, "size": RANKS, "local_rank": rank, "local_size": RANKS, "time_ns": 0})
        nodes = [Node(folder, way) for way in together]
        for node in nodes:
            stack.callback(node.close)
        yield nodes, rings


BURST = st.tuples(
    st.sampled_from([1, 1, 2, 3, 3, 3, 0, 30]),  # steps
    st.sampled_from([UNSEEN, 5 * MS, 5 * MS, 5 * MS]),  # input wait
    st.sampled_from([1, 1, 1, 4]),  # micro-batches
    st.sampled_from([100 * MS] * 6 + [2_000 * MS]),
)
TURN = st.tuples(
    st.lists(BURST, min_size=RANKS, max_size=RANKS) | BURST.map(lambda burst: [burst] * RANKS),
    st.sampled_from(["", "", "", "", "mark", "epoch", "restart", "one's epoch"]),
)


@given(st.lists(TURN, max_size=8))
@settings(max_examples=80, deadline=None)
def test_steps_and_marks_are_those_of_rings_read_one_by_one(turns: list[tuple[list[tuple[int, int, int, int]], str]]) -> None:
    with node_and_rings() as (nodes, rings):
        numbers, now_ns, epochs = [0] * RANKS, [rank * MS for rank in range(RANKS)], [0] * RANKS
        for bursts, also in turns:
            if also in ("epoch", "one's epoch"):
                epochs = [epoch + (also == "epoch" or rank == 1) for rank, epoch in enumerate(epochs)]
            for rank, (steps, waits, batches, duration_ns) in enumerate(bursts):
                for _ in range(steps):
                    numbers_of_step = (duration_ns, waits, 1, 2, 3, 32, batches)
                    rings[rank].step(numbers[rank], 0, epochs[rank], now_ns[rank], *numbers_of_step)
                    numbers[rank] += 1
                    now_ns[rank] += duration_ns
            if also == "mark":
                rings[0].message({"type": "mark", "text": "here", "time_ns": 1})
            for node in nodes:
                node.collect()
            assert nodes[0].memories() == nodes[1].memories()
            if also == "restart":
                for node in nodes:
                    node.restart()
        for node in nodes:
            node.collect()
        assert nodes[0].told() == nodes[1].told()
        assert {rank: len(steps) for rank, steps in nodes[0].told()[0].items()} == {
            rank: count for rank, count in enumerate(numbers) if count
        }


def test_no_ring_is_read_by_itself_while_all_have_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    with node_and_rings(together=(True,)) as ([node], rings):
        for turn in range(6):
            for ring in rings:
                ring.step(turn, 0, -1, turn * MS, MS, 1, 1, 1, 1, 32, 1)
            if turn == 1:
                monkeypatch.delattr(RingReader, "read_table")
            node.collect()
        assert [len(steps) for steps in node.told()[0].values()] == [6] * RANKS


def test_a_worker_that_falls_silent_is_asked_after_steps_that_were_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    with node_and_rings(together=(True,)) as ([node], rings):
        asked: list[StackWatch] = []

        def ask(watch: StackWatch) -> bool:
            asked.append(watch)
            return True

        monkeypatch.setattr(StackWatch, "_ask", ask)
        clock = [1000.0]
        monkeypatch.setattr("time.monotonic", lambda: clock[0])
        for turn in range(12):
            for ring in rings:
                ring.step(turn, 0, -1, turn * MS, 100 * MS, 1, 1, 1, 1, 32, 1)
            clock[0] += 0.1
            node.collect()
        clock[0] += 1.0
        node.collect()
        assert not asked  # three steps of their usual time and a second
        clock[0] += 0.4
        node.collect()
        assert len(asked) == RANKS
