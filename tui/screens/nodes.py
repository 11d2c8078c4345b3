"""The screen of the nodes: every GPU of every node at once, or every node, by any measure, and a row of figures for each node."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

from distmon.tui.bindings import bindings_for
from distmon.tui.screens.arrange import Rows
from distmon.tui.screens.overview import departure
from distmon.tui.screens.page import Frame, Page
from distmon.tui.view import node_table, nodes
from distmon.tui.view.facts import Facts
from distmon.tui.view.filters import all_hidden, read_filter, told
from distmon.tui.view.listing import matches
from distmon.tui.view.measures import UNIT_MEASURES
from distmon.tui.view.node_table import Unit
from distmon.tui.widgets.heatmap import HeatMap
from distmon.tui.widgets.rows import RowsPanel
from distmon.tui.widgets.table import Table


class Nodes(Page):
    """Heat map and table; Enter on either opens the node."""

    BINDINGS = bindings_for("nodes")
    PROBLEMS = True
    SORTS: ClassVar[Mapping[str, tuple[str, ...]]] = {"nodes": node_table.SORTS}
    FILTERS: ClassVar[tuple[str, ...]] = ("nodes",)

    def __init__(self, frame: Frame, name: str) -> None:
        super().__init__(frame, name)
        self.choices.focused = "heat"
        self.choices.sorts = {"nodes": ("node", False)}
        self.heat: HeatMap[Unit] = HeatMap("every node", 1, empty="no agent has reported yet", id="heat")
        self.table: Table[str] = Table("nodes", 2, node_table.COLUMNS, empty="no agent has reported yet", id="nodes")
        self.table.names = node_table.FILE_NAMES
        self.panels = {"heat": self.heat, "nodes": self.table}

    def rows(self, width: int, height: int) -> Rows:
        many = len(self.frame.facts.state.nodes) > height // 3
        return [(2 if many else 1, [("heat", 1)]), (1, [("nodes", 1)])]

    def situation(self) -> object:
        return (super().situation(), len(self.frame.facts.state.nodes) > self.size.height // 3)

    def draw_parts(self, facts: Facts, shown: set[str]) -> None:
        measure = UNIT_MEASURES[self.choices.metric % len(UNIT_MEASURES)]
        text, problems = self.choices.filters.get("nodes", ""), self.choices.problems
        column, descending = self.choices.sorts["nodes"]
        keys = node_table.ordered(facts, column, descending, text, problems=problems)
        listed = [node.node for node in nodes.listed(facts)]
        self.heat.hidden = self.table.hidden = all_hidden(told(text, problems=problems)) if listed else ""
        if "heat" in shown:
            in_order = sorted(keys, key=lambda key: (node_table.name_words(facts, key), key))
            data, describe = node_table.heat(facts, measure, in_order)
            self.heat.title, caption = node_table.heat_words(measure, data.keys)
            self.heat.show(data, describe, caption, filtered=bool(text) or problems)
        if "nodes" in shown:
            self.table.sort_key, self.table.descending = column, descending
            caption = matches(read_filter(text, node_table.FIELDS), len(keys), len(listed), problems=problems)
            self.table.figures = partial(node_table.with_units, facts)
            self.table.show(keys, partial(node_table.cells, facts, node_table.ranks_by_node(facts)), caption)
            note = departure(self.table, "node", partial(nodes.name_of_key, facts), listed)
            if note is not None:
                self.frame.say(note[1])

    def open_details(self) -> None:
        panel = self.focused_panel
        if isinstance(panel, Table | HeatMap):
            panel.open_selected()

    def action_next_metric(self) -> None:
        self.choices.metric = (self.choices.metric + 1) % len(UNIT_MEASURES)
        self.redraw()

    def on_rows_panel_selected(self, event: RowsPanel.Selected) -> None:
        """The first GPU of the node is selected in the heat map."""
        key = event.panel.model.selected
        self.heat.follow(next((unit for unit in self.heat.keys if unit[0] == key), None))
        self.redraw()

    def on_rows_panel_opened(self, event: RowsPanel.Opened) -> None:
        self.frame.go("node", event.panel.model.selected)

    def on_heat_map_selected(self, event: HeatMap.Selected) -> None:
        if event.heatmap.selected is not None:
            self.table.model.select(event.heatmap.selected[0])
            self.redraw()

    def on_heat_map_opened(self, event: HeatMap.Opened) -> None:
        if event.heatmap.selected is not None:
            self.frame.go("node", event.heatmap.selected[0])
