"""Takes over what the ranks' probes leave in ring files, from the file's appearance to the end of its writer."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct, structs

from distmon.agent.gpu_ranks import GpuUser
from distmon.agent.grid import next_on_grid
from distmon.agent.records import Kept, kept
from distmon.agent.rings import Ring, RingMemory, RingsTogether, can_go_together
from distmon.agent.sampler import Sampler
from distmon.agent.step_rows import MOST_STEPS_PER_EVENT
from distmon.agent.together import together
from distmon.core.events import NoticeGiven
from distmon.probe.ring import SUFFIX, Batch, RingError, Step, Steps, Table, boot_id
from distmon.wire.clock import SteadyClock
from distmon.wire.publisher import Publisher

RANK_STREAM = "ranks"
PAUSE_S = 1.0
"""Steps go out once a second all the same; each wake-up of an idle process costs more than the reading that it does."""
_PAUSE_BUSY_S = 0.1
_BUSY_SHARE = 0.02
"""Of a ring, that came between two reads: from here on it is read more often."""
_FLUSH_EARLY_S = 0.05
"""Rather now than a whole pause too late."""


class _Mark(Struct, frozen=True):
    """Where the intake was when it last published."""

    machine_boot: str
    anchor_ns: int
    rings: list[RingMemory]
    cursors: bytes = b""
    """Where each of `rings` was read to since, while they were read together; `ends_ns` is the end of its last step there."""
    ends_ns: bytes = b""

    def memories(self) -> list[RingMemory]:
        """Of each ring, as it was then."""
        if not self.cursors:
            return self.rings
        cursors, ends_ns = memoryview(self.cursors).cast("Q"), memoryview(self.ends_ns).cast("q")
        return [
            structs.replace(ring, position=cursor, worker=ring.worker and structs.replace(ring.worker, last_end_ns=end_ns))
            for ring, cursor, end_ns in zip(self.rings, cursors, ends_ns, strict=True)
        ]


_mark_encoder = msgspec.msgpack.Encoder()
_mark_decoder = msgspec.msgpack.Decoder(_Mark)


def marked_anchor_ns(mark: bytes) -> int | None:
    """The agent's steady clock, as it was when a mark was made since this machine was started; None without one."""
    known = _decode_mark(mark)
    return None if known is None else known.anchor_ns


def marked_memories(mark: bytes) -> list[RingMemory]:
    """How far each ring was read, as it was then; empty where that is not known."""
    known = _decode_mark(mark)
    return [] if known is None else known.memories()


def _durations_ns(batch: Batch) -> Sequence[int]:
    """Of the steps in it. Those that come with other records come one by one."""
    if isinstance(batch, Steps):
        return batch.duration_ns
    return (batch.duration_ns,) if isinstance(batch, Step) else ()


def _decode_mark(mark: bytes) -> _Mark | None:
    """None for one of another version, or of before the machine was started: then all rings are new."""
    try:
        known = _mark_decoder.decode(mark)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return known if known.machine_boot == boot_id() else None


class Intake:
    """Owned by the agent's loop. What it reads between two flushes is published, and marked as read, in one go."""

    def __init__(
        self,
        node: str,
        clock: SteadyClock,
        sampler: Sampler,
        publisher: Publisher,
        folders: list[str],
        steps_hz: float,
        mark: bytes = b"",
    ) -> None:
        """`mark` is where an earlier run was: what it published is not published again."""
        self._node = node
        self._clock = clock
        self._sampler = sampler
        self._publisher = publisher
        self._folders = dict.fromkeys(folders, 0)
        """Folder -> its time of change when it was last listed."""
        self._rings: dict[Path, Ring] = {}
        self._refused: set[tuple[Path, int]] = set()
        self._earlier = {(memory.path, memory.inode): memory for memory in marked_memories(mark)}
        self._machine_boot = boot_id()
        self._waiting: list[Kept] = []
        self._done: list[RingMemory] = []
        """Rings that are read to their end, to be removed when that is stored."""
        self._together: RingsTogether | None = None
        self._before_together = Raw()
        """What `_mark` says of the rings as they were before they were read together."""
        self._flush_every_s = 1 / steps_hz
        self._next_flush = time.monotonic()

    def collect(self, *, last: bool = False) -> float:
        """Publishes what is new; with `last`, also what waits. Gives the seconds after which to come again."""
        now = time.monotonic()
        due = last or now >= self._next_flush - _FLUSH_EARLY_S
        for folder in self._folders:
            self._look_for_rings(folder)
        if due and (fullest := self._take_together(now)):
            asked = False
        else:
            fullest, asked = self._take_each(now)
        if due:
            self._next_flush = next_on_grid(self._next_flush, self._flush_every_s, now)
            self._flush()
        return _PAUSE_BUSY_S if asked or fullest > _BUSY_SHARE else min(PAUSE_S, self._flush_every_s)

    def _take_together(self, now: float) -> float:
        """The steps of all rings, where all have some and nothing else; gives how full the fullest was, 0 where none was read."""
        if self._together is None:
            rings = [*self._rings.values()]
            if self._done or not can_go_together(rings):
                return 0.0
            self._before_together = Raw(_mark_encoder.encode([ring.memory() for ring in rings]))
            self._together = RingsTogether(rings, self._node, self._clock)
        if (event := self._together.read(now)) is None:
            return 0.0
        self._waiting.append(Kept(event))
        return self._together.fullest

    def _settle(self) -> None:
        """From here on each ring is read by itself."""
        if self._together is not None:
            self._together.settle()
            self._together = None

    def _take_each(self, now: float) -> tuple[float, bool]:
        """What is new in each ring: how full the fullest was, and whether an answer of a silent worker is awaited."""
        self._settle()
        fullest, asked = 0.0, False
        for ring in list(self._rings.values()):
            # Nearly always there are steps and nothing else, and all that is looked at otherwise is settled by them.
            table = ring.reader.read_table(MOST_STEPS_PER_EVENT) if ring.worker.rank is not None else None
            if table is not None and table.steps:
                self._take_table(ring, table, now)
                fullest = max(fullest, table.steps / ring.reader.header.capacity)
                continue
            gone = ring.writer_gone(now)
            fullest = max(fullest, self._read(ring, now))
            asked = self._take_stacks(ring, now) or asked
            if gone or ring.reader.drained:
                self._finish(ring)
        return fullest, asked

    def _flush(self) -> None:
        if self._together is None:
            self._waiting.extend(kept(list(together([ring.worker.flush_rows() for ring in self._rings.values()]))))
        for item in self._waiting:
            self._publisher.publish(RANK_STREAM, item.event, keep=item.keep)
        self._waiting.clear()
        if self._publisher.commit(self._mark()) and self._done:
            self._done = [memory for memory in self._done if not _removed(memory)]

    def _mark(self) -> bytes:
        """Empty where there are no rings."""
        mark: dict[str, Any] = {"machine_boot": self._machine_boot, "anchor_ns": self._clock.anchor_ns}
        if self._together is not None:
            read = {"cursors": self._together.cursors, "ends_ns": self._together.ends_ns}
            return _mark_encoder.encode({**mark, "rings": self._before_together, **read})
        rings = [*self._done, *(ring.memory() for ring in self._rings.values())]
        return _mark_encoder.encode({**mark, "rings": rings}) if rings else b""

    def close(self) -> None:
        for ring in self._rings.values():
            ring.reader.close()
            ring.stacks.close()
        self._rings.clear()

    def _look_for_rings(self, folder: str) -> None:
        try:
            changed_ns = os.stat(folder).st_mtime_ns  # noqa: PTH116
            # A change within the clock's grain of the last listing may have been missed by it.
            if changed_ns == self._folders[folder] and time.time_ns() - changed_ns > 2 * 10**9:
                return
            self._folders[folder] = changed_ns
            found = [(Path(entry.path), entry.inode()) for entry in os.scandir(folder) if entry.name.endswith(SUFFIX)]
        except FileNotFoundError:
            return  # taken away at the job's end
        except OSError as error:
            self._refuse(Path(folder), 0, f"cannot look for rings in {folder}: {error.strerror}")
            return
        for path, inode in sorted(found):
            if path not in self._rings and (path, inode) not in self._refused:
                self._open(path, inode)

    def _open(self, path: Path, inode: int) -> None:
        memory = self._earlier.pop((str(path), inode), None)
        if memory is not None and memory.worker is None:
            self._done.append(memory)
            self._refused.add((path, inode))
            return
        try:
            self._settle()
            ring = self._rings[path] = Ring(path, inode, self._node, self._clock)
        except RingError as error:
            self._refuse(path, inode, str(error))
            return
        if memory is not None:
            ring.resume(memory)
            self._rank_known(ring)

    def _read(self, ring: Ring, now: float) -> float:
        """Takes over what is new in a ring; gives how full it was, as a share."""
        batches = ring.reader.read_batches()
        lost = ring.reader.lost + ring.reader.torn
        if lost > ring.lost:
            self._waiting.extend(kept(ring.worker.flush()))
            self._waiting.append(Kept(ring.worker.gap(lost - ring.lost, self._clock.now())))
            ring.lost = lost
        if not batches:
            return 0.0
        ring.heard = now
        durations = [duration for batch in batches for duration in _durations_ns(batch)]
        if durations:
            ring.stacks.steps_came(durations, now)
        rank = ring.worker.rank
        self._waiting.extend(ring.worker.take(batches))
        if ring.worker.rank != rank:
            self._rank_known(ring)
        count = sum(len(batch.step) if isinstance(batch, Steps) else 1 for batch in batches)
        return count / ring.reader.header.capacity

    def _take_table(self, ring: Ring, table: Table, now: float) -> None:
        ring.heard = now
        ring.stacks.steps_came(table.durations_ns(), now)
        if events := ring.worker.take_table(table):
            self._waiting.extend(events)

    def _take_stacks(self, ring: Ring, now: float) -> bool:
        """Of a worker whose steps have stopped; True while it is asked."""
        if ring.worker.rank is None:
            return False
        threads = ring.stacks.look(now)
        if threads:
            taken = ring.worker.stack(threads, ring.stacks.silent_s, self._clock.now(), ring.stacks.read_by)
            self._waiting.append(Kept(taken))
        return ring.stacks.asked

    def _rank_known(self, ring: Ring) -> None:
        """Lets the sensors know: the rank's process, its GPU, and the interface that the job talks over."""
        worker = ring.worker
        self._sampler.processes.watch(worker.pid, worker.rank)
        if worker.rank is not None and worker.local_rank is not None:
            user = GpuUser(worker.pid, worker.rank, worker.local_rank, worker.visible_devices)
            self._sampler.gpus.watch(worker.worker, user)
        interface = ring.interface or ("lo" if worker.local_job else "")
        if interface:
            self._sampler.network.used_by_training |= {interface}

    def _finish(self, ring: Ring) -> None:
        """The writer is gone and its records are read: nobody needs the file any more."""
        self._waiting.extend(ring.worker.finish())
        self._sampler.processes.forget(ring.worker.pid)
        self._sampler.gpus.forget(ring.worker.worker)
        if ring.worker.unreadable:
            self._warn(f"{ring.worker.unreadable} messages of rank {ring.worker.rank} were not understood")
        ring.reader.close()
        ring.stacks.remove()
        del self._rings[ring.path]
        self._refused.add((ring.path, ring.inode))
        self._done.append(RingMemory(str(ring.path), ring.inode, ring.reader.position, None))
        if not self._rings:
            self._sampler.network.used_by_training = frozenset()

    def _refuse(self, path: Path, inode: int, text: str) -> None:
        """Tells it once."""
        if (path, inode) not in self._refused:
            self._refused.add((path, inode))
            self._warn(text)

    def _warn(self, text: str) -> None:
        self._waiting.append(Kept(NoticeGiven(at=self._clock.now(), severity="warning", text=text, source="agent")))


def _removed(memory: RingMemory) -> bool:
    """Whether nothing is left of a ring that is done with; one that stays is remembered, so that it is not read again."""
    try:
        Path(memory.path).unlink(missing_ok=True)
    except OSError:
        return False
    return True
