"""The screen of scaling: the session against a baseline that is chosen among the recordings, as it runs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual import work

from distmon.core.errors import DistmonError
from distmon.core.intervals import over_runs
from distmon.core.scaling import Point, Scaling, scaling
from distmon.core.state import SessionState
from distmon.core.steady import SpeedStamp, SteadySpeed, run_speed, speed_stamp, steps_so_far
from distmon.replay.paths import recordings, sessions_folder
from distmon.replay.session_file import load_state
from distmon.tui.bindings import bindings_for
from distmon.tui.screens.arrange import Rows
from distmon.tui.screens.page import Frame, Page
from distmon.tui.sweeps import Progress, sweeps_in
from distmon.tui.view import scaling as view
from distmon.tui.view.facts import Facts
from distmon.tui.view.listing import sorts_of
from distmon.tui.view.scaling import LIVE, Run
from distmon.tui.widgets.rows import RowsPanel
from distmon.tui.widgets.table import Table
from distmon.tui.widgets.text_panel import TextPanel

LISTED = 50
"""Recordings in the list, the newest first."""
LOOK_EVERY_S = 2.0
LAW_SIZES = 5
"""With fewer numbers of ranks none is given."""


class ScalingPage(Page):
    """Recordings are read one at a time beside the screen, and kept."""

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
        found = [] if self.frame.rights.served else list(recordings(sessions_folder()))[:LISTED]
        self._runs |= {str(path): Run(path.name) for path, _ in found}
        self._sweeps: list[Progress] = []
        self._look_at = 0.0
        self._live_stamp: SpeedStamp | None = None
        self._laws: Scaling | None = None

    def rows(self, width: int, height: int) -> Rows:
        return [(1, [("runs", 1)]), (1, [("bars", 1), ("laws", 1)])]

    def draw_parts(self, facts: Facts, shown: set[str]) -> None:
        stamp = speed_stamp(facts.state)
        if stamp is None or stamp != self._live_stamp:  # the speed itself walks over all steps
            self._live_stamp = stamp
            speed, why = _speed(facts.state)
            self._runs[LIVE] = replace(self._runs[LIVE], speed=speed, state=why)
        self._look_for_sweeps()
        baseline = self.baseline if self.baseline is not None else self._smallest()
        caption = view.sweep_words(self._sweeps)
        caption += [(f"against {self._runs[baseline].name}", "accent")] if baseline is not None else []
        records = view.records(self._runs, baseline)
        self.list_rows(self.table, records, partial(view.cells, self._runs, baseline), caption)
        self.bars.figures = lambda: [record for record in records.values() if record["samples_per_s"] is not None]
        self.bars.show(partial(view.bar_lines, self._runs, baseline))
        self.laws.figures = partial(view.law_records, self._laws)
        self.laws.show(partial(view.law_lines, self._laws))

    def _look_for_sweeps(self) -> None:
        """Sweeps of the folder in which this view was started: their runs are in the list as they come."""
        if self.frame.rights.served or time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + LOOK_EVERY_S
        self._read_sweeps(Path.cwd())

    @work(thread=True)
    def _read_sweeps(self, folder: Path) -> None:
        """In a thread: the folder may have thousands of others in it, or lie on a disk that takes long."""
        self.app.call_from_thread(self._took_sweeps, sweeps_in(folder))

    def _took_sweeps(self, found: list[Progress]) -> None:
        if found == self._sweeps:
            return
        self._sweeps = found
        for sweep in found:
            for path in sweep.recorded:
                self._runs.setdefault(str(path), Run(f"{sweep.folder.name}/{path.name}"))
        self.redraw()

    def _smallest(self) -> str | None:
        """Until one is chosen, the recording with the fewest ranks is the baseline."""
        read = {key: run.speed.ranks for key, run in self._runs.items() if run.speed is not None and key != LIVE}
        return min(read, key=lambda key: read[key], default=None)

    def on_rows_panel_opened(self, event: RowsPanel.Opened) -> None:
        """Enter on a recording reads it."""
        key = event.panel.model.selected
        if key in (None, LIVE) or self._runs[key].speed is not None or self._runs[key].state == "reading":
            return
        self._runs[key] = replace(self._runs[key], state="reading")
        self._read(key)
        self.redraw()

    def action_baseline(self) -> None:
        """The selected run is what the others are compared with."""
        key = self.table.model.selected
        if key is None or self._runs[key].speed is None:
            self.frame.say("select a run that was read first (Enter reads it)")
            return
        self.baseline = key
        self.redraw()

    @work(thread=True)
    def _read(self, key: str) -> None:
        try:
            speed, why = _speed(load_state(Path(key))[0])
        except DistmonError as error:
            speed, why = None, str(error)
        known = [run.speed for run in self._runs.values() if run.speed is not None]
        laws = _laws([*known, *([speed] if speed is not None else [])])
        self.app.call_from_thread(self._took, key, speed, why, laws)

    def _took(self, key: str, speed: SteadySpeed | None, why: str, laws: Scaling | None) -> None:
        self._runs[key] = replace(self._runs[key], speed=speed, state=why)
        self._laws = laws
        self.redraw()


def _speed(state: SessionState) -> tuple[SteadySpeed | None, str]:
    """The speed to compare with, or why there is none."""
    if (few := steps_so_far(state)) is not None:
        return None, view.too_few(*few)
    speed = run_speed(state)
    return speed, "" if speed is not None else "nothing to compare: samples were not seen"


def _laws(runs: list[SteadySpeed]) -> Scaling | None:
    """The laws on all runs; None for too few numbers of ranks."""
    sizes = sorted({run.ranks for run in runs})
    if len(sizes) < LAW_SIZES:
        return None
    of_size = {size: [run.samples_per_s for run in runs if run.ranks == size] for size in sizes}
    return scaling([Point(ranks=size, throughput=over_runs(found)) for size, found in of_size.items()])
