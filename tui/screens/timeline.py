"""The screen of an elastic job's life: a lane per slot, the generations, the time lost, and who came and went."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

from distmon.core.elastic import generation_spans
from distmon.tui.bindings import bindings_for
from distmon.tui.screens.arrange import Rows
from distmon.tui.screens.page import Frame, Page
from distmon.tui.view import timeline
from distmon.tui.view.facts import Facts
from distmon.tui.view.filters import all_hidden, read_filter, told
from distmon.tui.view.listing import LISTED, matches, sorts_of
from distmon.tui.widgets.lanes import Lanes
from distmon.tui.widgets.rows import RowsPanel
from distmon.tui.widgets.table import Table
from distmon.tui.widgets.text_panel import TextPanel


class Timeline(Page):
    """Zoom and pan as in charts; Enter on a generation shows its moment."""

    BINDINGS = bindings_for("timeline")
    SORTS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "slots": timeline.SLOT_SORTS, "generations": sorts_of(timeline.GENERATION_COLUMNS),
    }  # fmt: skip
    FILTERS: ClassVar[tuple[str, ...]] = ("slots", "generations")
    TIMED: ClassVar[tuple[str, ...]] = ("slots",)

    def __init__(self, frame: Frame, name: str) -> None:
        super().__init__(frame, name)
        self.choices.focused = "slots"
        self.fields["slots"] = timeline.SLOT_FIELDS
        self.slots = Lanes("slots", 1, empty="no worker has started yet", id="slots")
        self.generations: Table[int] = Table(
            "generations", 2, timeline.GENERATION_COLUMNS, empty="no ranks yet", id="generations"
        )
        self.lost = TextPanel("time lost", 3, id="lost")
        self.changes = TextPanel("hosts", 4, id="changes")
        self.panels = {"slots": self.slots, "generations": self.generations, "lost": self.lost, "changes": self.changes}
        self._starts: dict[int, float | None] = {}

    def rows(self, width: int, height: int) -> Rows:
        return [(4, [("slots", 1)]), (2, [("generations", 1)]), (3, [("lost", 3), ("changes", 2)])]

    def draw_parts(self, facts: Facts, shown: set[str]) -> None:
        if "slots" in shown:
            self._draw_slots(facts)
        if "generations" in shown:
            spans = {found.generation: found for found in generation_spans(facts.state)}
            self._starts = {number: found.assigned or found.first_step for number, found in spans.items()}
            records = timeline.generation_records(spans, facts.origin)
            cells = partial(timeline.generation_cells, spans, facts.origin)
            rounds = any(found.assigned is not None for found in spans.values())
            self.list_rows(self.generations, records, cells, timeline.GENERATION_CAPTION if rounds else ())
        if "lost" in shown:
            self.lost.figures = partial(timeline.lost_records, facts)
            self.lost.show(partial(timeline.lost_lines, facts))
        if "changes" in shown:
            self.changes.figures = partial(timeline.change_records, facts)
            self.changes.show(partial(timeline.change_lines, facts))

    def _draw_slots(self, facts: Facts) -> None:
        rows, (column, descending) = timeline.slots(facts), self.choices.sorts["slots"]
        wanted = read_filter(self.choices.filters.get("slots", ""), timeline.SLOT_FIELDS)
        chosen = timeline.chosen_slots(rows, wanted, column, descending=descending)
        caption = matches(wanted, len(chosen), len(rows), problems=False)
        if (column, descending) != (LISTED, False):
            caption.append((f"{' ' * bool(caption)}by {column}{'↓' if descending else '↑'}", "accent"))
        caption += [(" · ", "muted")] * bool(caption)
        self.slots.hidden = all_hidden(told(wanted.text)) if rows else ""
        self.slots.show(timeline.lane_data(facts, self.time_view, chosen, caption))

    def on_rows_panel_selected(self, event: RowsPanel.Selected) -> None:
        """The crosshair goes to the start of the generation."""
        self.frame.point_at(self._start_of(event))

    def on_rows_panel_opened(self, event: RowsPanel.Opened) -> None:
        at = self._start_of(event)
        if at is not None:
            self.frame.visit(at)

    def _start_of(self, event: RowsPanel.Selected | RowsPanel.Opened) -> float | None:
        number = event.panel.model.selected
        return self._starts.get(number) if number is not None else None
