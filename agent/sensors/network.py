"""Bytes per second of each network interface, from /proc/net/dev of this network namespace."""

from __future__ import annotations

from msgspec import Raw

from distmon.agent.machine_code import native
from distmon.agent.sensors.base import KernelFile, Reading, Roots, as_lines
from distmon.core.events import NetworkRate

_MOST_INTERFACES = 32
_Counts = tuple[int, int]
"""Bytes received and sent."""
_RECEIVED, _SENT = 0, 8
"""Columns after the interface's name."""


class NetworkSensor:
    fields: tuple[str, ...] = ("networks",)

    def __init__(self, roots: Roots) -> None:
        self._file = KernelFile(roots.proc / "net" / "dev")
        self._last = b""
        """The file's text."""
        self._last_ns: int | None = None
        self.used_by_training = frozenset()

    @property
    def used_by_training(self) -> frozenset[str]:
        """Interfaces that the ranks on this node talk over; whoever knows the ranks sets it."""
        return self._used

    @used_by_training.setter
    def used_by_training(self, names: frozenset[str]) -> None:
        self._used = names
        self._used_lines = as_lines(names)

    def read(self, now_ns: int) -> Reading:
        before, self._last = counts_of(self._last), self._file.read()
        rates = rates_of(counts_of(self._last), before, self._interval_s(now_ns), self._used)
        return Reading({"networks": rates}, {} if rates else {"networks": "no interface has carried a byte"})

    def packed(self, now_ns: int) -> Reading:
        """As `read`, in machine code where that was built."""
        if native is not None and self._last_ns is not None:
            interval_s = (now_ns - self._last_ns) / 1e9
            found = native.network_rates(self._file.fd, self._last, interval_s, self._used_lines, _MOST_INTERFACES)
            if found is not None:
                (self._last, rates), self._last_ns = found, now_ns
                return Reading({"networks": Raw(rates)}, {})
        return self.read(now_ns)

    def _interval_s(self, now_ns: int) -> float:
        last_ns, self._last_ns = self._last_ns, now_ns
        return 0.0 if last_ns is None else (now_ns - last_ns) / 1e9


def rates_of(after: dict[str, _Counts], before: dict[str, _Counts], interval_s: float, used: frozenset[str]) -> list[NetworkRate]:
    """The interfaces that training uses and those that carried most, in this order."""
    # Hosts with containers have hundreds; those that never carried a byte tell nothing.
    order = [(name not in used, -sum(pair), name) for name, pair in after.items() if name in used or any(pair)]
    order.sort()
    return [_rates(name, before.get(name), after[name], interval_s, name in used) for *_, name in order[:_MOST_INTERFACES]]


def _rates(name: str, before: _Counts | None, after: _Counts, interval_s: float, used_by_training: bool) -> NetworkRate:
    if before is None or interval_s <= 0:
        return NetworkRate(name=name, received_bytes_per_s=None, sent_bytes_per_s=None, used_by_training=used_by_training)
    received, sent = after[0] - before[0], after[1] - before[1]
    return NetworkRate(
        name=name,
        # None after a counter was reset.
        received_bytes_per_s=received / interval_s if received >= 0 else None,
        sent_bytes_per_s=sent / interval_s if sent >= 0 else None,
        used_by_training=used_by_training,
    )


def counts_of(text: bytes) -> dict[str, _Counts]:
    """Interface -> bytes received and sent. Lines of another form are passed over; a name may hold a colon."""
    counts: dict[str, _Counts] = {}
    for line in text.splitlines():
        name, _, rest = line.rpartition(b":")
        columns = rest.split(None, _SENT + 1)
        if name and len(columns) > _SENT and columns[_RECEIVED].isdigit() and columns[_SENT].isdigit():
            counts[name.strip().decode("utf-8", "replace")] = int(columns[_RECEIVED]), int(columns[_SENT])
    return counts
