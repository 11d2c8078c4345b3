"""The workers' lives as lanes, the generations as rows, and the time that changes cost."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from distmon.core.elastic import Accounts, GenerationSpan, accounts
from distmon.core.elastic_lanes import LOST_KINDS, TRAINING, Lane, lanes
from distmon.core.events import MembershipChanged
from distmon.core.printable import clean
from distmon.core.state import SessionState
from distmon.tui.format import MISSING, duration, fit, milliseconds, span
from distmon.tui.theme import Palette
from distmon.tui.view.chart import TimeView
from distmon.tui.view.facts import Facts
from distmon.tui.view.filters import Filter
from distmon.tui.view.listing import LISTED, in_order, passing
from distmon.tui.view.wrap import wrapped
from distmon.tui.widgets.lanes import LaneRow, LanesData, Stretch
from distmon.tui.widgets.line import Line
from distmon.tui.widgets.meter import meter
from distmon.tui.widgets.rows import Cell
from distmon.tui.widgets.table import Column

LOOKS = {
    "training": ("█", "good"),
    "initialisation": ("i", "accent"),
    "rendezvous": ("r", "exposed_communication"),
    "sync": ("s", "optimizer"),
    "detection": ("D", "warn"),
    "teardown": ("t", "warn"),
    "redone": ("x", "bad"),
    "tail": ("·", "muted"),
}
"""Glyph and role of each kind of segment."""
SLOT_FIELDS = ("host", "slot", "rank", "end", "trained_s", "lost_s")
"""What a filter can ask of a slot: its last rank, how its last worker ended, how long they trained and were kept from it."""
_SLOT_FIGURES = {"trained": "trained_s", "lost": "lost_s"}
SLOT_SORTS = (LISTED, "host", "slot", "rank", "end", *_SLOT_FIGURES)
LONG_S = 100.0
"""From here on tenths of seconds are not shown."""
GENERATION_COLUMNS = (
    Column("generation", "round", 5),
    Column("ranks", "ranks", 5, importance=1),
    Column("at", "from", 8, importance=2, figure="from_s"),
    Column("forming", "+ forming", 9, importance=4, figure="forming_s"),
    Column("trained", "+ trained", 9, importance=3, figure="trained_s"),
    Column("after", "+ after", 9, importance=6, figure="after_s"),
    Column("step", "step ms", 7, importance=7, figure="step_s"),
    Column("rendezvous", "rendezv.", 8, importance=8, figure="rendezvous_s"),
    Column("start", "start", 8, importance=9, figure="initialisation_s"),
    Column("sync", "sync", 8, importance=10, figure="sync_s"),
    Column("undone", "undone", 6, importance=11, figure="undone_steps"),
    Column("cause", "why", 16, "left", importance=5, grow=4, widest=120),
)
GENERATION_CAPTION = [("+ add up to the next round; rendezv., start, sync: the longest of a rank, while it formed", "muted")]


def slots(facts: Facts) -> list[LaneRow]:
    """One row per slot, with all lives of it."""
    found = lanes(facts.state)
    rows = [_row(facts, key, list(lives)) for key, lives in groupby(found, key=lambda lane: (lane.host, lane.local_rank))]
    return rows or _rows_of_ranks(facts)


def chosen_slots(rows: Sequence[LaneRow], wanted: Filter, column: str, *, descending: bool) -> Sequence[LaneRow]:
    """Those that pass the filter, by one of SLOT_SORTS."""
    if not wanted and (column, descending) == (LISTED, False):
        return rows
    records = {row.key: _slot_record(row) for row in rows}
    keys = in_order(passing(records, wanted), records, _SLOT_FIGURES.get(column, column), descending=descending)
    by_key = {row.key: row for row in rows}
    return [by_key[key] for key in keys]


def _slot_record(row: LaneRow) -> dict[str, object]:
    """A slot's SLOT_FIELDS."""
    trained = sum(s.ended - s.started for s in row.stretches if s.kind == TRAINING)
    lost = sum(s.ended - s.started for s in row.stretches if s.kind in LOST_KINDS)
    return dict(zip(SLOT_FIELDS, (*row.key, row.rank, row.note, trained, lost), strict=True))


def lane_data(facts: Facts, view: TimeView, rows: Sequence[LaneRow], caption: Sequence[Cell] = ()) -> LanesData:
    """These slots over time; the caption stands before the legend of what there is in them."""
    now = facts.state.job.ended_at if facts.state.job.ended_at is not None else facts.state.now
    end = view.end if view.end is not None else max(now, facts.origin + 1.0)
    start = facts.origin if view.window_s is None else end - view.window_s
    kinds = {stretch.kind for row in rows for stretch in row.stretches}
    legend = tuple((f"{glyph} {kind} ", role) for kind, (glyph, role) in LOOKS.items() if kind in kinds)
    return LanesData(rows, facts.origin, start, end, view.cross, (*caption, *legend))


def _row(facts: Facts, key: tuple[str, int], lives: list[Lane]) -> LaneRow:
    stretches = [_stretch(s.started, s.ended, s.kind) for lane in lives for s in lane.segments]
    last = lives[-1]
    rank = next((s.rank for lane in reversed(lives) for s in reversed(lane.segments) if s.rank is not None), None)
    name = f"{facts.host_label(key[0])}:{key[1]}"
    return LaneRow(key, name, stretches, last.end, "bad" if last.failed else "muted", rank)


def _stretch(started: float, ended: float, kind: str) -> Stretch:
    return Stretch(started, ended, *LOOKS.get(kind, ("?", "muted")), kind)


def _rows_of_ranks(facts: Facts) -> list[LaneRow]:
    """For a job that is not elastic: what each rank trained, and how it ended."""
    rows = []
    for rank in facts.state.ranks.values():
        taken = [g.ranks[rank.rank] for g in facts.state.generations.values() if rank.rank in g.ranks]
        stretches = [
            _stretch(made.first_start, made.last_end, "training")
            for made in taken
            if made.first_start is not None and made.last_end is not None
        ]
        if rank.started_at is not None and stretches:
            stretches.insert(0, _stretch(rank.started_at, stretches[0].started, "initialisation"))
        died = bool(rank.exit_code) and not rank.stopped
        note = "stopped" if rank.stopped else rank.signal or (f"exit {rank.exit_code}" if rank.exit_code is not None else "")
        slot = rank.local_rank if rank.local_rank is not None else rank.rank
        name = f"{facts.host_label(rank.host)}:{slot}"
        rows.append(LaneRow((rank.host, slot), name, stretches, note, "bad" if died else "muted", rank.rank))
    return rows


def generation_records(spans: dict[int, GenerationSpan], origin: float) -> dict[int, dict[str, object]]:
    """The same for a file; times in seconds since the job's start."""
    return {
        number: {
            "generation": number,
            "ranks": found.world_size,
            "from_s": None if (begun := _begun(found)) is None else begun - origin,
            "forming_s": found.forming_s,
            "trained_s": found.trained_s,
            "after_s": found.after_s,
            "step_s": found.usual_step_s,
            "rendezvous_s": found.rendezvous_s,
            "initialisation_s": found.initialisation_s,
            "sync_s": found.sync_s,
            "undone_steps": found.undone_steps,
            "cause": found.cause,
        }
        for number, found in spans.items()
    }


def _begun(found: GenerationSpan) -> float | None:
    return found.assigned if found.assigned is not None else found.first_step


def generation_cells(spans: dict[int, GenerationSpan], origin: float, number: int) -> Sequence[Cell]:
    found = spans[number]
    begun = _begun(found)
    return (
        (str(number), "text"),
        (MISSING if found.world_size is None else str(found.world_size), "text"),
        (duration(None if begun is None else begun - origin), "text"),
        *((_took(seconds), "text") for seconds in (found.forming_s, found.trained_s, found.after_s)),
        (milliseconds(found.usual_step_s), "text"),
        (span(found.rendezvous_s), "text"),
        (span(found.initialisation_s), "text"),
        (span(found.sync_s), "text"),
        (f"{found.undone_steps:,}", "warn" if found.undone_steps else "text"),
        (clean(found.cause) or ("the start" if number == 0 else MISSING), "text"),
    )


def _took(seconds: float | None) -> str:
    return span(seconds) if seconds is None or seconds < LONG_S else duration(seconds)


def lost_records(facts: Facts) -> list[dict[str, object]]:
    """The same for a file."""
    books = accounts(facts.state)
    capacity = books.capacity_s if books is not None else 0.0
    return [
        {"part": name, "rank_seconds": seconds, "share_percent": 100 * seconds / capacity if capacity > 0 else None}
        for name, seconds in _parts(books).items()
    ]


def _parts(books: Accounts | None) -> dict[str, float]:
    """Rank-seconds by what they went into."""
    return {} if books is None else {"training": books.training_s, **books.lost.parts(), "unexplained": books.unexplained_s}


def lost_lines(facts: Facts, palette: Palette, width: int, height: int) -> list[Line]:
    """Where the rank-seconds went, and the goodput."""
    style, books = palette.style, accounts(facts.state)
    if books is None:
        return wrapped("nothing is lost to changes: the job is not elastic, or has not begun", width, style("muted"))
    lines = []
    for name, seconds in _parts(books).items():
        share = 100 * seconds / books.capacity_s if books.capacity_s > 0 else 0.0
        role = LOOKS.get(name, ("", "warn"))[1]
        line = Line([(fit(name.replace("_", " "), 15), style("muted"))]).add(fit(span(seconds), 12, "right"), style("text"))
        line.add(f"{share:6.1f}% ", style("text", bold=True))
        lines.append(line.extend(meter(palette, max(share, 0.0), max(width - line.width, 4), role)))
    good = MISSING if books.goodput is None else f"{100 * books.goodput:.1f} %"
    text = f"goodput {good} · {books.redone_steps:,} steps redone · rank-seconds of {books.ranks} slots"
    return [*lines, Line(), Line([(text, style("text", bold=True))])]


def change_records(facts: Facts) -> list[dict[str, object]]:
    """The same for a file, in order of time; seconds since the job's start."""
    state, origin = facts.state, facts.origin
    found: list[dict[str, object]] = [
        {"at_s": change.at - origin, "what": change.change, "host": change.host, "rank": change.rank, "detail": change.detail}
        for change in state.membership
    ]
    for since, until, host, whose in _silences(state):
        ends = None if until is None else until - origin
        found.append({"at_s": since - origin, "until_s": ends, "what": f"{whose}{host} silent", "host": host})
    return sorted(found, key=lambda record: record["at_s"])  # type: ignore[arg-type,return-value]


def _silences(state: SessionState) -> list[tuple[float, float | None, str, str]]:
    """(since, until, host, and whether it was its agent) of hosts and agents that did not answer."""
    silences = [(past.since, past.until, past.host, "") for past in state.host_silences]
    for node in state.nodes.values():
        lost = [*node.silences, *([(node.lost_since, None)] if node.lost_since is not None else [])]
        silences += [(since, until, node.host or node.node, "agent of ") for since, until in lost]
    return silences


def change_lines(facts: Facts, palette: Palette, width: int, height: int) -> list[Line]:
    """What happened to hosts and workers, the newest first."""
    state, style = facts.state, palette.style
    changes = [(change.at, _change(change, facts.origin, palette)) for change in state.membership]
    changes += [(since, _silence(since, until, whose + host, facts, palette)) for since, until, host, whose in _silences(state)]
    if not changes:
        return wrapped("no host has come or gone", width, style("muted"))
    changes.sort(key=lambda change: change[0])
    # From behind: of one moment, too, the last that was told comes first.
    return [line for _, line in reversed(changes)]


def _at(at: float, origin: float, palette: Palette) -> Line:
    return Line([(fit(duration(at - origin), 8, "right") + "  ", palette.style("muted"))])


def _silence(since: float, until: float | None, who: str, facts: Facts, palette: Palette) -> Line:
    style = palette.style
    lasted = (facts.state.now if until is None else until) - since
    line = _at(since, facts.origin, palette)
    line.add(f"{clean(who)} silent for {lasted:.0f} s", style("bad" if until is None else "warn"))
    return line.add("  still" if until is None else "", style("muted"))


def _change(change: MembershipChanged, origin: float, palette: Palette) -> Line:
    style = palette.style
    bad = change.change in ("host_failed", "host_blacklisted")
    role = "bad" if bad else "warn" if change.change == "host_left" else "text"
    words = f"{change.change.replace('_', ' ')} {clean(change.host)}"
    line = _at(change.at, origin, palette).add(words, style(role))
    return line.add(f"  {clean(change.detail)}" if change.detail else "", style("muted"))
