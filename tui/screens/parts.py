"""The parts of the overview and what each of them shows of the facts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from distmon.tui.bindings import PANEL_TITLES, commands_for
from distmon.tui.ports import Player
from distmon.tui.screens.arrange import MIN_HEIGHT, MIN_WIDTH
from distmon.tui.screens.choices import Choices
from distmon.tui.view import chart, chrome, header, nodes, ranks, split
from distmon.tui.view.details import details_lines, details_title
from distmon.tui.view.facts import Facts
from distmon.tui.view.logs import Feed, event_line, output_line
from distmon.tui.widgets.canvas import Canvas
from distmon.tui.widgets.cards import Cards
from distmon.tui.widgets.chart import Chart
from distmon.tui.widgets.log_view import LogView
from distmon.tui.widgets.panel import Panel
from distmon.tui.widgets.prompt import FilterPrompt
from distmon.tui.widgets.replay_bar import ReplayBar
from distmon.tui.widgets.rows import Cell, RowsPanel
from distmon.tui.widgets.table import Table
from distmon.tui.widgets.text_panel import TextBand, TextPanel

KEPT_LINES = 5_000
WINDOWS_S = (None, 60.0, 300.0, 900.0)
"""Time windows of the chart; None is the whole session."""


class Parts:
    """Builds the widgets once; `draw` hands the facts to those that have a place."""

    def __init__(self, player: Player | None) -> None:
        self.bar = ReplayBar(player, id="bar") if player is not None else None
        self.ranks: Table[int] = Table(
            PANEL_TITLES["ranks"], 4, ranks.COLUMNS, empty="no rank has started yet", id="ranks"
        )
        self.nodes: Cards[str] = Cards(
            PANEL_TITLES["nodes"], 3, nodes.HEIGHTS, empty="no agent has reported yet", id="nodes"
        )
        self.chart = Chart(PANEL_TITLES["throughput"], 1, id="throughput")
        self.split = TextPanel(PANEL_TITLES["split"], 2, id="split")
        self.events = LogView(PANEL_TITLES["events"], 5, empty="nothing has happened yet", id="events")
        self.output = LogView(PANEL_TITLES["output"], 6, empty="no rank has written anything yet", id="output")
        self.details = TextPanel("details", 0, id="details")
        self.overlays = {name: TextPanel(name, 0, id=name) for name in ("help", "question")}
        self.bands = {name: TextBand(id=name) for name in ("header", "verdict", "footer", "too_small")}
        self.prompt = FilterPrompt(id="prompt")
        self.panels: dict[str, Panel] = {
            "throughput": self.chart, "split": self.split, "nodes": self.nodes, "ranks": self.ranks,
            "events": self.events, "output": self.output,
        }  # fmt: skip
        self.commands = commands_for("app", "screen", *(("bar",) if self.bar else ()))
        self._event_feed = Feed(event_line, KEPT_LINES)
        self._output_feed = Feed(output_line, KEPT_LINES)

    def all(self) -> list[Canvas | FilterPrompt]:
        """Every part, those that lie over others last."""
        bar: list[Canvas] = [self.bar] if self.bar is not None else []
        return [*self.bands.values(), *self.panels.values(), self.details, self.prompt, *bar, *self.overlays.values()]

    def draw(self, facts: Facts, choices: Choices, shown: set[str]) -> None:
        """Draw the parts named in `shown`."""
        writers: dict[str, Callable[[Facts, Choices], None]] = {
            "too_small": self._draw_too_small,
            "header": self._draw_header,
            "footer": self._draw_footer,
            "throughput": self._draw_chart,
            "split": self._draw_split,
            "nodes": self._draw_nodes,
            "ranks": self._draw_ranks,
            "events": self._draw_events,
            "output": self._draw_output,
            "details": self._draw_details,
            "help": self._draw_help,
            "question": self._draw_question,
        }
        for name, write in writers.items():
            if name in shown:
                write(facts, choices)
        if self.bar is not None and "bar" in shown:
            self.bar.redraw()

    def _draw_too_small(self, facts: Facts, choices: Choices) -> None:
        needed = (MIN_WIDTH, MIN_HEIGHT)
        self.bands["too_small"].show(
            lambda palette, width, height: chrome.too_small_lines(palette, width, height, needed)
        )

    def _draw_header(self, facts: Facts, choices: Choices) -> None:
        self.bands["header"].show(partial(header.header, facts))
        self.bands["verdict"].show(lambda palette, width, height: [header.verdict(facts, palette, width)])

    def _draw_footer(self, facts: Facts, choices: Choices) -> None:
        self.bands["footer"].show(
            lambda palette, width, height: chrome.footer(self.commands, choices.note, palette, width)
        )

    def _draw_chart(self, facts: Facts, choices: Choices) -> None:
        self.chart.show(chart.throughput_chart(facts, WINDOWS_S[choices.window]))

    def _draw_split(self, facts: Facts, choices: Choices) -> None:
        self.split.show(partial(split.split_lines, facts), split.split_caption(facts))

    def _draw_ranks(self, facts: Facts, choices: Choices) -> None:
        column, descending = choices.sorts["ranks"]
        text = choices.filters.get("ranks", "")
        keys = ranks.ordered(facts, column, descending, text)
        self.ranks.sort_key, self.ranks.descending = column, descending
        caption = _matches(text, len(keys), len(facts.ranks)) or ranks.summary(facts)
        self.ranks.show(keys, partial(ranks.cells, facts), caption)
        self._tell_departure(self.ranks, choices, "rank", str)

    def _draw_nodes(self, facts: Facts, choices: Choices) -> None:
        column, descending = choices.sorts["nodes"]
        text = choices.filters.get("nodes", "")
        keys = nodes.ordered(facts, column, descending, text)
        caption = _matches(text, len(keys), nodes.present(facts))
        if column != "node":
            caption += [("  " * bool(caption) + "by ", "muted"), (column + ("↓" if descending else "↑"), "accent")]
        self.nodes.show(keys, partial(nodes.card, facts), caption)
        self._tell_departure(self.nodes, choices, "node", partial(nodes.name_of_key, facts))

    @staticmethod
    def _tell_departure(panel: RowsPanel[Any], choices: Choices, kind: str, name: Callable[[Any], str]) -> None:
        """Say that the selected row went and what is selected instead; details that showed it follow."""
        model = panel.model
        if model.departed is None:
            return
        gone, model.departed = model.departed, None
        instead = f"; {kind} {name(model.selected)} is selected" if model.selected is not None else ""
        choices.note = f"{kind} {name(gone)} left{instead}"
        if choices.details == (kind, gone):
            choices.details = (kind, model.selected) if model.selected is not None else None

    def _draw_events(self, facts: Facts, choices: Choices) -> None:
        text = choices.filters.get("events", "")
        self._event_feed.set_filter(None, text)
        self.events.show(self._event_feed.update(facts.state.log), f"/{text}" if text else "")

    def _draw_output(self, facts: Facts, choices: Choices) -> None:
        text, rank = choices.filters.get("output", ""), choices.only_rank
        self._output_feed.set_filter(rank, text)
        dropped = facts.state.output_dropped
        notes = (
            [f"rank {rank}"] * (rank is not None)
            + [f"/{text}"] * bool(text)
            + [f"{dropped:,} lines lost"] * bool(dropped)
        )
        self.output.show(self._output_feed.update(facts.state.output), " ".join(notes))

    def _draw_details(self, facts: Facts, choices: Choices) -> None:
        subject = choices.details
        if subject is not None:
            write = partial(details_lines, facts, subject)
            self.details.show(write, [("Esc closes", "muted")], details_title(facts, subject))

    def _draw_help(self, facts: Facts, choices: Choices) -> None:
        self.overlays["help"].show(partial(chrome.help_lines, self.commands), [("? or Esc closes", "muted")])

    def _draw_question(self, facts: Facts, choices: Choices) -> None:
        self.overlays["question"].show(partial(chrome.question_lines, choices.question))


def _matches(text: str, shown: int, total: int) -> list[Cell]:
    """What a table's filter is and how many rows pass it."""
    return [(f"/{text} ", "accent"), (f"{shown:,} of {total:,}", "text")] if text else []
