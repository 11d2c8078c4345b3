"""Lists of hosts: as given with -H, in a hosts file, or by a discovery script. Pure parsing."""

from __future__ import annotations

import re
from typing import NamedTuple

from distmon.core.errors import DistmonError, UsageError

_ENTRY = re.compile(r"[\w.-]+")


class Host(NamedTuple):
    """A host and its slots; None where the source leaves them to a flag."""

    name: str
    slots: int | None


def parse_hosts(text: str) -> list[Host]:
    """The value of -H: name:slots,... Raises UsageError."""
    hosts = []
    for entry in text.split(","):
        name, colon, slots = entry.strip().rpartition(":")
        if not colon or not _ENTRY.fullmatch(name) or not slots.isdecimal():
            raise UsageError(f"-H: {entry.strip()!r} is not of the form name:slots, as in -H node1:2,node2:2")
        hosts.append(Host(name, int(slots)))
    return hosts


def parse_hostfile(text: str, path: str) -> list[Host]:
    """Lines `name slots=N`; blank lines and comments are allowed, which horovodrun itself trips over. Raises UsageError."""
    hosts = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        slots = re.fullmatch(r"slots\s*=\s*(\d+)", " ".join(words[1:]))
        if slots is None or not _ENTRY.fullmatch(words[0]):
            raise UsageError(f"{path}, line {number}: {line.strip()!r} is not of the form: name slots=N")
        hosts.append(Host(words[0], int(slots[1])))
    if not hosts:
        raise UsageError(f"{path} names no host; write lines of the form: name slots=N")
    return hosts


def parse_discovered(output: str) -> list[Host]:
    """What a discovery script printed: `name:slots` or `name`, one a line. Raises DistmonError."""
    hosts = []
    for line in output.split("\n"):
        if not line.strip():
            continue
        name, colon, slots = line.strip().partition(":")
        if not _ENTRY.fullmatch(name) or (colon and not slots.strip().isdecimal()):
            raise DistmonError(f"the host discovery script printed {line.strip()!r}, which is not of the form name:slots")
        hosts.append(Host(name, int(slots) if colon else None))
    return hosts
