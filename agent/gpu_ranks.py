"""Which rank trains on which GPU: by the processes that the driver lists, and until it lists them by what each rank may see."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from distmon.agent.sensors.base import Roots
from distmon.core.devices import Device, Place, device_of
from distmon.core.events import GpuReading

_HOSTS_NAMESPACE = "pid:[4026531836]"
"""What Linux calls the first pid namespace, in which the driver counts."""
_NOT_LISTED = "by the devices that the rank may see: the driver does not list its process"


class GpuUser(NamedTuple):
    """A rank's process, as it names itself: `pid` counts in its own namespace, which may be a container's."""

    pid: int
    rank: int
    local_rank: int
    environment: Mapping[str, str]


class _Found(NamedTuple):
    ranks: dict[Place, list[int]]
    notes: dict[Place, str]
    rank_of_pid: dict[int, int]


class _Shown(NamedTuple):
    ranks: list[int]
    note: str


class GpuRanks:
    """Told about the ranks by whoever knows them."""

    def __init__(self, roots: Roots) -> None:
        self._proc = roots.proc
        self._sees_host = _link(roots.proc / "self/ns/pid") == _HOSTS_NAMESPACE
        self._users: dict[str, GpuUser] = {}
        self._own_pids: dict[int, int | None] = {}
        """The driver's pid -> the pid that the process has in its own namespace."""
        self.changed = True
        """Whether who uses what has changed since `assign`."""
        self._key: object = None
        self._shown: list[_Shown] = []
        """On each GPU, in their order, at the last time that it was thought about."""
        self._rank_of_pid: dict[int, int] = {}

    def watch(self, worker: str, user: GpuUser) -> None:
        """This worker has this rank from now on."""
        self._users[worker] = user
        self._key, self.changed = None, True

    def forget(self, worker: str) -> None:
        """The worker is gone."""
        if self._users.pop(worker, None) is not None:
            self._key, self.changed = None, True

    def assign(self, gpus: list[GpuReading]) -> list[GpuReading]:
        """The same readings with the ranks on them. Thinks anew only when GPUs, processes or ranks have changed."""
        self.changed = False
        if not self._users:
            return gpus
        key = [(g.uuid, g.index, g.instance, [process.pid for process in g.processes] if g.processes else None) for g in gpus]
        if key != self._key:
            found, self._key = self._find(gpus), key
            self._rank_of_pid = found.rank_of_pid
            places = [Place(gpu.index, gpu.instance) for gpu in gpus]
            self._shown = [_Shown(sorted(set(found.ranks.get(place, ()))), found.notes.get(place, "")) for place in places]
        return [_with_ranks(gpu, shown, self._rank_of_pid) for gpu, shown in zip(gpus, self._shown, strict=True)]

    def _find(self, gpus: list[GpuReading]) -> _Found:
        listed = self._listed(gpus)
        found = _Found({}, {}, {pid: user.rank for pids, user in listed for pid in pids})
        for gpu in gpus:
            place = Place(gpu.index, gpu.instance)
            pids = {process.pid for process in gpu.processes}
            found.ranks[place] = [user.rank for own, user in listed if not pids.isdisjoint(own)]
        seen = {id(user) for _, user in listed}
        devices = _devices(gpus)
        for user in self._users.values():
            if id(user) in seen:
                continue
            choice = device_of(devices, user.environment, user.local_rank)
            if choice.place is not None:
                found.ranks.setdefault(choice.place, []).append(user.rank)
                found.notes[choice.place] = choice.doubt or found.notes.get(choice.place) or _NOT_LISTED
        return found

    def _listed(self, gpus: list[GpuReading]) -> list[tuple[set[int], GpuUser]]:
        """The ranks that the driver lists, with its pids of them. Two containers can have the same pid: then nothing is said."""
        pids = {process.pid for gpu in gpus for process in gpu.processes}
        if not self._sees_host:
            self._own_pids = {pid: pid for pid in pids} if self._are_translated(pids) else {}
        else:
            self._own_pids = {pid: self._own_pids[pid] if pid in self._own_pids else self._own_pid(pid) for pid in pids}
        found: list[tuple[set[int], GpuUser]] = []
        for user in self._users.values():
            same = {pid for pid, own in self._own_pids.items() if own == user.pid}
            namesakes = sum(other.pid == user.pid for other in self._users.values())
            if len(same) == 1 and namesakes == 1:
                found.append((same, user))
        return found

    def _are_translated(self, pids: set[int]) -> bool:
        """Whether the driver tells this container its own pids, as newer ones do in part. Where it tells the host's, these mean
        other processes here: that several are exactly the ranks' is no accident, that a single one is may be."""
        return len(pids) > 1 and pids == {user.pid for user in self._users.values()}

    def _own_pid(self, pid: int) -> int | None:
        """From the last column of NSpid."""
        try:
            text = (self._proc / str(pid) / "status").read_bytes()
        except OSError:
            return None
        line = next((line for line in text.splitlines() if line.startswith(b"NSpid:")), b"")
        columns = line.split()
        return int(columns[-1]) if len(columns) > 1 and columns[-1].isdigit() else pid


def _devices(gpus: Sequence[GpuReading]) -> list[Device]:
    instances: dict[int, dict[int, str]] = {}
    for gpu in gpus:
        if gpu.instance is not None:
            instances.setdefault(gpu.index, {})[gpu.instance] = gpu.uuid
    return [Device(gpu.index, gpu.uuid, gpu.name, instances.get(gpu.index)) for gpu in gpus if gpu.instance is None]


def _with_ranks(gpu: GpuReading, shown: _Shown, rank_of_pid: Mapping[int, int]) -> GpuReading:
    notes = {**gpu.notes, "ranks": shown.note} if shown.note else gpu.notes
    replace = msgspec.structs.replace
    if not gpu.processes:
        return replace(gpu, ranks=shown.ranks, notes=notes)
    processes = [replace(process, rank=rank_of_pid.get(process.pid)) for process in gpu.processes]
    return replace(gpu, ranks=shown.ranks, notes=notes, processes=processes)


def _link(path: os.PathLike[str]) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115
    except OSError:
        return ""
