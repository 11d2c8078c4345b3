"""The screen of scaling: the session against a baseline that is chosen among the recordings, as it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual import work
from textual.worker import get_current_worker

from distmon.core.against import program_of
from distmon.core.errors import DistmonError
from distmon.core.intervals import over_runs
from distmon.core.printable import clean
from distmon.core.scaling import Point, Scaling, scaling
from distmon.core.state import SessionState
from distmon.core.steady import SpeedStamp, SteadySpeed, run_speed, speed_stamp, steps_so_far
from distmon.replay.glance import Glance, glances
from distmon.replay.paths import label, sessions_folder
from distmon.replay.session_file import load_state
from distmon.tui.bindings import bindings_for
from distmon.tui.screens.arrange import Rows
from distmon.tui.screens.page import Frame, Page, on_rows
from distmon.tui.sweeps import Progress, sweeps_in
from distmon.tui.view import scaling as view
from distmon.tui.view.facts import Facts
from distmon.tui.view.listing import sorts_of
from distmon.tui.view.scaling import LIVE, UNREAD, Run
from distmon.tui.view.sessions import name_of
from distmon.tui.widgets.rows import RowsPanel
from distmon.tui.widgets.table import Table
from distmon.tui.widgets.text_panel import TextPanel

LISTED = 50
"""Recordings in the list, the newest first."""
LOOK_EVERY_S = 2.0
LAW_SIZES = 3
"""With fewer numbers of ranks none is given."""


class ScalingPage(Page):
    """Recordings are listed beside the screen while it is shown, and read there one at a time."""

    BINDINGS = bindings_for("scaling")
    SORTS: ClassVar[Mapping[str, tuple[str, ...]]] = {"runs": sorts_of(view.COLUMNS)}
    FILTERS: ClassVar[tuple[str, ...]] = ("runs",)

    def __init__(self, frame: Frame, name: str) -> None:
        super().__init__(frame, name)
        self.choices.focused = "runs"
        self.table: Table[str] = Table("runs", 1, view.COLUMNS, empty="no recording yet", id="runs")
        self.bars = TextPanel("efficiency", 2, id="bars")
        self.laws = TextPanel("laws of scaling", 3, id="laws")
        self.panels = {"runs": self.table, "bars": self.bars, "laws": self.laws}
        self.baseline: str | None = None
        self._runs = {LIVE: Run("this session")}
        self._known: dict[str, Glance] | None = None
        """The recordings, once they have been looked for."""
        self._sweeps: list[Progress] = []
        self._looking = False
        self._live_stamp: SpeedStamp | None = None
        self._laws: Scaling | None = None

    def rows(self, width: int, height: int) -> Rows:
        return [(1, [("runs", 1)]), (1, [("bars", 1), ("laws", 1)])]

    def on_mount(self) -> None:
        super().on_mount()
        self.set_interval(LOOK_EVERY_S, self._look)

    def take_focus(self) -> None:
        if self._known is None and not self.frame.rights.served:
            self.await_rows()
        self._look()
        super().take_focus()

    def draw_parts(self, facts: Facts, shown: set[str]) -> None:
        stamp = speed_stamp(facts.state)
        if stamp is None or stamp != self._live_stamp:  # the speed itself walks over all steps
            self._live_stamp = stamp
            speed, why = _speed(facts.state)
            self._runs[LIVE] = replace(self._runs[LIVE], speed=speed, state=why, program=_program(facts.state))
        baseline = self._compared_with
        caption = view.sweep_words(self._sweeps)
        caption += [(f"against {view.told(self._runs[baseline])}", "accent")] if baseline is not None else []
        records = view.records(self._runs, baseline)
        self.table.in_brief = partial(view.in_brief, self._runs)
        self.list_rows(self.table, records, partial(view.cells, self._runs, baseline), caption)
        self.bars.figures = lambda: [record for record in records.values() if record["samples_per_s"] is not None]
        self.bars.show(partial(view.bar_lines, self._runs, baseline))
        self.laws.figures = partial(view.law_records, self._laws)
        self.laws.show(partial(view.law_lines, self._laws))

    def _look(self) -> None:
        """The recordings, and sweeps of the folder in which this view was started: runs come and go with their files."""
        if self.display and not self._looking and not self.frame.rights.served:
            self._looking = True
            self._look_beside(Path.cwd(), self._known or {}, {key for key, run in self._runs.items() if run.speed is not None})

    @work(thread=True)
    def _look_beside(self, folder: Path, known: Mapping[str, Glance], read: Set[str]) -> None:
        """In a thread: folders may have thousands of files in them, or lie on a disk that takes long.

        A run that was `read` stays for as long as its file is there, however many are newer.
        """
        found, sweeps = glances(sessions_folder(), LISTED, known), sweeps_in(folder)
        kept = {key for key in read if key == LIVE or Path(key).exists()}
        if not get_current_worker().is_cancelled:
            self.app.call_from_thread(self._took_look, found, sweeps, kept, read - kept)

    def _took_look(self, found: dict[str, Glance], sweeps: list[Progress], kept: set[str], gone: Set[str]) -> None:
        self._looking = False
        there = _listed(found, sweeps)
        runs = {LIVE: self._runs[LIVE], **{key: self._runs.get(key, run) for key, run in there.items()}}
        runs |= {key: run for key, run in self._runs.items() if key in kept}
        if self._known is None or (list(runs.items()), sweeps) != (list(self._runs.items()), self._sweeps):
            self._runs, self._sweeps = runs, sweeps
            self.baseline = self.baseline if self.baseline in runs else None
            if gone:
                self._fit_laws()
            self.draw_parts(self.frame.facts, set(self.panels))  # also before it has its place
        self._known = found
        self.rows_are_there()

    @property
    def _compared_with(self) -> str | None:
        """The baseline; until one is chosen the recording with the fewest ranks, of this session's program if there is one."""
        if self.baseline is not None:
            return self.baseline
        live = self._runs[LIVE]
        read = {
            key: (view.is_other_program(live, run), run.speed.ranks)
            for key, run in self._runs.items()
            if run.speed is not None and key != LIVE
        }
        return min(read, key=lambda key: read[key], default=None)

    def _fit_laws(self) -> None:
        """Anew on the runs of the baseline's program."""
        base = self._runs.get(self._compared_with or LIVE, self._runs[LIVE])
        alike = [run.speed for run in self._runs.values() if run.speed is not None and not view.is_other_program(base, run)]
        self._fit(alike)

    @work(thread=True, exclusive=True, group="laws")
    def _fit(self, speeds: list[SteadySpeed]) -> None:
        """In a thread: each law is drawn hundreds of times."""
        laws = _laws(speeds)
        if not get_current_worker().is_cancelled:
            self.app.call_from_thread(self._took_laws, laws)

    def _took_laws(self, laws: Scaling | None) -> None:
        if laws is not self._laws:
            self._laws = laws
            self.redraw()

    def on_rows_panel_opened(self, event: RowsPanel.Opened) -> None:
        """Enter on a recording reads it."""
        key = event.panel.model.selected
        if key in (None, LIVE) or self._runs[key].speed is not None or self._runs[key].state == "reading":
            return
        self._runs[key] = replace(self._runs[key], state="reading")
        self._read(key)
        self.redraw()

    @on_rows
    def action_baseline(self) -> None:
        """The selected run is what the others are compared with."""
        key = self.table.model.selected
        if key is None or self._runs[key].speed is None:
            self.frame.say("select a run that was read first (Enter reads it)")
            return
        self.baseline = key
        self._fit_laws()
        self.redraw()

    @work(thread=True)
    def _read(self, key: str) -> None:
        try:
            state = load_state(Path(key))[0]
            (speed, why), program = _speed(state), _program(state)
        except DistmonError as error:
            speed, why, program = None, str(error).removeprefix(f"{key} ").removeprefix(f"{key}: "), ()
        self.app.call_from_thread(self._took, key, speed, why, program)

    def _took(self, key: str, speed: SteadySpeed | None, why: str, program: tuple[str, ...]) -> None:
        if key in self._runs:
            self._runs[key] = replace(self._runs[key], speed=speed, state=why, program=program)
            self._fit_laws()
            self.redraw()


def _listed(found: Mapping[str, Glance], sweeps: Sequence[Progress]) -> dict[str, Run]:
    """What there is to compare with, as it is before it is read."""
    runs = {
        key: Run(name_of(one.path), state=clean(one.trouble) or UNREAD, started=one.started, file=one.path.name)
        for key, one in found.items()
    }
    for sweep in sweeps:
        runs |= {str(path): Run(f"{sweep.folder.name}/{label(path)}", file=path.name) for path in sweep.recorded}
    return runs


def _speed(state: SessionState) -> tuple[SteadySpeed | None, str]:
    """The speed to compare with, or why there is none."""
    if (few := steps_so_far(state)) is not None:
        return None, view.too_few(*few)
    speed = run_speed(state)
    return speed, "" if speed is not None else "nothing to compare: samples were not seen"


def _program(state: SessionState) -> tuple[str, ...]:
    return program_of(state.job.started.command) if state.job.started is not None else ()


def _laws(runs: list[SteadySpeed]) -> Scaling | None:
    """The laws on all runs; None for too few numbers of ranks."""
    sizes = sorted({run.ranks for run in runs})
    if len(sizes) < LAW_SIZES:
        return None
    of_size = {size: [run.samples_per_s for run in runs if run.ranks == size] for size in sizes}
    return scaling([Point(ranks=size, throughput=over_runs(found)) for size, found in of_size.items()])
