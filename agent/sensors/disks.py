"""Bytes per second and busy time of each disk, from /proc/diskstats; asks no file system, so a dead mount cannot stop it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from msgspec import Raw

from distmon.agent.machine_code import native
from distmon.agent.sensors.base import KernelFile, Reading, Roots, as_lines, rate
from distmon.core.events import DiskRate

_SECTOR_BYTES = 512
_NOT_DISKS = ("loop", "ram", "zram", "fd")
_LIST_AGAIN_NS = 30 * 10**9


class _Counters(NamedTuple):
    read_bytes: int
    written_bytes: int
    busy_ms: int


class DiskSensor:
    fields: tuple[str, ...] = ("disks",)

    def __init__(self, roots: Roots) -> None:
        self._blocks = roots.sys / "block"
        self._file = KernelFile(roots.proc / "diskstats")
        self._whole: frozenset[str] = frozenset()
        self._listed_ns: int | None = None
        self._last = b""
        """The file's text."""
        self._last_ns: int | None = None

    def read(self, now_ns: int) -> Reading:
        self._list(now_ns)
        last, self._last = _parse(self._last, self._whole), self._file.read()
        interval_s = 0.0 if self._last_ns is None else (now_ns - self._last_ns) / 1e9
        self._last_ns = now_ns
        rates = [_rate(name, last.get(name), new, interval_s) for name, new in _parse(self._last, self._whole).items()]
        return Reading({"disks": rates}, {} if rates else {"disks": "the kernel shows no disk here"})

    def packed(self, now_ns: int) -> Reading:
        """As `read`, in machine code where that was built."""
        if native is not None and self._last_ns is not None:
            self._list(now_ns)
            interval_s = (now_ns - self._last_ns) / 1e9
            found = native.disk_rates(self._file.fd, self._last, interval_s, as_lines(self._whole))
            if found is not None:
                (self._last, rates), self._last_ns = found, now_ns
                return Reading({"disks": Raw(rates)}, {})
        return self.read(now_ns)

    def _list(self, now_ns: int) -> None:
        if self._listed_ns is None or now_ns - self._listed_ns > _LIST_AGAIN_NS:
            self._whole, self._listed_ns = self._whole_disks(), now_ns

    def _whole_disks(self) -> frozenset[str]:
        """Disks, not their partitions, nor what stands on other disks."""
        entries = (entry for entry in os.listdir(self._blocks) if not entry.startswith(_NOT_DISKS))  # noqa: PTH208
        return frozenset(entry.replace("!", "/") for entry in entries if not _stands_on_others(self._blocks / entry))


def _stands_on_others(block: Path) -> bool:
    """A logical volume, a RAID: its bytes are counted on the disks below it."""
    try:
        return bool(os.listdir(block / "slaves"))  # noqa: PTH208
    except OSError:
        return False


def _rate(name: str, before: _Counters | None, after: _Counters, interval_s: float) -> DiskRate:
    busy_ms = rate(before and before.busy_ms, after.busy_ms, interval_s)
    return DiskRate(
        name=name,
        read_bytes_per_s=rate(before and before.read_bytes, after.read_bytes, interval_s),
        written_bytes_per_s=rate(before and before.written_bytes, after.written_bytes, interval_s),
        busy_percent=None if busy_ms is None else round(min(100.0, busy_ms / 10), 2),
    )


def _parse(text: bytes, wanted: frozenset[str]) -> dict[str, _Counters]:
    counters: dict[str, _Counters] = {}
    for line in text.splitlines():
        columns = line.split(None, 13)
        if len(columns) >= 13 and columns[5].isdigit() and columns[9].isdigit() and columns[12].isdigit():
            name = columns[2].decode("utf-8", "replace")
            if name in wanted:
                counters[name] = _Counters(int(columns[5]) * _SECTOR_BYTES, int(columns[9]) * _SECTOR_BYTES, int(columns[12]))
    return counters
