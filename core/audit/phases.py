"""Tables with the phases of a task: does the speed follow from the time, and do the phases add up."""

from __future__ import annotations

from distmon.core.audit.agreement import Computed, difference
from distmon.core.audit.names import RATE
from distmon.core.audit.scaling import named, size_of
from distmon.core.audit.table import Finding, Row, Table

_CLOSE = 0.01
"""A speed that follows from the time within this agrees with it."""
_FALLS = 0.5
"""A phase of the same work that shrinks below this when workers are added did not measure that work alone."""


def phase_findings(table: Table) -> list[Finding]:
    """Everything about rows that have a time, and phases of it in other columns of seconds."""
    time = table.time
    if time is None:
        return []
    phases = [c for c in table.columns if c.endswith("_s") and c != time and not RATE.fullmatch(c) and table.has_number(c)]
    findings: list[Finding] = []
    additive: list[str] = []
    nested: list[str] = []
    for group, rows in table.groups().items():
        for row in rows:
            findings += _speed(table, row, named(table, group, row), time)
            whole = row[time].value
            known = {phase: value for phase in phases if (value := row[phase].value) is not None and value >= 0}
            over = whole is not None and sum(known.values()) > whole * (1 + _CLOSE)
            if whole and whole > 0 and (over or len(known) > 1):
                (nested if over else additive).append(group)
                findings += _sum(known, whole, named(table, group, row), over)
        findings += _more_than_added(table, group, rows, phases)
        findings += _falling(table, group, rows, phases)
    return findings + _mixed(additive, nested)


def _speed(table: Table, row: Row, where: str, time: str) -> list[Finding]:
    """work x workers / time against the printed throughput."""
    rate, work, size = table.rate, table.work, table.size
    if rate is None or work is None or size is None:
        return []
    printed, each, n, seconds = row[rate], row[work].value, row[size].value, row[time]
    if printed.value is None or not each or not n or min(each, n) < 0 or seconds.value is None or seconds.low <= 0:
        return []
    found = Computed(each * n / seconds.value, each * n / seconds.high, each * n / seconds.low)
    off = abs(printed.value / found.value - 1)
    said = f"{work} x {size} / {time} = {found.value:.1f}"
    if off > _CLOSE:
        return [Finding("contradicts", where, f"{rate} computes to {found.value:.1f} ({said}), printed {printed.text}")]
    return [Finding("agrees", where, f"{rate} {printed.text}: {said}, {100 * off:.1f} % off")]


def _sum(known: dict[str, float], whole: float, where: str, over: bool) -> list[Finding]:
    total, names = sum(known.values()), " + ".join(known)
    if over:
        text = f"{names} = {total:.2f} s, more than the {whole:g} s of the task"
        if len(known) == 1:
            return [Finding("contradicts", where, f"{text}, of which it should be a part")]
        contradiction = Finding("contradicts", where, f"{text}: they overlap, or one lies in another; they do not add up")
        return [contradiction, *_if_nested(known, whole, where)]
    left = f"; {whole - total:.2f} s ({100 * (1 - total / whole):.1f} %) are none of these"
    return [Finding("agrees", where, f"{names} = {total:.2f} s of {whole:g} s{left}")]


def _if_nested(known: dict[str, float], whole: float, where: str) -> list[Finding]:
    """The one phase that would have to lie in another for the rest to fit."""
    longest = max(known, key=lambda phase: known[phase])
    fits = [phase for phase in known if phase != longest and sum(known.values()) - known[phase] <= whole * (1 + _CLOSE)]
    if len(fits) != 1:
        return []
    outer = sum(known.values()) - known[fits[0]]
    left = f"{whole - outer:.2f} s ({100 * (1 - outer / whole):.1f} %) would be left for all else"
    return [Finding("derived", where, f"were {fits[0]} a part of {longest}, they would take {outer:.2f} of {whole:g} s: {left}")]


def _more_than_added(table: Table, group: str, rows: list[Row], phases: list[str]) -> list[Finding]:
    """A phase that one worker does not have, and that takes longer than all by which its task grew when workers were added."""
    base, work, time = rows[0], table.work, table.time
    if work is None or time is None or any(row[work].value != base[work].value for row in rows):
        return []
    findings = []
    for row in rows[1:]:
        added = difference(row[time], base[time])
        for phase in phases:
            took = row[phase].value
            if added is None or took is None or base[phase].value is not None or row[phase].low <= added.high:
                continue
            only = f"though the task takes only {added.value:.2f} s longer than with {size_of(table, base)}"
            own = f"at least {took - added.value:.2f} s of it overlap with work that one worker has too"
            findings.append(Finding("caution", named(table, group, row), f"{phase} is {row[phase].text} s, {only}: {own}"))
    return findings


def _mixed(additive: list[str], nested: list[str]) -> list[Finding]:
    """The same columns that add up in some groups and not in others."""
    fits = [group for group in dict.fromkeys(additive) if group not in nested]
    if not fits or not nested:
        return []
    text = f"the phases add up for {', '.join(fits)} and not for {', '.join(dict.fromkeys(nested))}"
    return [Finding("contradicts", "all rows", f"{text}: the same columns mean different things")]


def _falling(table: Table, group: str, rows: list[Row], phases: list[str]) -> list[Finding]:
    """A phase of each worker's own work that shrinks when workers are added: it held something else before."""
    base, work = rows[0], table.work
    if work is None or any(row[work].value != base[work].value for row in rows):
        return []
    findings = []
    for phase in phases:
        first = base[phase].value
        later = next((row for row in rows[1:] if row[phase].value is not None), None)
        if first is None or later is None or (later[phase].value or 0.0) >= _FALLS * first:
            continue
        text = (
            f"the same work for each worker, yet {phase} falls from {base[phase].text} to {later[phase].text} s when workers are "
            "added: with one, compute that runs asynchronously is paid for in the first call that waits for it"
        )
        findings.append(Finding("caution", named(table, group, later), text))
    return findings
