"""Bytes per second of each network interface, from /proc/net/dev of this network namespace."""

from __future__ import annotations

from distmon.agent.machine_code import native
from distmon.agent.sensors.base import KernelFile, Reading, Roots
from distmon.core.events import NetworkRate

_MOST_INTERFACES = 32
_Counts = tuple[int, int]
"""Bytes received and sent."""
_RECEIVED, _SENT = 0, 8
"""Columns after the interface's name."""


class NetworkSensor:
    fields: tuple[str, ...] = ("networks",)

    def __init__(self, roots: Roots) -> None:
        self.used_by_training: frozenset[str] = frozenset()
        """Interfaces that the ranks on this node talk over; whoever knows the ranks sets it."""
        self._file = KernelFile(roots.proc / "net" / "dev")
        self._last: dict[str, _Counts] = {}
        self._last_ns: int | None = None

    def read(self, now_ns: int) -> Reading:
        last, self._last = self._last, counts_of(self._file.read())
        interval_s = 0.0 if self._last_ns is None else (now_ns - self._last_ns) / 1e9
        self._last_ns = now_ns
        rates = rates_of(self._last, last, interval_s, self.used_by_training)
        return Reading({"networks": rates}, {} if rates else {"networks": "no interface has carried a byte"})


def rates_of(after: dict[str, _Counts], before: dict[str, _Counts], interval_s: float, used: frozenset[str]) -> list[NetworkRate]:
    """The interfaces that training uses and those that carried most, in this order: in machine code where that was built."""
    found = native.network_rates(NetworkRate, after, before, interval_s, used, _MOST_INTERFACES) if native is not None else None
    return rates_python(after, before, interval_s, used) if found is None else found


def rates_python(
    after: dict[str, _Counts], before: dict[str, _Counts], interval_s: float, used: frozenset[str]
) -> list[NetworkRate]:
    """The same in Python."""
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
    """Interface -> bytes received and sent: in machine code where that was built."""
    found = native.interface_counts(text) if native is not None else None
    return counts_python(text) if found is None else found


def counts_python(text: bytes) -> dict[str, _Counts]:
    """The same in Python. Lines of another form are passed over; a name may hold a colon."""
    counts: dict[str, _Counts] = {}
    for line in text.splitlines():
        name, _, rest = line.rpartition(b":")
        columns = rest.split(None, _SENT + 1)
        if name and len(columns) > _SENT and columns[_RECEIVED].isdigit() and columns[_SENT].isdigit():
            counts[name.strip().decode("utf-8", "replace")] = int(columns[_RECEIVED]), int(columns[_SENT])
    return counts
