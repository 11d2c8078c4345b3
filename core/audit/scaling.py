"""Tables of throughput or time over the number of workers: speedup, efficiency, and what communication would leave."""

from __future__ import annotations

import re
from itertools import pairwise

from distmon.core.audit.agreement import Computed, contradicts, quotient, scaled
from distmon.core.audit.table import Cell, Finding, Row, Table

_SPEEDUP = re.compile(r"speedup(_printed)?", re.IGNORECASE)
_EFFICIENCY = re.compile(r"(scaling_)?efficiency(_printed|_pct|_percent)?", re.IGNORECASE)
_COMMUNICATION = re.compile(r"communication\w*", re.IGNORECASE)
_HIGHEST_SHARE = 1.5
"""An efficiency above this is in percent."""
_POINTS = 3.0
"""Percentage points of efficiency that communication leaves open before it is said."""


def scaling_findings(table: Table) -> tuple[list[Finding], list[list[str]]]:
    """Findings, and a row (group, workers, speedup, efficiency in percent) for each that has a throughput.

    A throughput of each worker is multiplied by their number, once.
    """
    size, rate = table.size, table.rate or table.rate_each
    if size is None or rate is None:
        return [], []
    findings: list[Finding] = []
    derived: list[list[str]] = []
    for group, rows in table.groups().items():
        base = rows[0]
        if base[rate].value is None or not base[size].value:
            continue
        for row in rows:
            found = quotient(row[rate], base[rate])
            more = (row[size].value or 0.0) / (base[size].value or 1.0)
            if found is None or more <= 0:
                continue
            where = named(table, group, row)
            if rate == table.rate_each:
                found = scaled(found, more)
            derived.append([group, row[size].text, f"{found.value:.3f}", f"{100 * found.value / more:.1f}"])
            findings += _printed(table, row, where, found, more)
            findings += _communication(table, row, where, found.value / more) if row is not base else []
        findings += _shape(table, group, rows, size, rate) if rate == table.rate else []
    return findings, derived


def named(table: Table, group: str, row: Row) -> str:
    """A row as a reader finds it again."""
    size = table.size
    return f"{group}, {size} {row[size].text}".lstrip(", ") if size else group


def _printed(table: Table, row: Row, where: str, found: Computed, more: float) -> list[Finding]:
    """Speedup and efficiency as the author printed them."""
    findings = []
    for column in table.columns:
        if _SPEEDUP.fullmatch(column):
            findings += compared(row[column], found, where, "speedup", 3)
        elif _EFFICIENCY.fullmatch(column):
            as_share = not column.lower().endswith(("pct", "percent")) and (row[column].value or 0.0) <= _HIGHEST_SHARE
            expected, digits = (scaled(found, 1 / more), 3) if as_share else (scaled(found, 100 / more), 1)
            findings += compared(row[column], expected, where, "efficiency", digits)
    return findings


def compared(cell: Cell, found: Computed, where: str, what: str, digits: int) -> list[Finding]:
    """Printed against computed; nothing where nothing is printed."""
    if cell.value is None:
        return []
    if contradicts(cell, found):
        return [Finding("contradicts", where, f"{what} computes to {found.value:.{digits}f}, printed {cell.text}")]
    return [Finding("agrees", where, f"{what} {cell.text}")]


def communication_share(text: str) -> float | None:
    """Communication as a share of the time, from `18%` or `10:3`, which is computation : communication."""
    percent = re.fullmatch(r"([\d.]+)\s*%", text)
    parts = re.fullmatch(r"([\d.]+)\s*:\s*([\d.]+)", text)
    try:
        if percent:
            return float(percent[1]) / 100
        if parts:
            return float(parts[2]) / (float(parts[1]) + float(parts[2]))
    except (ValueError, ZeroDivisionError):
        return None
    return None


def _communication(table: Table, row: Row, where: str, efficiency: float) -> list[Finding]:
    """What would be left were communication the only loss, against what was measured."""
    column = next((c for c in table.columns if _COMMUNICATION.fullmatch(c)), None)
    share = communication_share(row[column].text) if column else None
    if share is None:
        return []
    apart = 100 * (1 - share - efficiency)
    if abs(apart) < _POINTS:
        return []
    left = f"were its {100 * share:.1f} % communication the only loss, {100 * (1 - share):.1f} % efficiency would be left"
    why = f"{apart:.1f} points are something else" if apart > 0 else "part of the communication is hidden, or counted otherwise"
    return [Finding("caution", where, f"{left}; measured {100 * efficiency:.1f} %: {why}")]


def _shape(table: Table, group: str, rows: list[Row], size: str, rate: str) -> list[Finding]:
    """Throughput that falls although workers are added."""
    findings = []
    for before, after in pairwise(rows):
        a, b = before[rate], after[rate]
        if a.value is None or b.value is None or b.high >= a.low:
            continue
        where = named(table, group, after)
        if before is rows[0]:
            speedup = b.value / a.value
            text = f"slower than with {before[size].text}: speedup {speedup:.2f}"
        else:
            text = f"throughput falls from {a.text} with {before[size].text} to {b.text}: past the best number of {size}"
        findings.append(Finding("caution", where, text))
    return findings
