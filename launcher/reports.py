"""What is known of each host before a job, and what is wrong there: the types that inspection, rules and tables share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

Severity = Literal["error", "warning", "info"]


class HostFacts(Struct, kw_only=True, frozen=True):
    """What a host said of itself (launcher/driver/inspection.py)."""

    host_name: str = ""
    own_address: str = ""
    own_error: str = ""
    """Why its own name has no IPv4 address; empty where it has one."""
    python_found: bool = True
    python: str = ""
    """Version of the training's Python."""
    packages: dict[str, str] = {}
    """Version by package: horovod, torch, tensorflow, keras, setuptools, those that are there. "?" where it does not tell."""
    built_with: dict[str, str] = {}
    """Versions that Horovod was built for, by framework."""
    extensions: list[str] = []
    """Frameworks that Horovod was built for."""
    versions_error: str = ""
    folder_found: bool = True
    script_digest: str | None = ""
    """Of the script's content; None where it is not there, empty where none is known."""
    gpus: int = 0
    interfaces: dict[str, str] = {}
    """IPv4 address by name."""
    free_bytes: dict[str, int | None] = {}
    agent: str = ""
    """Where distmon-agent is; empty where it is not."""
    cache_age_s: float | None = None
    """Of horovodrun's own answers in ~/.horovod; None where there are none."""
    port: int = 0
    """Where the inspection answers while it lasts."""


class HostReport(Struct, kw_only=True):
    """One host as the check found it."""

    host: str
    slots: int = 0
    """Ranks that it may get; 0 for a launcher that is no host of the job."""
    ssh_target: str = ""
    """As ssh takes it; empty for this machine."""
    ssh_port: int | None = None
    error: str = ""
    """Why nothing is known of it."""
    facts: HostFacts | None = None
    clock_offset_s: float | None = None
    """Its wall clock minus this machine's."""
    round_trip_s: float | None = None
    reach: dict[str, dict[str, str]] = {}
    """Host -> interface -> why it is not reached from here over it; empty text where it is."""

    @property
    def local(self) -> bool:
        return not self.ssh_target


class Finding(Struct, kw_only=True, frozen=True):
    """One thing that is wrong with a host, and its mend."""

    host: str
    """Empty where it is of the job as a whole."""
    check: str
    severity: Severity
    """error: the job would fail; warning: it may, or distmon sees less; info: worth knowing."""
    text: str
    mend: str = ""


class CheckedJob(Struct, kw_only=True, frozen=True):
    """What the rules must know of the job."""

    python: str = ""
    cwd: str = ""
    script: str = ""
    frameworks: list[str] = []
    """Those that its script uses through Horovod."""
    interfaces: list[str] = []
    """Network interfaces that the user gave."""
    environment_bytes: int = 0
    largest_variable: str = ""
    largest_variable_bytes: int = 0


def common_interfaces(reports: Sequence[HostReport], given: Sequence[str] = ()) -> set[str]:
    """Names of interfaces that every host has: Horovod gives all ranks one name. Those given, or else all but loopback ones."""
    names = [
        {name for name, at in report.facts.interfaces.items() if (name in given if given else not at.startswith("127."))}
        for report in reports
        if report.facts is not None
    ]
    return set.intersection(*names) if names else set()


_PACKAGES = ("horovod", "torch", "tensorflow")


def host_line(report: HostReport) -> str:
    """Python 3.11.2, horovod 0.28.1, torch 2.13.0, 0 GPUs, agent /opt/bin/distmon-agent, clock +0.002 s."""
    facts = report.facts
    if facts is None:
        return "not reached"
    versions = [f"{package} {facts.packages[package]}" for package in _PACKAGES if package in facts.packages]
    parts = [f"Python {facts.python}", *versions, f"{facts.gpus} GPU{'s' * (facts.gpus != 1)}"]
    parts.append(f"agent {facts.agent}" if facts.agent else "no agent")
    if not report.local and report.clock_offset_s is not None:
        parts.append(f"clock {report.clock_offset_s:+.3f} s")
    return ", ".join(parts)


def table(findings: list[Finding]) -> list[str]:
    """Lines with aligned columns: host, what was checked, what is wrong and how to mend it."""
    rows = [(finding.host or "job", finding.check, finding.severity, _words(finding)) for finding in findings]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    return ["  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]) for row in rows]


def _words(finding: Finding) -> str:
    return f"{finding.text}; {finding.mend}" if finding.mend else finding.text
