"""From a job and the facts of this machine to what will be started. Pure: no look-up, no clock, no process."""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct

from distmon.core.errors import UsageError
from distmon.launcher.driver.guest import PLACE
from distmon.launcher.facts import Facts
from distmon.launcher.hosts import Host
from distmon.launcher.spec import LOST_AFTER_S, JobSpec


class Places(Struct, frozen=True, kw_only=True):
    """Where distmon keeps things for one job."""

    job: str
    """Unique on this machine; the mark that the job's processes carry."""
    driver: str
    """The program that drives Horovod."""
    probe_site: str
    """Holds the sitecustomize that loads the probe."""
    probe_shim: str
    """Holds the `distmon.probe` that a training script may import."""
    rings: str
    """Folder for the ranks' ring files, on every host."""
    hosts_script: str = ""
    """Prints the hosts of an elastic job whose user gives no script of his own."""


class Notice(NamedTuple):
    """What the user should know before the job starts."""

    severity: Literal["info", "warning"]
    text: str


class Plan(Struct, frozen=True, kw_only=True):
    """What to start, with nothing left to decide."""

    job: str
    python: str
    driver: list[str]
    """The driver's command line, without the number of its event pipe."""
    flags: list[str]
    command: list[str]
    worker_environment: dict[str, str]
    """Set in every worker on this machine on top of the user's environment."""
    guest_environment: dict[str, str]
    """The same on other hosts; `{guest}` stands for the job's folder there (driver/guest.py)."""
    environment: dict[str, str]
    cwd: str
    np: int
    min_np: int | None
    max_np: int | None
    elastic: bool
    own_hosts: bool
    """distmon keeps the hosts of this elastic job, in a file that may be changed while it runs."""
    hosts: str
    """As in -H; empty while only a discovery script knows."""
    members: list[Host]
    """The hosts that are known before the start, in the order of their ranks."""
    local_hosts: frozenset[str]
    """Those of them that are this machine."""
    network_interface: str
    """Chosen or given; empty where Horovod chooses."""
    given_interfaces: list[str]
    ssh_port: int | None
    ssh_identity_file: str | None
    script: str
    frameworks: list[str]
    """What the script uses through Horovod."""
    backend: str
    notices: list[Notice]
    timeline: str = ""
    fusion_threshold_bytes: int | None = None
    lost_after_s: float = LOST_AFTER_S
    """A host that says nothing for so long is given up; 0: never."""

    @property
    def others(self) -> list[Host]:
        """Hosts that are not this machine."""
        return [host for host in self.members if host.name not in self.local_hosts]

    def over(self, interface: str) -> Plan:
        """The same with an interface that was found to join all hosts: Horovod then need not look for one itself."""
        flags = [*self.flags, "--network-interface", interface]
        return msgspec.structs.replace(self, flags=flags, network_interface=interface)

    def places(self) -> list[str]:
        """Lines that say which rank runs where. A static job has a rank on every slot; an elastic one fills slots up to -np."""
        lines, first = [], 0
        for host in self.members:
            slots = host.slots or 0
            ranks = slots if self.min_np is None else min(slots, max(0, self.np - first))
            numbers = f"{first}" if ranks == 1 else f"{first}-{first + ranks - 1}"
            where = " (this machine)" if host.name in self.local_hosts else ""
            lines.append(f"{host.name}{where}: " + (f"rank{'s' * (ranks != 1)} {numbers}" if ranks else "no rank at first"))
            first += ranks
        return lines


def make_plan(spec: JobSpec, facts: Facts, places: Places) -> Plan:
    """Raises UsageError for a job that cannot start."""
    if facts.missing_script:
        raise UsageError(f"there is no script {facts.missing_script} in {spec.cwd}")
    interface, interface_flags, notices = _network(spec, facts)
    hosts = "" if spec.discovery_script else ",".join(f"{host.name}:{host.slots}" for host in facts.hosts)
    own_script = places.hosts_script if spec.elastic and not spec.discovery_script else ""
    return Plan(
        job=places.job,
        python=facts.python,
        driver=[facts.python, places.driver],
        flags=[*_flags(spec, hosts, own_script), *interface_flags],
        command=spec.command,
        worker_environment=_worker_environment(spec, places.rings, places.probe_site, places.probe_shim),
        guest_environment=_worker_environment(spec, *(f"{PLACE}/{part}" for part in ("rings", "probe/site", "probe/shim"))),
        environment=spec.environment,
        cwd=spec.cwd,
        np=spec.np,
        min_np=spec.min_np,
        max_np=spec.max_np,
        elastic=spec.elastic,
        own_hosts=bool(own_script),
        hosts=hosts,
        members=facts.hosts,
        local_hosts=facts.local_hosts,
        given_interfaces=spec.network_interfaces,
        ssh_port=spec.ssh_port,
        ssh_identity_file=spec.ssh_identity_file,
        script=facts.script,
        frameworks=facts.frameworks,
        network_interface=interface,
        backend=spec.backend,
        timeline=spec.timeline,
        fusion_threshold_bytes=spec.fusion_threshold_bytes,
        lost_after_s=spec.lost_after_s,
        notices=[*_repeated(facts), *_spare_slots(spec, facts), *notices],
    )


def _flags(spec: JobSpec, hosts: str, own_script: str) -> list[str]:
    """The user's flags, the hosts as Horovod reads them, and no cached answers: a launch hangs on an interface that has gone."""
    named = ["--host-discovery-script", own_script] if own_script else ["-H", hosts] if spec.hostfile or spec.hosts else []
    return [*spec.flags, *named, "--disable-cache"]


def _worker_environment(spec: JobSpec, rings: str, site: str, shim: str) -> dict[str, str]:
    theirs = spec.environment.get("PYTHONPATH", "")
    return {"DISTMON_RING_DIR": rings, "PYTHONPATH": ":".join([site, shim, *([theirs] if theirs else [])])}


def _repeated(facts: Facts) -> list[Notice]:
    slots = {host.name: host.slots for host in facts.hosts}
    return [
        Notice("warning", f"{name} is listed more than once: its slots are added up to {slots[name]}")
        for name in facts.repeated_hosts
    ]


def _spare_slots(spec: JobSpec, facts: Facts) -> list[Notice]:
    """A static job has a rank on every slot, whatever -np says."""
    slots = sum(host.slots or 0 for host in facts.hosts)
    if spec.elastic or slots <= spec.np:
        return []
    text = f"Horovod starts a rank on each of the {slots} slots, not {spec.np}; name only as many slots as there are to be ranks"
    return [Notice("warning", text)]


def _network(spec: JobSpec, facts: Facts) -> tuple[str, list[str], list[Notice]]:
    """The interface, the flags for it, and what the user should know. An elastic job on one host waits for a second one."""
    names = {host.name for host in facts.hosts}
    all_local = bool(names) and names <= facts.local_hosts
    if spec.network_interfaces:
        if all_local and not spec.elastic and facts.loopback not in spec.network_interfaces:
            given = ",".join(spec.network_interfaces)
            text = f"all hosts are this machine, where Horovod takes {facts.loopback} alone, not {given}; leave the flag out"
            raise UsageError(text)
        return ",".join(spec.network_interfaces), [], []
    if not spec.elastic:
        return "", [], []
    if all_local:
        loopback = f"all hosts are this machine: using --network-interface {facts.loopback}"
        text = f"{loopback}; no other host can join this job unless you give an interface that reaches it"
        return facts.loopback, ["--network-interface", facts.loopback], [Notice("info", text)]
    return "", [], []
