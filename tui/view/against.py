"""Two sessions side by side: what each measured at moments that belong together, and in words what makes the difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distmon.core.printable import clean
from distmon.core.side_by_side import End, Lock, Row, Side, Standing, difference_words, is_past
from distmon.tui.format import MISSING, compact, duration, fit, milliseconds, percent, watts
from distmon.tui.theme import Palette
from distmon.tui.view.words import PHASE_NAMES
from distmon.tui.view.wrap import wrapped
from distmon.tui.widgets.chart import ChartData, EventLine, Series
from distmon.tui.widgets.line import Line
from distmon.tui.widgets.rows import Cell
from distmon.tui.widgets.table import Column

COLUMNS = (
    Column("measure", "measure", 21, "left", grow=2, widest=36, narrow=14),
    Column("a", "A", 11, importance=2, grow=1, widest=16),
    Column("b", "B", 11, importance=3, grow=1, widest=16),
    Column("difference", "B-A", 11, importance=1, grow=1, widest=16),
    Column("percent", "%", 8, importance=4, figure="difference_percent"),
    Column("better", "", 6, "left", importance=5),
)
EMPTY = "nothing is beside this session yet: o lists the recordings, and i there puts the selected one here"
NO_EPOCHS = "epochs are not known of both sessions; c locks by step or time"
READING = "reading B ..."
UNMEASURED = "nothing was measured yet"
STEADY = 0.01
"""Values that differ by less of A are no better and no worse."""


@dataclass(frozen=True)
class Pair:
    """What the screen shows. `b` is None while it is read, or where its place is not known; then `trouble` says why.

    `end` is where B ended, once B was read.
    """

    lock: Lock
    a: Side
    b: Side | None
    a_name: str
    b_name: str
    trouble: str = ""
    end: End | None = None
    a_ended: bool = False


def end_words(lock: Lock, of: Standing, end: End, a_ended: bool) -> str:
    """That one of the two has ended before the other; empty where neither has."""
    if is_past(lock, of, end.standing):
        last = "ended" if end.ended else "is recorded"
        there = f"B {last} {'at' if end.ended else 'up to'} step {end.standing.step:,}, {duration(end.standing.time_s)}"
        return f"{there}: it has no measures to set beside A's, so – stands for them"
    if a_ended and is_past(lock, end.standing, of):
        further = f"B went on to step {end.standing.step:,}, {duration(end.standing.time_s)}"
        return f"A ended at step {of.step:,}, {duration(of.time_s)}; {further}"
    return ""


def why_empty(pair: Pair | None, trouble: str) -> str:
    """Why there are no measures, where nothing else on the screen says so."""
    if pair is None:
        return trouble or EMPTY
    return UNMEASURED if pair.b is not None else pair.trouble or READING


def word_lines(pair: Pair | None, trouble: str, palette: Palette, width: int, height: int) -> list[Line]:
    """Who A and B are and where they stand, and what makes the difference."""
    style = palette.style
    if pair is None:
        return wrapped(trouble or EMPTY, width - 2, style("warn" if trouble else "muted"), " ")
    lines = [
        _standing("A", pair.a_name, pair.a.standing, "series0", palette, width),
        _standing("B", pair.b_name, pair.b.standing if pair.b is not None else None, "series1", palette, width),
    ]
    if pair.b is None:
        return [*lines, *wrapped(pair.trouble or READING, width - 2, style("warn" if pair.trouble else "muted"), " ")]
    ended = end_words(pair.lock, pair.a.standing, pair.end, pair.a_ended) if pair.end is not None else ""
    lines += wrapped(difference_words(pair.a, pair.b), width - 2, style("text", bold=True), " ")
    return [*lines, *(wrapped(ended, width - 2, style("muted"), " ") if ended else [])]


def _standing(letter: str, name: str, of: Standing | None, role: str, palette: Palette, width: int) -> Line:
    style = palette.style
    where = ""
    if of is not None:
        epoch = f"  epoch {of.epoch:.2f}" if of.epoch is not None else ""
        where = f"step {of.step:,}  {duration(of.time_s)}{epoch}"
    line = Line([(f" {letter} ", style(role, bold=True))])
    room = max(width - line.width - len(where) - 2, 8)
    return line.add(fit(clean(name), room), style("text")).add(f" {where}", style("muted"))


def cells(rows: dict[str, Row], key: str) -> Sequence[Cell]:
    row = rows[key]
    words, sign = _better(row)
    role = {"better": "good", "worse": "bad"}.get(words, "text")
    return (
        (PHASE_NAMES.get(key, key.replace("_", " ")), "text"),
        (_value(row, row.a), "series0"),
        (_value(row, row.b), "series1"),
        (_difference(row), role),
        (MISSING if row.percent is None else f"{row.percent:+.1f}%" if abs(row.percent) < 1000 else f"{sign}999%", role),
        (words, role),
    )


def records(rows: dict[str, Row]) -> dict[str, dict[str, object]]:
    """The same for a file; each row's values are in its unit."""
    return {
        name: {
            "measure": name,
            "unit": row.measure.unit,
            "a": row.a,
            "b": row.b,
            "difference": row.difference,
            "difference_percent": row.percent,
            "better": _better(row)[0],
        }
        for name, row in rows.items()
    }


def side_records(pair: Pair | None) -> list[dict[str, object]]:
    """Where A and B stand, for a file."""
    sides = () if pair is None else (("A", pair.a_name, pair.a), ("B", pair.b_name, pair.b))
    return [
        {
            "session": letter,
            "name": name,
            "step": side.standing.step if side is not None else None,
            "time_s": side.standing.time_s if side is not None else None,
            "epoch": side.standing.epoch if side is not None else None,
            "ranks": side.ranks if side is not None else None,
        }
        for letter, name, side in sides
    ]


def _better(row: Row) -> tuple[str, str]:
    difference = row.difference
    if difference is None:
        return "", ""
    sign = ">+" if difference > 0 else "<-"
    scale = abs(row.a or 0.0) if row.measure.unit != "share" else 1.0
    nothing = abs(difference) <= STEADY * scale or _value(row, abs(difference)) == _value(row, 0.0)
    if not row.measure.better or nothing:
        return "", sign
    return ("better" if (difference > 0) == (row.measure.better == "more") else "worse"), sign


def _value(row: Row, value: float | None) -> str:
    if value is None:
        return MISSING
    match row.measure.unit:
        case "s":
            return f"{milliseconds(value)} ms"
        case "share":
            return percent(100 * value).strip()
        case "percent":
            return percent(value).strip()
        case "W":
            return watts(value)
        case "samples/s":
            return f"{compact(value)}/s"
    return f"{value:.4g}"


def _difference(row: Row) -> str:
    difference = row.difference
    if difference is None:
        return MISSING
    match row.measure.unit:
        case "share":
            return f"{100 * difference:+.1f} pts"
        case "percent":
            return f"{difference:+.1f} pts"
    sign = "-" if difference < 0 else "+"
    return f"{sign}{_value(row, abs(difference))}"


def speed_chart(
    lock: Lock,
    a: Sequence[tuple[float, float | None]],
    b: Sequence[tuple[float, float | None]],
    here: float | None,
    cross: float | None,
) -> ChartData:
    """Both speeds over the axis that locks them; the line is where the table is, the crosshair at `cross` of that axis."""
    last = max((points[-1][0] for points in (a, b) if points), default=0.0)
    longest = max(len(a), len(b), 1)
    return ChartData(
        series=(_series("A", a, "series0"), _series("B", b, "series1")),
        events=(EventLine(here, "accent"),) if here is not None else (),
        now=last,
        interval_s=max(last / longest, 1e-3),
        axis_words=duration if lock == "time" else _number,
        cross=cross,
        figure="samples_per_s",
        axis_figure="at_s" if lock == "time" else lock,
        caption=(("A ", "series0"), ("B ", "series1"), (f"samples/s by {lock}", "muted")),
        empty="no speed by epoch: its length was not seen" if lock == "epoch" else "no samples were seen yet",
    )


def _series(label: str, points: Sequence[tuple[float, float | None]], role: str) -> Series:
    return Series(label, [x for x, _ in points], [value for _, value in points], role)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{round(value, 2):g}"
