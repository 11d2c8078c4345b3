"""All that tables say of themselves and of one another."""

from __future__ import annotations

from msgspec import Struct

from distmon.core.audit.epochs import epoch_findings, epoch_times, event_findings
from distmon.core.audit.phases import phase_findings
from distmon.core.audit.runs import final_findings, no_number_findings, run_findings
from distmon.core.audit.scaling import scaling_findings
from distmon.core.audit.table import Finding, Table

DERIVED = ["group", "workers", "speedup", "efficiency_percent"]


class Audit(Struct, frozen=True):
    """`derived` are rows of DERIVED, for tables of throughput over workers."""

    name: str
    findings: list[Finding]
    derived: list[list[str]]


def audit(tables: list[Table]) -> list[Audit]:
    """One result for each table. A table of events is held against every table of epochs among them."""
    found = []
    events = next((table for table in tables if {"run", "event", "seconds"} <= set(table.columns)), None)
    for table in tables:
        scaling, derived = scaling_findings(table)
        findings = [*scaling, *phase_findings(table), *run_findings(table), *epoch_findings(table), *no_number_findings(table)]
        for other in tables:
            findings += event_findings(other, table) if other is not table else []
            findings += final_findings(table, other, events) if other is not table and epoch_times(other) else []
        found.append(Audit(table.name, findings, derived))
    return found
