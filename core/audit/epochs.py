"""Tables of epochs of two runs, and of the events between them: what differs, what lies outside, and what was lost."""

from __future__ import annotations

import re
from typing import NamedTuple

from distmon.core.audit.agreement import difference
from distmon.core.audit.scaling import compared
from distmon.core.audit.table import Finding, Row, Table
from distmon.core.quantiles import median

_WARM = 2.0
_BROKEN = 3.0
_SLOWER = 1.25
_TOTAL = re.compile(r"total.*", re.IGNORECASE)


class Times(NamedTuple):
    """Seconds of each epoch of one run."""

    run: str
    seconds: dict[int, float]

    @property
    def usual(self) -> float:
        """The median of all epochs but the first."""
        first = min(self.seconds)
        return median(s for epoch, s in self.seconds.items() if epoch != first) or 0.0

    def between(self, low: float, high: float) -> list[int]:
        """Epochs after the first that took so many times the usual."""
        first, usual = min(self.seconds), self.usual
        return [epoch for epoch, s in self.seconds.items() if epoch != first and low * usual <= s < high * usual]


def epoch_times(table: Table) -> list[Times]:
    """Every run of a table of epochs: its columns `RUN_s`; none for another table."""
    if "epoch" not in table.columns:
        return []
    runs = [c for c in table.columns if c.endswith("_s") and not c.startswith("difference") and table.has_number(c)]
    return [
        Times(
            column.removesuffix("_s"),
            {int(row["epoch"].value): row[column].value or 0.0 for row in table.rows if row["epoch"].value is not None},
        )
        for column in runs
    ]


def epoch_findings(table: Table) -> list[Finding]:
    """Differences as printed, warm-up, broken and slower epochs of each run."""
    times = [run for run in epoch_times(table) if len(run.seconds) > 2 and run.usual > 0]
    findings = _differences(table, times)
    for run in times:
        first = min(run.seconds)
        findings.append(Finding("derived", run.run, f"{len(run.seconds)} epochs add up to {sum(run.seconds.values()):.2f} s"))
        if run.seconds[first] > _WARM * run.usual:
            worth = run.seconds[first] / run.usual
            took = f"{run.seconds[first]:.0f} s against {run.usual:.0f} s, {worth:.1f} normal epochs' worth"
            findings.append(Finding("caution", run.run, f"epoch {first} is warm-up: {took}"))
        for epoch in run.between(_BROKEN, float("inf")):
            text = f"epoch {epoch} took {run.seconds[epoch]:.2f} s, usual are {run.usual:.0f} s: something broke in"
            findings.append(Finding("caution", run.run, text))
        if slower := run.between(_SLOWER, _BROKEN):
            seconds = [run.seconds[epoch] for epoch in slower]
            text = f"epochs {_ranges(slower)} took {min(seconds):.0f} to {max(seconds):.0f} s, usual are {run.usual:.0f} s"
            findings.append(Finding("caution", run.run, f"{text}: fewer workers, or slower ones"))
    return findings


def _differences(table: Table, times: list[Times]) -> list[Finding]:
    column = next((c for c in table.columns if c.startswith("difference")), None)
    if column is None or len(times) != 2:
        return []
    base, other = (f"{run.run}_s" for run in times)
    found = [
        finding
        for row in table.rows
        if (computed := difference(row[other], row[base])) is not None
        for finding in compared(row[column], computed, f"epoch {row['epoch'].text}", "difference", 2)
    ]
    wrong = [finding for finding in found if finding.kind == "contradicts"]
    right = len(found) - len(wrong)
    return [*wrong, Finding("agrees", "all epochs", f"{right} of {len(found)} differences are as printed")]


def event_findings(epochs: Table, events: Table) -> list[Finding]:
    """What the events between epochs say of the runs: time outside epochs, and time lost against what the author counted."""
    times = {run.run: run for run in epoch_times(epochs)}
    if not times or not {"run", "event", "seconds"} <= set(events.columns):
        return []
    findings: list[Finding] = []
    for name, run in times.items():
        for row in events.rows:
            if row["run"].text == name and _TOTAL.fullmatch(row["event"].text) and row["seconds"].value is not None:
                inside = sum(run.seconds.values())
                outside = row["seconds"].value - inside
                total = f"{row['event'].text} {row['seconds'].value:.2f} s"
                text = f"{total}, epochs {inside:.2f} s: {outside:.2f} s lie outside the epochs"
                findings.append(Finding("derived" if outside >= 0 else "contradicts", name, text))
    return findings + _lost(times, events)


def _lost(times: dict[str, Times], events: Table) -> list[Finding]:
    """The author's time lost against what the broken epochs took more than the other run's."""
    claimed: dict[str, list[Row]] = {}
    for row in events.rows:
        if "lost" in row["event"].text.lower() and row["seconds"].value is not None:
            claimed.setdefault(row["run"].text, []).append(row)
    findings = []
    for name, rows in claimed.items():
        run, others = times.get(name), [other for other in times.values() if other.run != name]
        if run is None or len(others) != 1:
            continue
        broken, slower = run.between(_BROKEN, float("inf")), run.between(_SLOWER, _BROKEN)
        more = {e: run.seconds[e] - others[0].seconds.get(e, 0.0) for e in [*broken, *slower]}
        counted = sum(row["seconds"].value or 0.0 for row in rows)
        lost, below = sum(more[e] for e in broken), sum(more[e] for e in slower)
        if lost <= counted * 1.05:
            continue
        text = (
            f"counts {counted:.1f} s as lost, while epochs {_ranges(broken)} alone took {lost:.1f} s longer than those of "
            f"{others[0].run}{_at_lower_speed(slower, below)}: time lost has to be told apart into below capacity by plan, "
            "restart, redone steps, initialisation, and what stays unexplained"
        )
        findings.append(Finding("contradicts", name, text))
    return findings


def _at_lower_speed(slower: list[int], seconds: float) -> str:
    return f", and epochs {_ranges(slower)} another {seconds:.1f} s at a lower speed" if slower else ""


def _ranges(epochs: list[int]) -> str:
    """1, 3 to 5."""
    parts: list[str] = []
    start = 0
    for index in range(1, len(epochs) + 1):
        if index == len(epochs) or epochs[index] != epochs[index - 1] + 1:
            first, last = epochs[start], epochs[index - 1]
            parts.append(str(first) if first == last else f"{first} to {last}")
            start = index
    return " and ".join(parts)
