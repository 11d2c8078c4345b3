"""Lists of hosts: as given with -H, in a hosts file, or by a discovery script. Pure parsing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from distmon.core.errors import DistmonError, UsageError
from distmon.launcher.driver import discovery

_NAME = re.compile(r"\w[\w.-]*")
_ENTRY = re.compile(r"(?:(?P<user>\w[\w.-]*)@)?(?P<names>[^\s:@]+)(?::(?P<number>\d+))?")
_OPTION = re.compile(r"(?P<key>[\w-]+)\s*=\s*(?P<value>[\w.-]+)")
_LIST = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_SAID_BY_OTHERS = ("max_slots", "max-slots")
"""Open MPI's, for machines that are oversubscribed: it asks nothing of a job that names its slots."""
MAX_HOSTS = 10_000


class Host(NamedTuple):
    """A host and its slots; None where the source leaves them to a flag. How ssh reaches it, where that is said."""

    name: str
    slots: int | None
    user: str = ""
    port: int | None = None

    @property
    def ssh_target(self) -> str:
        """As ssh takes it: user@name, or the name alone."""
        return f"{self.user}@{self.name}" if self.user else self.name


def parse_hosts(text: str) -> list[Host]:
    """The value of -H: [user@]name:slots,... Raises UsageError."""
    hosts = []
    for entry in text.split(","):
        entry = entry.strip()
        match = _ENTRY.fullmatch(entry)
        if match is None or match["number"] is None or not _NAME.fullmatch(match["names"]):
            advice = _ipv6_advice(entry) or "is not of the form name:slots, as in -H node1:2,node2:2"
            raise UsageError(f"-H: {entry!r} {advice}")
        hosts.append(Host(match["names"], int(match["number"]), match["user"] or ""))
    return hosts


def parse_hostfile(text: str, path: str) -> list[Host]:
    """The hosts of a file, in order; those of other launchers are read too. Raises UsageError, which names the line.

    A line is `[user@]name[:port] slots=N`, MPICH's `name:slots`, or a name alone, which is one slot. Slurm's `node[1-3,7]` stands
    for four names. Comments and blank lines are allowed, which horovodrun itself trips over.
    """
    hosts: list[Host] = []
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        said = line.partition("#")[0].strip()
        if not said:
            continue
        try:
            hosts += _line(said)
        except ValueError as error:
            raise UsageError(f"{path}, line {number}: {said!r} {error}") from None
        if len(hosts) > MAX_HOSTS:
            raise UsageError(f"{path}, line {number}: more than {MAX_HOSTS} hosts")
    if not hosts:
        raise UsageError(f"{path} names no host; write lines of the form: name slots=N")
    return hosts


def parse_discovered(output: bytes) -> list[Host]:
    """What a discovery script printed: `name:slots` or `name`, one a line. Raises DistmonError."""
    try:
        return [Host(name, slots) for name, slots in discovery.parse_discovered(output).items()]
    except discovery.DiscoveryError as error:
        raise DistmonError(f"the host discovery script cannot be used: {error}") from None


def merged(hosts: Iterable[Host]) -> tuple[list[Host], list[str]]:
    """Each host once, its slots added up as MPI does, and the names that stood there more than once.

    Horovod takes a host that is listed twice for two, and gives out the same local ranks on both. Raises UsageError for one host
    with two users or ports.
    """
    found: dict[str, Host] = {}
    repeated: dict[str, None] = {}
    for host in hosts:
        known = found.get(host.name)
        if known is None:
            found[host.name] = host
            continue
        if (known.user, known.port) != (host.user, host.port):
            raise UsageError(f"{host.name} is listed twice with another user or port; ssh can have only one")
        repeated[host.name] = None
        slots = None if known.slots is None or host.slots is None else known.slots + host.slots
        found[host.name] = known._replace(slots=slots)
    return list(found.values()), list(repeated)


def expand(names: str) -> list[str]:
    """Slurm's short form: cn[08-10,12],login -> cn08 cn09 cn10 cn12 login. Raises ValueError."""
    parts = _LIST.findall(names)
    expanded: list[str] = []
    for part in parts:
        before, bracket, rest = part.partition("[")
        inside, _, after = rest.partition("]")
        numbers = [number for piece in inside.split(",") for number in _range(piece)] if bracket else [""]
        expanded += [f"{before}{number}{after}" for number in numbers]
    if ",".join(parts) != names or not all(_NAME.fullmatch(name) for name in expanded):
        raise ValueError("is not of the form: name slots=N")
    return expanded


def _range(piece: str) -> list[str]:
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", piece)
    if match is None:
        raise ValueError(f"has {piece!r} in brackets, where a number or a range like 1-8 belongs")
    first, last = match[1], match[2] or match[1]
    if not 0 <= int(last) - int(first) < MAX_HOSTS:
        raise ValueError(f"has the range {piece}, which is empty or too long")
    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]


def _line(said: str) -> list[Host]:
    """One line without its comment. Raises ValueError with the rest of a sentence that begins with the line."""
    word, *rest = said.split(maxsplit=1)
    match = _ENTRY.fullmatch(word)
    if match is None:
        raise ValueError(_ipv6_advice(word) or "is not of the form: name slots=N")
    options = _options(rest[0] if rest else "")
    number = int(match["number"]) if match["number"] else None
    named = options.get("slots")
    slots = named if named is not None else number if number is not None else 1
    port = options.get("port", number if named is not None else None)
    if slots < 1:
        raise ValueError("gives no slot; leave the host out")
    if port is not None and not 0 < port < 65536:
        raise ValueError(f"has the ssh port {port}; a port is a number from 1 to 65535")
    return [Host(name, slots, match["user"] or "", port) for name in expand(match["names"])]


def _options(rest: str) -> dict[str, int]:
    left = _OPTION.sub("", rest).strip()
    if left:
        raise ValueError(f"has {left!r}, which is no setting of a host; write: name slots=N")
    options = {}
    for match in _OPTION.finditer(rest):
        key, value = match["key"].lower(), match["value"]
        if key in _SAID_BY_OTHERS:
            continue
        if key not in ("slots", "port") or not value.isdecimal():
            raise ValueError(f"has {match[0]!r}; a host has slots=N and port=N, which are numbers")
        options[key] = int(value)
    return options


def _ipv6_advice(entry: str) -> str:
    if entry.count(":") < 2 or not re.fullmatch(r"[\[\]0-9a-fA-F:.]+", entry):
        return ""
    return "is an IPv6 address, and Horovod speaks IPv4 alone; give a name or an IPv4 address"
