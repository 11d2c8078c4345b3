"""The landing screen: the job's speed, its step, its nodes and ranks, its log and output."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from functools import partial
from operator import is_
from typing import Any, ClassVar

from distmon.tui.bindings import bindings_for
from distmon.tui.screens.arrange import Arrangement, Box, Situation, arrange
from distmon.tui.screens.page import Frame, Page
from distmon.tui.view import chart, node_table, nodes, ranks, split
from distmon.tui.view.details import details_figures, details_lines, details_title
from distmon.tui.view.facts import Facts
from distmon.tui.view.filters import all_hidden, read_filter, told
from distmon.tui.view.listing import matches
from distmon.tui.view.logs import (
    EVENT_FIELDS,
    EVENT_NAMES,
    LOG_SORTS,
    OUTPUT_NAMES,
    Feed,
    event_line,
    events_total,
    order_words,
    output_line,
)
from distmon.tui.widgets.cards import Cards
from distmon.tui.widgets.chart import Chart
from distmon.tui.widgets.log_view import LogView
from distmon.tui.widgets.panel import Panel
from distmon.tui.widgets.rows import RowsPanel
from distmon.tui.widgets.table import Table
from distmon.tui.widgets.text_panel import TextPanel

KEPT_LINES = 5_000
Writer = Callable[[Facts], None]


class Overview(Page):
    """Six panels, and the details of what is selected in them."""

    PROBLEMS = True

    BINDINGS = bindings_for("overview")
    TIMED: ClassVar[tuple[str, ...]] = ("throughput",)
    SORTS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "events": LOG_SORTS, "output": LOG_SORTS, "ranks": ranks.SORTS, "nodes": nodes.SORTS,
    }  # fmt: skip
    FILTERS: ClassVar[tuple[str, ...]] = ("ranks", "nodes", "events", "output")

    def __init__(self, frame: Frame, name: str) -> None:
        super().__init__(frame, name)
        self.choices.focused = "ranks"
        self.choices.sorts |= {"ranks": ("rank", False), "nodes": ("node", False)}
        self.arrangement = Arrangement({})
        self.chart = Chart("throughput", 1, id="throughput")
        self.split = TextPanel("step", 2, id="split")
        self.nodes: Cards[str] = Cards("nodes", 3, nodes.HEIGHTS, empty="no agent has reported yet", id="nodes")
        self.ranks: Table[int] = Table("ranks", 4, ranks.COLUMNS, empty="no rank has started yet", id="ranks")
        self.events = LogView("events", 5, empty="nothing has happened yet", id="events")
        self.output = LogView("output", 6, empty="no rank has written anything yet", id="output")
        self.ranks.names, self.nodes.names = ranks.FILE_NAMES, node_table.FILE_NAMES
        self.events.names, self.output.names = EVENT_NAMES, OUTPUT_NAMES
        self.details = TextPanel("details", 0, id="details")
        panels: list[Panel] = [self.chart, self.split, self.nodes, self.ranks, self.events, self.output]
        self.panels = {str(panel.id): panel for panel in panels}
        self.others = [self.details]
        self._drawn_from: dict[str, tuple[object, ...]] = {}
        """What parts were drawn from last, as objects: the costly measures are renewed less often than frames are drawn."""
        self._event_feed = Feed(event_line, KEPT_LINES, EVENT_FIELDS)
        self._output_feed = Feed(output_line, KEPT_LINES)

    def situation(self) -> Situation:
        choices, facts = self.choices, self.frame.facts
        return Situation(
            ranks=len(facts.ranks),
            nodes=nodes.present(facts),
            details=choices.details is not None,
            zoomed=choices.zoomed,
            focused=choices.focused,
        )

    def plan(self, width: int, height: int) -> dict[str, Box]:
        self.arrangement = arrange(width, height, self.situation())
        return self.arrangement.places

    def is_boxed(self) -> bool:
        return self.arrangement.boxed

    # --- drawing --------------------------------------------------------------------------------------------------

    def draw_parts(self, facts: Facts, shown: set[str]) -> None:
        writers: dict[str, Writer] = {
            "throughput": self._draw_chart,
            "split": self._draw_split,
            "nodes": self._draw_nodes,
            "ranks": self._draw_ranks,
            "events": self._draw_events,
            "output": self._draw_output,
            "details": self._draw_details,
        }
        for name, write in writers.items():
            if name in shown:
                write(facts)

    def rearrange(self) -> None:
        self._drawn_from.clear()  # with places and frames parts look different, whatever they are drawn from
        super().rearrange()

    def _is_drawn_from(self, part: str, *sources: object) -> bool:
        """Whether a part has these very objects already. It draws itself when its selection, focus or theme changes."""
        before, self._drawn_from[part] = self._drawn_from.get(part, ()), sources
        return len(before) == len(sources) and all(map(is_, before, sources))

    def _draw_chart(self, facts: Facts) -> None:
        self.chart.show(chart.throughput_chart(facts, self.time_view))

    def _draw_split(self, facts: Facts) -> None:
        if self._is_drawn_from("split", facts.split, facts.shares):
            return
        self.split.figures = partial(split.figures, facts)
        self.split.show(partial(split.split_lines, facts), split.split_caption(facts))

    def _draw_ranks(self, facts: Facts) -> None:
        column, descending = self.choices.sorts["ranks"]
        text, problems = self.choices.filters.get("ranks", ""), self.choices.problems
        if self._is_drawn_from("ranks", facts.ranks, facts.verdicts, column, descending, text, problems):
            return
        keys = ranks.ordered(facts, column, descending, text, problems=problems)
        self.ranks.sort_key, self.ranks.descending = column, descending
        caption = matches(read_filter(text, ranks.FIELDS), len(keys), len(facts.ranks), problems=problems)
        self.ranks.hidden = all_hidden(told(text, problems=problems)) if facts.ranks else ""
        self.ranks.figures = partial(ranks.figures, facts)
        self.ranks.show(keys, partial(ranks.cells, facts), caption or ranks.summary(facts))
        self._tell_departure(self.ranks, "rank", str, facts.ranks)

    def _draw_nodes(self, facts: Facts) -> None:
        column, descending = self.choices.sorts["nodes"]
        text, problems = self.choices.filters.get("nodes", ""), self.choices.problems
        keys = node_table.ordered(facts, column, descending, text, problems=problems)
        listed = [node.node for node in nodes.listed(facts)]
        caption = matches(read_filter(text, node_table.FIELDS), len(keys), len(listed), problems=problems)
        self.nodes.hidden = all_hidden(told(text, problems=problems)) if listed else ""
        if column != "node":
            caption += [("  " * bool(caption) + "by ", "muted"), (column + ("↓" if descending else "↑"), "accent")]
        self.nodes.figures = partial(node_table.with_units, facts)
        self.nodes.show(keys, partial(nodes.card, facts), caption, partial(nodes.card_stamp, facts))
        self._tell_departure(self.nodes, "node", partial(nodes.name_of_key, facts), listed)

    def _tell_departure(self, panel: RowsPanel[Any], kind: str, name: Callable[[Any], str], present: Container[object]) -> None:
        """Say that the selected row went and what is selected instead; details that showed it follow."""
        note = departure(panel, kind, name, present)
        if note is None:
            return
        gone, text = note
        if self.choices.details == (kind, gone):
            self.choices.details = (kind, panel.model.selected) if panel.model.selected is not None else None
        self.frame.say(text)

    def _draw_events(self, facts: Facts) -> None:
        text, problems = self.choices.filters.get("events", ""), self.choices.problems
        error = self._event_feed.set_filter(None, text, problems=problems)
        words = told(text, problems=problems)
        self.events.hidden = all_hidden(words) if facts.state.log else ""
        column, descending = self.choices.sorts["events"]
        lines = self._event_feed.update(facts.state.log, self.events.reads_from)
        lines = self._event_feed.in_order(lines, column, descending=descending)
        words += self._event_feed.passed(events_total(facts.state))
        self.events.show(lines, " ".join([*words, *order_words(column, descending=descending), *[error] * bool(error)]))

    def _draw_output(self, facts: Facts) -> None:
        text, rank, problems = self.choices.filters.get("output", ""), self.choices.only_rank, self.choices.problems
        error = self._output_feed.set_filter(rank, text, problems=problems)
        dropped = facts.state.output_dropped
        words = told(text, problems=problems, rank=rank)
        self.output.hidden = all_hidden(words) if facts.state.output else ""
        column, descending = self.choices.sorts["output"]
        lines = self._output_feed.update(facts.state.output, self.output.reads_from)
        words += self._output_feed.passed(facts.state.output_lines)
        notes = words + order_words(column, descending=descending) + [error] * bool(error)
        notes += [f"{dropped:,} lines lost"] * bool(dropped)
        self.output.show(self._output_feed.in_order(lines, column, descending=descending), " ".join(notes))

    def _draw_details(self, facts: Facts) -> None:
        subject = self.choices.details
        if subject is not None:
            write = partial(details_lines, facts, subject)
            self.details.figures = partial(details_figures, facts, subject)
            self.details.show(write, [("Esc closes", "muted")], details_title(facts, subject))

    def drawn_with(self, panel: str) -> tuple[str, ...]:
        return (panel, "details")

    # --- what the user does ---------------------------------------------------------------------------------------

    def close_topmost(self) -> bool:
        if self.choices.details is None and self.choices.only_rank is not None and self.choices.focused == "output":
            self.choices.only_rank = None
            return True
        return super().close_topmost()

    def open_details(self) -> None:
        panel = self.focused_panel
        if isinstance(panel, RowsPanel):
            panel.open_selected()
        elif self.choices.focused in ("throughput", "split"):
            self.open_verdicts()
        else:
            self.frame.say("details are of ranks (4) and nodes (3)")

    def open_verdicts(self) -> None:
        self.choices.details = None if self.choices.details == ("verdicts", None) else ("verdicts", None)
        self.rearrange()

    def action_only_rank(self) -> None:
        selected = self.ranks.model.selected
        if self.choices.only_rank is not None or selected is None:
            self.frame.say("" if self.choices.only_rank is not None else "select a rank first (4, then arrows)")
            self.choices.only_rank = None
        else:
            self.choices.only_rank = selected
        self.redraw()

    def on_rows_panel_opened(self, event: RowsPanel.Opened) -> None:
        subject = self._subject(event.panel)
        self.choices.details = None if self.choices.details == subject else subject
        self.rearrange()

    def on_rows_panel_selected(self, event: RowsPanel.Selected) -> None:
        """Open details follow the selection."""
        if self.choices.details is not None and self.choices.details[0] == self._subject(event.panel)[0]:
            self.choices.details = self._subject(event.panel)
        self.redraw(str(event.panel.id), "details")

    def _subject(self, panel: RowsPanel[object]) -> tuple[str, object]:
        return ("rank" if panel is self.ranks else "node", panel.model.selected)


def departure(
    panel: RowsPanel[Any], kind: str, name: Callable[[Any], str], present: Container[object]
) -> tuple[object, str] | None:
    """Which selected row went since the last call, and in words what is selected instead; a row that is hidden has not gone."""
    model = panel.model
    gone, model.departed = model.departed, None
    if gone is None or gone in present:
        return None
    instead = f"; {kind} {name(model.selected)} is selected" if model.selected is not None else ""
    return gone, f"{kind} {name(gone)} left{instead}"
