"""Tables of throughput or time over the number of workers: speedup, efficiency, and what communication would leave."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

from distmon.core.audit.agreement import Computed, contradicts, quotient, scaled
from distmon.core.audit.names import (
    COMMUNICATION,
    EFFICIENCY,
    OTHER_TIME,
    SIZE,
    SPEEDUP,
    SPEEDUP_PERCENT,
    SPEEDUP_SPEED,
    SPEEDUP_TIME,
)
from distmon.core.audit.table import Cell, Finding, Row, Table
from distmon.core.audit.values import communication_share

_HIGHEST_SHARE = 1.5
"""A column of efficiencies that holds one above this is in percent."""
_POINTS = 3.0
"""Percentage points of efficiency that communication leaves open before it is said."""
_SUPERLINEAR = 1.01
"""An efficiency above this is said to be one."""
_EFFICIENCIES = (EFFICIENCY, SPEEDUP_PERCENT)
_OF_RATE = (SPEEDUP, SPEEDUP_SPEED, *_EFFICIENCIES)
OF_TIME = (SPEEDUP, SPEEDUP_TIME, *_EFFICIENCIES)
_NODES = ("nodes", "fixed_nodes")
_APART = 1.1
"""Two speedups of one row that are so many times apart do not mean the same."""


class Reading(NamedTuple):
    """A speedup that a row may be said to have, and what has to be meant for that; the plain one says nothing."""

    speedup: Computed
    meant: str = ""


def scaling_findings(table: Table) -> tuple[list[Finding], list[list[str]]]:
    """Findings, and a row (group, workers, speedup, efficiency in percent) for each that has a throughput or printed speedup.

    A throughput of each worker is multiplied by their number, once.
    """
    size, rate = table.size, table.rate or table.rate_each
    if size is None:
        return [], []
    roles = _OF_RATE if rate else _EFFICIENCIES if _speedup_columns(table) else ()
    findings: list[Finding] = []
    derived: list[list[str]] = []
    for group, every in table.groups().items():
        rows = [row for row in every if (row[size].value or 0.0) > 0]
        findings += [finding for row in rows for finding in _two_speedups(table, row, named(table, group, row))]
        rows = [row for row in rows if not rate or row[rate].low > 0]
        findings += [finding for row in rows for finding in _each_by_number(table, row, named(table, group, row))]
        findings += _base(table, group, rows, rate, size) if rows else []
        for row, more, readings in _by_rate(table, rows, rate, size) if rate else _by_print(table, rows, size):
            where, found = named(table, group, row), readings[0].speedup
            derived.append([group, row[size].text, f"{found.value:.3f}", f"{100 * found.value / more:.1f}"])
            findings += printed(table, row, where, readings, more, roles)
            findings += superlinear(where, found, more)
            findings += _communication(table, row, where, found.value / more) if rate and row is not rows[0] else []
        findings += _shape(table, group, rows, size, rate) if rate and rate == table.rate else []
    return findings, derived


def _base(table: Table, group: str, rows: list[Row], rate: str | None, size: str) -> list[Finding]:
    """What is to be known of the row that speedups are over, where it is not the one row of one worker."""
    base, where = rows[0], named(table, group, rows[0])
    if rate and (given := _over_absent(table, base, size)):
        text = f"its speedup of {given.text} is over a row that is not here, and taken as printed"
        return [Finding("caution", where, text)]
    findings = []
    if (base[size].value or 0.0) > 1 and (rate or _printed_base(table, rows, size) > 1):
        base_here = f"no row has fewer {table.written[size]}, so that it is the base, 100 % by definition"
        findings.append(Finding("caution", where, f"{base_here}: how it compares with 1 is not told"))
    return [*findings, *(several_bases(table, where, rows, rate) if rate else [])]


def several_bases(table: Table, where: str, rows: list[Row], column: str) -> list[Finding]:
    """Rows with as few workers as the first: which of them speedups are over is not told."""
    others = [row[column].text for row in same_size(table, rows)]
    if not others:
        return []
    over = f"speedups are over {table.written[column]} {rows[0][column].text}, and not {' or '.join(others)}"
    return [Finding("caution", where, f"{len(others) + 1} rows that nothing tells apart: {over}")]


def same_size(table: Table, rows: list[Row]) -> list[Row]:
    """Other rows with as few workers as the first, over which a printed speedup may be too."""
    size = table.size
    return [row for row in rows[1:] if size and row[size].value == rows[0][size].value]


def _each_by_number(table: Table, row: Row, where: str) -> list[Finding]:
    """A throughput of all and one of each beside it: the one is the other times the workers."""
    rate, each = table.rate, table.rate_each
    number = _number_of(table, each) if each else None
    if rate is None or each is None or number is None or not _same_unit(rate, each):
        return []
    workers, whole = row[number].value or 0.0, row[rate]
    if workers <= 0 or whole.low <= 0:
        return []
    all_of_it = Computed(whole.value or 0.0, whole.low, whole.high)
    readings = [Reading(scaled(all_of_it, 1 / workers)), Reading(all_of_it, f"{table.written[rate]} is that of each too")]
    return held_against(row[each], readings, where, table.written[each], 2)


def _number_of(table: Table, each: str) -> str | None:
    """The column that counts what a throughput is of each of. Nodes hold several of the others, which are one for a worker."""
    one = each.rpartition("_per_")[2]
    counts = [c for c in table.all_matching(SIZE) if (c in _NODES) == (one == "node")]
    return next((c for c in counts if c.startswith(one)), table.size if table.size in counts else next(iter(counts), None))


def _same_unit(rate: str, each: str) -> bool:
    """Not images of all, and tokens of each."""
    units = [re.match(r"([a-z]+)_(?:per_)?s", name) for name in (rate, each)]
    return None in units or len({unit[1] for unit in units if unit}) == 1


Compared = tuple[Row, float, list[Reading]]
"""A row, how many times the workers of its base it has, and the speedups that may be meant."""


def size_of(table: Table, row: Row) -> str:
    return row[table.size].text if table.size else "fewer workers"


def _over_absent(table: Table, base: Row, size: str) -> Cell | None:
    """The printed speedup of the smallest row where that is over a smaller one, which the table does not have."""
    column = table.matching(SPEEDUP)
    cell = base[column] if column else None
    return cell if cell and cell.low > 1 and (base[size].value or 0.0) > 1 else None


def _by_rate(table: Table, rows: list[Row], rate: str, size: str) -> list[Compared]:
    time = same_work_time(table)
    given = _over_absent(table, rows[0], size) if rows else None
    found = []
    for row in rows:
        base, more = rows[0], times_the_workers(table, row, rows[0])
        speedup = quotient(row[rate], base[rate])
        if speedup is None:
            continue
        if given:
            total = scaled(speedup, more) if rate == table.rate_each else speedup
            over_one = Computed(total.value * (given.value or 0.0), total.low * given.low, total.high * given.high)
            found.append((row, row[size].value or 1.0, [Reading(over_one)]))
            continue
        each = scaled(speedup, more)
        readings = [Reading(each)]
        if rate == table.rate:
            readings = [Reading(speedup), Reading(each, f"{table.written[rate]} is that of each worker")]
        readings += [
            Reading(over, f"it is over {table.written[rate]} {one[rate].text}")
            for one in same_size(table, rows)
            if (over := quotient(row[rate], one[rate]))
        ]
        as_long = "epochs" not in row or row["epochs"].value == base["epochs"].value
        if time and as_long and (by_time := quotient(base[time], row[time])):
            readings.append(Reading(by_time, f"it is by {table.written[time]}"))
        found.append((row, more, readings))
    return found


def _speedup_columns(table: Table) -> list[str]:
    return [column for role in (SPEEDUP, SPEEDUP_SPEED, SPEEDUP_TIME) for column in table.all_matching(role)]


def _by_print(table: Table, rows: list[Row], size: str) -> list[Compared]:
    """Speedups as they are printed, or by printed efficiencies, where nothing else tells them.

    They are over one worker, or over the smallest row where that has a speedup of 1.
    """
    columns, efficiency = _speedup_columns(table), table.matching(EFFICIENCY)
    if not rows or same_work_time(table):
        return []
    base = _printed_base(table, rows, size)
    found = []
    for row in rows:
        more = (row[size].value or 0.0) / base
        cells = [(column, row[column]) for column in columns if row[column].low > 0]
        readings = [
            Reading(Computed(cell.value or 0.0, cell.low, cell.high), f"it is by {table.written[column]}" if index else "")
            for index, (column, cell) in enumerate(cells)
        ]
        if not columns and efficiency and row[efficiency].low > 0:
            cell = row[efficiency]
            share = more / 100 if _is_percent(table, efficiency) else more
            readings = [Reading(scaled(Computed(cell.value or 0.0, cell.low, cell.high), share))]
        if readings:
            found.append((row, more, readings))
    return found


def _printed_base(table: Table, rows: list[Row], size: str) -> float:
    """How many workers the row has that printed speedups are over."""
    columns = _speedup_columns(table)
    return (rows[0][size].value or 1.0) if columns and rows[0][columns[0]].value == 1 else 1.0


def same_work_time(table: Table) -> str | None:
    """The column of times whose quotients are speedups; None where there is none, or each worker's own work is told."""
    return None if table.work else table.time or table.matching(OTHER_TIME)


def times_the_workers(table: Table, row: Row, base: Row) -> float:
    size = table.size
    return (row[size].value or 0.0) / (base[size].value or 1.0) if size else 1.0


def named(table: Table, group: str, row: Row) -> str:
    """A row as a reader finds it again."""
    size = table.size
    return f"{group}, {size} {row[size].text}".lstrip(", ") if size else group


def printed(
    table: Table, row: Row, where: str, readings: list[Reading], more: float, roles: tuple[re.Pattern[str], ...]
) -> list[Finding]:
    """Speedup and efficiency as the author printed them, in the columns of these roles."""
    findings = []
    for column in table.columns:
        role = next((role for role in roles if role.fullmatch(column)), None)
        if role is EFFICIENCY:
            by, digits = (100 / more, 1) if _is_percent(table, column) else (1 / more, 3)
            efficiencies = [Reading(scaled(one, by), meant) for one, meant in readings]
            findings += held_against(row[column], efficiencies, where, "efficiency", digits)
        elif role is SPEEDUP_PERCENT:
            of_ideal = [Reading(scaled(one, 100 / more), meant) for one, meant in readings]
            of_one = Reading(scaled(readings[0].speedup, 100), "it is in percent of one worker")
            findings += held_against(row[column], [of_ideal[0], of_one, *of_ideal[1:]], where, table.written[column], 1)
        elif role is not None:
            what = "speedup" if role is SPEEDUP else table.written[column]
            findings += held_against(row[column], readings, where, what, 3)
    return findings


def _is_percent(table: Table, column: str) -> bool:
    """Whether efficiencies are in percent, by the column's name or by what stands in it."""
    cells = [row[column] for row in table.rows]
    by_name = column.lower().endswith(("pct", "percent"))
    return by_name or any(cell.text.endswith("%") or (cell.value or 0.0) > _HIGHEST_SHARE for cell in cells)


def held_against(cell: Cell, readings: list[Reading], where: str, what: str, digits: int) -> list[Finding]:
    """Printed against the plain reading; where only another gives it, that is said."""
    if cell.value is None:
        return []
    plain = readings[0].speedup
    other = next((one for one in readings[1:] if not contradicts(cell, one.speedup)), None)
    if other is None or not contradicts(cell, plain):
        return compared(cell, plain, where, what, digits)
    right = f"{what} {cell.text} is right only if {other.meant}"
    return [Finding("caution", where, f"{right}; else it computes to {plain.value:.{digits}f}")]


def superlinear(where: str, found: Computed, more: float) -> list[Finding]:
    """An efficiency above 100 % by more than rounding."""
    if more <= 1 or found.value < _SUPERLINEAR * more or found.low <= more:
        return []
    why = "the smallest run was slowed by something else, or the work was not the same"
    return [Finding("caution", where, f"efficiency {100 * found.value / more:.1f} %, more than linear: {why}")]


def _two_speedups(table: Table, row: Row, where: str) -> list[Finding]:
    """A speedup by speed and one by time that are far apart: what the speed leaves out."""
    speed, time = table.matching(SPEEDUP_SPEED), table.matching(SPEEDUP_TIME)
    by_speed, by_time = (row[column].value or 0.0 if column else 0.0 for column in (speed, time))
    if min(by_speed, by_time) <= 0 or by_speed < _APART * by_time:
        return []
    share = 100 * (1 - by_time / by_speed)
    left_out = f"at least {share:.0f} % of its time, as start and initialisation, is no part of the speed"
    return [Finding("caution", where, f"speedup {by_speed:g} by speed and {by_time:g} by time: {left_out}")]


def compared(cell: Cell, found: Computed, where: str, what: str, digits: int) -> list[Finding]:
    """Printed against computed; nothing where nothing is printed."""
    if cell.value is None:
        return []
    if contradicts(cell, found):
        return [Finding("contradicts", where, f"{what} computes to {found.value:.{digits}f}, printed {cell.text}")]
    return [Finding("agrees", where, f"{what} {cell.text}")]


def _communication(table: Table, row: Row, where: str, efficiency: float) -> list[Finding]:
    """What would be left were communication the only loss, against what was measured."""
    column = next((c for c in table.columns if COMMUNICATION.fullmatch(c)), None)
    share = communication_share(row[column], column) if column else None
    if share is None or not 0 <= share <= 1:
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
