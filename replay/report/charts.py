"""The plots of a session as Vega-Lite specifications, made with Altair. They hold data and no code."""

from __future__ import annotations

from typing import Any

import altair as alt

from distmon.replay.report import model
from distmon.replay.report.account_charts import account_charts
from distmon.replay.report.drawing import HEIGHT, PHASE_COLOURS, ROW_HEIGHT, SERIES, Chart, Spec, data, spec_of
from distmon.replay.report.plots import Line, NodePlots, Plots, Points
from distmon.replay.report.sections import PHASE_NAMES, step_title
from distmon.replay.report.words import count, number

_RANKS_DRAWN = 64


def session_charts(session: model.Session, drawn: Plots) -> list[Chart]:
    """The plots of one session, those without data left out."""
    throughput = "Throughput after warm-up"
    found: list[Chart | None] = [
        _line_chart("throughput", "Throughput", throughput, "samples/s", [Line("samples/s", drawn.throughput)]),
        _line_chart("step_time", "Step time, mean over ranks", throughput, "ms", [Line("step", _scaled(drawn.step_s, 1000))]),
        _phase_stack(drawn, step_title(session)),
        _wall_bar(session, "Where the time went"),
        _rank_bars(session),
        _lanes(drawn),
        *account_charts(session),
    ]
    for place, node in enumerate(drawn.nodes, 1):
        found += _node_charts(place, node)
    return [chart for chart in found if chart is not None]


def _scaled(points: Points, by: float) -> Points:
    return [(at, None if value is None else value * by) for at, value in points]


def _ceiling(values: list[float]) -> float | None:
    """Where to cut the plot so that a few stalls do not flatten the rest; None where nothing needs cutting."""
    ordered = sorted(values)
    if len(ordered) < 10:
        return None
    usual = ordered[round(0.95 * (len(ordered) - 1))]
    return 1.5 * usual if usual > 0 and ordered[-1] > 3 * usual else None


def _cut_note(values: list[float], ceiling: float | None, unit: str) -> str:
    """What the cut hides, for the plot's title."""
    if ceiling is None:
        return ""
    higher = sum(value > ceiling for value in values)
    return f" ({count(higher, 'point')} above the plot, up to {number(max(values))} {unit})"


def _rows(lines: list[Line]) -> list[dict[str, Any]]:
    return [
        {"t": round(at, 3), "v": None if value is None else float(f"{value:.6g}"), "s": line.name}
        for line in lines
        for at, value in line.points
    ]


def _time_axis() -> alt.X:
    return alt.X("t:Q", title="seconds since the start", scale=alt.Scale(zero=False, nice=False))


def _zoomed(chart: alt.Chart, height: int = HEIGHT) -> Spec:
    """As wide as the page; drag and wheel move along the time."""
    zoom = alt.selection_interval(bind="scales", encodings=["x"], name="zoom")
    return spec_of(chart.add_params(zoom).properties(width="container", height=height))


def _line_chart(name: str, title: str, section: str, unit: str, lines: list[Line]) -> Chart | None:
    rows = _rows(lines)
    if not any(row["v"] is not None for row in rows):
        return None
    names = [line.name for line in lines]
    several = len(names) > 1
    # A line needs two points: what was measured once is shown as a dot.
    chart = alt.Chart(data(rows)).mark_line(strokeWidth=1.5, clip=True, point=len(rows) <= 40 * len(names))
    values = [row["v"] for row in rows if row["v"] is not None]
    ceiling = _ceiling(values)
    pick = alt.selection_point(fields=["s"], bind="legend", name="pick")
    chart = chart.encode(
        x=_time_axis(),
        y=alt.Y("v:Q", title=unit, scale=alt.Scale(zero=True) if ceiling is None else alt.Scale(domain=[0, ceiling])),
        color=alt.Color(
            "s:N",
            title=None,
            sort=names,
            scale=alt.Scale(domain=names, range=(SERIES * (len(names) // len(SERIES) + 1))[: len(names)]),
            legend=alt.Legend(orient="top", symbolType="stroke", labelLimit=300) if several else None,
        ),
        tooltip=[
            alt.Tooltip("t:Q", title="at, s", format=".1f"),
            alt.Tooltip("v:Q", title=unit, format=",.4~g"),
            *([alt.Tooltip("s:N", title="of")] if several else []),
        ],
    )
    if several:
        chart = chart.encode(opacity=alt.condition(pick, alt.value(1.0), alt.value(0.12))).add_params(pick)
    return Chart(name, title + _cut_note(values, ceiling, unit), section, _zoomed(chart))


def _phase_colour(names: list[str], legend: bool = True) -> alt.Color:
    return alt.Color(
        "s:N",
        title=None,
        sort=names,
        scale=alt.Scale(domain=names, range=[PHASE_COLOURS[name] for name in names]),
        legend=alt.Legend(orient="top", labelLimit=300) if legend else None,
    )


def _phase_stack(drawn: Plots, section: str) -> Chart | None:
    lines = [Line(PHASE_NAMES[line.name], _scaled(line.points, 1000)) for line in drawn.phases]
    rows = [row | {"v": row["v"] or 0.0, "o": order} for order, line in enumerate(lines) for row in _rows([line])]
    if not rows:
        return None
    names = [line.name for line in lines]
    values = [value * 1000 for _, value in drawn.step_s if value is not None]
    ceiling = _ceiling(values)
    scale = alt.Scale(zero=True) if ceiling is None else alt.Scale(domain=[0, ceiling])
    chart = alt.Chart(data(rows)).mark_area(interpolate="step", clip=True).encode(
        x=_time_axis(),
        y=alt.Y("v:Q", title="ms of a mean step", stack="zero", scale=scale),
        color=_phase_colour(names),
        order=alt.Order("o:Q"),
        tooltip=[
            alt.Tooltip("s:N", title="phase"),
            alt.Tooltip("v:Q", title="ms", format=",.4~g"),
            alt.Tooltip("t:Q", title="at, s", format=".1f"),
        ],
    )
    title = "Phases of a step over time, mean over ranks" + _cut_note(values, ceiling, "ms")
    return Chart("phases", title, section, _zoomed(chart))


def _wall_bar(session: model.Session, section: str) -> Chart | None:
    parts = [(key, getattr(session.wall_split_s, key)) for key in session.wall_split_s.__struct_fields__]
    rows = [
        {"s": key.replace("_", " "), "v": round(value, 3), "o": order}
        for order, (key, value) in enumerate(parts)
        if value is not None and value >= 0.0005
    ]
    if not rows:
        return None
    names = [str(row["s"]) for row in rows]
    chart = alt.Chart(data(rows)).mark_bar().encode(
        y=alt.Y("s:N", title=None, sort=names),
        x=alt.X("v:Q", title="seconds"),
        color=alt.condition("datum.s == 'steady'", alt.value(SERIES[0]), alt.value(SERIES[1])),
        tooltip=[alt.Tooltip("s:N", title="part"), alt.Tooltip("v:Q", title="seconds", format=",.3f")],
    )
    return Chart("wall_time", "Wall time", section, spec_of(chart.properties(width="container", height=ROW_HEIGHT * len(rows))))


def _rank_bars(session: model.Session) -> Chart | None:
    """Phases of a steady step for each rank: who waits least for the others is whom they wait for."""
    rows = [
        {"r": rank.rank, "s": label, "v": round(value * 1000, 4), "o": order, "h": rank.host}
        for rank in session.ranks[:_RANKS_DRAWN]
        for order, (key, label) in enumerate(PHASE_NAMES.items())
        if (value := getattr(rank.split_s, key)) is not None
    ]
    if not rows or len(session.ranks) < 2:
        return None
    names = [label for label in PHASE_NAMES.values() if any(row["s"] == label for row in rows)]
    chart = alt.Chart(data(rows)).mark_bar().encode(
        y=alt.Y("r:O", title="rank"),
        x=alt.X("v:Q", title="ms of a steady step", stack="zero"),
        color=_phase_colour(names),
        order=alt.Order("o:Q"),
        tooltip=[
            alt.Tooltip("r:O", title="rank"),
            alt.Tooltip("h:N", title="host"),
            alt.Tooltip("s:N", title="phase"),
            alt.Tooltip("v:Q", title="ms", format=",.4~g"),
        ],
    )
    height = max(ROW_HEIGHT * min(len(session.ranks), _RANKS_DRAWN) // (1 if len(session.ranks) <= 16 else 2), 2 * ROW_HEIGHT)
    return Chart("ranks", "A steady step of each rank", "Ranks", spec_of(chart.properties(width="container", height=height)))


_CAME = ("host_joined", "worker_started", "resumed")
_GONE = ("host_left", "worker_exited")
_FAILED = ("host_failed", "host_blacklisted")
_MARKS = ((_CAME, "triangle-up", SERIES[5]), (_GONE, "triangle-down", SERIES[1]), (_FAILED, "cross", SERIES[4]))
"""Kinds of change, and the shape and colour of their mark; a rendezvous is a line across all lanes."""


def _lanes(drawn: Plots) -> Chart | None:
    """Who trained when: a lane for each host, a bar for each rank and generation, and a mark for each change."""
    if not drawn.lanes and not drawn.marks:
        return None
    bars = [
        {"h": lane.host, "a": round(lane.from_s, 3), "b": round(lane.to_s, 3), "r": lane.rank, "g": lane.generation}
        for lane in drawn.lanes
    ]
    marks = [
        {"h": mark.host or "job", "a": round(mark.at_s, 3), "k": mark.kind.replace("_", " "), "kind": mark.kind}
        for mark in drawn.marks
    ]
    hosts = list(dict.fromkeys(str(row["h"]) for row in [*bars, *marks] if row.get("kind") != "rendezvous"))
    layers = [_rounds([row for row in marks if row["kind"] == "rendezvous"]), _bars(bars, hosts)]
    layers += [_changes([row for row in marks if row["kind"] in kinds], hosts, *look) for kinds, *look in _MARKS]
    height = ROW_HEIGHT * max(len({(row["h"], row["r"]) for row in bars}), len(hosts), 2)
    chart = alt.layer(*[layer for layer in layers if layer is not None]).properties(width="container", height=height)
    return Chart("elastic", "Who trained when", "Who joined and left", spec_of(chart))


def _lane_axis(hosts: list[str]) -> alt.Y:
    return alt.Y("h:N", title=None, sort=hosts)


def _bars(rows: list[dict[str, Any]], hosts: list[str]) -> alt.Chart | None:
    if not rows:
        return None
    chart: alt.Chart = alt.Chart(data(rows)).mark_bar(cornerRadius=2)
    encoded: alt.Chart = chart.encode(
        x=alt.X("a:Q", title="seconds since the start"),
        x2="b:Q",
        y=_lane_axis(hosts),
        yOffset="r:O",
        color=alt.Color("g:O", title="generation", scale=alt.Scale(range=SERIES)),
        tooltip=[
            alt.Tooltip("h:N", title="host"),
            alt.Tooltip("r:O", title="rank"),
            alt.Tooltip("g:O", title="generation"),
            alt.Tooltip("a:Q", title="from, s", format=".2f"),
            alt.Tooltip("b:Q", title="to, s", format=".2f"),
        ],
    )
    return encoded


def _change_tips() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("k:N", title="what"),
        alt.Tooltip("h:N", title="host"),
        alt.Tooltip("a:Q", title="at, s", format=".2f"),
    ]


def _changes(rows: list[dict[str, Any]], hosts: list[str], shape: str, colour: str) -> alt.Chart | None:
    if not rows:
        return None
    chart = alt.Chart(data(rows)).mark_point(shape=shape, size=70, filled=True, color=colour, opacity=1)
    at = alt.X("a:Q", title="seconds since the start")
    encoded: alt.Chart = chart.encode(x=at, y=_lane_axis(hosts), tooltip=_change_tips())
    return encoded


def _rounds(rows: list[dict[str, Any]]) -> alt.Chart | None:
    if not rows:
        return None
    chart = alt.Chart(data(rows)).mark_rule(strokeDash=[3, 3], color=PHASE_COLOURS["rest"])
    encoded: alt.Chart = chart.encode(x=alt.X("a:Q", title="seconds since the start"), tooltip=_change_tips())
    return encoded


def _node_charts(place: int, node: NodePlots) -> list[Chart | None]:
    return [
        _line_chart(f"node{place}_load", f"Load of {node.name}", "Nodes", "%", node.loads),
        _line_chart(f"node{place}_power", f"Power of {node.name}", "Nodes", "W", node.powers),
    ]
