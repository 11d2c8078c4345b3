"""Listening to Horovod's elastic driver: hosts that come, go and are barred, workers that are ready, the state of discovery.

Every wrapper only notes and calls on: some run under a lock that the whole job waits for.
"""

import functools
import importlib
import logging
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Set

from .discovery import ScriptDiscovery
from .job import Job

LISTENING_S = 2.0
"""From a rank's registration for notices to its listening for them, with time to spare."""
NEEDED = {
    "horovod.runner.launch": ("discovery",),
    "horovod.runner.elastic.discovery": ("HostManager", "HostDiscoveryScript"),
    "horovod.runner.elastic.discovery.HostManager": (
        "update_available_hosts",
        "current_hosts",
        "blacklist",
        "is_blacklisted",
        "order_available_hosts",
    ),
    "horovod.runner.elastic.registration.WorkerStateRegistry": ("record_ready", "record_failure", "get_recorded_slots"),
    "horovod.runner.elastic.worker": ("HostUpdateResult",),
    "horovod.runner.elastic.worker.WorkerNotificationClient": ("notify_hosts_updated",),
    "horovod.runner.elastic.driver.ElasticDriver": (
        "register_worker_server",
        "_notify_workers_host_changes",
        "finished",
    ),
    "horovod.runner.driver.driver_service": ("get_common_interfaces",),
}
"""What an elastic job is observed through: module or class -> attributes."""


def install(job: Job) -> None:
    """Hook the elastic part of the horovod.runner of this process."""
    module = importlib.import_module("horovod.runner.elastic.discovery")
    registration = importlib.import_module("horovod.runner.elastic.registration")
    worker = importlib.import_module("horovod.runner.elastic.worker")
    discoveries: List[ScriptDiscovery] = []

    def tell(status: str, failures: int, detail: str) -> None:
        job.writer.emit("discovery", status=status, failures=failures, detail=detail)

    def discovery_script(script: str, slots: Optional[int]) -> ScriptDiscovery:
        discoveries.append(ScriptDiscovery(script, slots, tell))
        return discoveries[-1]

    setattr(module, "HostDiscoveryScript", discovery_script)  # noqa: B010
    _order_new_hosts(module.HostManager, discoveries)
    _hook_hosts(job, module.HostManager)
    _hook_registry(job, registration.WorkerStateRegistry)
    _hook_notices(job, worker.WorkerNotificationClient)
    _hook_slots(job, importlib.import_module("horovod.runner.elastic.driver").ElasticDriver)
    _mend_notices(importlib.import_module("horovod.runner.elastic.driver"), worker.HostUpdateResult.added)
    _use_given_interfaces(importlib.import_module("horovod.runner.driver.driver_service"))


def _order_new_hosts(manager: Any, discoveries: List[ScriptDiscovery]) -> None:
    """New hosts get their ranks in the order of the script's answer; Horovod's own order is a set's, another in each run."""
    original = manager.order_available_hosts

    def order_available_hosts(available: Set[str], before: List[str]) -> List[str]:
        ordered: List[str] = original(available, before)
        kept = [host for host in ordered if host in before]
        wanted = discoveries[-1].order if discoveries else []
        new = [host for host in wanted if host in available and host not in before]
        return kept + new + [host for host in ordered if host not in kept and host not in new]

    manager.order_available_hosts = staticmethod(order_available_hosts)


def _hook_hosts(job: Job, manager: Any) -> None:
    update, blacklist = manager.update_available_hosts, manager.blacklist

    @functools.wraps(update)
    def update_available_hosts(self: Any) -> Any:
        before = dict(self.current_hosts.host_slots)
        barred = {host for host in before if self.is_blacklisted(host)}
        result = update(self)
        after = self.current_hosts.host_slots
        _tell_hosts(job, before, after, {host for host in barred if host in after and not self.is_blacklisted(host)})
        return result

    @functools.wraps(blacklist)
    def blacklist_host(self: Any, host: str) -> Any:
        already = self.is_blacklisted(host)
        result = blacklist(self, host)
        if not already:
            _tell_blacklisted(job, self, host)
        return result

    manager.update_available_hosts = update_available_hosts
    manager.blacklist = blacklist_host


def _tell_hosts(job: Job, before: Dict[str, int], after: Dict[str, int], back: Set[str]) -> None:
    for host, slots in after.items():
        had = before.get(host, 0)
        if slots > had:
            _change(job, "host_joined", host, slots, f"slots {had} to {slots}" if had else "")
        elif slots < had:
            _change(job, "host_left", host, slots, f"slots {had} to {slots}")
        elif host in back:
            _change(job, "host_joined", host, slots, "its cooldown is over")
    for host in before:
        if host not in after:
            _change(job, "host_left", host, 0, "")


def _tell_blacklisted(job: Job, manager: Any, host: str) -> None:
    state = getattr(manager, "_hosts_state", {}).get(host)
    end = getattr(state, "_cooldown_period_end_ts", 0) or 0
    left = end - time.time()
    if left <= 0:
        detail = "for the rest of the job; --blacklist-cooldown-range MIN MAX lets it come back"
        _change(job, "host_blacklisted", host, None, detail)
        return
    until = int((time.monotonic() + left) * 1e9)
    job.writer.emit("membership", change="host_blacklisted", host=host, until=until, detail=f"for {left:.1f} s")


def _hook_registry(job: Job, registry: Any) -> None:
    ready, failure = registry.record_ready, registry.record_failure

    @functools.wraps(ready)
    def record_ready(self: Any, host: str, slot: int) -> Any:
        there = set(self.get_recorded_slots()) | {(host, slot)}
        job.resets = getattr(self, "_reset_count", None)
        job.worker_waits(there)
        return ready(self, host, slot)

    @functools.wraps(failure)
    def record_failure(self: Any, host: str, slot: int) -> Any:
        job.resets = getattr(self, "_reset_count", None)
        rank, cause, stopped = job.death_of(host, slot)
        if not stopped:
            job.writer.emit("membership", change="host_failed", host=host, rank=rank, detail=cause)
        return failure(self, host, slot)

    registry.record_ready = record_ready
    registry.record_failure = record_failure


def _hook_notices(job: Job, client: Any) -> None:
    notify: Callable[..., Any] = client.notify_hosts_updated

    @functools.wraps(notify)
    def notify_hosts_updated(self: Any, timestamp: Any, update_res: Any) -> Any:
        result = notify(self, timestamp, update_res)
        detail = "the ranks know that hosts have changed: waiting for their next commit"
        job.progress("rendezvous", detail)
        return result

    client.notify_hosts_updated = notify_hosts_updated


def _hook_slots(job: Job, driver: Any) -> None:
    """Too few slots for too long end the job: Horovod logs a traceback, where one sentence says it."""
    wait = getattr(driver, "wait_for_available_slots", None)
    if wait is None:
        return

    @functools.wraps(wait)
    def wait_for_available_slots(self: Any, wanted: int, *args: Any, **kwargs: Any) -> Any:
        try:
            return wait(self, wanted, *args, **kwargs)
        except Exception as error:
            if type(error).__name__ == "TimeoutException":
                there = self._host_manager.current_hosts.count_available_slots()
                job.gave_up = f"for {job.limits['slots']:g} s there were only {there} of the {wanted} slots that the job needs"
                job.gave_up += "; a smaller --min-np lets it go on with fewer, --elastic-timeout makes it wait longer"
            raise

    def without_traceback(record: logging.LogRecord) -> bool:
        return not (job.gave_up and record.exc_info)

    driver.wait_for_available_slots = wait_for_available_slots
    logging.getLogger().addFilter(without_traceback)


def _mend_notices(driver: Any, added: Any) -> None:
    """Notices that Horovod loses: a second one within a second, and one of a change before rank 0 listens.

    It stamps them with whole seconds, and the ranks pass over one that is not later than the last; and it tells of a change once.
    """
    driver._epoch_time_s = time.time
    register = driver.ElasticDriver.register_worker_server

    def notify_again(elastic_driver: Any) -> None:
        with elastic_driver._wait_hosts_cond:
            if not elastic_driver.finished():
                elastic_driver._notify_workers_host_changes(elastic_driver._host_manager.current_hosts, added)

    @functools.wraps(register)
    def register_worker_server(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = register(self, *args, **kwargs)
        timer = threading.Timer(LISTENING_S, notify_again, (self,))
        timer.daemon = True
        timer.start()
        return result

    driver.ElasticDriver.register_worker_server = register_worker_server


def _use_given_interfaces(service: Any) -> None:
    """A job that begins on this machine alone may grow over the interface that was given; Horovod insists on the loopback."""
    original = service.get_common_interfaces

    @functools.wraps(original)
    def get_common_interfaces(settings: Any, *args: Any, **kwargs: Any) -> Any:
        return set(settings.nics) if settings.nics else original(settings, *args, **kwargs)

    service.get_common_interfaces = get_common_interfaces


def _change(job: Job, change: str, host: str, slots: Optional[int], detail: str) -> None:
    job.writer.emit("membership", change=change, host=host, slots=slots, detail=detail)
