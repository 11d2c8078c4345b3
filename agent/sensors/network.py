"""Bytes per second of each network interface, from /proc/net/dev of this network namespace."""

from __future__ import annotations

import re

from distmon.agent.sensors.base import KernelFile, Reading, Roots, rate
from distmon.core.events import NetworkRate

_MOST_INTERFACES = 32
_LINE = re.compile(rb"^ *(\S+): *(\d+)(?: +\d+){7} +(\d+)", re.MULTILINE)
"""Name, bytes received, bytes sent."""


class NetworkSensor:
    fields: tuple[str, ...] = ("networks",)

    def __init__(self, roots: Roots) -> None:
        self.used_by_training: frozenset[str] = frozenset()
        """Interfaces that the ranks on this node talk over; whoever knows the ranks sets it."""
        self._file = KernelFile(roots.proc / "net" / "dev")
        self._last: dict[str, tuple[int, int]] = {}
        self._last_ns: int | None = None

    def read(self, now_ns: int) -> Reading:
        last, self._last = self._last, _parse(self._file.read())
        interval_s = 0.0 if self._last_ns is None else (now_ns - self._last_ns) / 1e9
        self._last_ns = now_ns
        rates = [self._rate(name, last.get(name), interval_s) for name in self._last]
        # Hosts with containers have hundreds; those that never carried a byte tell nothing.
        rates = [item for item in rates if item.used_by_training or any(self._last[item.name])]
        rates.sort(key=lambda item: (not item.used_by_training, -sum(self._last[item.name]), item.name))
        return Reading({"networks": rates[:_MOST_INTERFACES]}, {})

    def _rate(self, name: str, before: tuple[int, int] | None, interval_s: float) -> NetworkRate:
        received, sent = self._last[name]
        return NetworkRate(
            name=name,
            received_bytes_per_s=rate(before and before[0], received, interval_s),
            sent_bytes_per_s=rate(before and before[1], sent, interval_s),
            used_by_training=name in self.used_by_training,
        )


def _parse(text: bytes) -> dict[str, tuple[int, int]]:
    """Interface -> bytes received and sent."""
    return {name.decode("utf-8", "replace"): (int(got), int(sent)) for name, got, sent in _LINE.findall(text)}
