"""Pressure stall information: the share of time in which tasks waited for CPU, memory or I/O, from /proc/pressure."""

from __future__ import annotations

import errno

from distmon.agent.sensors.base import KernelFile, Reading, Roots
from distmon.core.events import Pressure

RESOURCES = ("cpu", "memory", "io")
_OFF = "this kernel keeps no pressure statistics; booting it with psi=1 may switch them on"


class PressureSensor:
    fields: tuple[str, ...] = ("pressures",)

    def __init__(self, roots: Roots) -> None:
        self._files = [(name, KernelFile(roots.proc / "pressure" / name)) for name in RESOURCES]

    def read(self, now_ns: int) -> Reading:
        found: list[Pressure] = []
        for name, file in self._files:
            try:
                found.append(parse(name, file.read()))
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.EOPNOTSUPP):
                    raise
        return Reading({"pressures": found}, {} if found else {"pressures": _OFF})


def parse(resource: str, text: bytes) -> Pressure:
    """The means of the last ten seconds. Older kernels have no `full` line for the CPU."""
    shares: dict[bytes, float] = {}
    for line in text.splitlines():
        kind, _, rest = line.partition(b" ")
        mean, _, value = rest.split(b" ", 1)[0].partition(b"=")
        if mean == b"avg10":
            shares[kind] = float(value)
    return Pressure(resource=resource, some_percent=shares.get(b"some"), full_percent=shares.get(b"full"))
