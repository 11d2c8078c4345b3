"""Throughput over the session as chart data."""

from __future__ import annotations

from dataclasses import dataclass

from distmon.tui.format import MISSING, compact
from distmon.tui.view.facts import Facts
from distmon.tui.widgets.chart import ChartData, EventLine, Series

_EVENT_ROLES = {
    "host_failed": "bad",
    "host_blacklisted": "bad",
    "host_left": "warn",
    "host_joined": "good",
    "rendezvous": "accent",
}


@dataclass(frozen=True)
class TimeView:
    """What part of the time all charts of a screen show, and where their crosshair is."""

    window_s: float | None = None
    end: float | None = None
    """Where the window ends; None follows."""
    cross: float | None = None
    log: bool = False


def throughput_chart(facts: Facts, view: TimeView) -> ChartData:
    times = [time for time, _ in facts.history]
    values = [value for _, value in facts.history]
    bins = facts.state.history
    return ChartData(
        series=(Series("samples/s", times, values, "series0", area=True),),
        events=events_of(facts),
        origin=facts.origin,
        now=facts.state.job.ended_at or facts.state.now,
        interval_s=float(bins.width_s) if bins else 1.0,
        window_s=view.window_s,
        end=view.end,
        cross=view.cross,
        log=view.log,
        caption=_caption(facts, view.window_s),
        empty=facts.steady.reason or "no steps yet",
        figure="samples_per_s",
    )


def events_of(facts: Facts) -> tuple[EventLine, ...]:
    """Changes of membership and deaths of ranks, for any chart."""
    changes = [EventLine(c.at, role) for c in facts.state.membership if (role := _EVENT_ROLES.get(c.change))]
    dead = (r for r in facts.state.ranks.values() if r.exit_code and not r.stopped)
    deaths = [EventLine(r.exited_at, "bad") for r in dead if r.exited_at is not None]
    return tuple(changes + deaths)


def _caption(facts: Facts, window_s: float | None) -> tuple[tuple[str, str], ...]:
    steady = facts.steady
    over = "past the start" if steady.reason else "steady"
    words = [(f"{over} ", "muted"), (compact(steady.mean), "text"), (" samples/s", "muted")]
    if steady.mean is None:
        words = [(f"steady {MISSING}", "muted")]
    if window_s is not None:
        words = [(f"last {window_s / 60:.0f} min · ", "accent"), *words]
    return tuple(words)
