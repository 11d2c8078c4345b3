"""Tables of whole runs: minutes and seconds, speedup by time, watts per board."""

from __future__ import annotations

import re

from distmon.core.audit.agreement import Computed, contradicts, difference, product, quotient, scaled
from distmon.core.audit.names import ALL_WORK, ENERGY, POWER, SPEEDUP, SPEEDUP_TIME
from distmon.core.audit.scaling import (
    OF_TIME,
    Reading,
    compared,
    held_against,
    named,
    printed,
    same_size,
    same_work_time,
    several_bases,
    size_of,
    superlinear,
    times_the_workers,
)
from distmon.core.audit.table import Cell, Finding, Row, Table

_NOTHING = Cell("", None, 0.0)
_JOULES_OFF = 0.05
"""Mean watts and a counter of joules are not over quite the same time."""
_PARTS_OF_RUNS = re.compile(r"(task|epoch|step)(_time)?_(s|sec|seconds)", re.IGNORECASE)
OTHER_SIZES = re.compile(r"elastic_nodes|\w*_nodes", re.IGNORECASE)


def run_findings(table: Table) -> list[Finding]:
    """Everything about rows that are runs."""
    return [*_minutes(table), *_by_time(table), *_watts(table), *_joules(table), *_work_by_time(table)]


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
    """Speedups of runs that did the same work, computed and printed; a run that does not say its work is named and left out."""
    size, time = table.size, same_work_time(table)
    if size is None or time is None:
        return []
    others = [c for c in table.columns if c != size and OTHER_SIZES.fullmatch(c)]
    has_epochs = "epochs" in table.columns
    findings = []
    if has_epochs and not _has_rate(table):
        text = "names no number of epochs: no comparison of its time with another run's is valid"
        findings = [Finding("caution", f"row {n}", text) for n, row in enumerate(table.rows, 1) if row["epochs"].value is None]
        findings += _in_vain(table, size, table.time, others) if table.time else []
    elif not _has_rate(table) and not any(table.matching(role) for role in OF_TIME):
        text = "no column epochs, images_per_s or speedup: whether all rows did the same work is not told, and no speedup follows"
        return [Finding("caution", table.written[time], text)]
    for group, every in table.groups().items():
        plain = [row for row in every if not any(row[c].value for c in others)]
        rows = [row for row in plain if (row[size].value or 0.0) > 0 and row[time].low > 0]
        by_work: dict[float, list[Row]] = {}
        for row in rows:
            if not has_epochs or row["epochs"].value is not None:
                by_work.setdefault(row["epochs"].value or 0.0 if has_epochs else 0.0, []).append(row)
        for index, (epochs, same) in enumerate(by_work.items()):
            over = f" over {epochs:g} epochs" if has_epochs else ""
            findings += _speedups_by_time(table, group, same, time, over, first=index == 0)
            if index and epochs > 0:
                findings += _other_work(table, group, same, time, next(iter(by_work.values()))[0])
    return findings


def _has_rate(table: Table) -> bool:
    return bool(table.rate or table.rate_each)


def _speedups_by_time(table: Table, group: str, rows: list[Row], time: str, over: str, *, first: bool) -> list[Finding]:
    """Of rows with the same work, over the smallest of them; held against what is printed where that is over the same row."""
    base, others = rows[0], same_size(table, rows)
    findings = [] if _has_rate(table) else several_bases(table, named(table, group, base), rows, time)
    for row in rows:
        where, found, more = named(table, group, row), quotient(base[time], row[time]), times_the_workers(table, row, base)
        if found is None:
            continue
        if more > 1 and not _has_rate(table):
            text = f"{size_of(table, base)} to {size_of(table, row)} {table.size}{over}: speedup by time {found.value:.3f}, "
            findings.append(Finding("derived", where, f"{text}efficiency {scaled(found, 100 / more).value:.1f} %"))
            findings += superlinear(where, found, more)
        if first:
            readings = [Reading(found)]
            readings += [
                Reading(by, f"it is over {table.written[time]} {one[time].text}")
                for one in others
                if (by := quotient(one[time], row[time]))
            ]
            if not over:
                readings.append(Reading(scaled(found, more), "each worker had the same work, whatever their number"))
            findings += printed(table, row, where, readings, more, (SPEEDUP_TIME,) if _has_rate(table) else OF_TIME)
    return findings


def _other_work(table: Table, group: str, rows: list[Row], time: str, base: Row) -> list[Finding]:
    """Rows that trained another number of epochs than the row that speedups are over."""
    findings = []
    for row in rows:
        each = [(of[time].value or 0.0) / (of["epochs"].value or 1.0) for of in (base, row)]
        as_base = f"{row['epochs'].text} epochs where {named(table, '', base)} trained {base['epochs'].text}"
        claimed = next((f"; the printed {row[c].text} is none" for c in table.all_matching(SPEEDUP) if row[c].value), "")
        text = f"{as_base}: the quotient of their times is no speedup{claimed}; by time per epoch it is {each[0] / each[1]:.3f}"
        findings.append(Finding("caution", named(table, group, row), text))
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
            ends = [cells[other] for other in same_metric(column, name) for cells in epochs.rows[-1:] if other in cells]
            if ends and ends[0].value is not None:
                last = Computed(ends[0].value, ends[0].low, ends[0].high)
                findings += compared(row[column], last, where, f"{column} of the last epoch of {name}", 4)
    return findings


def same_metric(column: str, run: str) -> list[str]:
    """The names that a metric of a whole run may have by epochs."""
    return [f"{run}_{column}", *([f"{run}_acc"] if column == "accuracy" else [])]


def _watts(table: Table) -> list[Finding]:
    """Watts per board: a total that does not grow with the boards would be no total."""
    size, power = table.size, table.matching(POWER)
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


def _joules(table: Table) -> list[Finding]:
    """Watts times seconds against the joules printed."""
    power, time, energy, size = table.matching(POWER), table.time, table.matching(ENERGY), table.size
    if power is None or time is None or energy is None:
        return []
    findings = []
    for number, row in enumerate(table.rows, 1):
        if (exact := product(row[power], row[time])) is None:
            continue
        found = Computed(exact.value, exact.low * (1 - _JOULES_OFF), exact.high * (1 + _JOULES_OFF))
        readings = [Reading(found)]
        if size and (row[size].value or 0.0) > 1:
            readings.append(Reading(scaled(found, row[size].value or 1.0), f"{table.written[power]} is that of each of {size}"))
        what = f"{table.written[energy]} ({table.written[power]} x {table.written[time]})"
        findings += held_against(row[energy], readings, f"row {number}", what, 0)
    return findings


def _work_by_time(table: Table) -> list[Finding]:
    """What was trained, by the time that it took, against the throughput: the time may hold more than training."""
    work, rate, time, size = table.matching(ALL_WORK), table.rate, table.time, table.size
    if work is None or rate is None or time is None or _PARTS_OF_RUNS.fullmatch(time) or "epochs" in table.columns:
        return []
    findings = []
    for number, row in enumerate(table.rows, 1):
        found, speed = quotient(row[work], row[time]), row[rate]
        if found is None or speed.value is None or speed.low <= 0:
            continue
        where, told = f"row {number}", f"{table.written[rate]} {speed.text}"
        said = f"{table.written[work]} / {table.written[time]} = {found.value:.1f}"
        of_each = scaled(found, row[size].value or 1.0) if size else found
        if not contradicts(speed, found):
            findings.append(Finding("agrees", where, f"{told}: {said}"))
        elif not contradicts(speed, of_each):
            text = f"{told} is right only if {table.written[work]} is that of each of {size}; else {said}"
            findings.append(Finding("caution", where, text))
        else:
            share = 100 * (1 - found.value / speed.value)
            why = f"{share:.0f} % of the time is no part of the speed" if share > 0 else "they are not of the same time or work"
            findings.append(Finding("caution", where, f"{said}, and {told}: {why}"))
    return findings
