"""Asks every host of a job about itself, all at once and over the user's own ssh, within a fixed time whatever hangs."""

from __future__ import annotations

import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import msgspec

from distmon.launcher.conversation import Conversation, Silent
from distmon.launcher.driver import remote
from distmon.launcher.hosts import Host
from distmon.launcher.reports import HostFacts, HostReport, common_interfaces

MODULES = ("guest", "inspection")
FACTS_LIMIT_S = 15.0
REACH_LIMIT_S = 5.0
CHECK_LIMIT_S = FACTS_LIMIT_S + REACH_LIMIT_S
"""The whole check takes no longer than this, and a moment to end what hangs."""
NEIGHBOURS = 8
"""Other hosts that each host tries to reach, besides the launcher."""


class Inspection:
    """One check of all hosts of a job. `cancel` may come from any thread, and ends it at once."""

    def __init__(self, request: dict[str, Any], *, port: int | None = None, identity_file: str | None = None) -> None:
        """`request` is what every host is asked: python, cwd, script, environment, agent."""
        self._request = {**request, "agent_beside": str(Path(sys.executable).parent / "distmon-agent")}
        self._port, self._identity_file = port, identity_file
        self._nonces: dict[str, str] = {}
        self._calls: dict[str, Conversation] = {}
        self._lock = threading.Lock()
        self._cancelled = False

    def run(
        self, hosts: Sequence[Host], local: frozenset[str], interfaces: Sequence[str], waiting: Callable[[list[str]], None]
    ) -> list[HostReport]:
        """A report of each host, this machine's first. `waiting` is called each second with those that have not answered yet."""
        reports = _reports(hosts, local)
        try:
            self._ask_facts(reports, waiting)
            known = [report for report in reports if report.facts is not None]
            if len(known) > 1 and not self._cancelled:
                self._ask_ways(known, interfaces)
            return reports
        finally:
            self.cancel()
            for call in self._calls.values():
                call.close()

    def answer_of(self, host: Host) -> HostReport:
        """What one other host says of itself; takes FACTS_LIMIT_S at most."""
        report = _of_other(host)
        try:
            self._first_questions(report, time.monotonic() + FACTS_LIMIT_S)
        finally:
            for call in self._calls.values():
                call.close()
        return report

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
            calls = list(self._calls.values())
        for call in calls:
            call.end()

    def _ask_facts(self, reports: list[HostReport], waiting: Callable[[list[str]], None]) -> None:
        deadline = time.monotonic() + FACTS_LIMIT_S
        with ThreadPoolExecutor(len(reports), thread_name_prefix="check") as pool:
            hosts = {pool.submit(self._first_questions, report, deadline): report.host for report in reports}
            pending = set(hosts)
            while pending:
                waiting([host for future, host in hosts.items() if future in pending])
                done, pending = wait(pending, timeout=1.0)
                for future in done:
                    future.result()

    def _first_questions(self, report: HostReport, deadline: float) -> None:
        try:
            call = self._call(report)
            report.facts = msgspec.convert(call.ask(None, deadline), HostFacts)
            before = time.time()
            theirs = float(call.ask({"clock": True}, deadline)["clock"])
            report.round_trip_s = time.time() - before
            report.clock_offset_s = theirs - before - report.round_trip_s / 2
        except (Silent, msgspec.ValidationError, KeyError) as error:
            report.error = str(error)
        except OSError as error:
            report.error = cannot_run(error)

    def _call(self, report: HostReport) -> Conversation:
        nonce = self._nonces[report.host] = secrets.token_hex(8)
        payload = remote.payload({**self._request, "nonce": nonce}, MODULES)
        if report.local:
            command = remote.local_command(self._request["python"])
        else:
            command = remote.ssh_command(
                report.ssh_target, self._request["python"], report.ssh_port or self._port, self._identity_file
            )
        with self._lock:
            if self._cancelled:
                raise Silent("the check was ended")
            call = self._calls[report.host] = Conversation(command, payload)
        return call

    def _ask_ways(self, reports: list[HostReport], given: Sequence[str]) -> None:
        deadline = time.monotonic() + REACH_LIMIT_S
        names = common_interfaces(reports, given)

        def ask(report: HostReport) -> None:
            targets = [self._target(other, names) for other in _neighbours(report, reports)]
            try:
                report.reach = self._calls[report.host].ask({"reach": targets}, deadline)["reach"]
            except (Silent, OSError, KeyError) as error:
                report.error = report.error or f"stopped answering during the check: {error}"

        with ThreadPoolExecutor(len(reports), thread_name_prefix="check") as pool:
            list(pool.map(ask, reports))

    def _target(self, report: HostReport, names: set[str]) -> dict[str, Any]:
        assert report.facts is not None
        addresses = {name: address for name, address in report.facts.interfaces.items() if name in names}
        return {"host": report.host, "addresses": addresses, "port": report.facts.port, "nonce": self._nonces[report.host]}


def cannot_run(error: OSError) -> str:
    """In words, of the first word of a command."""
    if isinstance(error, FileNotFoundError) and error.filename == "ssh":
        return "there is no ssh here to reach it with"
    return f"cannot run {error.filename}: {error.strerror}"


def _reports(hosts: Sequence[Host], local: frozenset[str]) -> list[HostReport]:
    """This machine once, under its first name in the job, and always: what drives Horovod runs here."""
    here = [host for host in hosts if host.name in local]
    others = [host for host in hosts if host.name not in local]
    first = HostReport(host=here[0].name if here else os.uname().nodename, slots=sum(host.slots or 0 for host in here))
    # One name can stand for this machine and for another one.
    if first.host in {host.name for host in others}:
        first.host = "this machine"
    return [first, *(_of_other(host) for host in others)]


def _of_other(host: Host) -> HostReport:
    return HostReport(host=host.name, slots=host.slots or 0, ssh_target=host.ssh_target, ssh_port=host.port)


def _neighbours(report: HostReport, reports: list[HostReport]) -> list[HostReport]:
    """This machine, where Horovod's rendezvous is, and the next few hosts in the order of ranks."""
    at = reports.index(report)
    nearest = [reports[(at + step) % len(reports)] for step in range(1, min(NEIGHBOURS, len(reports) - 1) + 1)]
    return nearest if at == 0 or reports[0] in nearest else [reports[0], *nearest]
