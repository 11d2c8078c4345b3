"""Recordings read for a report: their summaries, what their plots show, and how the job scales where they tell."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from distmon.core.events import AnyEvent
from distmon.core.held import LASTING_SHARE, FindingsHeld
from distmon.core.printable import clean
from distmon.core.reconcile import NO_SAMPLES, RunFigures, run_figures, why_no_figures
from distmon.core.scaling import Kind
from distmon.core.state import SessionState
from distmon.core.summary import samples_per_epoch
from distmon.core.timeline import Timeline
from distmon.launcher.sweep import Sweep
from distmon.replay.paths import label
from distmon.replay.report import model
from distmon.replay.report.plots import Plots, plots
from distmon.replay.report.scaling import scaling_report, wall_speedups
from distmon.replay.report.sections import ending
from distmon.replay.report.summarise import summarise
from distmon.replay.report.timeline import add_timeline
from distmon.replay.report.words import count
from distmon.replay.session_file import load_state
from distmon.tui.cli.sessions import warn

_SAY_SAMPLES = (
    "What a step trains is seen where batches come from a data loader; elsewhere say it with --samples-per-step N, or call "
    "distmon.probe.step(samples=N) in the loop"
)


@dataclass(frozen=True, slots=True)
class Reported:
    """A session. `figures` are None for one that cannot stand in a scaling report, and `no_figures` says why, empty else;
    `epoch_samples` are those of one epoch."""

    name: str
    session: model.Session
    figures: RunFigures | None
    no_figures: str
    epoch_samples: int | None
    drawn: Plots | None


def load_reported(path: Path, *, drawn: bool, price_per_node_hour: float | None = None, timeline: Path | None = None) -> Reported:
    """Reads a recording through, with the series of its plots where they are wanted, and Horovod's `timeline` of it.

    Raises DistmonError.
    """
    series, held = Timeline(), FindingsHeld()

    def follow(state: SessionState, event: AnyEvent) -> None:
        held.look(state)
        if drawn:
            series.add(event)

    state, notes = load_state(path, follow)
    figures = run_figures(state) if state.job.exit_code == 0 else None
    session = summarise(state, str(path), warn(path, notes), price_per_node_hour, held)
    add_timeline(session, state, timeline)
    return Reported(
        name=clean(label(path)),
        session=session,
        figures=figures,
        no_figures="" if figures else why_no_figures(state) if state.job.exit_code == 0 else ending(session),
        epoch_samples=samples_per_epoch(state),
        drawn=plots(state, series) if drawn else None,
    )


def scaling_of(reported: list[Reported], kind: Kind | None) -> model.ScalingReport | None:
    """How a job scales, where sessions of one command had different numbers of ranks; None elsewhere. `kind`: as stated."""
    if len({tuple(one.session.command) for one in reported}) != 1:
        return None
    runs = [one.figures for one in reported if one.figures is not None]
    epochs = [(one.figures.ranks, one.epoch_samples) for one in reported if one.figures and one.epoch_samples]
    found = scaling_report(runs, epochs, kind)
    if found is not None:
        found.notes.extend(_reservations(reported))
    return found


def why_no_scaling(reported: list[Reported], sweep: Sweep | None) -> str:
    """Why several numbers of ranks of one job give no scaling; empty where there were not several."""
    sizes = {size for one in reported if (size := one.session.world_size.last) is not None}.union(sweep.sizes if sweep else ())
    if len(sizes) < 2 or len({tuple(one.session.command) for one in reported}) != 1:
        return ""
    good = sorted({one.figures.ranks for one in reported if one.figures is not None})
    had = f"only {count(good[0], 'rank')} had one" if good else "none had one"
    said = f"none is told: that takes two numbers of ranks that had a run with steps, samples and a good end, and {had}"
    if out := _left_out(reported):
        said += f"; left out: {out}"
    if any(one.no_figures == NO_SAMPLES for one in reported):
        said += f". {_SAY_SAMPLES}"
    walls = [
        (one.session.world_size.last, one.session.duration_s)
        for one in reported
        if one.session.exit_code == 0 and one.session.steps and one.session.world_size.last and one.session.duration_s
    ]
    return ". ".join(part for part in (said, wall_speedups(walls)) if part)


def _left_out(reported: list[Reported]) -> str:
    """Runs that cannot stand in a scaling report, by what they lack."""
    lacking: dict[str, list[str]] = {}
    for one in reported:
        if one.no_figures:
            lacking.setdefault(one.no_figures, []).append(one.name)
    return ", ".join(f"{', '.join(names)} ({why})" for why, names in lacking.items())


def _reservations(reported: list[Reported]) -> list[str]:
    """What a reader has to know of single runs."""
    groups = [
        (
            "no steady state was found in {}: their speed is over all steps",
            [one for one in reported if one.figures and not one.figures.steady_found],
        ),
        (
            "other programs took cores in {}: the speedups show that too",
            [one for one in reported if any(_took_cores(verdict) for verdict in one.session.verdicts)],
        ),
    ]
    out = _left_out(reported)
    return [sentence.format(", ".join(one.name for one in found)) for sentence, found in groups if found] + [
        f"left out: {out}"
    ] * bool(out)


def _took_cores(found: model.Verdict) -> bool:
    return found.kind == "cpu_oversubscribed" and (found.held_percent or 0.0) >= 100 * LASTING_SHARE
