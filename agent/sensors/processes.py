"""CPU, memory and threads of the ranks' own processes, and how long they wait for a core, from files of /proc/PID held open.

So a pid used again is never mistaken. /proc/PID/schedstat is of the main thread alone, the one that trains.
"""

from __future__ import annotations

import os

from msgspec import Raw

from distmon.agent.machine_code import native
from distmon.agent.sensors.base import KernelFile, Reading, Roots, as_row, why
from distmon.core.events import ProcessReading

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_ROW = 7
"""Numbers of a process for machine code."""


class _Process:
    def __init__(self, roots: Roots, pid: int) -> None:
        self.pid = pid
        self.file = KernelFile(roots.proc / str(pid) / "stat")
        self.queue = KernelFile(roots.proc / str(pid) / "schedstat")
        self.rank: int | None = None
        self.last_ticks: int | None = None
        self.last_wait_ns = -1
        """Waited for a core since the process began; -1 where that was not read."""
        self.last_ns = 0

    def read(self, now_ns: int) -> ProcessReading:
        ticks, threads, pages = counts_of(self.file.read())
        wait_ns = self._wait_ns()
        last_ticks, last_wait_ns, elapsed_ns = self.last_ticks, self.last_wait_ns, now_ns - self.last_ns
        self.last_ticks, self.last_wait_ns, self.last_ns = ticks, wait_ns, now_ns
        percent = None if last_ticks is None or elapsed_ns <= 0 else 100e9 * (ticks - last_ticks) / _TICKS_PER_S / elapsed_ns
        waited = None
        if wait_ns >= 0 and last_wait_ns >= 0 and elapsed_ns > 0:
            waited = (1000 * min(max(wait_ns - last_wait_ns, 0), elapsed_ns) + elapsed_ns // 2) // elapsed_ns / 10
        return ProcessReading(
            pid=self.pid,
            rank=self.rank,
            cpu_percent=None if percent is None else round(max(0.0, percent), 2),
            memory_bytes=pages * _PAGE_BYTES,
            threads=threads,
            run_queue_wait_percent=waited,
        )

    def row(self) -> tuple[int | None, ...]:
        """For machine code."""
        rank = -1 if self.rank is None else self.rank
        return self.pid, rank, self.file.fd, self.queue.fd, self.last_ticks, self.last_ns, self.last_wait_ns

    def close(self) -> None:
        self.file.close()
        self.queue.close()

    def _wait_ns(self) -> int:
        """-1 where the kernel does not count it."""
        try:
            return wait_in(self.queue.read())
        except (OSError, ValueError):
            return -1


class ProcessSensor:
    """Reads the processes that `watch` names, and no others: what costs is reading every process of a node."""

    fields: tuple[str, ...] = ("processes",)

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._processes: dict[int, _Process] = {}
        """By pid, in the order of their ranks."""
        self._rows = b""
        """`row` of each for machine code, as of its last reading; empty after `read` and a change of them."""

    def watch(self, pid: int, rank: int | None) -> None:
        """Reads this process from now on, under this rank."""
        self._settle()
        process = self._processes.get(pid)
        if process is None:
            process = self._processes[pid] = _Process(self._roots, pid)
        process.rank = rank
        self._sort()

    def forget(self, pid: int) -> None:
        self._settle()
        process = self._processes.pop(pid, None)
        if process is not None:
            process.close()

    def first_pid(self) -> int | None:
        """Of the lowest rank on this node; None while no rank is known."""
        first = next(iter(self._processes.values()), None)
        return None if first is None or first.rank is None else first.pid

    def read(self, now_ns: int) -> Reading:
        self._settle()
        readings: list[ProcessReading] = []
        reasons: list[str] = []
        for process in list(self._processes.values()):
            try:
                readings.append(process.read(now_ns))
            except (FileNotFoundError, ProcessLookupError):
                self.forget(process.pid)
            except (OSError, ValueError) as error:
                reasons.append(f"process {process.pid}: {why(error)}")
        return Reading({"processes": readings}, {"processes": "; ".join(reasons)} if reasons else {})

    def packed(self, now_ns: int) -> Reading:
        """As `read`, in machine code where that was built and each process was read before."""
        if native is None or not self._processes:
            return self.read(now_ns)
        if not self._rows:
            self._rows = as_row([number for process in self._processes.values() for number in process.row()])
        if not self._rows:
            return self.read(now_ns)
        found = native.process_readings(self._rows, now_ns, _TICKS_PER_S, _PAGE_BYTES)
        if found is None:
            return self.read(now_ns)
        self._rows, readings = found
        return Reading({"processes": Raw(readings)}, {})

    def _settle(self) -> None:
        """Leaves each process as if it had been read by itself."""
        if self._rows:
            rows = memoryview(self._rows).cast("q").tolist()
            for process, ticks, at_ns, wait_ns in zip(
                self._processes.values(), rows[4::_ROW], rows[5::_ROW], rows[6::_ROW], strict=True
            ):
                process.last_ticks, process.last_ns, process.last_wait_ns = ticks, at_ns, wait_ns
            self._rows = b""

    def _sort(self) -> None:
        order = sorted(self._processes.values(), key=lambda process: (process.rank is None, process.rank, process.pid))
        self._processes = {process.pid: process for process in order}


def counts_of(line: bytes) -> tuple[int, int, int]:
    """Clock ticks in user and kernel mode, threads, pages of memory, of a line of /proc/PID/stat. Raises ValueError."""
    # From the state on; the name before it may hold anything.
    columns = line[line.rindex(b")") + 2 :].split(None, 22)
    if len(columns) < 22:
        raise ValueError("a short line in /proc/PID/stat")
    return int(columns[11]) + int(columns[12]), int(columns[17]), int(columns[21])


def wait_in(line: bytes) -> int:
    """Nanoseconds waited for a core, of a line of /proc/PID/schedstat; -1 where it has no time on one: the kernel does not count
    then. Raises ValueError.
    """
    ran, waited = line.split(None, 2)[:2]
    return int(waited) if int(ran) else -1
