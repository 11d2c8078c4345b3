"""The screen of A/B: the session on the screen beside a recording, locked by step, time or epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual import work
from textual.worker import get_current_worker

from distmon.core.errors import DistmonError
from distmon.core.side_by_side import LOCKS, Axis, Lock, Row, Side, Standing, axis_of, curve, is_past, rows_of, side_of
from distmon.core.steady import SpeedStamp, SteadySpeed, run_speed, speed_stamp
from distmon.replay.counterpart import Counterpart
from distmon.tui.bindings import bindings_for
from distmon.tui.screens.arrange import Rows
from distmon.tui.screens.page import Frame, Page
from distmon.tui.view import against as view
from distmon.tui.view.facts import Facts
from distmon.tui.view.listing import sorts_of
from distmon.tui.widgets.chart import Chart
from distmon.tui.widgets.table import Table
from distmon.tui.widgets.text_panel import TextPanel

WIDE = 150
"""From here on the table has all of its columns beside the chart."""

Wanted = tuple[Lock, Standing]


class AgainstPage(Page):
    """A is what all screens show; B is moved to the moment that belongs to it, in a thread beside the screen."""

    BINDINGS = bindings_for("against")
    SORTS: ClassVar[Mapping[str, tuple[str, ...]]] = {"measures": sorts_of(view.COLUMNS)}
    FILTERS: ClassVar[tuple[str, ...]] = ("measures",)
    TIMED: ClassVar[tuple[str, ...]] = ("speed",)

    def __init__(self, frame: Frame, name: str) -> None:
        super().__init__(frame, name)
        self.choices.focused = "measures"
        self.words = TextPanel("A and B", 1, id="words")
        self.table: Table[str] = Table("measures", 2, view.COLUMNS, empty=view.UNMEASURED, id="measures")
        self.chart = Chart("speed", 3, id="speed")
        self.panels = {"words": self.words, "measures": self.table, "speed": self.chart}
        self.locked_by: Lock = "step"
        self._path: Path | None = None
        self._other: Counterpart | None = None
        self._b: Side | None = None
        self._a_of_b: Side | None = None
        """What A was when B was asked for its moment: until B is at the next one, the two that belong together are shown."""
        self._trouble = ""
        self._asked: Wanted | None = None
        """The moment that B was last moved to, or is on its way to."""
        self._busy = False
        self._speed: tuple[SpeedStamp | None, SteadySpeed | None] = (None, None)

    def rows(self, width: int, height: int) -> Rows:
        if width >= WIDE:
            return [(1, [("words", 1)]), (4, [("measures", 1), ("speed", 1)])]
        return [(5, [("words", 1)]), (8, [("measures", 1)]), (5, [("speed", 1)])]

    def trail(self) -> list[str]:
        return [f"by {self.locked_by}"] if self._path is not None else []

    def open_subject(self, subject: object) -> None:
        """Puts a recording beside the session."""
        if isinstance(subject, Path):
            self._path, self._b, self._trouble, self._asked = subject, None, "", None
            self._read(subject)

    def on_unmount(self) -> None:
        if self._other is not None:
            self._other.close()

    # --- drawing --------------------------------------------------------------------------------------------------

    def draw_parts(self, facts: Facts, shown: set[str]) -> None:
        pair = self._pair(facts)
        rows = rows_of(pair.a, pair.b) if pair is not None and (pair.b is not None or pair.end is not None) else []
        self.words.show(partial(view.word_lines, pair, self._trouble), [(f"locked by {self.locked_by}", "accent")])
        by_name: dict[str, Row] = {row.measure.name: row for row in rows}
        self.words.figures = partial(view.side_records, pair)
        self.table.empty = view.UNMEASURED if self.words.display else view.why_empty(pair, self._trouble)
        self.list_rows(self.table, view.records(by_name), partial(view.cells, by_name))
        if "speed" in shown:
            whole = self._other.whole.curves[self.locked_by] if self._other is not None else []
            here = self._here(pair.a.standing) if pair is not None else None
            cross = self._shifted(Axis.x_of, self.frame.cross)
            self.chart.show(view.speed_chart(self.locked_by, curve(facts.state, self.locked_by), whole, here, cross))

    def _pair(self, facts: Facts) -> view.Pair | None:
        """None while nothing is beside the session, or where it cannot be read."""
        if self._path is None or (self._other is None and self._trouble):
            return None
        a = side_of(facts.state, list(facts.ranks.values()), facts.verdicts, self._own_speed(facts))
        started, ended = facts.state.job.started, facts.state.job.status == "ended"
        name = " ".join(started.command) if started else f"session {facts.state.session_id}"
        end = self._other.whole.end if self._other is not None else None
        if end is not None and is_past(self.locked_by, a.standing, end.standing):
            why = view.end_words(self.locked_by, a.standing, end, ended)
            return view.Pair(self.locked_by, a, None, name, self._path.name, why, end, ended)
        self._follow(a)
        shown = self._a_of_b if self._busy and self._b is not None and self._a_of_b is not None else a
        return view.Pair(self.locked_by, shown, self._b, name, self._path.name, self._trouble, end, ended)

    def _own_speed(self, facts: Facts) -> SteadySpeed | None:
        if (stamp := speed_stamp(facts.state)) != self._speed[0]:  # the speed itself walks over all steps
            self._speed = (stamp, run_speed(facts.state))
        return self._speed[1]

    def _shifted(self, shift: Callable[[Axis, float], float], value: float | None) -> float | None:
        """From a moment to a place on the chart's axis, or back."""
        axis = axis_of(self.frame.facts.state, self.locked_by) if value is not None else None
        return shift(axis, value) if axis is not None and value is not None else None

    def on_chart_pointed(self, event: Chart.Pointed) -> None:
        """The axis is of steps or epochs, or begins at the job's start; the crosshair is of moments."""
        self.frame.point_at(self._shifted(Axis.at, event.at))

    def _here(self, of: Standing) -> float | None:
        return {"step": float(of.step), "time": of.time_s, "epoch": of.epoch}[self.locked_by]

    # --- B --------------------------------------------------------------------------------------------------------

    def _follow(self, a: Side) -> None:
        wanted = (self.locked_by, a.standing)
        if self._other is not None and not self._busy and wanted != self._asked:
            self._busy, self._asked = True, wanted
            self._move(self._other, wanted, a)

    @work(thread=True)
    def _read(self, path: Path) -> None:
        other, trouble = None, ""
        try:
            other = Counterpart(path, _go_on)
        except DistmonError as error:
            trouble = str(error).replace(str(path), path.name)
        if not get_current_worker().is_cancelled:
            self.app.call_from_thread(self._took, path, other, trouble)

    def _took(self, path: Path, other: Counterpart | None, trouble: str) -> None:
        """What was asked for last is shown, in whatever order the answers come."""
        if path != self._path:
            if other is not None:
                other.close()
            return
        if self._other is not None and not self._busy:
            self._other.close()
        self._other, self._trouble = other, trouble
        self.redraw()

    @work(thread=True)
    def _move(self, other: Counterpart, wanted: Wanted, a: Side) -> None:
        lock, of = wanted
        try:
            found, trouble = other.at(lock, of), ""
        except DistmonError as error:
            found, trouble = None, str(error)
        if not get_current_worker().is_cancelled:
            self.app.call_from_thread(self._moved, other, wanted, a, found, trouble)

    def _moved(self, other: Counterpart, wanted: Wanted, a: Side, found: Side | None, trouble: str) -> None:
        self._busy = False
        if other is self._other:
            if wanted[0] == self.locked_by:
                self._a_of_b, self._b, self._trouble = a, found, trouble or ("" if found is not None else view.NO_EPOCHS)
        else:
            other.close()
        self.redraw()

    # --- what the user does ---------------------------------------------------------------------------------------

    def action_lock(self) -> None:
        """The next of step, time and epoch."""
        self.locked_by = LOCKS[(LOCKS.index(self.locked_by) + 1) % len(LOCKS)]
        self._trouble = ""
        self.frame.say(f"locked by {self.locked_by}")
        self.redraw()
        self.frame.page_changed()


def _go_on(share: float) -> None:
    """Who leaves does not wait for a long recording to be read through."""
    if get_current_worker().is_cancelled:
        raise DistmonError("the reading was given up")
