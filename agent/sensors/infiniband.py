"""Bytes per second of each InfiniBand or RoCE port, from the adapter's own counters: RDMA passes the interfaces by."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

from msgspec import Raw

from distmon.agent.machine_code import native
from distmon.agent.sensors.base import (
    KernelFile,
    Reading,
    Roots,
    as_row,
    packed_map,
    packed_parts,
    rate,
    read_text,
    whole_numbers,
)
from distmon.core.events import NetworkRate

_LIST_AGAIN_NS = 60 * 10**9
_WORD_BYTES = 4
"""The counters count 32-bit words."""
_STUCK = 2**32 - 1
"""The old 32-bit counters stop here."""
_ABSENT = "this machine has no InfiniBand adapter"


class _Port(NamedTuple):
    name: str
    interfaces: frozenset[str]
    """The network interfaces that it carries."""
    received: KernelFile
    sent: KernelFile


class InfinibandSensor:
    fields: tuple[str, ...] = ("infiniband",)

    def __init__(self, roots: Roots, used_by_training: Callable[[], Collection[str]] = tuple) -> None:
        """`used_by_training` gives the names of the interfaces that the ranks talk over."""
        self._used_by_training = used_by_training
        self._folder = roots.sys / "class" / "infiniband"
        self._ports: list[_Port] = []
        self._files: list[KernelFile] = []
        """Two for each port: received, sent."""
        self._listed_ns: int | None = None
        self._last: dict[str, tuple[int | None, int | None]] = {}
        """Words received and sent by each port; None where it has no such counter (the file may hold a remark), or is gone."""
        self._last_ns: int | None = None
        self._rows = b""
        """For machine code, of each port: its two descriptors, and `_last`, as of its last reading; empty after `read`."""
        self._frames: list[tuple[bytes, bytes]] = []
        """Likewise, what stands around its rates; with `_used` among the interfaces of the ranks."""
        self._used: Collection[str] = ()

    def read(self, now_ns: int) -> Reading:
        if self._rows:
            numbers, self._rows = memoryview(self._rows).cast("q").tolist(), b""
            counts = zip(numbers[2::4], numbers[3::4], strict=True)
            self._last = {port.name: pair for port, pair in zip(self._ports, counts, strict=True)}
        if self._listed_ns is None or now_ns - self._listed_ns > _LIST_AGAIN_NS:
            self._list()
            self._listed_ns = now_ns
        if not self._ports:
            return Reading({"infiniband": []}, {"infiniband": _ABSENT})
        words = [None if number == _STUCK else number for number in whole_numbers(self._files)]
        last, self._last = self._last, {}
        interval_s = 0.0 if self._last_ns is None else (now_ns - self._last_ns) / 1e9
        self._last_ns = now_ns
        used, rates, silent = self._used_by_training(), [], []
        for port, received, sent in zip(self._ports, words[::2], words[1::2], strict=True):
            before = last.get(port.name, (None, None))
            self._last[port.name] = received, sent
            reading = NetworkRate(
                name=port.name,
                received_bytes_per_s=_bytes_per_s(before[0], received, interval_s),
                sent_bytes_per_s=_bytes_per_s(before[1], sent, interval_s),
                used_by_training=not port.interfaces.isdisjoint(used),
            )
            rates.append(reading)
            if received is None and sent is None:
                silent.append(port.name)
        return Reading({"infiniband": rates}, {"infiniband": f"{', '.join(silent)}: no counters"} if silent else {})

    def packed(self, now_ns: int) -> Reading:
        """As `read`, in machine code where that was built and every port has its counters."""
        if native is None or self._listed_ns is None or self._last_ns is None or now_ns - self._listed_ns > _LIST_AGAIN_NS:
            return self.read(now_ns)
        if not self._ports:
            return Reading({"infiniband": []}, {"infiniband": _ABSENT})
        if not self._rows:
            rows = [(port.received.fd, port.sent.fd, *self._last[port.name]) for port in self._ports]
            self._rows = as_row([number for row in rows for number in row])
        if not self._frames or self._used_by_training() != self._used:
            self._used = self._used_by_training()
            self._frames = [_frame(port, not port.interfaces.isdisjoint(self._used)) for port in self._ports]
        if not self._rows:
            return self.read(now_ns)
        found = native.port_rates(self._rows, self._frames, (now_ns - self._last_ns) / 1e9)
        if found is None:
            return self.read(now_ns)
        (self._rows, rates), self._last_ns = found, now_ns
        return Reading({"infiniband": Raw(rates)}, {})


    def _list(self) -> None:
        for file in self._files:
            file.close()
        self._frames = []
        self._ports = [_port(folder) for folder in sorted(self._folder.glob("*/ports/*"))]
        self._files = [file for port in self._ports for file in (port.received, port.sent)]


def _port(folder: Path) -> _Port:
    """Old drivers keep the counters that do not overflow in a folder of their own."""
    name, carried = f"{folder.parent.parent.name}/{folder.name}", _interfaces(folder)
    if (folder / "counters_ext/port_rcv_data_64").exists():
        wide = folder / "counters_ext"
        return _Port(name, carried, KernelFile(wide / "port_rcv_data_64"), KernelFile(wide / "port_xmit_data_64"))
    return _Port(name, carried, KernelFile(folder / "counters/port_rcv_data"), KernelFile(folder / "counters/port_xmit_data"))


def _interfaces(port: Path) -> frozenset[str]:
    """Those of the port's addresses, or, where old kernels do not tell these, all of its adapter."""
    names = {read_text(path) for path in port.glob("gid_attrs/ndevs/*")} - {""}
    return frozenset(names or (path.name for path in port.parent.parent.glob("device/net/*")))


def _frame(port: _Port, used_by_training: bool) -> tuple[bytes, bytes]:
    """What stands before and after a port's rates in msgpack."""
    head = packed_parts("name", port.name, "received_bytes_per_s")
    tail = packed_parts("used_by_training", True) if used_by_training else b""
    return packed_map(4 if used_by_training else 3) + head, tail


def _bytes_per_s(before: int | None, after: int | None, interval_s: float) -> float | None:
    words = None if after is None else rate(before, after, interval_s)
    return None if words is None else words * _WORD_BYTES
