"""The screen of the verdicts: each with its evidence, its gain, what to try and how to check it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

from distmon.core.finding import Key, by_key
from distmon.core.verdicts import undecided
from distmon.tui.bindings import bindings_for
from distmon.tui.screens.arrange import Rows
from distmon.tui.screens.page import Frame, Page
from distmon.tui.view import split, verdict_page
from distmon.tui.view.facts import Facts
from distmon.tui.view.listing import sorts_of
from distmon.tui.widgets.rows import RowsPanel
from distmon.tui.widgets.table import Table
from distmon.tui.widgets.text_panel import TextPanel

_NOTHING = "nothing holds the job back as far as is seen"


class Verdicts(Page):
    """The list, the selected one in full, and the split of the step that they speak of."""

    BINDINGS = bindings_for("verdicts")
    SORTS: ClassVar[Mapping[str, tuple[str, ...]]] = {"verdicts": sorts_of(verdict_page.COLUMNS)}
    FILTERS: ClassVar[tuple[str, ...]] = ("verdicts",)

    def __init__(self, frame: Frame, name: str) -> None:
        super().__init__(frame, name)
        self.choices.focused = "verdicts"
        self.table: Table[Key] = Table("verdicts", 1, verdict_page.COLUMNS, empty=_NOTHING, id="verdicts")
        self.text = TextPanel("the finding", 2, id="finding")
        self.split = TextPanel("step", 3, id="split")
        self.panels = {"verdicts": self.table, "finding": self.text, "split": self.split}

    def rows(self, width: int, height: int) -> Rows:
        return [(2, [("verdicts", 1)]), (3, [("finding", 3), ("split", 2)])]

    def draw_parts(self, facts: Facts, shown: set[str]) -> None:
        found = by_key(facts.verdicts)
        self.table.empty = undecided(facts.state) or _NOTHING
        self.list_rows(self.table, verdict_page.records(found), partial(verdict_page.cells, found))
        key = self.table.model.selected or next(iter(self.table.model.keys), None)
        one = found.get(key) if key is not None else None
        self.text.figures = lambda: [verdict_page.record(one)] if one is not None else []
        goes = one is not None and (one.rank is not None or bool(one.host))
        self.text.show(partial(verdict_page.lines, facts, key), [("Enter goes there", "muted")] * goes)
        self.split.figures = partial(split.figures, facts)
        self.split.show(partial(split.split_lines, facts), split.split_caption(facts))

    def on_rows_panel_selected(self, event: RowsPanel.Selected) -> None:
        self.redraw()

    def on_rows_panel_opened(self, event: RowsPanel.Opened) -> None:
        """To the rank or the node that it names."""
        key: Key | None = event.panel.model.selected
        verdict = by_key(self.frame.facts.verdicts).get(key) if key is not None else None
        if verdict is None:
            return
        node = next((n.node for n in self.frame.facts.state.nodes.values() if verdict.host and n.host == verdict.host), None)
        if verdict.rank is not None:
            self.frame.go("ranks", verdict.rank)
        elif node is not None:
            self.frame.go("node", node)
        else:
            self.frame.say("it is of all ranks alike")
