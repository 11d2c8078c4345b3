"""Bytes per second of each network interface, from /proc/net/dev of this network namespace."""

from __future__ import annotations

from distmon.agent.machine_code import native
from distmon.agent.sensors.base import KernelFile, Reading, Roots, rate
from distmon.core.events import NetworkRate

_MOST_INTERFACES = 32
_RECEIVED, _SENT = 0, 8
"""Columns after the interface's name."""


class NetworkSensor:
    fields: tuple[str, ...] = ("networks",)

    def __init__(self, roots: Roots) -> None:
        self.used_by_training: frozenset[str] = frozenset()
        """Interfaces that the ranks on this node talk over; whoever knows the ranks sets it."""
        self._file = KernelFile(roots.proc / "net" / "dev")
        self._last: dict[str, tuple[int, int]] = {}
        self._last_ns: int | None = None

    def read(self, now_ns: int) -> Reading:
        last, self._last = self._last, counts_of(self._file.read())
        interval_s = 0.0 if self._last_ns is None else (now_ns - self._last_ns) / 1e9
        self._last_ns = now_ns
        # Hosts with containers have hundreds; those that never carried a byte tell nothing.
        names = [name for name, counts in self._last.items() if any(counts) or name in self.used_by_training]
        names.sort(key=lambda name: (name not in self.used_by_training, -sum(self._last[name]), name))
        rates = [self._rate(name, last.get(name), interval_s) for name in names[:_MOST_INTERFACES]]
        return Reading({"networks": rates}, {})

    def _rate(self, name: str, before: tuple[int, int] | None, interval_s: float) -> NetworkRate:
        received, sent = self._last[name]
        return NetworkRate(
            name=name,
            received_bytes_per_s=rate(before and before[0], received, interval_s),
            sent_bytes_per_s=rate(before and before[1], sent, interval_s),
            used_by_training=name in self.used_by_training,
        )


def counts_of(text: bytes) -> dict[str, tuple[int, int]]:
    """Interface -> bytes received and sent: in machine code where that was built."""
    found = native.interface_counts(text) if native is not None else None
    return counts_python(text) if found is None else found


def counts_python(text: bytes) -> dict[str, tuple[int, int]]:
    """The same in Python. Lines of another form are passed over; a name may hold a colon."""
    counts: dict[str, tuple[int, int]] = {}
    for line in text.splitlines():
        name, _, rest = line.rpartition(b":")
        columns = rest.split(None, _SENT + 1)
        if name and len(columns) > _SENT and columns[_RECEIVED].isdigit() and columns[_SENT].isdigit():
            counts[name.strip().decode("utf-8", "replace")] = int(columns[_RECEIVED]), int(columns[_SENT])
    return counts
