"""The verdicts as rows, and one of them in full: what it rests on, what it would gain, what to try, how to check it."""

from __future__ import annotations

from collections.abc import Sequence

from distmon.core.finding import CALM, Key, by_key, why_no_gain
from distmon.core.printable import clean
from distmon.core.verdicts import Verdict
from distmon.tui.format import MISSING, duration
from distmon.tui.glyphs import STATES
from distmon.tui.theme import Palette
from distmon.tui.view.facts import Facts
from distmon.tui.view.words import PHASE_NAMES
from distmon.tui.view.wrap import wrapped
from distmon.tui.widgets.line import Line
from distmon.tui.widgets.rows import Cell
from distmon.tui.widgets.table import Column

COLUMNS = (
    Column("kind", "kind", 22, "left", narrow=11),
    Column("who", "who", 10, "left", importance=2, grow=1, widest=22),
    Column("gain", "gain", 11, importance=3, figure="gain_percent_high"),
    Column("since", "since", 9, importance=4, figure="from_s"),
    Column("text", "what", 20, "left", importance=1, grow=6, widest=200),
)


def record(verdict: Verdict) -> dict[str, object]:
    """A verdict for a file."""
    low, high = verdict.gain_percent if verdict.gain_percent is not None else (None, None)
    return {
        "kind": verdict.kind, "rank": verdict.rank, "host": verdict.host, "phase": verdict.phase, "pattern": verdict.pattern,
        "gain_percent_low": low, "gain_percent_high": high, "gain_of": verdict.gain_of, "from_s": verdict.from_s,
        "to_s": verdict.to_s, "text": verdict.text, "evidence": verdict.evidence, "try": verdict.try_first,
    }  # fmt: skip


def records(found: dict[Key, Verdict]) -> dict[Key, dict[str, object]]:
    """The same for a file."""
    return {key: {"who": who(verdict), **record(verdict)} for key, verdict in found.items()}


def who(verdict: Verdict) -> str:
    if verdict.rank is not None:
        return f"rank {verdict.rank}"
    return clean(verdict.host) or "all ranks"


def gain(verdict: Verdict) -> str:
    if verdict.gain_percent is None:
        return MISSING
    low, high = verdict.gain_percent
    return f"{low:.0f} %" if low == high else f"{low:.0f} to {high:.0f} %"


def gain_words(verdict: Verdict) -> str:
    """With what it is a part of."""
    return gain(verdict) + (" of the step time" if verdict.gain_of == "step" else " of the job's time")


def cells(verdicts: dict[Key, Verdict], key: Key) -> Sequence[Cell]:
    verdict = verdicts[key]
    good = verdict.kind in CALM
    sign = STATES["good"] if good else STATES["warn"]
    return (
        (f"{sign} {verdict.kind.replace('_', ' ')}", "good" if good else "warn"),
        (who(verdict), "text"),
        (gain(verdict), "text"),
        (duration(verdict.from_s), "text"),
        (clean(verdict.text), "text"),
    )


def lines(facts: Facts, key: Key | None, palette: Palette, width: int, height: int) -> list[Line]:
    """One verdict in full."""
    verdict = by_key(facts.verdicts).get(key) if key is not None else None
    style = palette.style
    if verdict is None:
        return wrapped(facts.steady.reason or "nothing holds the job back as far as is seen", width, style("muted"))
    found = wrapped(clean(verdict.text), width, style("warn", bold=True))
    parts = [
        ("because", verdict.evidence),
        ("pattern", PATTERNS.get(verdict.pattern, "")),
        ("would gain", gain_words(verdict) if verdict.gain_percent else f"not told: {why_no_gain(verdict)}"),
        ("try", verdict.try_first),
        ("to check", verdict.check),
        ("where it shows", where_it_shows(verdict)),
    ]
    if verdict.from_s is not None and verdict.to_s is not None:
        parts.append(("when", f"{duration(verdict.from_s)} to {duration(verdict.to_s)} of the session"))
    for name, text in parts:
        if text:
            found += [Line(), Line([(name, style("muted"))])]
            found += wrapped(clean(text), width - 2, style("text"), "  ")
    return found


PATTERNS = {
    "steady": "steady: in most steps alike",
    "bursty": "bursty: few steps hold most of it",
    "transient": "transient: it has come and gone",
}


def where_it_shows(verdict: Verdict) -> str:
    """The screen on which to look at it."""
    if verdict.rank is not None:
        phase = PHASE_NAMES.get(verdict.phase or "")
        return f"Ranks (F4): the row of rank {verdict.rank}" + (f", {phase}" if phase else "")
    if verdict.host:
        return f"Nodes (F3): {verdict.host}, by measure (d)"
    return "Overview (F2): the split of the step"
