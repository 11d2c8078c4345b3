"""Values that no measurement can have, and cells that are no numbers."""

from __future__ import annotations

import re

from distmon.core.audit.names import COMMUNICATION, DIFFERENCE, is_measured
from distmon.core.audit.table import Cell, Finding, Row, Table

_OTHERS = re.compile(r"epochs|minutes|.*_s", re.IGNORECASE)
"""What may be 0, as a phase that did not happen, and not less."""
_NONE = re.compile(r"[-\u2013\u2014?.]*|n\.?/?a\.?|none|nan|null", re.IGNORECASE)
_NAMED = 4
"""So many cells of a column are quoted."""


def value_findings(table: Table) -> list[Finding]:
    """Everything about single cells, by row and column."""
    cells = [(number, row, column) for number, row in enumerate(table.rows, 1) for column in table.columns]
    return [finding for number, row, column in cells for finding in _impossible(table, number, row, column)]


def _impossible(table: Table, number: int, row: Row, column: str) -> list[Finding]:
    cell, where = row[column], f"row {number}, {table.written[column]}"
    share = communication_share(cell, column) if COMMUNICATION.fullmatch(column) else None
    if share is not None:
        text = f"{cell.text}: a share of the time lies between 0 and 100 %"
        return [] if 0 <= share <= 1 else [Finding("contradicts", where, text)]
    if cell.value is None or cell.value > 0 or DIFFERENCE.fullmatch(column):
        return []
    measured = is_measured(column)
    if cell.value < 0 and (measured or _OTHERS.fullmatch(column)):
        return [Finding("contradicts", where, f"{cell.text}: this cannot be below 0; nothing is computed from it")]
    if cell.value == 0 and measured and not table.is_events():
        return [Finding("caution", where, f"{cell.text}: nothing can be computed from it")]
    return []


def communication_share(cell: Cell, column: str = "") -> float | None:
    """Communication as a share of the time: `18%`, 18 in a column of percent, or `10:3`, which is computation : communication."""
    if cell.value is not None:
        return cell.value / 100 if cell.text.endswith("%") or column.endswith(("pct", "percent")) else None
    parts = re.fullmatch(r"([\d.]+)\s*:\s*([\d.]+)", cell.text)
    try:
        return float(parts[2]) / (float(parts[1]) + float(parts[2])) if parts else None
    except (ValueError, ZeroDivisionError):
        return None


def no_number_findings(table: Table) -> list[Finding]:
    """Cells of measurements that are no number, as 20-80, 33:20 or `out of memory`: nothing can be computed from them."""
    findings = []
    roles = (COMMUNICATION, _OTHERS)
    known = [c for c in table.columns if is_measured(c) or any(role.fullmatch(c) for role in roles)]
    measured = {column for column in known if table.has_number(column)}
    for column in table.columns:
        rows: dict[str, list[str]] = {}
        for number, row in enumerate(table.rows, 1):
            if _should_be_a_number(row[column], column, measured=column in measured):
                rows.setdefault(row[column].text, []).append(str(number))
        if rows:
            told = [f"{text} (row {first_of(numbers)})" for text, numbers in rows.items()]
            text = f"{first_of(told)}: not read as one number, and nothing is computed from it"
            findings.append(Finding("caution", table.written[column], text))
    return findings


def _should_be_a_number(cell: Cell, column: str, *, measured: bool) -> bool:
    """What begins as one; where other rows have measurements, all but what people write for none."""
    if cell.value is not None or (COMMUNICATION.fullmatch(column) and communication_share(cell) is not None):
        return False
    return cell.text[:1].isdigit() or (measured and _NONE.fullmatch(cell.text) is None)


def first_of(told: list[str]) -> str:
    """Some, and how many more."""
    more = f" and {len(told) - _NAMED} more" if len(told) > _NAMED else ""
    return ", ".join(told[:_NAMED]) + more
