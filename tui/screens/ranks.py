"""The screen of the ranks: all of them at once by any measure, over time, and in a table, those that differ first."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

from distmon.core.recent import Recent, differences, recent
from distmon.tui.bindings import bindings_for
from distmon.tui.screens.arrange import Rows, is_boxed
from distmon.tui.screens.overview import departure
from distmon.tui.screens.page import Frame, Page
from distmon.tui.view import ranks, ripples
from distmon.tui.view.details import details_figures, details_lines, details_title
from distmon.tui.view.facts import Facts
from distmon.tui.view.filters import all_hidden, read_filter, told
from distmon.tui.view.listing import matches
from distmon.tui.view.measures import RANK_MEASURES
from distmon.tui.widgets.chart import Chart
from distmon.tui.widgets.heatmap import HeatMap
from distmon.tui.widgets.ripple import Ripple
from distmon.tui.widgets.rows import RowsPanel
from distmon.tui.widgets.table import Table
from distmon.tui.widgets.text_panel import TextPanel

OVER_TIME = "time × rank"


class Ranks(Page):
    """Heat map, band over ranks, time x rank, and the table. One rank is selected in all of them."""

    BINDINGS = bindings_for("ranks")
    PROBLEMS = True
    TIMED: ClassVar[tuple[str, ...]] = ("band", "ripple")
    SORTS: ClassVar[Mapping[str, tuple[str, ...]]] = {"ranks": ("differs", *ranks.SORTS)}
    FILTERS: ClassVar[tuple[str, ...]] = ("ranks",)

    def __init__(self, frame: Frame, name: str) -> None:
        super().__init__(frame, name)
        self.choices.focused = "ranks"
        self.choices.sorts = {"ranks": ("differs", True)}
        self.heat: HeatMap[int] = HeatMap("every rank", 1, empty="no rank has started yet", id="heat")
        self._lately = Recent(0, 0, {})
        """What is known over time."""
        self.band = Chart("over ranks", 2, id="band")
        self.ripple = Ripple(OVER_TIME, 3, empty="no steps yet", id="ripple")
        self.table: Table[int] = Table("ranks", 4, ranks.ALL_COLUMNS, empty="no rank has started yet", id="ranks")
        self.table.names = ranks.FILE_NAMES
        self.details = TextPanel("details", 0, id="details")
        self.panels = {"heat": self.heat, "band": self.band, "ripple": self.ripple, "ranks": self.table}
        self.others = [self.details]

    def rows(self, width: int, height: int) -> Rows:
        ripple = 4 if is_boxed(width, height) else 3
        return [(3, [("heat", 1), ("band", 1)]), (ripple, [("ripple", 1)]), (4, [("ranks", 1)])]

    def trail(self) -> list[str]:
        return [f"rank {self.choices.details[1]}"] if self.choices.details is not None else []

    def open_subject(self, subject: object) -> None:
        if isinstance(subject, int):
            self._select(subject)
            self.choices.details = ("rank", subject)

    # --- drawing --------------------------------------------------------------------------------------------------

    def draw_parts(self, facts: Facts, shown: set[str]) -> None:
        measure = RANK_MEASURES[self.choices.metric % len(RANK_MEASURES)]
        text, problems = self.choices.filters.get("ranks", ""), self.choices.problems
        column, descending = self.choices.sorts["ranks"]
        differing = differences(facts.ranks.values())
        keys = ranks.ordered(facts, column, descending, text, differing, problems=problems)
        self.heat.hidden = self.table.hidden = all_hidden(told(text, problems=problems)) if facts.ranks else ""
        self.ripple.hidden = self.heat.hidden if not keys else ""
        if "heat" in shown:
            filtered = bool(text) or problems
            self.heat.show(*ripples.heat(facts, measure, keys if filtered else None), filtered=filtered)
        if {"ripple", "band"} & shown:
            lately = self._lately = recent(facts.state, measure.name)
            reach = ripples.reach_words(lately)
            self.ripple.title = f"{OVER_TIME}, {reach}" if reach else OVER_TIME
            self.band.show(ripples.band_chart(facts, measure, lately, self.time_view))
            self.ripple.show(ripples.ripple(facts, measure, lately, keys, self.frame.cross))
        if "ranks" in shown:
            self.table.sort_key, self.table.descending = column, descending
            caption = matches(read_filter(text, ranks.FIELDS), len(keys), len(facts.ranks), problems=problems)
            self.table.figures = partial(ranks.figures, facts)
            self.table.show(keys, partial(ranks.all_cells, facts, differing), caption or ranks.summary(facts))
            note = departure(self.table, "rank", str, facts.ranks)
            if note is not None:
                self._follow_departure(*note)
        if "details" in shown and self.choices.details is not None:
            subject = self.choices.details
            self.details.figures = partial(details_figures, facts, subject)
            self.details.show(
                partial(details_lines, facts, subject), [("Esc closes", "muted")], details_title(facts, subject)
            )

    def _follow_departure(self, gone: object, note: str) -> None:
        if self.choices.details == ("rank", gone):
            selected = self.table.model.selected
            self.choices.details = ("rank", selected) if selected is not None else None
        self.frame.say(note)

    # --- what the user does ---------------------------------------------------------------------------------------

    def _select(self, rank: int) -> None:
        """The same rank in every panel; open details follow."""
        if self.choices.details is not None:
            self.choices.details = ("rank", rank)
        self.ripple.selected = rank
        if self.heat.selected != rank:
            self.heat.follow(rank)
        self.table.model.select(rank)
        self.redraw()
        self.frame.page_changed()

    def _open(self, rank: int | None) -> None:
        if rank is None:
            return
        self.choices.details = None if self.choices.details == ("rank", rank) else ("rank", rank)
        self._select(rank)
        self.rearrange()
        self.frame.page_changed()

    def open_details(self) -> None:
        panel = self.focused_panel
        if isinstance(panel, Table | HeatMap | Ripple):
            panel.open_selected()
        else:
            self._open(self.table.model.selected)

    def next_window(self, by: int = 1) -> None:
        super().next_window(by)
        self._tell_reach()

    def pan(self, seconds: float) -> None:
        if not self._tell_reach():
            super().pan(seconds)

    def _tell_reach(self) -> bool:
        """Says so where there is no more to show than is shown."""
        window = self.time_view.window_s
        if window is not None and window < self._lately.seconds:
            return False
        self.frame.say(f"that is all that is kept of ranks over time: {ripples.reach_words(self._lately) or 'every step'}")
        return True

    def action_next_metric(self) -> None:
        self.choices.metric = (self.choices.metric + 1) % len(RANK_MEASURES)
        self.redraw()

    def on_rows_panel_selected(self, event: RowsPanel.Selected) -> None:
        if event.panel.model.selected is not None:
            self._select(event.panel.model.selected)

    def on_rows_panel_opened(self, event: RowsPanel.Opened) -> None:
        self._open(event.panel.model.selected)

    def on_heat_map_selected(self, event: HeatMap.Selected) -> None:
        if event.heatmap.selected is not None:
            self._select(event.heatmap.selected)

    def on_heat_map_opened(self, event: HeatMap.Opened) -> None:
        self._open(event.heatmap.selected)

    def on_ripple_selected(self, event: Ripple.Selected) -> None:
        self._select(event.rank)

    def on_ripple_opened(self, event: Ripple.Opened) -> None:
        self._open(event.rank)
