"""The verdicts as rows, and one of them in full: what it rests on, what it would gain, what to try, how to check it."""

from __future__ import annotations

from collections.abc import Sequence

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

Key = tuple[str, int | None, str, str | None]
"""Kind, rank, host and phase: one verdict at a time of each."""

COLUMNS = (
    Column("kind", "kind", 22, "left"),
    Column("who", "who", 10, "left", importance=2, grow=1, widest=22),
    Column("gain", "gain", 11, importance=3),
    Column("when", "since", 9, importance=4),
    Column("text", "what", 20, "left", importance=1, grow=6, widest=200),
)


def key_of(verdict: Verdict) -> Key:
    return (verdict.kind, verdict.rank, verdict.host, verdict.phase)


def by_key(facts: Facts) -> dict[Key, Verdict]:
    """The gravest first."""
    return {key_of(verdict): verdict for verdict in facts.verdicts}


def who(verdict: Verdict) -> str:
    if verdict.rank is not None:
        return f"rank {verdict.rank}"
    return clean(verdict.host) or "all ranks"


def gain(verdict: Verdict) -> str:
    if verdict.gain_percent is None:
        return MISSING
    low, high = verdict.gain_percent
    return f"{low:.0f} to {high:.0f} %"


def cells(verdicts: dict[Key, Verdict], key: Key) -> Sequence[Cell]:
    verdict = verdicts[key]
    good = verdict.kind == "compute_bound"
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
    verdict = by_key(facts).get(key) if key is not None else None
    style = palette.style
    if verdict is None:
        return [Line([(facts.steady.reason or "nothing holds the job back as far as is seen", style("muted"))])]
    found = wrapped(clean(verdict.text), width, style("warn", bold=True))
    parts = [("because", verdict.evidence), ("would gain", f"{gain(verdict)} of the step time" if verdict.gain_percent else "")]
    parts += [("try", verdict.try_first), ("to check", how_to_check(verdict))]
    if verdict.from_s is not None and verdict.to_s is not None:
        parts.append(("when", f"{duration(verdict.from_s)} to {duration(verdict.to_s)} of the session"))
    for name, text in parts:
        if text:
            found += [Line(), Line([(name, style("muted"))])]
            found += wrapped(clean(text), width - 2, style("text"), "  ")
    return found


def how_to_check(verdict: Verdict) -> str:
    """Where on these screens the finding shows, and what would show that what was tried has helped."""
    phase = PHASE_NAMES.get(verdict.phase or "", "")
    if verdict.kind == "straggler":
        return (
            f"on Ranks (F4) the row of {who(verdict)} differs in {phase or 'one phase'}; after the change it should sink into the"
            " others, and their exposed comm should shrink by as much"
        )
    if verdict.kind in ("input_bound", "communication_bound", "compute_bound"):
        share = phase or verdict.kind.replace("_", " ")
        return f"the share of {share} in the step (Overview, panel 2); record both runs and `distmon compare` them"
    if verdict.kind in ("thermal_throttling", "power_throttling", "gpu_starved", "memory_pressure", "cpu_oversubscribed"):
        return "on Nodes (F3) by measure (d): temperature, power, memory or load of the node against the others"
    if verdict.kind.endswith("_dominated"):
        return "the wall-time split of `distmon report` before and after"
    if verdict.kind == "stall":
        return "the ranks' last lines on Logs (F8), and whether steps begin again on Ranks (F4)"
    return ""
