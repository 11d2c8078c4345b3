"""CPU use of the node and of each core, from /proc/stat."""

from __future__ import annotations

import re

import msgspec
from msgspec import Raw

from distmon.agent.machine_code import native
from distmon.agent.sensors.base import NIL, KernelFile, Reading, Roots, as_row

_NOT_YET = "no time has passed on the kernel's counters"
_WHOLE_NODE = b"cpu "
_AFTER_CORES = b"\nintr"
_ABSENT = -1
_MOST_CORES = 8191
"""Linux has no more."""
_LINE = rb"^cpu(\d*) +(\d[\d ]*)"

Ticks = dict[int, tuple[int, int]]
"""Core, or -1 for all -> (idle, total) in clock ticks. Cores that are off have no line."""


class _Core(msgspec.Struct, array_like=True, gc=False):
    """A line's columns, in clock ticks. Guest time, which follows, is already in `user` and `nice`."""

    number: int
    user: int
    nice: int
    system: int
    idle: int
    io_wait: int = 0
    interrupts: int = 0
    soft_interrupts: int = 0
    stolen: int = 0


_table = msgspec.json.Decoder(list[_Core])


class CpuSensor:
    fields: tuple[str, ...] = ("cpu_percent", "cores_percent")

    def __init__(self, roots: Roots) -> None:
        self._file = KernelFile(roots.proc / "stat")
        self._last = b""
        """(idle, total) in clock ticks of all cores and of each, -1 and 0 of one that is off: as machine code reads them."""

    def read(self, now_ns: int) -> Reading:
        before = _unpacked(self._last)
        # The kernel makes the whole file anew for a second read, and what follows the cores costs it most.
        now = parse(self._file.read(until=_AFTER_CORES))
        self._last = _packed(now)
        cores = [_busy_percent(before.get(core), now.get(core)) for core in range(max(now, default=-1) + 1)]
        return _reading(_busy_percent(before.get(-1), now.get(-1)), cores)

    def packed(self, now_ns: int) -> Reading:
        """As `read`, in machine code where that was built."""
        found = native.core_usage(self._file.fd, self._last) if native is not None else None
        if found is None:
            return self.read(now_ns)
        self._last, total, cores = found
        if total == NIL:
            return _reading(None, Raw(cores))
        return Reading({"cpu_percent": Raw(total), "cores_percent": Raw(cores)}, {})


def _reading(total: object, cores: object) -> Reading:
    return Reading({"cpu_percent": total, "cores_percent": cores}, {} if total is not None else {"cpu_percent": _NOT_YET})


def _packed(ticks: Ticks) -> bytes:
    absent = (_ABSENT, 0)
    return as_row([number for core in range(-1, max(ticks, default=-2) + 1) for number in ticks.get(core, absent)])


def _unpacked(packed: bytes) -> Ticks:
    numbers = memoryview(packed).cast("q").tolist()
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    return {core: pair for core, pair in enumerate(pairs, -1) if pair[0] != _ABSENT}


def parse(text: bytes) -> Ticks:
    """Lines that are not as they have always been are passed over, as are those of cores that no machine has."""
    # What follows the cores' lines is one of thousands of numbers on a large machine.
    end = text.find(_AFTER_CORES)
    lines = text[: end if end >= 0 else len(text)]
    try:
        # Written as JSON, the table is read in C: on a large machine this is a third of the time of line by line.
        rows = lines.removeprefix(_WHOLE_NODE).lstrip().replace(b"\ncpu", b"],[").replace(b" ", b",")
        is_usual = lines.startswith(_WHOLE_NODE) and lines.count(b"\n") == lines.count(b"\ncpu")
        table = _table.decode(b"[[-1," + rows + b"]]" if is_usual else b"")
    except msgspec.MsgspecError:
        found = ([int(core or -1), *map(int, numbers.split()[:8])] for core, numbers in re.findall(_LINE, lines, re.MULTILINE))
        table = [_Core(*columns) for columns in found if len(columns) > 4]
    return {core.number: _idle_and_total(core) for core in table if core.number < _MOST_CORES}


def _idle_and_total(core: _Core) -> tuple[int, int]:
    idle = core.idle + core.io_wait
    return idle, idle + core.user + core.nice + core.system + core.interrupts + core.soft_interrupts + core.stolen


def _busy_percent(before: tuple[int, int] | None, after: tuple[int, int] | None) -> float | None:
    """To two decimals; half a hundredth is rounded up."""
    if before is None or after is None:
        return None
    idle, total = after[0] - before[0], after[1] - before[1]
    if total <= 0:
        return None
    # The kernel's idle and I/O wait counters can step back by a tick.
    return (20000 * (total - idle) + total) // (2 * total) / 100 if 0 <= idle <= total else 100.0 if idle < 0 else 0.0
