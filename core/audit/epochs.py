"""Tables of epochs of two runs, and of the events between them: what differs, what lies outside, and what was lost."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

from distmon.core.audit.agreement import difference
from distmon.core.audit.scaling import compared
from distmon.core.audit.table import Cell, Finding, Row, Table
from distmon.core.audit.values import first_of
from distmon.core.quantiles import median

_WARM = 2.0
_BROKEN = 3.0
_SLOWER = 1.25
_TOTAL = re.compile(r"total.*", re.IGNORECASE)
_PARTS = (
    ("redone", r"lost|redo"),
    ("initialisation", r"init"),
    ("rendezvous", r"rendezvous"),
    ("restart", r"setup|start|launch"),
)
"""What an event's seconds are, by words in its name; in this order."""
_JUMP = 1.1
"""A loss of so many times the epoch before has jumped."""
_WORSE = 0.98
"""A last value below so much of the best does not stand for the run."""
_DIGITS = 4
"""Values written with so many digits are not the same twice by chance."""


class Times(NamedTuple):
    """Seconds of each epoch of one run."""

    run: str
    seconds: dict[int, float]

    @property
    def _later(self) -> list[int]:
        """All but the first."""
        first = min(self.seconds, default=0)
        return [epoch for epoch in self.seconds if epoch != first]

    @property
    def usual(self) -> float:
        """The median of all epochs but the first."""
        return median(self.seconds[epoch] for epoch in self._later) or 0.0

    def between(self, low: float, high: float) -> list[int]:
        """Epochs after the first that took so many times the usual."""
        usual = self.usual
        return [epoch for epoch in self._later if low * usual <= self.seconds[epoch] < high * usual]


def epoch_times(table: Table) -> list[Times]:
    """Every run of a table of epochs: its columns `RUN_s`; none for another table.

    Of an epoch that stands in several rows the last one counts.
    """
    if "epoch" not in table.columns:
        return []
    runs = [c for c in table.columns if c.endswith("_s") and not c.startswith("difference") and table.has_number(c)]
    rows = {int(row["epoch"].value): row for row in table.rows if row["epoch"].value is not None}
    return [
        Times(
            column.removesuffix("_s"),
            {epoch: row[column].value or 0.0 for epoch, row in rows.items() if _is_time(row[column])},
        )
        for column in runs
    ]


def _is_time(cell: Cell) -> bool:
    return cell.value is not None and cell.value >= 0


def epoch_findings(table: Table) -> list[Finding]:
    """Differences as printed, warm-up, broken and slower epochs of each run."""
    every = epoch_times(table)
    findings = [*_repeated(table, every), *_missing(table, every), *_differences(table, every)]
    for run in every:
        if len(run.seconds) <= 2 or run.usual <= 0:
            continue
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
            seconds = sorted(run.seconds[epoch] for epoch in slower)
            took = " to ".join(dict.fromkeys(f"{one:.0f}" for one in (seconds[0], seconds[-1])))
            text = f"{_epochs(slower)} took {took} s, usual are {run.usual:.0f} s"
            findings.append(Finding("caution", run.run, f"{text}: fewer workers, or slower ones"))
        findings += _metrics(table, run.run)
    return findings


def _metrics(table: Table, run: str) -> list[Finding]:
    """A loss that jumps, a last value that is not near the best, and values that stand there twice."""
    findings = []
    for column in table.columns:
        metric = column.removeprefix(f"{run}_")
        if metric in (column, "s") or not table.has_number(column):
            continue
        told = [(row["epoch"].text, row[column]) for row in table.rows if row[column].value is not None]
        for (_, before), (epoch, cell) in pairwise(told):
            if cell.text == before.text and sum(letter.isdigit() for letter in cell.text.lstrip("0.")) >= _DIGITS:
                text = (
                    f"{metric} is {cell.text} in epoch {epoch} as in the one before, to the last digit: one of them may be a copy"
                )
                findings.append(Finding("caution", run, text))
            if "loss" in metric and (cell.value or 0.0) > _JUMP * (before.value or 0.0) > 0:
                text = f"{metric} jumps from {before.text} to {cell.text} in epoch {epoch}: the training went back there"
                findings.append(Finding("caution", run, text))
        best = max(told, key=lambda one: one[1].value or 0.0)
        last = told[-1][1]
        if "loss" not in metric and (last.value or 0.0) < _WORSE * (best[1].value or 0.0):
            better = f"after {best[1].text} in epoch {best[0]}"
            text = f"ends with {metric} {last.text}, {better}: the last value does not stand for the run"
            findings.append(Finding("caution", run, text))
    return findings


def _differences(table: Table, times: list[Times]) -> list[Finding]:
    column = next((c for c in table.columns if c.startswith("difference")), None)
    if column is None or len(times) != 2:
        return []
    base, other = (f"{run.run}_s" for run in times)
    found = [
        finding
        for row in table.rows
        if _is_time(row[other]) and _is_time(row[base]) and (computed := difference(row[other], row[base])) is not None
        for finding in compared(row[column], computed, f"epoch {row['epoch'].text}", "difference", 2)
    ]
    wrong = [finding for finding in found if finding.kind == "contradicts"]
    right = len(found) - len(wrong)
    told = Finding("agrees", "all epochs", f"{right} of {len(found)} differences are as printed", right)
    return [*wrong, told] if right else wrong


def _repeated(table: Table, times: list[Times]) -> list[Finding]:
    """Epochs that stand in several rows, of which sums hold the last."""
    rows: dict[float, list[str]] = {}
    for number, row in enumerate(table.rows, 1):
        if times and row["epoch"].value is not None:
            rows.setdefault(row["epoch"].value, []).append(str(number))
    alone = "sums and comparisons hold row {} alone"
    return [
        Finding("caution", f"epoch {epoch:g}", f"stands in rows {' and '.join(numbers)}: {alone.format(numbers[-1])}")
        for epoch, numbers in rows.items()
        if len(numbers) > 1
    ]


def _missing(table: Table, times: list[Times]) -> list[Finding]:
    """Epochs without a row, where the others follow one another more closely, and cells without a time."""
    numbers = sorted({int(row["epoch"].value) for row in table.rows if times and row["epoch"].value is not None})
    step = min((after - before for before, after in pairwise(numbers)), default=0)
    gaps = [f"{before} and {after}" for before, after in pairwise(numbers) if after - before > step]
    findings = [Finding("caution", "all rows", f"no row between epochs {first_of(gaps)}: sums are without it")] if gaps else []
    for run in times:
        if untimed := [epoch for epoch in numbers if epoch not in run.seconds]:
            lacking = f"{_epochs(untimed)} {'has' if len(untimed) == 1 else 'have'} no usable time"
            findings.append(Finding("caution", run.run, f"{lacking}: sums and comparisons are without it"))
    return findings


def event_findings(epochs: Table, events: Table) -> list[Finding]:
    """What the events between epochs say of the runs: time outside epochs, and time lost against what the author counted."""
    times = {run.run: run for run in epoch_times(epochs)}
    if not times or not events.is_events():
        return []
    strange = dict.fromkeys(row["run"].text for row in events.rows if row["run"].text not in times)
    text = f"{epochs.name} has no column NAME_s of this run: its events are left out"
    findings = [Finding("caution", name, text) for name in strange]
    for name, run in times.items():
        rows = [row for row in events.rows if row["run"].text == name and row["seconds"].value is not None]
        named = sum(_seconds(row) for row in rows if not _TOTAL.fullmatch(row["event"].text) and _part(row) != "redone")
        for row in rows:
            if _TOTAL.fullmatch(row["event"].text):
                inside = sum(run.seconds.values())
                outside = _seconds(row) - inside
                total = f"{row['event'].text} {_seconds(row):.2f} s"
                text = f"{total}, epochs {inside:.2f} s: {outside:.2f} s lie outside the epochs"
                findings.append(Finding("derived" if outside >= 0 else "contradicts", name, text))
                if 0 < named < outside:
                    unnamed = f"{outside - named:.2f} s have no name"
                    text = f"of the {outside:.2f} s outside the epochs, events name {named:.2f} s at most: {unnamed}"
                    findings.append(Finding("caution", name, text))
    for name, run in times.items():
        others = [other for other in times.values() if other.run != name]
        if len(others) == 1:
            findings += _lost(run, others[0], [row for row in events.rows if row["run"].text == name])
    return findings


def _seconds(row: Row) -> float:
    return row["seconds"].value or 0.0


def _part(row: Row) -> str:
    """What an event's time was spent on."""
    name = row["event"].text
    return next((part for part, words in _PARTS if re.search(words, name, re.IGNORECASE)), name)


def _lost(run: Times, other: Times, events: list[Row]) -> list[Finding]:
    """The time by which a run's epochs were longer than another's, told apart and held against what the author counts as lost."""
    broken, slower = run.between(_BROKEN, float("inf")), run.between(_SLOWER, _BROKEN)
    more = {epoch: seconds - other.seconds[epoch] for epoch, seconds in run.seconds.items() if epoch in other.seconds}
    broken, slower = [e for e in broken if e in more], [e for e in slower if e in more]
    if not broken:
        return []
    known = [row for row in events if row["seconds"].value is not None and not _TOTAL.fullmatch(row["event"].text)]
    counted = sum(_seconds(row) for row in known if _part(row) == "redone")
    lost, below = sum(more[e] for e in broken), sum(more[e] for e in slower)
    findings = []
    if 0 < counted * 1.05 < lost:
        text = (
            f"counts {counted:.1f} s as lost, while {_epochs(broken)} alone took {lost:.1f} s longer than those of "
            f"{other.run}{_at_lower_speed(slower, below)}"
        )
        findings.append(Finding("contradicts", run.run, text))
    whole = sum(more.values())
    text = f"its epochs took {whole:.1f} s longer than those of {other.run}: {lost:.1f} s in {_epochs(broken)}"
    text += f", {below:.1f} s below capacity in {_epochs(slower)}" if slower else ""
    findings.append(Finding("derived", run.run, f"{text}, {whole - lost - below:+.1f} s in the others"))
    if "after_epoch" not in (known[0] if known else {}):
        return findings
    # How much of a broken epoch was trained below capacity is not told: none of it, or all.
    reduced = max(median(more[e] for e in slower) or 0.0, 0.0) if slower else 0.0
    split = [_split(more[e], [row for row in known if row["after_epoch"].value == e - 1], reduced) for e in broken]
    for epoch, parts in zip(broken, split, strict=True):
        findings.append(Finding("derived", f"{run.run}, epoch {epoch}", _split_words(parts)))
    together = Split(
        sum(parts.more for parts in split),
        {name: sum(parts.named.get(name, 0.0) for parts in split) for name in dict.fromkeys(n for p in split for n in p.named)},
        sum(parts.reduced for parts in split),
    )
    if len(split) > 1:
        findings.append(Finding("derived", f"{run.run}, {_epochs(broken)}", _split_words(together)))
    if any(together.named.values()):
        text = (
            "whether its events lie within the epochs or between them is not told: what lies between them is part of no epoch, "
            "and as much more within stays unexplained"
        )
        findings.append(Finding("caution", run.run, text))
    return findings


class Split(NamedTuple):
    """Seconds by which an epoch was longer, and of what."""

    more: float
    named: dict[str, float]
    """By events, as far as these lie within it."""
    reduced: float
    """At most, of training below capacity."""


def _split(more: float, events: list[Row], reduced: float) -> Split:
    named: dict[str, float] = {}
    for row in events:
        part, event = _part(row), row["event"].text
        name = event if part == event else f"{part} ({event})"
        named[name] = named.get(name, 0.0) + _seconds(row)
    return Split(more, named, reduced)


def _split_words(parts: Split) -> str:
    said = [f"{name} {seconds:.1f} s" for name, seconds in parts.named.items()]
    if parts.reduced:
        said.append(f"below capacity by plan at most {parts.reduced:.1f} s")
    left = parts.more - sum(parts.named.values())
    if left < 0:
        return f"{parts.more:.1f} s longer, less than its events name: {', '.join(said)}; some of that lies outside it"
    least = max(left - parts.reduced, 0.0)
    rest = f"{least:.1f} to {left:.1f} s" if least < left else f"{left:.1f} s"
    return f"{parts.more:.1f} s longer: {', '.join([*said, f'unexplained {rest}'])} ({100 * least / parts.more:.0f} % at least)"


def _at_lower_speed(slower: list[int], seconds: float) -> str:
    return f", and {_epochs(slower)} another {seconds:.1f} s at a lower speed" if slower else ""


def _epochs(epochs: list[int]) -> str:
    """epoch 1, or epochs 1 and 3 to 5."""
    parts: list[str] = []
    start = 0
    for index in range(1, len(epochs) + 1):
        if index == len(epochs) or epochs[index] != epochs[index - 1] + 1:
            first, last = epochs[start], epochs[index - 1]
            parts.append(str(first) if first == last else f"{first} to {last}")
            start = index
    return f"epoch{'s' * (len(epochs) > 1)} {' and '.join(parts)}"
