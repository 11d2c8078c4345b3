"""The plan of a job that is not started yet: its command line, where its ranks will run, and what its hosts say."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from distmon.core.printable import clean
from distmon.launcher.plan import Plan
from distmon.launcher.reports import Finding, HostReport, host_line
from distmon.tui.theme import Palette
from distmon.tui.widgets.line import Line

_ROLES = {"error": ("✖", "bad"), "warning": ("▲", "warn"), "info": ("·", "muted")}


@dataclass(frozen=True)
class Planned:
    """What is known by now; `reports` and `findings` are those of the last check that was made for this plan."""

    line: str = ""
    plan: Plan | None = None
    waiting: Sequence[str] = ()
    """Hosts that have not answered yet."""
    reports: Mapping[str, HostReport] = field(default_factory=dict)
    findings: Sequence[Finding] = ()
    checked: bool = False


def plan_lines(planned: Planned, palette: Palette, width: int, height: int) -> list[Line]:
    style = palette.style
    lines = _wrapped(f"$ {planned.line}", palette, width, "accent") if planned.line else []
    if planned.plan is None:
        return [*lines, Line(), Line([("the plan is shown once nothing is wrong with the fields", style("muted"))])]
    lines.append(Line())
    for host, place in zip(planned.plan.members, planned.plan.places(), strict=True):
        glyph, role, said = _state(planned, host.name)
        lines.append(Line([(f"{glyph} ", style(role)), (clean(place), style("text"))]))
        lines += _wrapped(f"    {said}", palette, width, "muted" if role != "bad" else "bad")
    for notice in planned.plan.notices:
        lines += _told(notice.severity, notice.text, palette, width)
    for finding in planned.findings:
        lines += _told(finding.severity, said_of(finding) + f"; {finding.mend}" * bool(finding.mend), palette, width)
    return lines


def said_of(finding: Finding) -> str:
    """The host and what is wrong there."""
    return ": ".join(part for part in (finding.host, finding.text) if part)


def plan_caption(planned: Planned) -> list[tuple[str, str]]:
    """How far the check of the hosts is."""
    if planned.plan is None:
        return []
    if planned.waiting:
        return [(f"asking {len(planned.waiting)} of {_count(planned)}", "muted")]
    if not planned.checked:
        return []
    errors = sum(finding.severity == "error" for finding in planned.findings)
    if errors:
        return [(f"✖ {errors} error{'s' * (errors != 1)}: the job would fail", "bad")]
    return [(f"● {_count(planned)} ready", "good")]


def _count(planned: Planned) -> str:
    number = max(len(planned.reports), len(planned.waiting), 1)
    return f"{number} host{'s' * (number != 1)}"


def _state(planned: Planned, host: str) -> tuple[str, str, str]:
    """Sign, role and words of one host. This machine answers once, whatever its names in the job are."""
    plan = planned.plan
    local = plan is not None and host in plan.local_hosts
    report = next((r for r in planned.reports.values() if r.local), None) if local else planned.reports.get(host)
    if report is None:
        waits = not planned.checked or host in planned.waiting
        return ("◐", "muted", "asking ...") if waits else ("○", "muted", "not asked")
    if report.facts is None:
        return "✖", "bad", f"not reached: {clean(report.error)}"
    return "●", "good", clean(host_line(report))


def _told(severity: str, text: str, palette: Palette, width: int) -> list[Line]:
    glyph, role = _ROLES[severity]
    return _wrapped(f"{glyph} {text}", palette, width, role)


def _wrapped(text: str, palette: Palette, width: int, role: str) -> list[Line]:
    rows = textwrap.wrap(clean(text), max(width, 20), subsequent_indent="    ", drop_whitespace=False) or [""]
    return [Line([(row, palette.style(role))]) for row in rows]
