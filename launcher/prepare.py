"""What comes before the driver of a job with other hosts: the check of all of them, and their agents."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from distmon.core.errors import DistmonError
from distmon.core.events import AnyEvent, LaunchProgressed, NoticeGiven
from distmon.launcher.check import CheckResult, HostCheck
from distmon.launcher.inspect import CHECK_LIMIT_S
from distmon.launcher.plan import Plan
from distmon.launcher.remote_agents import START_LIMIT_S, RemoteAgents
from distmon.launcher.reports import Finding, table
from distmon.launcher.translate import SOURCE
from distmon.wire.clock import SteadyClock

CHECK_SOURCE = "check"
_SHOWN_NAMES = 4


class HostPreparation:
    """For one launch. Without `agents` the hosts are only checked; without `check` they are taken as they are."""

    def __init__(self, plan: Plan, agents: RemoteAgents | None, *, check: bool = True, agent: str = "") -> None:
        self._check = HostCheck(plan, agent) if check else None
        self._agents = agents
        self._clock = SteadyClock()
        self.findings: list[Finding] = []
        """What was wrong with the hosts, once they were checked."""

    def run(self, plan: Plan, tell: Callable[[AnyEvent], None]) -> Plan:
        """The plan with the interface that joins the hosts. Raises DistmonError where the job would fail."""
        if self._check is not None:
            plan = self._checked(self._check, plan, tell)
        if self._agents is not None and plan.others:
            self._start_agents(self._agents, plan, tell)
        return plan

    def cancel(self) -> None:
        if self._check is not None:
            self._check.cancel()
        if self._agents is not None:
            self._agents.cancel()

    def _checked(self, check: HostCheck, plan: Plan, tell: Callable[[AnyEvent], None]) -> Plan:
        deadline = self._clock.now() + CHECK_LIMIT_S
        told: list[str] = []

        def waiting(hosts: list[str]) -> None:
            if hosts != told:
                told[:] = hosts
                detail = f"waiting for {_names(hosts)} to say what they have"
                tell(LaunchProgressed(at=self._clock.now(), stage="checking_hosts", detail=detail, deadline=deadline))

        result = check.run(waiting)
        self.findings = result.findings
        for finding, line in zip(result.findings, table(result.findings), strict=True):
            tell(NoticeGiven(at=self._clock.now(), severity=finding.severity, text=line, source=CHECK_SOURCE))
        if result.errors:
            raise DistmonError(_refusal(result))
        if not plan.network_interface and result.interfaces:
            return plan.over(result.interfaces[0])
        return plan

    def _start_agents(self, agents: RemoteAgents, plan: Plan, tell: Callable[[AnyEvent], None]) -> None:
        now = self._clock.now()
        detail = f"waiting for the agents of {_names(host.name for host in plan.others)}"
        tell(LaunchProgressed(at=now, stage="starting_agents", detail=detail, deadline=now + START_LIMIT_S))
        agents.start(plan.others)
        for host, why in agents.wait(START_LIMIT_S).items():
            text = f"{host} has no agent, its ranks and hardware are not measured: {why}"
            tell(NoticeGiven(at=self._clock.now(), severity="warning", text=text, source=SOURCE))


def _refusal(result: CheckResult) -> str:
    hosts = dict.fromkeys(finding.host for finding in result.errors if finding.host)
    if not hosts:
        return f"the job would fail: {result.errors[0].text}"
    verb = "is" if len(hosts) == 1 else "are"
    return f"{_names(hosts)} {verb} not ready, and no rank was started: {result.errors[0].text}"


def _names(hosts: Iterable[str]) -> str:
    listed = list(hosts)
    more = f" and {len(listed) - _SHOWN_NAMES} more" if len(listed) > _SHOWN_NAMES else ""
    return ", ".join(listed[:_SHOWN_NAMES]) + more
