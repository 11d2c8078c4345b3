"""Tables of whole runs: minutes and seconds, speedup by time, watts per board."""

from __future__ import annotations

import re

from distmon.core.audit.agreement import quotient, scaled
from distmon.core.audit.scaling import compared, named
from distmon.core.audit.table import Finding, Row, Table

_POWER = re.compile(r"(power|total_power|board_power)_w|watts", re.IGNORECASE)
_OTHER_SIZES = re.compile(r"elastic_nodes|\w*_nodes", re.IGNORECASE)


def run_findings(table: Table) -> list[Finding]:
    """Everything about rows that are runs."""
    return [*_minutes(table), *_by_time(table), *_watts(table)]


def _minutes(table: Table) -> list[Finding]:
    if "minutes" not in table.columns or "seconds" not in table.columns:
        return []
    sixty = [quotient(row["seconds"], row["seconds"]._replace(value=60.0, half=0.0)) for row in table.rows]
    return [
        finding
        for number, (row, found) in enumerate(zip(table.rows, sixty, strict=True), 1)
        if found is not None
        for finding in compared(row["minutes"], found, f"row {number}", "minutes", 3)
    ]


def _by_time(table: Table) -> list[Finding]:
    """Speedups of runs that did the same work; a run that does not say its work is named and left out."""
    size, time = table.size, table.time
    if size is None or time is None or "epochs" not in table.columns or table.rate is not None:
        return []
    findings = [
        Finding("caution", f"row {number}", "names no number of epochs: no comparison of its time with another run's is valid")
        for number, row in enumerate(table.rows, 1)
        if row["epochs"].value is None
    ]
    others = [c for c in table.columns if c != size and _OTHER_SIZES.fullmatch(c)]
    plain = [row for row in table.rows if row["epochs"].value is not None and not any(row[c].value for c in others)]
    by_work: dict[float, list[Row]] = {}
    for row in plain:
        by_work.setdefault(row["epochs"].value or 0.0, []).append(row)
    for epochs, rows in by_work.items():
        ordered = sorted(rows, key=lambda row: row[size].value or 0.0)
        for row in ordered[1:]:
            base = ordered[0]
            found = quotient(base[time], row[time])
            more = (row[size].value or 0.0) / (base[size].value or 1.0)
            if found is not None and more > 1:
                text = (
                    f"{base[size].text} to {row[size].text} {size} over {epochs:g} epochs: speedup by time {found.value:.3f}, "
                    f"efficiency {scaled(found, 100 / more).value:.1f} %"
                )
                findings.append(Finding("derived", f"{size} {row[size].text}", text))
    return findings


def _watts(table: Table) -> list[Finding]:
    """Watts per board: a total that does not grow with the boards would be no total."""
    size, power = table.size, table.matching(_POWER)
    if size is None or power is None:
        return []
    findings = []
    for group, rows in table.groups().items():
        each = [(row, found.value) for row in rows if (found := quotient(row[power], row[size])) is not None]
        for row, watts in each:
            text = f"{row[power].text} W are {watts:.3g} W for each of {row[size].text} {size}"
            findings.append(Finding("derived", named(table, group, row), text))
        if len(each) > 1 and each[-1][1] < 0.5 * each[0][1]:
            text = "the total grows much less than the boards: it covers one of them, or is a mean"
            findings.append(Finding("contradicts", named(table, group, each[-1][0]), text))
    return findings
