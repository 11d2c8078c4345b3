"""Tables of whole runs: minutes and seconds, speedup by time, watts per board."""

from __future__ import annotations

import re

from distmon.core.audit.agreement import Computed, difference, quotient, scaled
from distmon.core.audit.scaling import communication_share, compared, named
from distmon.core.audit.table import Cell, Finding, Row, Table

_POWER = re.compile(r"(power|total_power|board_power)_w|watts", re.IGNORECASE)
_NOTHING = Cell("", None, 0.0)
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
    findings += _in_vain(table, size, time, others)
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


def _in_vain(table: Table, size: str, time: str, others: list[str]) -> list[Finding]:
    """Runs with more workers, for a part of the time, that took longer than one without them."""
    findings = []
    for number, row in enumerate(table.rows, 1):
        added = [f"{row[c].text} {c}" for c in others if row[c].value]
        alone = [
            base
            for base in table.rows
            if not any(base[c].value for c in others)
            and base[size].value == row[size].value
            and base["epochs"].value == row["epochs"].value is not None
        ]
        found = difference(row[time], alone[0][time]) if added and alone else None
        if found is None or found.low <= 0:
            continue
        times = f"{row[time].text} against {alone[0][time].text} s"
        longer = f"took {found.value:.1f} s longer than {alone[0][size].text} {size} alone ({times})"
        text = f"{row[size].text} {size} with {' and '.join(added)} {longer}: their coming and going cost more than they trained"
        findings.append(Finding("caution", f"row {number}", text))
    return findings


def no_number_findings(table: Table) -> list[Finding]:
    """Cells of measurements that are no number, as 20-80 or `100 (spotty)`: nothing can be computed from them."""
    findings = []
    for column in table.columns:
        cells = [row[column].text for row in table.rows if row[column].value is None and row[column].text[:1].isdigit()]
        cells = [text for text in cells if communication_share(text) is None]
        if cells:
            told = ", ".join(dict.fromkeys(cells))
            findings.append(Finding("caution", column, f"{told}: a range or a remark and no number, of which no mean can be had"))
    return findings


def final_findings(runs: Table, epochs: Table, events: Table | None) -> list[Finding]:
    """Rows of whole runs against the same runs by epochs: total time, and the metrics that they ended with."""
    if runs.time is None or "epochs" not in runs.columns or events is None:
        return []
    findings = []
    totals = [row for row in events.rows if row.get("event", _NOTHING).text.lower().startswith("total")]
    for total in totals:
        name, seconds = total["run"].text, total["seconds"].value
        if seconds is None:
            continue
        row = next((row for row in runs.rows if row[runs.time].low <= seconds <= row[runs.time].high), None)
        if row is None:
            text = f"no row has its {total['event'].text} of {seconds:.2f} s"
            findings.append(Finding("caution", name, text))
            continue
        where = f"row {runs.rows.index(row) + 1}"
        findings.append(Finding("agrees", where, f"{runs.time} {row[runs.time].text}, as the events of {name}"))
        for column in runs.columns:
            ends = [cells[other] for other in _same_metric(column, name) for cells in epochs.rows[-1:] if other in cells]
            if ends and ends[0].value is not None:
                last = Computed(ends[0].value, ends[0].low, ends[0].high)
                findings += compared(row[column], last, where, f"{column} of the last epoch of {name}", 4)
    return findings


def _same_metric(column: str, run: str) -> list[str]:
    """The names that a metric of a whole run may have by epochs."""
    return [f"{run}_{column}", *([f"{run}_acc"] if column == "accuracy" else [])]


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
