"""From a job and the facts of this machine to what will be started. Pure: no look-up, no clock, no process."""

from __future__ import annotations

from msgspec import Struct

from distmon.core.errors import UsageError
from distmon.launcher.facts import Facts
from distmon.launcher.spec import JobSpec


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


class Plan(Struct, frozen=True, kw_only=True):
    """What to start, with nothing left to decide."""

    job: str
    python: str
    driver: list[str]
    """The driver's command line, without the number of its event pipe."""
    flags: list[str]
    command: list[str]
    worker_environment: dict[str, str]
    """Set in every worker on top of the user's environment."""
    environment: dict[str, str]
    cwd: str
    np: int
    min_np: int | None
    max_np: int | None
    hosts: str
    """As in -H; empty while only a discovery script knows."""
    network_interface: str
    """Chosen or given; empty where Horovod chooses."""
    backend: str
    notices: list[str]


def make_plan(spec: JobSpec, facts: Facts, places: Places) -> Plan:
    """Raises UsageError for a job that cannot start."""
    if facts.missing_script:
        raise UsageError(f"there is no script {facts.missing_script} in {spec.cwd}")
    interface, interface_flags, notices = _network(spec, facts)
    hosts = "" if spec.discovery_script else ",".join(f"{host.name}:{host.slots}" for host in facts.hosts)
    return Plan(
        job=places.job,
        python=facts.python,
        driver=[facts.python, places.driver],
        flags=[*_flags(spec, hosts), *interface_flags],
        command=spec.command,
        worker_environment=_worker_environment(spec, places),
        environment=spec.environment,
        cwd=spec.cwd,
        np=spec.np,
        min_np=spec.min_np,
        max_np=spec.max_np,
        hosts=hosts,
        network_interface=interface,
        backend=spec.backend,
        notices=notices,
    )


def _flags(spec: JobSpec, hosts: str) -> list[str]:
    """The user's flags, the hosts of a hosts file, and no cached answers: a launch hangs on an interface that has gone."""
    return [*spec.flags, *(["-H", hosts] if spec.hostfile else []), "--disable-cache"]


def _worker_environment(spec: JobSpec, places: Places) -> dict[str, str]:
    theirs = spec.environment.get("PYTHONPATH", "")
    path = [places.probe_site, places.probe_shim, *([theirs] if theirs else [])]
    return {"DISTMON_RING_DIR": places.rings, "PYTHONPATH": ":".join(path)}


def _network(spec: JobSpec, facts: Facts) -> tuple[str, list[str], list[str]]:
    """The interface, the flags for it, and what the user should know. An elastic job on one host waits for a second one."""
    if spec.network_interfaces:
        return ",".join(spec.network_interfaces), [], []
    names = {host.name for host in facts.hosts}
    if not spec.elastic or not names:
        return "", [], []
    if names <= facts.local_hosts:
        text = f"all hosts are this machine: using --network-interface {facts.loopback}; no other host can join this job"
        return facts.loopback, ["--network-interface", facts.loopback], [text]
    if len(names) == 1:
        text = "Horovod waits for a second host to find the network by; --network-interface NAME makes it start with one"
        return "", [], [text]
    return "", [], []
