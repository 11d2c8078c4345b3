"""Plots of a scaling report: time, throughput, both speedups and efficiency over the number of ranks, against ideal."""

from __future__ import annotations

from typing import Any

import altair as alt

from distmon.core.intervals import Interval
from distmon.core.reconcile import Reconciled
from distmon.core.scaling import Fit
from distmon.replay.report.drawing import HEIGHT, SERIES, Chart, Spec
from distmon.replay.report.model import ScalingReport
from distmon.replay.report.scaling import law_name, part_name

_IDEAL = "#8a94a0"
_Row = dict[str, Any]


def scaling_charts(found: ScalingReport) -> list[Chart]:
    """Every plot of a scaling report."""
    rows, base = found.points, found.points[0]
    more = [row.ranks / base.ranks for row in rows]
    ideal_s = [base.wall_s.estimate * row.samples / base.samples / m for row, m in zip(rows, more, strict=True)]
    ideal_x = [base.throughput_samples_per_s.estimate * m for m in more]
    time = [_point(row, row.wall_s, "measured") for row in rows] + _ideal(rows, ideal_s)
    speed = [_point(row, row.throughput_samples_per_s, "measured") for row in rows] + _ideal(rows, ideal_x)
    both = [
        *(_point(row, row.speedup_by_speed, "by steady speed") for row in rows),
        *(_point(row, row.speedup_by_wall, "by wall time") for row in rows),
        *_ideal(rows, more),
    ]
    efficiency = [
        {"n": row.ranks, "v": value, "s": name}
        for row in rows
        for name, value in (("by steady speed", row.efficiency_by_speed), ("by wall time", row.efficiency_by_wall))
    ] + _ideal(rows, [1.0] * len(rows))
    section = "Scaling"
    return [
        Chart("scaling_time", "Wall time of the job", section, _lines(time, rows, "seconds")),
        Chart("scaling_throughput", "Steady throughput", section, _lines(speed, rows, "samples/s", found.fits)),
        Chart("scaling_speedup", "Speedup, by steady speed and by wall time", section, _lines(both, rows, "speedup")),
        Chart("scaling_efficiency", "Efficiency", section, _lines(efficiency, rows, "efficiency", percent=True)),
        Chart("scaling_parts", "Where the wall time goes", "Wall time by number of ranks", _stack(found)),
    ]


def _point(row: Reconciled, value: Interval, name: str) -> _Row:
    low, high = (value.low, value.high) if value.known else (None, None)
    return {"n": row.ranks, "v": value.estimate, "lo": low, "hi": high, "s": name}


def _ideal(rows: list[Reconciled], values: list[float]) -> list[_Row]:
    return [{"n": row.ranks, "v": value, "s": "ideal"} for row, value in zip(rows, values, strict=True)]


def _lines(
    points: list[_Row], rows: list[Reconciled], title: str, fits: list[Fit] | None = None, percent: bool = False
) -> Spec:
    """Lines with whiskers of their intervals; laws as bands, up to the next doubling."""
    names = list(dict.fromkeys(str(point["s"]) for point in points))
    laws = [law_name(fit) for fit in fits or [] if fit.curve]
    colours = [*SERIES[: len(names) - 1], _IDEAL, *SERIES[len(names) - 1 : len(names) - 1 + len(laws)]]
    colour = alt.Color(
        "s:N",
        title=None,
        sort=[*names, *laws],
        scale=alt.Scale(domain=[*names, *laws], range=colours),
        legend=alt.Legend(orient="top", symbolType="stroke"),
    )
    ranks = alt.X("n:Q", title="ranks", axis=alt.Axis(values=_ticks(rows, bool(laws)), format="d"), scale=alt.Scale(nice=False))
    value = alt.Y("v:Q", title=title, scale=alt.Scale(zero=True), axis=alt.Axis(format="%") if percent else alt.Axis())
    data = alt.InlineData(values=points)
    base = alt.Chart(data).encode(x=ranks, color=colour)
    line = base.mark_line(point=alt.OverlayMarkDef(size=45)).encode(
        y=value,
        strokeDash=alt.condition("datum.s == 'ideal'", alt.value([5, 4]), alt.value([1, 0])),
        tooltip=[
            alt.Tooltip("s:N", title=" "),
            alt.Tooltip("n:Q", title="ranks"),
            alt.Tooltip("v:Q", title=title, format=".1%" if percent else ",.4~g"),
        ],
    )
    measured = base.transform_filter("isValid(datum.lo)")
    whisker = measured.mark_rule(strokeWidth=1.5).encode(y=alt.Y("lo:Q", title=title), y2="hi:Q")
    layers: list[alt.Chart] = [line, whisker]
    if laws:
        layers = [*_bands(fits or [], colour), *layers]
    spec: Spec = alt.layer(*layers).properties(width="container", height=HEIGHT + 40).to_dict()
    spec.pop("config", None)
    return spec


def _ticks(rows: list[Reconciled], ahead: bool) -> list[float]:
    sizes: list[float] = [row.ranks for row in rows]
    return [*sizes, 2 * sizes[-1]] if ahead else sizes


def _bands(fits: list[Fit], colour: alt.Color) -> list[alt.Chart]:
    values = [
        {"n": n, "v": band.estimate, "lo": band.low, "hi": band.high, "s": law_name(fit)} for fit in fits for n, band in fit.curve
    ]
    base = alt.Chart(alt.InlineData(values=values)).encode(x="n:Q", color=colour)
    area = base.mark_area(opacity=0.15).encode(y="lo:Q", y2="hi:Q")
    return [area, base.mark_line(strokeWidth=1.2).encode(y="v:Q")]


def _stack(found: ScalingReport) -> Spec:
    names = list(dict.fromkeys(part_name(name) for row in found.points for name, value in row.parts_s.items() if value > 0))
    rows = [
        {"n": row.ranks, "v": round(value, 4), "s": part_name(name), "o": names.index(part_name(name))}
        for row in found.points
        for name, value in row.parts_s.items()
        if value > 0
    ]
    chart = alt.Chart(alt.InlineData(values=rows)).mark_bar().encode(
        y=alt.Y("n:O", title="ranks"),
        x=alt.X("v:Q", title="seconds", stack="zero"),
        color=alt.Color("s:N", title=None, sort=names, legend=alt.Legend(orient="right"), scale=alt.Scale(scheme="tableau20")),
        order=alt.Order("o:Q"),
        tooltip=[
            alt.Tooltip("n:O", title="ranks"),
            alt.Tooltip("s:N", title="part"),
            alt.Tooltip("v:Q", title="seconds", format=",.3f"),
        ],
    )
    spec: Spec = chart.properties(width="container", height=max(40 * len(found.points), 14 * len(names))).to_dict()
    spec.pop("config", None)
    return spec
