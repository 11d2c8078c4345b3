"""The top of the screen: the job in two lines, and in one what holds it back."""

from __future__ import annotations

from collections.abc import Sequence

from distmon.core.death import death
from distmon.core.finding import CALM
from distmon.core.loss_verdicts import hang_behind
from distmon.core.measures import forming_round
from distmon.core.printable import clean
from distmon.core.state import JobState
from distmon.core.verdicts import undecided
from distmon.tui.format import MISSING, clock, compact, duration, fit
from distmon.tui.glyphs import STATES
from distmon.tui.theme import Palette
from distmon.tui.view.facts import Facts
from distmon.tui.view.nodes import present
from distmon.tui.view.words import CUT_OFF, job_state, stage_of
from distmon.tui.widgets.line import Line, folded, spread
from distmon.tui.widgets.meter import meter


def header(facts: Facts, trail: Sequence[str], standing: str, palette: Palette, width: int, height: int) -> list[Line]:
    """Two lines, or the first of them with the speed where there is only one.

    `trail` says where the user is, and `standing` how far behind what happens now.
    """
    if height == 1:
        return [_identity(facts, trail, standing, palette, width, _speed(facts, palette, width))]
    return [_identity(facts, trail, standing, palette, width, _size(facts, palette)), _progress(facts, palette, width)]


def _identity(facts: Facts, trail: Sequence[str], standing: str, palette: Palette, width: int, right: Line) -> Line:
    style, job = palette.style, facts.state.job
    glyph, role, words = CUT_OFF if _is_open_end(facts) else job_state(facts.state)
    line = Line([(" distmon ", style("accent", bold=True))])
    for place in trail:
        line.add("› ", style("muted")).add(clean(place) + " ", style("accent", bold=True))
    if standing:
        line.add(f" {standing} ", style("warn", bold=True, selected=True))
    state = Line([(f" {glyph} ", style(role)), (words, style(role, bold=True))])
    way_back = Line([(" End", style("key")), (" live ", style("muted"))])
    if standing and line.width + way_back.width + state.width + right.width < width:
        line.extend(way_back)
    if line.width + state.width + right.width < width or not standing:
        line.extend(state)
    if standing and line.width + right.width >= width:
        right = Line()
    command = clean(" ".join(job.started.command)) if job.started else ""
    room = width - line.width - right.width - 4
    if room >= 8 and command:
        line.add("  " + fit(command, min(room, len(command))), style("text"))
    return spread(line, right, width, style("text"))


def _is_open_end(facts: Facts) -> bool:
    """Whether the recording ends here and does not tell how the job ended."""
    return facts.cut_off and facts.state.job.status != "ended"


def _size(facts: Facts, palette: Palette) -> Line:
    style = palette.style
    line = Line()
    if facts.world_size:
        line.add(f"{facts.world_size:,}", style("text", bold=True)).add(
            " rank" + "s" * (facts.world_size != 1), style("muted")
        )
        nodes = present(facts)
        line.add(f" on {nodes:,} node" + "s" * (nodes != 1) + "  ", style("muted"))
    if summed := len(facts.state.summed_nodes):
        line.add(f"sums of {summed:,} node" + "s" * (summed != 1) + "  ", style("warn"))
    if facts.generation:
        line.add(f"round {facts.generation}  ", style("muted"))
    return line.add(duration(facts.progress.elapsed_s), style("text", bold=True)).add(" ", style("text"))


def _progress(facts: Facts, palette: Palette, width: int) -> Line:
    style, progress = palette.style, facts.progress
    right = _speed(facts, palette, width)
    line = Line([(" ", style("text"))])
    if progress.epoch is not None:
        line.add("epoch ", style("muted")).add(f"{progress.epoch + 1}", style("text", bold=True))
        line.add(f"/{progress.epochs} " if progress.epochs else " ", style("muted"))
    line.add("step ", style("muted")).add(f"{progress.step:,} ", style("text", bold=True))
    shown = progress.fraction if progress.fraction is not None else progress.epoch_fraction
    if shown is None:
        return spread(line, right, width, style("text"))
    percent = 100 * shown
    tail = Line([(f" {percent:3.0f}%{' ' if progress.fraction is not None else ' of the epoch '} ", style("text", bold=True))])
    if progress.fraction is not None and facts.state.job.status != "ended" and not facts.cut_off:
        tail.add("ETA ", style("muted")).add(duration(progress.eta_s), style("text", bold=True))
    room = width - line.width - tail.width - right.width - 4
    if room >= 6:
        line.add(" ", style("text")).extend(meter(palette, percent, min(room, 60), "accent"))
    return spread(line.extend(tail), right, width, style("text"))


def _speed(facts: Facts, palette: Palette, width: int) -> Line:
    style = palette.style
    line = Line()
    if width >= 100:
        line.add(fit(compact(facts.mean), 6, "right"), style("text")).add(" mean  ", style("muted"))
    speed, role = fit(compact(facts.rolling), 6, "right"), "muted" if _is_open_end(facts) else "accent"
    return line.add(speed, style(role, bold=role == "accent")).add(" samples/s ", style("muted"))


def verdict(facts: Facts, palette: Palette, width: int, height: int = 1) -> list[Line]:
    """In words: how the job ended, what it waits for, or what holds it back and what to try.

    Who it is and the cause come first, so that what has no room is how much it is.
    """
    line, more = _sentence(facts, palette, width + (width - len(_INDENT)) * (height - 1))
    rows = folded(line, width, height, _INDENT)
    return [*rows[:-1], spread(rows[-1], more, width, palette.style("text"))]


_INDENT = "   "
"""Of what goes on in the next row: as wide as the sign before the sentence."""


def _sentence(facts: Facts, palette: Palette, room: int) -> tuple[Line, Line]:
    """It, and what the right end says where there is room."""
    if (told := _told(facts, palette)) is not None:
        return told, Line()
    style = palette.style
    first, others = facts.verdicts[0], len(facts.verdicts) - 1
    calm = first.kind in CALM
    glyph, role = (STATES["good"], "good") if calm else (STATES["warn"], "warn")
    line = Line([(f" {glyph} ", style(role)), (clean(first.text), style(role, bold=True))])
    more = Line([(f"+{others} more: v ", style("key"))] if others else [("v: why ", style("key"))])
    lead = "  try: "
    room -= line.width + len(lead) + 1 + more.width
    if room >= 16:
        line.add(lead, style("muted")).add(fit(clean(first.try_first), room).rstrip(), style("text"))
    return line, more


def _told(facts: Facts, palette: Palette) -> Line | None:
    """What comes before all findings, or stands where there is none."""
    style, job = palette.style, facts.state.job
    if job.status == "ended" and job.was_stopped:
        return _stopped(job, palette)
    if job.status == "ended" and job.exit_code != 0:
        return _failure(facts, palette)
    if _is_open_end(facts):
        return _open_end(facts, palette)
    forms = job.status == "launching" or (job.status == "running" and forming_round(facts.state) is not None)
    if forms and not any(verdict.kind in _BEFORE_A_LAUNCH for verdict in facts.verdicts):
        return _launching(facts, palette)
    if not facts.verdicts:
        return Line([(f" {STATES['idle']} ", style("muted")), (_nothing_found(facts), style("muted"))])
    return None


_BEFORE_A_LAUNCH = ("stall", "rank_died", "below_capacity", "agent_silent")
"""Kinds that are more than how far a launch, or a new round, has come."""


def _open_end(facts: Facts, palette: Palette) -> Line:
    style, glyph = palette.style, STATES["warn"]
    words = f"the recording ends here, at {clock(facts.state.now)}: its end was not recorded"
    return Line([(f" {glyph} ", style("warn")), (words, style("warn", bold=True))])


def _nothing_found(facts: Facts) -> str:
    if facts.state.job.status == "idle":
        return "no job has started yet: J starts one, or distmon run -np 2 -- python train.py"
    return undecided(facts.state) or facts.steady.reason or "nothing holds the job back that distmon can see"


def _launching(facts: Facts, palette: Palette) -> Line:
    style, job = palette.style, facts.state.job
    line = Line([(f" {STATES['busy']} ", style("accent")), (stage_of(facts.state) or "launching", style("accent", bold=True))])
    if job.stage_detail:
        line.add("  " + clean(job.stage_detail), style("text"))
    if job.stage_deadline is not None and job.stage_deadline > facts.state.now:
        line.add(f"  gives up in {duration(job.stage_deadline - facts.state.now)}", style("muted"))
    return line


def _stopped(job: JobState, palette: Palette) -> Line:
    style = palette.style
    who = "an operator stopped the job" if job.told_to_end else "the job was stopped"
    return Line([(f" {STATES['unknown']} ", style("muted")), (f"{who}; exit code {job.exit_code}", style("text", bold=True))])


def _failure(facts: Facts, palette: Palette) -> Line:
    style, job = palette.style, facts.state.job
    failure = job.failure
    line = Line([(f" {STATES['bad']} ", style("bad"))])
    if failure is None:
        return line.add(
            clean(job.end_detail) or f"the job ended with exit code {job.exit_code}", style("bad", bold=True)
        )
    who = f"rank {failure.rank}" if failure.rank is not None else "a process"
    cause = death(failure.signal, failure.exit_code, failure.cause) or MISSING
    died = f"{who} on {clean(failure.host) or MISSING} died first: {clean(cause)}"
    if (hang := hang_behind(facts.state)) is not None:
        then = clean(hang.then(failure.rank, failure.host))
        died = f"{clean(hang.who)} {hang.how_long}; then {then} died: {clean(cause)}"
    line.add(died, style("bad", bold=True))
    if failure.last_lines:
        line.add("  " + clean(failure.last_lines[-1]), style("text"))
    return line
