"""Xid messages of the NVIDIA driver in the kernel's log, for GPUs whose driver does not hand them out as events."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import NamedTuple

KERNEL_LOG = Path("/dev/kmsg")
_XID = rb"NVRM: Xid \(PCI:([0-9a-f]{1,8}):([0-9a-f]{1,2}):([0-9a-f]{1,2})[^)]*\): (\d{1,6})\b"
_RECORD_BYTES = 8192
_MOST_RECORDS = 256
"""In one reading; the rest of a flood waits for the next."""


class PciAddress(NamedTuple):
    domain: int
    bus: int
    device: int


class LoggedXid(NamedTuple):
    address: PciAddress
    code: int


class XidLog:
    """What came since it was opened. Each read of /dev/kmsg gives one record and never waits."""

    def __init__(self, path: Path = KERNEL_LOG) -> None:
        """Raises OSError where the log may not be read (sysctl kernel.dmesg_restrict) or is not there."""
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.lseek(self._fd, 0, os.SEEK_END)

    def read(self) -> list[LoggedXid]:
        found: list[LoggedXid] = []
        for _ in range(_MOST_RECORDS):
            try:
                record = os.read(self._fd, _RECORD_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.EPIPE:  # the kernel has overwritten what came next: it goes on with what is left
                    raise
                continue
            if not record:
                break
            found += _parse(record)
        return found

    def close(self) -> None:
        os.close(self._fd)


def _parse(text: bytes) -> list[LoggedXid]:
    return [
        LoggedXid(PciAddress(int(domain, 16), int(bus, 16), int(device, 16)), int(code))
        for domain, bus, device, code in re.findall(_XID, text, re.IGNORECASE)
    ]
