"""One ring and the worker that writes it; and all rings of a node read in one go."""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from distmon.agent.records import Worker, WorkerMemory
from distmon.agent.stacks import StackWatch
from distmon.agent.step_rows import UNKNOWN_EPOCH, columns_of, numbers_of
from distmon.core.batches import USUAL_STEPS
from distmon.core.events import NodeStepsRecorded
from distmon.core.step_table import MOST_STEPS, StepTable
from distmon.probe.ring import NodeTable, RingReader, process_start_ticks, read_tables
from distmon.wire.clock import SteadyClock

_LOOK_AT_WRITER_S = 1.0
_SILENT_BEFORE_GONE_S = 2.0


class RingMemory(Struct, frozen=True):
    """How far one ring was read; `worker` is None for one that is done with."""

    path: str
    inode: int
    position: int
    worker: WorkerMemory | None


class Ring:
    """One ring and the worker that writes it."""

    def __init__(self, path: Path, inode: int, node: str, clock: SteadyClock) -> None:
        self.path = path
        self.name = str(path)
        self.inode = inode
        self.begun_at = 0
        """The first record that is this agent's to publish."""
        self.reader = RingReader(str(path))
        environment = _environment(self.reader.header.pid)
        self.interface = environment.get("HOROVOD_GLOO_IFACE", "")
        rank = environment.get("HOROVOD_RANK") or environment.get("RANK", "")
        self.worker = Worker(node, self.reader.header, clock, int(rank) if rank.isdecimal() else None)
        self.stacks = StackWatch(path, self.reader.header, environment.get("PATH", ""))
        self.lost = 0
        self.heard = time.monotonic()
        self.looked = time.monotonic()

    def resume(self, memory: RingMemory) -> None:
        """Goes on where an earlier run of the agent was."""
        self.begun_at = memory.position
        self.reader.resume(memory.position)
        if memory.worker is not None:
            self.worker.restore(memory.worker)

    def memory(self) -> RingMemory:
        """As long as the worker has not said its rank, nothing of it is published."""
        position = self.begun_at if self.worker.rank is None else self.reader.position
        return RingMemory(self.name, self.inode, position, self.worker.memory())

    def writer_gone(self, now: float) -> bool:
        """Whether its process has ended; looks at that about once a second, and only while the ring is silent."""
        if now - max(self.looked, self.heard) < _LOOK_AT_WRITER_S:
            return False
        self.looked = now
        # A pid of another namespace looks dead from here: as long as records come, it is not.
        return now - self.heard > _SILENT_BEFORE_GONE_S and not self._writer_lives()

    def _writer_lives(self) -> bool:
        header = self.reader.header
        try:
            return process_start_ticks(header.pid) == header.start_ticks
        except OSError:
            return False


class RingsTogether:
    """All rings of a node, as long as each has steps and nothing else whenever they are read: nearly always.

    An agent that was asleep for a second pays for what it touches, and so nothing of a single ring or worker is: they hear of it
    by `settle`.
    """

    def __init__(self, rings: Sequence[Ring], node: str, clock: SteadyClock) -> None:
        """Of rings whose workers have said their ranks, and told all their steps."""
        self._rings = rings
        self._node = node
        self._clock = clock
        self._workers = [ring.worker.worker for ring in rings]
        self._ranks = [rank for ring in rings if (rank := ring.worker.rank) is not None]
        self._places = b"".join([ring.reader.place for ring in rings])
        self._smallest = min([ring.reader.header.capacity for ring in rings])
        self._epochs = {ring.worker.epoch for ring in rings}
        self.cursors = array("Q", [ring.reader.position for ring in rings]).tobytes()
        """Where each is read next: unsigned 64-bit integers of this machine."""
        self.ends_ns = array("q", [ring.worker.last_end_ns for ring in rings]).tobytes()
        """Of what was read of each, likewise."""
        self._recent: list[NodeTable] = []
        self._heard = 0.0
        self.fullest = 0.0
        """How full the fullest ring was at the last reading, as a share."""

    def read(self, now: float) -> NodeStepsRecorded | None:
        """The steps since the last reading; None where a ring has nothing new, or something else, and nothing is taken of any."""
        table = read_tables(self._places, self.cursors, MOST_STEPS)
        if table is None or (table.epoch != UNKNOWN_EPOCH and self._epochs != {table.epoch}):
            return None
        self._heard, self.cursors, self.ends_ns = now, table.cursors, table.ends_ns
        self._recent = [table] if min(table.steps) >= USUAL_STEPS else [*self._recent, table][-USUAL_STEPS:]
        self.fullest = max(table.steps) / self._smallest
        return NodeStepsRecorded(
            at=self._clock.at(max(memoryview(table.ends_ns).cast("q"))),
            node=self._node,
            generation=table.generation,
            epoch=None if table.epoch == UNKNOWN_EPOCH else table.epoch,
            origin=self._clock.at(table.start_ns),
            workers=self._workers,
            ranks=self._ranks,
            first_steps=table.first_steps,
            table=StepTable(columns_of(table.columns), table.steps, numbers_of(table.numbers)),
        )

    def settle(self) -> None:
        """Leaves each ring and worker as if it had been read by itself."""
        if not self._recent:
            return
        for table in self._recent:
            for ring, durations_ns in zip(self._rings, table.durations_ns(), strict=True):
                ring.stacks.steps_came(durations_ns, self._heard)
        cursors, ends_ns = memoryview(self.cursors).cast("Q"), memoryview(self.ends_ns).cast("q")
        for ring, cursor, end_ns in zip(self._rings, cursors, ends_ns, strict=True):
            ring.heard = self._heard
            ring.reader.go_on_at(cursor)
            ring.worker.told_until(end_ns)


def can_go_together(rings: Sequence[Ring]) -> bool:
    """Whether nothing but steps is awaited of any of them."""
    return len(rings) > 1 and all(ring.worker.only_steps and not ring.stacks.asked for ring in rings)


def _environment(pid: int) -> dict[str, str]:
    """A process's environment when it was started; empty when it cannot be read."""
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "replace")
    except OSError:
        return {}
    return dict(pair.split("=", 1) for pair in text.split("\0") if "=" in pair)
