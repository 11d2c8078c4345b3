"""The hosts of a running elastic job that has no discovery script of its user's: a file that distmon's own script prints.

Horovod reads it once a second, so writing it is all that it takes to add a host or to take one away.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from distmon.core.errors import DistmonError, UsageError
from distmon.launcher.actions import AddHost, DrainHost
from distmon.launcher.driver.discovery import DiscoveryError, parse_discovered
from distmon.launcher.facts import is_local
from distmon.launcher.hosts import Host
from distmon.launcher.living import ONLY_HOST, LivingRanks
from distmon.launcher.rundir import RunningJob, choose_job

FILE_NAME = "hosts"
_ALONE = "# this machine alone"
_ADDED = re.compile(r"([\w.-]+)(?::(\d+))?")


def script(path: Path) -> str:
    """The discovery script that prints the file."""
    return f"cat {shlex.quote(str(path))}"


def write_hosts(path: Path, hosts: Mapping[str, int], *, alone: bool | None = None) -> None:
    """Replace the file in one step: a reader sees the old hosts or the new ones. Raises DistmonError.

    `alone` says that the job talks over this machine's loopback, so that no other host can join; None keeps what was said.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    note = f"{_ALONE}\n" if alone or (alone is None and is_alone(path)) else ""
    try:
        temporary.write_text(note + "".join(f"{name}:{slots}\n" for name, slots in hosts.items()), encoding="ascii")
        temporary.replace(path)
    except OSError as error:
        raise DistmonError(f"cannot write the hosts of the job: {error.strerror}") from None


def is_alone(path: Path) -> bool:
    """Whether no other host can join."""
    try:
        return path.read_text(encoding="utf-8").startswith(_ALONE)
    except (OSError, UnicodeDecodeError):
        return False


def read_hosts(path: Path) -> dict[str, int]:
    """Raises DistmonError when the job has gone, or somebody else wrote there."""
    try:
        return {name: slots or 0 for name, slots in parse_discovered(path.read_bytes()).items()}
    except OSError:
        raise DistmonError(f"the job {path.parent.name} has ended") from None
    except DiscoveryError as error:
        raise DistmonError(f"the hosts of {path.parent.name} cannot be read: {error}") from None


def slots_of(hosts: Iterable[Host]) -> dict[str, int]:
    """As the file has them; a host without a number has one slot."""
    return {host.name: 1 if host.slots is None else host.slots for host in hosts}


def find_job(name: str) -> RunningJob:
    """The job of that name, or the only one. Raises UsageError or DistmonError."""
    return choose_job(
        FILE_NAME,
        name,
        unknown=f"there is no elastic job {name} here whose hosts distmon keeps; `distmon hosts` lists them",
        none="no elastic job without a discovery script runs here; start one with: distmon run --min-np 1 ...",
    )


def with_host(hosts: Mapping[str, int], word: str) -> dict[str, int]:
    """With NAME or NAME:SLOTS; a host that is there gets that many slots. Raises UsageError."""
    match = _ADDED.fullmatch(word)
    if match is None or match[2] == "0":
        raise UsageError(f"{word!r} is not of the form NAME:SLOTS, as in: distmon hosts add node3:2")
    return {**hosts, match[1]: int(match[2] or 1)}


def change_hosts(path: Path, action: AddHost | DrainHost, living: LivingRanks) -> str:
    """Let a host join or leave the job, and say which there are then. Raises DistmonError or UsageError."""
    hosts, follows = read_hosts(path), "the ranks follow at their next commit"
    if isinstance(action, DrainHost):
        hosts = without_host(hosts, action.host)
        if not living.any_on(action.host):
            follows = "no rank ran there"
    else:
        living.expect_admitted(action.host.partition(":")[0])
        if is_alone(path) and not is_local(action.host.partition(":")[0]):
            text = "cannot join: the job talks over the loopback; start it with --network-interface NAME"
            raise UsageError(f"{action.host} {text}")
        hosts = with_host(hosts, action.host)
    write_hosts(path, hosts)
    return f"{shown(hosts)}; {follows}"


def shown(hosts: Mapping[str, int]) -> str:
    """Hosts as -H has them."""
    return ", ".join(f"{name}:{slots}" for name, slots in hosts.items()) or "no host"


def without_host(hosts: Mapping[str, int], name: str) -> dict[str, int]:
    """Raises UsageError for a host that is not there, and for the only one."""
    if name not in hosts:
        raise UsageError(f"the job has no host {name}; it has {', '.join(hosts) or 'none'}")
    if len(hosts) == 1:
        raise UsageError(f"{name} {ONLY_HOST}")
    return {host: slots for host, slots in hosts.items() if host != name}
