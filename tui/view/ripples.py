"""The ranks as heat maps, now and over time, and as one band over all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from distmon.core.printable import clean
from distmon.core.recent import RECENT_S, Recent
from distmon.core.steps import RECENT_STEPS
from distmon.tui.format import MISSING, milliseconds
from distmon.tui.view.chart import TimeView, events_of
from distmon.tui.view.facts import Facts
from distmon.tui.view.measures import RankMeasure
from distmon.tui.view.ranks import is_problem, state_of
from distmon.tui.widgets.chart import ChartData, Series
from distmon.tui.widgets.heatmap import HeatData
from distmon.tui.widgets.ripple import RippleData

Caption = tuple[tuple[str, str], ...]


def heat(
    facts: Facts, measure: RankMeasure, only: Sequence[int] | None
) -> tuple[HeatData[int], Callable[[int], str], Caption]:
    """Every rank by its recent steps, grouped by host; `only` these ranks where that is given."""
    chosen = set(only) if only is not None else None
    rows = [row for row in facts.ranks.values() if chosen is None or row.rank in chosen]
    values = [measure.value(row) for row in rows]
    groups = [(clean(host) or MISSING, len(list(members))) for host, members in groupby(rows, key=lambda row: row.host)]
    troubled = frozenset(row.rank for row in rows if is_problem(facts, row) and row.rank not in facts.slow_ranks)
    data = HeatData([row.rank for row in rows], values, groups, measure.scale(values), troubled, measure.figure, facts.host_label)

    def describe(rank: int) -> str:
        row = facts.ranks.get(rank)
        if row is None:
            return f"rank {rank} is gone"
        value = f"{measure.title} {milliseconds(measure.value(row))} ms"
        return f"rank {rank} on {facts.host_label(row.host) or MISSING}: {value}, {clean(state_of(facts, row))}"

    return data, describe, ((measure.title, "accent"),)


def ripple(facts: Facts, measure: RankMeasure, lately: Recent, order: Sequence[int], cross: float | None = None) -> RippleData:
    """The last seconds, the ranks in this order; what is not in it is not shown."""
    ranks = [rank for rank in order if rank in lately.rows]
    rows = [lately.rows[rank] for rank in ranks]
    scale = measure.scale(value for row in rows for value in row)
    caption = ((f"{measure.title} · ", "accent"), ("step ms by second", "muted"))
    return RippleData(lately.start, lately.seconds, ranks, rows, scale, caption, cross, measure.figure, facts.origin)


def reach_words(lately: Recent) -> str:
    """What is shown over time, where that is not all; empty where it is."""
    return {"": "", "steps": f"last {RECENT_STEPS} steps", "seconds": f"last {RECENT_S} s"}[lately.limit]


def band_chart(facts: Facts, measure: RankMeasure, lately: Recent, view: TimeView) -> ChartData:
    """Median of the ranks over the last seconds, with the band from p5 to p95."""
    bands, reach = lately.band(), reach_words(lately)
    times = [lately.start + i + 0.5 for i in range(lately.seconds)]
    lows, middles, highs = ([band[i] if band else None for band in bands] for i in range(3))
    series = Series("median", times, middles, "series0", band=(lows, highs))
    return ChartData(
        series=(series,) if times else (),
        events=events_of(facts),
        origin=facts.origin,
        now=lately.start + lately.seconds,
        window_s=float(min(max(lately.seconds, 30), view.window_s or 1e9)),
        end=view.end,
        cross=view.cross,
        log=view.log,
        words=milliseconds,
        figure=measure.figure,
        caption=((f"{measure.title} ms · ", "accent"), (f"{reach} · " * bool(reach) + "median, p5 to p95", "muted")),
    )
