"""The screen of one node: every GPU, core, rail, engine, process and rank, and its last minutes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

from distmon.core.events import GpuReading
from distmon.tui.bindings import bindings_for
from distmon.tui.screens.arrange import Rows
from distmon.tui.screens.page import Frame, Page
from distmon.tui.view import node_page, nodes
from distmon.tui.view.facts import Facts
from distmon.tui.view.listing import sorts_of
from distmon.tui.view.node_page import GpuKey
from distmon.tui.widgets.chart import Chart
from distmon.tui.widgets.heatmap import HeatMap
from distmon.tui.widgets.rows import RowsPanel
from distmon.tui.widgets.table import Table
from distmon.tui.widgets.text_panel import TextPanel


class NodeDetail(Page):
    """Shows the node that it was opened at, or else the first."""

    BINDINGS = bindings_for("node")
    SORTS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "gpus": sorts_of(node_page.GPU_COLUMNS), "processes": sorts_of(node_page.PROCESS_COLUMNS),
    }  # fmt: skip
    FILTERS: ClassVar[tuple[str, ...]] = ("gpus", "processes")
    TIMED: ClassVar[tuple[str, ...]] = ("load", "power")

    def __init__(self, frame: Frame, name: str) -> None:
        super().__init__(frame, name)
        self.choices.focused = "gpus"
        self.key: str | None = None
        self._readings: dict[GpuKey, GpuReading] = {}
        self.load = Chart("load", 1, id="load")
        self.power = Chart("power", 2, id="power")
        self.gpus: Table[GpuKey] = Table("GPUs", 3, node_page.GPU_COLUMNS, empty="no GPU on this node", id="gpus")
        self.cores: HeatMap[int] = HeatMap("cores", 4, empty="no reading of the cores", id="cores")
        self.processes: Table[int] = Table(
            "ranks", 5, node_page.PROCESS_COLUMNS, empty="no rank on this node", id="processes"
        )
        self.readings = TextPanel("readings", 6, id="readings")
        self.panels = {
            "load": self.load, "power": self.power, "gpus": self.gpus, "cores": self.cores,
            "processes": self.processes, "readings": self.readings,
        }  # fmt: skip

    def rows(self, width: int, height: int) -> Rows:
        return [
            (3, [("load", 1), ("power", 1)]),
            (3, [("gpus", 3), ("cores", 2)]) if width >= 110 else (3, [("gpus", 1)]),
            (4, [("processes", 2), ("readings", 3)]) if width >= 110 else (3, [("cores", 1), ("processes", 1)]),
            *([] if width >= 110 else [(3, [("readings", 1)])]),
        ]

    def open_subject(self, subject: object) -> None:
        self.key = str(subject)

    def trail(self) -> list[str]:
        return [nodes.name_of_key(self.frame.facts, self.key)] if self.key is not None else []

    def draw_parts(self, facts: Facts, shown: set[str]) -> None:
        node = facts.state.nodes.get(self.key or "") or next(iter(facts.state.nodes.values()), None)
        if node is None:
            self.readings.show(node_page.nothing_lines)
            return
        if self.key != node.node:
            self.key = node.node
            self.frame.page_changed()
        if self.frame.job is not None:
            self.frame.job.focus(self.key)
        view = self.time_view
        self.load.show(node_page.load_chart(facts, node, view))
        self.power.show(node_page.power_chart(facts, node, view))
        gpus = self._readings = node_page.gpu_keys(node)
        self.list_rows(self.gpus, node_page.gpu_records(gpus), partial(node_page.gpu_cells, gpus))
        processes = node_page.process_keys(facts, node)
        records = node_page.process_records(facts, processes)
        self.list_rows(self.processes, records, partial(node_page.process_cells, facts, processes))
        self.cores.show(*node_page.core_heat(node))
        state = nodes.state_of(facts, node)
        self.readings.figures = partial(node_page.reading_records, node)
        self.readings.show(
            lambda palette, width, height: nodes.detail(facts, node.node, palette, width), [(state, "muted")]
        )

    def on_rows_panel_opened(self, event: RowsPanel.Opened) -> None:
        """Enter on a rank goes to it."""
        if event.panel is self.processes:
            self.frame.go("ranks", event.panel.model.selected)
        elif event.panel is self.gpus:
            reading = self._readings.get(event.panel.model.selected or (-1, -1))
            if reading is not None and reading.ranks:
                self.frame.go("ranks", reading.ranks[0])
            else:
                self.frame.say("no rank is known to use this GPU")

    def open_details(self) -> None:
        panel = self.focused_panel
        if isinstance(panel, RowsPanel):
            panel.open_selected()
