"""The landing screen: the job, what holds it back, its speed, its nodes and ranks, its log and output."""

from __future__ import annotations

from collections.abc import Callable

from textual import events
from textual.app import ComposeResult
from textual.dom import DOMNode
from textual.screen import Screen

from distmon.tui.bindings import PANELS, WHILE_HELPING, Command, Where, bindings_for
from distmon.tui.ports import Player
from distmon.tui.screens.arrange import Arrangement, Box, Situation, arrange
from distmon.tui.screens.board import Board
from distmon.tui.screens.choices import SORTS, Choices
from distmon.tui.screens.parts import WINDOWS_S, Parts
from distmon.tui.view import chrome, nodes
from distmon.tui.view.facts import Facts
from distmon.tui.widgets.panel import Panel
from distmon.tui.widgets.prompt import FilterPrompt
from distmon.tui.widgets.rows import RowsPanel
from distmon.tui.widgets.text_panel import TextBand


class Overview(Screen[None]):
    """Draws facts; `show` is the one way in. What the user chose is in `choices`; what happened is in the facts."""

    BINDINGS = bindings_for("screen")
    AUTO_FOCUS = None
    DEFAULT_CSS = """
    Overview { overflow: hidden hidden; }
    Overview #header, Overview #verdict, Overview #footer, Overview #bar { background: $surface; }
    """

    def __init__(self, facts: Facts, player: Player | None = None) -> None:
        super().__init__()
        self.facts = facts
        self.choices = Choices()
        self.parts = Parts(player)
        self.arrangement = Arrangement({})
        self._arranged_for: Situation | None = None
        self._if_yes: Callable[[], None] | None = None

    def compose(self) -> ComposeResult:
        with Board(self._places):
            yield from self.parts.all()

    def on_mount(self) -> None:
        self.rearrange()
        self._focus_panel(self.choices.focused)

    def on_resize(self, event: events.Resize) -> None:
        self.rearrange()

    # --- drawing --------------------------------------------------------------------------------------------------

    def show(self, facts: Facts) -> None:
        """Draw a new moment; parts that look the same write nothing."""
        self.facts = facts
        self._draw_or_rearrange()

    def rearrange(self) -> None:
        """Give every part its place, hide those without one, and draw them."""
        places = self._places(self.size.width, self.size.height)
        for part in self.parts.all():
            part.display = part.id in places
            if isinstance(part, Panel):
                part.boxed = self.arrangement.boxed or part.id in self.parts.overlays
        self._arranged_for = self._situation()
        # A child, because the framework forgets the arrangement of a widget's ancestors, not its own.
        self.parts.bands["header"].refresh(layout=True)
        self.parts.draw(self.facts, self.choices, set(places))

    def _draw_or_rearrange(self) -> None:
        """Draw; drawing may itself close details, so what decides the layout is looked at before and after."""
        if self._situation() == self._arranged_for:
            self.redraw()
        if self._situation() != self._arranged_for:
            self.rearrange()

    def redraw(self) -> None:
        self.parts.draw(self.facts, self.choices, set(self._places(self.size.width, self.size.height)))

    def _situation(self) -> Situation:
        choices = self.choices
        return Situation(
            ranks=len(self.facts.ranks),
            nodes=nodes.present(self.facts),
            bar=self.parts.bar is not None,
            prompt=choices.prompting,
            details=choices.details is not None,
            zoomed=choices.zoomed,
            focused=choices.focused,
        )

    def _places(self, width: int, height: int) -> dict[str, Box]:
        self.arrangement = arrange(width, height, self._situation())
        places = dict(self.arrangement.places)
        if "too_small" not in places:
            if self.choices.helping:
                places["help"] = _centred(width, height, 100, 60)
            if self.choices.question:
                places["question"] = _centred(width, height, 64, 7)
        return places

    # --- focus ----------------------------------------------------------------------------------------------------

    def _focus_panel(self, name: str) -> None:
        self.choices.focused = name
        if self.choices.zoomed is not None:
            self.choices.zoomed = name
        self._draw_or_rearrange()
        self.set_focus(self.parts.panels[name])

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """A click focuses too; a single-panel screen shows the focused panel."""
        name = event.widget.id
        if name in self.parts.panels and name != self.choices.focused:
            self.choices.focused = name
            self._draw_or_rearrange()

    @property
    def focused_panel(self) -> Panel:
        """The panel that the movement keys act on."""
        if self.choices.helping:
            return self.parts.overlays["help"]
        if self.focused is self.parts.details:
            return self.parts.details
        return self.parts.panels[self.choices.focused]

    # --- actions --------------------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While a question or the help is open, keys do not act on what lies under it."""
        if self.choices.question:
            return action == "back"
        return action in WHILE_HELPING if self.choices.helping else True

    def ask(self, question: str, if_yes: Callable[[], None]) -> None:
        """Put a yes/no question over the screen."""
        self.choices.question, self._if_yes = question, if_yes
        self.rearrange()

    def on_key(self, event: events.Key) -> None:
        self.choices.note = ""
        if self.choices.question:
            event.stop()
            if event.key in ("y", "ctrl+c"):  # who presses Ctrl-C again wants it ended, not kept
                self._answer(True)
            elif event.key in ("n", "escape", "q"):
                self._answer(False)

    def _answer(self, yes: bool) -> None:
        self.choices.question, if_yes, self._if_yes = "", self._if_yes, None
        self.rearrange()
        if yes and if_yes is not None:
            if_yes()

    def action_back(self) -> None:
        """Close the topmost thing that is open."""
        choices = self.choices
        if choices.question:
            self._answer(False)
            return
        if choices.helping:
            choices.helping = False
        elif choices.details is not None:
            choices.details = None
            self.set_focus(self.parts.panels[choices.focused])
        elif choices.filters.get(choices.filter_target):
            choices.filters.pop(choices.filter_target)
        elif choices.only_rank is not None and choices.focused == "output":
            choices.only_rank = None
        else:
            choices.zoomed = None
        self.rearrange()

    def toggle_help(self) -> None:
        self.choices.helping = not self.choices.helping
        self.rearrange()

    def action_search(self) -> None:
        self.choices.prompting = True
        self.rearrange()
        target = self.choices.filter_target
        self.parts.prompt.placeholder = f"filter {target}: text to look for"
        with self.parts.prompt.prevent(FilterPrompt.Changed):
            self.parts.prompt.value = self.choices.filters.get(target, "")
        self.set_focus(self.parts.prompt)

    def on_filter_prompt_typed(self, event: FilterPrompt.Typed) -> None:
        target = self.choices.filter_target
        self.choices.filters[target] = event.text.strip()
        if event.done:
            self.choices.prompting = False
            self.rearrange()
            self._focus_panel(self.choices.focused)
        else:
            self.redraw()

    def action_next_sort(self) -> None:
        self._sort(self.choices.next_sort)

    def action_reverse_sort(self) -> None:
        self._sort(self.choices.reverse_sort)

    def _sort(self, change: Callable[[str], None]) -> None:
        if self.choices.focused not in SORTS:
            self.choices.note = "ranks (4) and nodes (3) can be sorted"
        else:
            change(self.choices.focused)
            column, descending = self.choices.sorts[self.choices.focused]
            words = column.replace("_", " ")
            self.choices.note = f"{self.choices.focused} by {words}, {'largest' if descending else 'smallest'} first"
        self.redraw()

    def on_rows_panel_sort_asked(self, event: RowsPanel.SortAsked) -> None:
        if event.panel.id in SORTS:
            self.choices.sort_by(event.panel.id, event.column)
            self.redraw()

    def action_only_rank(self) -> None:
        selected = self.parts.ranks.model.selected
        if self.choices.only_rank is not None or selected is None:
            self.choices.note = "" if self.choices.only_rank is not None else "select a rank first (4, then arrows)"
            self.choices.only_rank = None
        else:
            self.choices.only_rank = selected
        self.redraw()

    def action_panel(self, name: str) -> None:
        if self.choices.focused == name and self.focused is self.parts.panels[name]:
            self.action_zoom()
        else:
            self._focus_panel(name)

    def action_next_panel(self) -> None:
        self._step_focus(1)

    def action_previous_panel(self) -> None:
        self._step_focus(-1)

    def _step_focus(self, step: int) -> None:
        """To the next panel; open details come after the last one."""
        details = self.parts.details
        ring = [*PANELS, *(["details"] if self.choices.details is not None else [])]
        here = "details" if self.focused is details else self.choices.focused
        there = ring[(ring.index(here) + step) % len(ring)]
        if there == "details":
            self.set_focus(details)
        else:
            self._focus_panel(there)

    def action_zoom(self) -> None:
        self.choices.zoomed = None if self.choices.zoomed is not None else self.choices.focused
        self.rearrange()

    def action_details(self) -> None:
        panel = self.focused_panel
        if isinstance(panel, RowsPanel):
            panel.open_selected()
        elif self.choices.focused in ("throughput", "split"):
            self.action_verdicts()
        else:
            self.choices.note = "details are of ranks (4) and nodes (3)"
            self.redraw()

    def action_verdicts(self) -> None:
        self.choices.details = None if self.choices.details == ("verdicts", None) else ("verdicts", None)
        self.rearrange()

    def on_rows_panel_opened(self, event: RowsPanel.Opened) -> None:
        subject = self._subject(event.panel)
        self.choices.details = None if self.choices.details == subject else subject
        self.rearrange()

    def on_rows_panel_selected(self, event: RowsPanel.Selected) -> None:
        """Open details follow the selection."""
        if self.choices.details is not None and self.choices.details[0] == self._subject(event.panel)[0]:
            self.choices.details = self._subject(event.panel)
        self.redraw()

    def _subject(self, panel: RowsPanel[object]) -> tuple[str, object]:
        return ("rank" if panel is self.parts.ranks else "node", panel.model.selected)

    async def on_text_band_clicked(self, event: TextBand.Clicked) -> None:
        """A click on the verdict tells why; one on a command of the footer does it."""
        if event.band.id == "verdict":
            await self.run_action("verdicts")
        elif event.band.id == "footer":
            command = chrome.command_at(self.parts.commands, self.choices.note, self.size.width, event.x)
            if command is not None:
                await self.do(command)

    async def do(self, command: Command) -> None:
        """Run a command as its key would."""
        places: dict[Where, DOMNode | None] = {"app": self.app, "screen": self, "bar": self.parts.bar}
        place = places[command.where]
        if place is not None:
            await self.app.run_action(command.action, place)

    def action_window(self) -> None:
        self.choices.window = (self.choices.window + 1) % len(WINDOWS_S)
        self.redraw()

    def action_navigate(self, where: str) -> None:
        self.focused_panel.navigate(where)


def _centred(width: int, height: int, wide: int, high: int) -> Box:
    """A box of at most this size in the middle, two cells from the edges where there is room."""
    wide, high = min(wide, max(width - 4, 1)), min(high, max(height - 2, 1))
    return Box((width - wide) // 2, (height - high) // 2, wide, high)
