"""All that tables say of themselves and of one another."""

from __future__ import annotations

from msgspec import Struct

from distmon.core.audit.epochs import epoch_findings, epoch_times, event_findings
from distmon.core.audit.names import SETTING, is_known
from distmon.core.audit.phases import phase_findings
from distmon.core.audit.runs import OTHER_SIZES, final_findings, run_findings, same_metric
from distmon.core.audit.scaling import scaling_findings
from distmon.core.audit.table import Finding, Table
from distmon.core.audit.values import no_number_findings, value_findings

DERIVED = ["group", "workers", "speedup", "efficiency_percent"]


class Audit(Struct, frozen=True):
    """`derived` are rows of DERIVED, of tables of throughput or speedup over workers; `known` the columns that are understood.

    `left_out` are columns of numbers of which nothing is asked.
    """

    name: str
    findings: list[Finding]
    derived: list[list[str]]
    known: list[str]
    left_out: list[str]


def audit(tables: list[Table]) -> list[Audit]:
    """One result for each table. A table of events is held against every table of epochs among them."""
    found = []
    events = next((table for table in tables if table.is_events()), None)
    for table in tables:
        scaling, derived = scaling_findings(table)
        findings = [*table.notes, *value_findings(table), *scaling, *phase_findings(table), *run_findings(table)]
        findings += [*epoch_findings(table), *no_number_findings(table)]
        partners = [other for other in tables if other is not table and epoch_times(other)]
        for other in partners:
            findings += [*event_findings(other, table), *final_findings(table, other, events)]
        if table.is_events() and not partners:
            text = "events between the epochs of runs: name the table of these too (columns epoch and RUN_s of each run)"
            findings.append(Finding("caution", "all rows", text))
        known = [table.written[column] for column in table.columns if is_known(column)]
        found.append(Audit(table.name, findings, derived, known, _left_out(table, [one for one in tables if one is not table])))
    return found


def _left_out(table: Table, others: list[Table]) -> list[str]:
    """Numbers that are no measurement by their name, no setting, no phase, and no metric of a run."""
    runs, roles = [run.run for run in epoch_times(table)], (SETTING, OTHER_SIZES)
    beside = [(other, run.run) for other in others for run in epoch_times(other)]
    return [
        table.written[column]
        for column in table.columns
        if table.has_number(column)
        and not (is_known(column) or any(role.fullmatch(column) for role in roles))
        and not (table.time is not None and column.endswith("_s"))
        and not any(column.startswith(f"{run}_") for run in runs)
        and not any(name in other.columns for other, run in beside for name in same_metric(column, run))
    ]
