"""The check of a job's hosts before anything is started on them, and what it decides: go, with which interface, or not."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from distmon.launcher.facts import is_local
from distmon.launcher.hosts import Host
from distmon.launcher.inspect import Inspection
from distmon.launcher.plan import Plan
from distmon.launcher.reports import CheckedJob, Finding, HostReport, host_line
from distmon.launcher.rules import findings, usable_interfaces

# What of the job's environment decides which Python and packages are found.
_DECIDING = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX")
_NO_JOB = {"python": "python3", "cwd": "/", "script": "", "environment": {}, "agent": ""}
"""What a host is asked where nothing is known of the job."""


class CheckResult(Struct, frozen=True, kw_only=True):
    """What the hosts said, what is wrong with them, and the interfaces over which all reach one another, the best first."""

    reports: list[HostReport]
    findings: list[Finding]
    interfaces: list[str]

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == "error"]


class HostCheck:
    """One check of a plan's hosts. `cancel` may come from any thread."""

    def __init__(self, plan: Plan, agent: str = "") -> None:
        """`agent` is where distmon-agent is on the hosts, if the user says so."""
        self._plan = plan
        self._inspection = _inspection_for(plan, agent)

    def run(self, waiting: Callable[[list[str]], None]) -> CheckResult:
        """Ask all hosts; it takes at most inspect.CHECK_LIMIT_S. `waiting` gets those that have not answered, each second."""
        plan = self._plan
        reports = self._inspection.run(plan.members, plan.local_hosts, plan.given_interfaces, waiting)
        return CheckResult(reports=reports, findings=findings(checked_job(plan), reports), interfaces=_interfaces(reports, plan))

    def cancel(self) -> None:
        self._inspection.cancel()


def _inspection_for(plan: Plan, agent: str = "") -> Inspection:
    environment = {name: plan.environment[name] for name in _DECIDING if name in plan.environment}
    request = {"python": plan.python, "cwd": plan.cwd, "script": plan.script, "environment": environment, "agent": agent}
    return Inspection(request, port=plan.ssh_port, identity_file=plan.ssh_identity_file)


def told_of_host(name: str, plan: Plan | None = None) -> str:
    """In words whether a host answers, asked as for the job of the plan; takes inspect.FACTS_LIMIT_S at most."""
    if is_local(name):
        return f"{name} is this machine"
    members = plan.members if plan is not None else ()
    host = next((member for member in members if member.name == name), Host(name, None))
    inspection = _inspection_for(plan) if plan is not None else Inspection(_NO_JOB)
    report = inspection.answer_of(host)
    return f"{name} is NOT reached: {report.error}" if report.facts is None else f"{name} answers: {host_line(report)}"


def checked_job(plan: Plan) -> CheckedJob:
    """What the rules must know."""
    sizes = {name: len(f"{name}={value}".encode(errors="surrogateescape")) for name, value in plan.environment.items()}
    largest = max(sizes, key=lambda name: sizes[name], default="")
    return CheckedJob(
        python=plan.python,
        cwd=plan.cwd,
        script=plan.script,
        frameworks=plan.frameworks,
        interfaces=plan.given_interfaces,
        environment_bytes=sum(sizes.values()),
        largest_variable=largest,
        largest_variable_bytes=sizes.get(largest, 0),
    )


def _interfaces(reports: list[HostReport], plan: Plan) -> list[str]:
    known = [report for report in reports if report.facts is not None]
    return usable_interfaces(known, plan.given_interfaces) if len(known) > 1 else []
