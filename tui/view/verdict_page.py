"""The verdicts as rows, and one of them in full: what it rests on, what it would gain, what to try, how to check it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from distmon.core.finding import CALM, Key, key_of, since_start, why_no_gain
from distmon.core.held import FindingsHeld
from distmon.core.verdicts import Verdict
from distmon.tui.format import MISSING, clean, duration
from distmon.tui.glyphs import STATES
from distmon.tui.theme import Palette
from distmon.tui.view.facts import Facts
from distmon.tui.view.words import PHASE_NAMES
from distmon.tui.view.wrap import wrapped
from distmon.tui.widgets.line import Line
from distmon.tui.widgets.rows import Cell
from distmon.tui.widgets.table import Column

COLUMNS = (
    Column("kind", "kind", 22, "left"),
    Column("who", "who", 10, "left", importance=2, grow=1, widest=22),
    Column("gain", "gain", 11, importance=6, figure="gain_percent_high"),
    Column("since", "since", 7, importance=3, figure="since_s"),
    Column("until", "until", 7, importance=4, figure="until_s"),
    Column("held", "held", 7, importance=5, figure="held_s"),
    Column("text", "what", 20, "left", importance=1, grow=6, widest=200),
)


@dataclass(frozen=True)
class Finding:
    """One that holds now, or held earlier. Times are seconds since the job's start; `until_s` is None for one that still holds,
    and the others where the view has not followed it."""

    verdict: Verdict
    holds: bool
    since_s: float | None
    until_s: float | None
    held_s: float | None


def findings(facts: Facts, held: FindingsHeld) -> dict[Key, Finding]:
    """What holds now, the gravest first, and after it what held earlier in the run, the longest first."""
    now = since_start(facts.state, facts.state.now) or 0.0
    found = {}
    for key, verdict in by_key(facts.verdicts).items():
        known = held.found.get(key)
        since = known.from_s if known is not None and known.from_s <= now else verdict.from_s
        lasted = known.seconds if known is not None and known.to_s <= now else None
        found[key] = Finding(verdict, True, since, None, lasted)
    past = {key: one for key, one in held.found.items() if key not in found and one.from_s < now}
    for key, one in sorted(past.items(), key=lambda item: -item[1].seconds):
        over = one.to_s <= now
        found[key] = Finding(one.verdict, False, one.from_s, min(one.to_s, now), one.seconds if over else None)
    return found


def record(verdict: Verdict) -> dict[str, object]:
    """A verdict for a file."""
    low, high = verdict.gain_percent if verdict.gain_percent is not None else (None, None)
    return {
        "kind": verdict.kind, "rank": verdict.rank, "host": verdict.host, "phase": verdict.phase, "pattern": verdict.pattern,
        "gain_percent_low": low, "gain_percent_high": high, "gain_of": verdict.gain_of, "from_s": verdict.from_s,
        "to_s": verdict.to_s, "text": verdict.text, "evidence": verdict.evidence, "try": verdict.try_first,
    }  # fmt: skip


def records(found: dict[Key, Finding]) -> dict[Key, dict[str, object]]:
    """The same for a file."""
    return {
        key: {
            "who": who(one.verdict),
            "holds": one.holds,
            "since_s": one.since_s,
            "until_s": one.until_s,
            "held_s": one.held_s,
            **record(one.verdict),
        }
        for key, one in found.items()
    }


def by_key(found: Iterable[Verdict]) -> dict[Key, Verdict]:
    """The gravest first, as they were found."""
    return {key_of(verdict): verdict for verdict in found}


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


def cells(found: dict[Key, Finding], key: Key) -> Sequence[Cell]:
    one, verdict = found[key], found[key].verdict
    good = verdict.kind in CALM
    sign, role = (STATES["good"], "good") if good else (STATES["warn"], "warn")
    if not one.holds:
        sign, role = STATES["idle"], "muted"
    text = "text" if one.holds else "muted"
    return (
        (f"{sign} {verdict.kind.replace('_', ' ')}", role),
        (who(verdict), text),
        (gain(verdict), text),
        (duration(one.since_s), text),
        ("now" if one.holds else duration(one.until_s), text),
        (duration(one.held_s), text),
        (clean(verdict.text), text),
    )


def lines(facts: Facts, one: Finding | None, palette: Palette, width: int, height: int) -> list[Line]:
    """One finding in full."""
    style = palette.style
    if one is None:
        return [Line([(facts.steady.reason or "nothing holds the job back as far as is seen", style("muted"))])]
    verdict = one.verdict
    found = wrapped(clean(verdict.text), width, style("warn" if one.holds else "muted", bold=True))
    if (when := _when(one)) and not one.holds:
        found += wrapped(when, width, style("text"))
    parts = [
        ("because", verdict.evidence),
        ("pattern", PATTERNS.get(verdict.pattern, "")),
        ("would gain", gain_words(verdict) if verdict.gain_percent else f"not told: {why_no_gain(verdict)}"),
        ("try", verdict.try_first),
        ("to check", verdict.check),
        ("where it shows", where_it_shows(verdict)),
    ]
    if one.holds and when:
        parts.append(("when", when))
    for name, text in parts:
        if text:
            found += [Line(), Line([(name, style("muted"))])]
            found += wrapped(clean(text), width - 2, style("text"), "  ")
    return found


def _when(one: Finding) -> str:
    """In words since when it holds, or when it did and for how long."""
    verdict, lasted = one.verdict, f", for {duration(one.held_s)} in all" if one.held_s is not None else ""
    if not one.holds:
        return f"it does not hold now; it held from {duration(one.since_s)} to {duration(one.until_s)} of the run{lasted}"
    if one.held_s is not None:
        return f"since {duration(one.since_s)} of the run{lasted}"
    if verdict.from_s is None or verdict.to_s is None:
        return ""
    return f"{duration(verdict.from_s)} to {duration(verdict.to_s)} of the run"


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
