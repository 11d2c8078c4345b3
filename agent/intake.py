"""Takes over what the ranks' probes leave in ring files, from the file's appearance to the end of its writer."""

from __future__ import annotations

import os
import time
from pathlib import Path

from distmon.agent.gpu_ranks import GpuUser
from distmon.agent.grid import next_on_grid
from distmon.agent.records import Kept, Worker
from distmon.agent.sampler import Sampler
from distmon.core.events import NoticeGiven
from distmon.probe.ring import SUFFIX, RingError, RingReader, Steps, process_start_ticks
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
_LOOK_AT_WRITER_S = 1.0
_SILENT_BEFORE_GONE_S = 2.0


class _Ring:
    """One ring and the worker that writes it."""

    def __init__(self, path: Path, inode: int, node: str, clock: SteadyClock) -> None:
        self.path = path
        self.inode = inode
        self.reader = RingReader(str(path))
        environment = _environment(self.reader.header.pid)
        self.interface = environment.get("HOROVOD_GLOO_IFACE", "")
        rank = environment.get("HOROVOD_RANK") or environment.get("RANK", "")
        self.worker = Worker(node, self.reader.header, clock, int(rank) if rank.isdecimal() else None)
        self.lost = 0
        self.heard = time.monotonic()
        self.looked = time.monotonic()

    def writer_ended(self, now: float) -> bool:
        """Whether nothing more can come; looks at the process about once a second, and only while the ring is silent."""
        if self.reader.closed_ns is not None:
            return True
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


class Intake:
    """Owned by the agent's loop."""

    def __init__(
        self, node: str, clock: SteadyClock, sampler: Sampler, publisher: Publisher, folders: list[str], steps_hz: float
    ) -> None:
        self._node = node
        self._clock = clock
        self._sampler = sampler
        self._publisher = publisher
        self._folders = {Path(folder): 0 for folder in folders}
        """Folder -> its time of change when it was last listed."""
        self._rings: dict[Path, _Ring] = {}
        self._refused: set[tuple[Path, int]] = set()
        self._flush_every_s = 1 / steps_hz
        self._next_flush = time.monotonic()

    def collect(self, *, last: bool = False) -> float:
        """Publishes what is new; with `last`, also what waits. Gives the seconds after which to come again."""
        now = time.monotonic()
        for folder in self._folders:
            self._look_for_rings(folder)
        fullest = 0.0
        for ring in list(self._rings.values()):
            ended = ring.writer_ended(now)
            fullest = max(fullest, self._read(ring, now))
            if ended:
                self._finish(ring)
        if last or now >= self._next_flush - _FLUSH_EARLY_S:
            self._next_flush = next_on_grid(self._next_flush, self._flush_every_s, now)
            for ring in self._rings.values():
                self._publish(ring.worker.flush())
        return _PAUSE_BUSY_S if fullest > _BUSY_SHARE else min(PAUSE_S, self._flush_every_s)

    def close(self) -> None:
        for ring in self._rings.values():
            ring.reader.close()
        self._rings.clear()

    def _look_for_rings(self, folder: Path) -> None:
        try:
            changed_ns = folder.stat().st_mtime_ns
            # A change within the clock's grain of the last listing may have been missed by it.
            if changed_ns == self._folders[folder] and time.time_ns() - changed_ns > 2 * 10**9:
                return
            self._folders[folder] = changed_ns
            found = [(Path(entry.path), entry.inode()) for entry in os.scandir(folder) if entry.name.endswith(SUFFIX)]
        except FileNotFoundError:
            return  # taken away at the job's end
        except OSError as error:
            self._refuse(folder, 0, f"cannot look for rings in {folder}: {error.strerror}")
            return
        for path, inode in sorted(found):
            if path not in self._rings and (path, inode) not in self._refused:
                self._open(path, inode)

    def _open(self, path: Path, inode: int) -> None:
        try:
            self._rings[path] = _Ring(path, inode, self._node, self._clock)
        except RingError as error:
            self._refuse(path, inode, str(error))

    def _read(self, ring: _Ring, now: float) -> float:
        """Takes over what is new in a ring; gives how full it was, as a share."""
        batches = ring.reader.read_batches()
        lost = ring.reader.lost + ring.reader.torn
        if lost > ring.lost:
            self._publish(ring.worker.flush())
            self._publish([Kept(ring.worker.gap(lost - ring.lost, self._clock.now()))])
            ring.lost = lost
        if not batches:
            return 0.0
        ring.heard = now
        rank = ring.worker.rank
        self._publish(ring.worker.take(batches))
        if ring.worker.rank != rank:
            self._rank_known(ring)
        count = sum(len(batch.step) if isinstance(batch, Steps) else 1 for batch in batches)
        return count / ring.reader.header.capacity

    def _rank_known(self, ring: _Ring) -> None:
        """Lets the sensors know: the rank's process, its GPU, and the interface that the job talks over."""
        worker = ring.worker
        self._sampler.processes.watch(worker.pid, worker.rank)
        if worker.rank is not None and worker.local_rank is not None:
            user = GpuUser(worker.pid, worker.rank, worker.local_rank, worker.visible_devices)
            self._sampler.gpus.watch(worker.worker, user)
        interface = ring.interface or ("lo" if worker.local_job else "")
        if interface:
            self._sampler.network.used_by_training |= {interface}

    def _finish(self, ring: _Ring) -> None:
        """The writer is gone and its records are read: nobody needs the file any more."""
        self._publish(ring.worker.finish())
        self._sampler.processes.forget(ring.worker.pid)
        self._sampler.gpus.forget(ring.worker.worker)
        if ring.worker.unreadable:
            self._warn(f"{ring.worker.unreadable} messages of rank {ring.worker.rank} were not understood")
        ring.reader.close()
        del self._rings[ring.path]
        try:
            ring.path.unlink(missing_ok=True)
        except OSError:
            self._refused.add((ring.path, ring.inode))  # read once is enough
        if not self._rings:
            self._sampler.network.used_by_training = frozenset()

    def _refuse(self, path: Path, inode: int, text: str) -> None:
        """Tells it once."""
        if (path, inode) not in self._refused:
            self._refused.add((path, inode))
            self._warn(text)

    def _warn(self, text: str) -> None:
        notice = NoticeGiven(at=self._clock.now(), severity="warning", text=text, source="agent")
        self._publisher.publish(RANK_STREAM, notice)

    def _publish(self, kept: list[Kept]) -> None:
        for item in kept:
            self._publisher.publish(RANK_STREAM, item.event, keep=item.keep)


def _environment(pid: int) -> dict[str, str]:
    """A process's environment when it was started; empty when it cannot be read."""
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "replace")
    except OSError:
        return {}
    return dict(pair.split("=", 1) for pair in text.split("\0") if "=" in pair)
