"""Plots of a session's accounts: what a step's communication is made of, where the energy went, and when each finding held."""

from __future__ import annotations

from typing import Any

import altair as alt

from distmon.replay.report import model
from distmon.replay.report.drawing import PHASE_COLOURS, ROW_HEIGHT, SERIES, Chart, data, spec_of

_Row = dict[str, Any]
_PARTS = {
    "forward + backward": PHASE_COLOURS["forward + backward"],
    "waiting for the last rank": SERIES[4],
    "transfer": PHASE_COLOURS["exposed communication"],
}
_READINGS_DRAWN = 64
_EPOCHS_DRAWN = 200


def account_charts(session: model.Session) -> list[Chart]:
    """Those without data left out."""
    found = [_communication(session.communication), _energy_by_node(session), _energy_by_epoch(session), _findings(session)]
    return [chart for chart in found if chart is not None]


def _communication(found: model.Communication | None) -> Chart | None:
    """Compute against what is waited for the others and for the network, in one bar."""
    if found is None or found.compute_s is None or found.waiting_s is None or found.transfer_s is None:
        return None
    seconds = (found.compute_s, found.waiting_s, found.transfer_s)
    rows: list[_Row] = [
        {"p": part, "v": round(value * 1000, 4), "o": order, "y": "mean step"}
        for order, (part, value) in enumerate(zip(_PARTS, seconds, strict=True))
    ]
    chart = alt.Chart(data(rows)).mark_bar().encode(
        y=alt.Y("y:N", title=None),
        x=alt.X("v:Q", title="ms of a mean step", stack="zero"),
        color=_colour(_PARTS),
        order=alt.Order("o:Q"),
        tooltip=[alt.Tooltip("p:N", title="part"), alt.Tooltip("v:Q", title="ms", format=",.4~g")],
    )
    title = "Computation : waiting for the last rank : transfer"
    return Chart("communication", title, "Communication", _bars(chart, 2))


def _energy_by_node(session: model.Session) -> Chart | None:
    """Joules of each rail and GPU, node by node; a rail that lies within another is left out, so that the bars add up."""
    readings = [r for r in session.energy.readings if not r.within] if session.energy else []
    rows: list[_Row] = [
        {
            "h": r.host,
            "p": r.name,
            "v": _number(r.energy_j),
            "e": None if r.error_j is None else _number(r.error_j),
            "w": _number(r.mean_w),
        }
        for r in readings[:_READINGS_DRAWN]
    ]
    if not rows:
        return None
    names = list(dict.fromkeys(str(row["p"]) for row in rows))
    hosts = list(dict.fromkeys(str(row["h"]) for row in rows))
    chart = alt.Chart(data(rows)).mark_bar().encode(
        y=alt.Y("h:N", title=None, sort=hosts),
        x=alt.X("v:Q", title="joules", stack="zero"),
        color=_colour({name: SERIES[place % len(SERIES)] for place, name in enumerate(names)}),
        tooltip=[
            alt.Tooltip("h:N", title="node"),
            alt.Tooltip("p:N", title="rail"),
            alt.Tooltip("v:Q", title="J", format=",.5~g"),
            alt.Tooltip("e:Q", title="± J", format=",.2~g"),
            alt.Tooltip("w:Q", title="mean W", format=",.4~g"),
        ],
    )
    more = f" (the first {_READINGS_DRAWN} of {len(readings)} rails)" if len(readings) > _READINGS_DRAWN else ""
    return Chart("energy_nodes", "Energy by node and rail" + more, "Energy", _bars(chart, len(hosts)))


def _energy_by_epoch(session: model.Session) -> Chart | None:
    """With whiskers for how far the sum may be off."""
    epochs = session.energy.epochs if session.energy else []
    if len(epochs) < 2:
        return None
    rows: list[_Row] = [
        {
            "n": e.epoch + 1,
            "v": _number(e.energy_j),
            "lo": _number(max(e.energy_j - (e.error_j or 0.0), 0.0)),
            "hi": _number(e.energy_j + (e.error_j or 0.0)),
            "e": None if e.error_j is None else _number(e.error_j),
            "s": None if e.per_sample_j is None else _number(e.per_sample_j),
        }
        for e in epochs[:_EPOCHS_DRAWN]
    ]
    base = alt.Chart(data(rows)).encode(x=alt.X("n:O", title="epoch", axis=alt.Axis(labelAngle=0, labelOverlap=True)))
    bars = base.mark_bar(color=SERIES[0]).encode(
        y=alt.Y("v:Q", title="joules", scale=alt.Scale(zero=True)),
        tooltip=[
            alt.Tooltip("n:O", title="epoch"),
            alt.Tooltip("v:Q", title="J", format=",.5~g"),
            alt.Tooltip("e:Q", title="± J", format=",.2~g"),
            alt.Tooltip("s:Q", title="J a sample", format=",.4~g"),
        ],
    )
    whiskers = base.mark_rule(color=SERIES[1], strokeWidth=1.5).encode(y=alt.Y("lo:Q", title="joules"), y2="hi:Q")
    more = f" (the first {_EPOCHS_DRAWN} of {len(epochs)})" if len(epochs) > _EPOCHS_DRAWN else ""
    chart = alt.layer(bars, whiskers).properties(width="container", height=160)
    return Chart("energy_epochs", "Energy by epoch, with its error" + more, "Energy", spec_of(chart))


def _findings(session: model.Session) -> Chart | None:
    """When each finding held; those of no known time are in the text alone."""
    rows: list[_Row] = [
        {"f": _label(v), "a": round(begin, 3), "b": round(end, 3), "k": v.kind, "t": v.text}
        for v in session.verdicts
        if (begin := v.from_s if v.held_from_s is None else v.held_from_s) is not None
        and (end := v.to_s if v.held_to_s is None else v.held_to_s) is not None
    ]
    if not rows:
        return None
    labels, kinds = (list(dict.fromkeys(str(row[key]) for row in rows)) for key in ("f", "k"))
    chart = alt.Chart(data(rows)).mark_bar(cornerRadius=2).encode(
        y=alt.Y("f:N", title=None, sort=labels, axis=alt.Axis(labelLimit=300)),
        x=alt.X("a:Q", title="seconds since the start", scale=alt.Scale(domain=[0, session.duration_s or 1.0], nice=False)),
        x2="b:Q",
        color=alt.Color("k:N", legend=None, scale=alt.Scale(domain=kinds, range=_cycled(len(kinds)))),
        tooltip=[
            alt.Tooltip("t:N", title="finding"),
            alt.Tooltip("a:Q", title="from, s", format=".1f"),
            alt.Tooltip("b:Q", title="to, s", format=".1f"),
        ],
    )
    return Chart("findings", "When each finding held", "Findings", _bars(chart, len(labels)))


def _label(found: model.Verdict) -> str:
    who = f" of rank {found.rank}" if found.rank is not None else f" of {found.host}" if found.host else ""
    return found.kind.replace("_", " ") + who


def _cycled(count: int) -> list[str]:
    return (SERIES * (count // len(SERIES) + 1))[:count]


def _number(value: float) -> float:
    return float(f"{value:.6g}")


def _colour(colours: dict[str, str]) -> alt.Color:
    names = list(colours)
    return alt.Color(
        "p:N",
        title=None,
        sort=names,
        scale=alt.Scale(domain=names, range=list(colours.values())),
        legend=alt.Legend(orient="top", labelLimit=300),
    )


def _bars(chart: alt.Chart, rows: int) -> dict[str, Any]:
    return spec_of(chart.properties(width="container", height=ROW_HEIGHT * max(rows, 1)))
