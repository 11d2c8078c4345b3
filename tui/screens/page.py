"""What every screen of the cockpit is: panels with their places, and what the user has chosen to see of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial, wraps
from typing import ClassVar, Protocol, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.geometry import Size
from textual.widget import Widget

from distmon.tui.ports import Job, Player
from distmon.tui.rights import Rights
from distmon.tui.screens.arrange import Box, Rows, in_rows, is_boxed, is_single, one_panel
from distmon.tui.screens.board import Board
from distmon.tui.screens.choices import Choices
from distmon.tui.view.chart import TimeView
from distmon.tui.view.facts import Facts
from distmon.tui.view.filters import all_hidden, read_filter, told
from distmon.tui.view.listing import LISTED, Record, in_order, matches, passing
from distmon.tui.widgets.chart import Chart
from distmon.tui.widgets.heatmap import HeatMap
from distmon.tui.widgets.panel import Panel
from distmon.tui.widgets.rows import Cell, RowsPanel
from distmon.tui.widgets.table import Table

K = TypeVar("K", bound=Hashable)
P = TypeVar("P", bound="Page")
WINDOWS_S = (None, 60.0, 300.0, 900.0)
"""Time windows of charts; None is the whole session."""
OF_CHARTS = ("window", "pan(-1)", "pan(1)", "log_axis", "crosshair")
"""Actions for screens with charts."""


class Frame(Protocol):
    """What a page may ask of the cockpit around it."""

    facts: Facts
    cross: float | None
    """The moment that the crosshair of all charts is on."""
    player: Player | None
    job: Job | None
    rights: Rights

    def say(self, note: str) -> None:
        """A note at the right end of the footer, until the next key."""
        ...

    def ask(self, question: str, if_yes: Callable[[], None]) -> None:
        """A yes/no question over the screen."""
        ...

    def read_line(self, what: str, text: str, then: Callable[[str], str | None]) -> None:
        """Lets the user write a line, which begins as `text`; what `then` says is wrong with it, the prompt says."""
        ...

    def go(self, screen: str, subject: object = None) -> None:
        """To another screen, opened at a subject of its own (a rank, a node's key)."""
        ...

    def point_at(self, at: float | None) -> None:
        """Moves the crosshair of all charts; None takes it away."""
        ...

    def visit(self, at: float) -> None:
        """To a moment of the session; to the same moment again: back."""
        ...

    def go_elsewhere(self, go: Callable[[], None]) -> None:
        """To another moment of the session by `go`, which may raise DistmonError; Escape goes back."""
        ...

    def allows(self, action: str) -> bool:
        """Whether keys act: not while a question or the help is open."""
        ...

    def page_changed(self) -> None:
        """The page's trail or commands changed: draw the header and the footer again."""
        ...


def on_rows(act: Callable[[P], None]) -> Callable[[P], None]:
    """Marks an action on rows: while they are read it waits for them."""

    @wraps(act)
    def acting(page: P) -> None:
        page.when_there(partial(act, page))

    return acting


class Page(Board):
    """One screen: builds its widgets once, says where they go, and draws the facts into those that have a place.

    `panels` are numbered from 1 and hold the focus; `others` are widgets without a number. What the user chose is in `choices`.
    Commands that only this screen has stand in the table of bindings under its name: `BINDINGS = bindings_for("launch")`.
    """

    SORTS: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Per panel that can be sorted, its columns; where another one has the focus, the last of them is sorted."""
    FILTERS: ClassVar[tuple[str, ...]] = ()
    """Panels whose rows can be filtered; where another one has the focus, the last of them is filtered."""
    PROBLEMS: ClassVar[bool] = False
    """Whether rows that need no look can be hidden."""
    TIMED: ClassVar[tuple[str, ...]] = ()
    """Panels that show the crosshair: as it moves, they are drawn and no others."""
    TYPED: ClassVar[bool] = False
    """Whether it is a form, whose fields take what is typed."""
    DEFAULT_CSS = "Page { width: 1fr; height: 1fr; }"

    def __init__(self, frame: Frame, name: str) -> None:
        super().__init__(self.plan, id=f"{name}_screen")
        self.screen_name = name
        self.frame = frame
        self.choices = Choices(sorts={panel: (columns[0], False) for panel, columns in self.SORTS.items()})
        self.fields: dict[str, tuple[str, ...]] = {}
        """Per panel that `list_rows` has shown, what a filter can ask of its rows."""
        self.panels: dict[str, Panel] = {}
        self.others: list[Widget] = []
        self._arranged_for: object = None
        self.arranged_size: Size | None = None
        """The size for which its parts were given their places since it was turned to."""
        self.wants_focus = True
        self._waiting: list[Callable[[], None]] | None = None
        """What keys asked of rows that are being read for the first time; None while no rows are waited for."""

    # --- for subclasses -------------------------------------------------------------------------------------------

    def rows(self, width: int, height: int) -> Rows:
        """The panels in rows, where there is room for several."""
        return [(1, [(name, 1)]) for name in self.panels]

    def plan(self, width: int, height: int) -> dict[str, Box]:
        """A place for every part that is shown, in a page of this size. Open details take the place of the last row."""
        area, details = Box(0, 0, width, height), self.choices.details is not None
        if self.choices.zoomed is not None or is_single(width, height):
            return one_panel(area, self.choices.zoomed or self.choices.focused, details)
        rows = list(self.rows(width, height))
        if details:
            weight = max(rows[-1][0], sum(weight for weight, _ in rows) // 2)
            rows = [*rows[:-1], (weight, [("details", 1)])] if len(rows) > 1 else [*rows, (rows[0][0], [("details", 1)])]
        return in_rows(area, rows)

    def draw_parts(self, facts: Facts, shown: set[str]) -> None:
        """Hand the facts to the parts named in `shown`."""
        raise NotImplementedError

    def situation(self) -> object:
        """What decides the layout besides the size; the page is arranged anew when it differs."""
        return (self.choices.zoomed, self.choices.details is not None, self.choices.focused)

    def is_boxed(self) -> bool:
        """Whether panels have whole frames in the current layout."""
        return is_boxed(self.size.width, self.size.height)

    def drawn_with(self, panel: str) -> tuple[str, ...]:
        """The parts to draw again when the order or the filter of a panel changes; none means all."""
        return ()

    def open_subject(self, subject: object) -> None:
        """Shows what another screen sent the user here for."""

    def trail(self) -> list[str]:
        """Where the user is within the screen, for the breadcrumbs."""
        return []

    @property
    def opened(self) -> set[str]:
        """What Escape could close."""
        choices = self.choices
        could = {
            "details": choices.details is not None,
            "filter": bool(choices.filters.get(self.filter_target)),
            "rank": choices.only_rank is not None,
            "problems": choices.problems,
            "zoom": choices.zoomed is not None,
        }
        return {name for name, is_open in could.items() if is_open}

    def close_topmost(self) -> bool:
        """Escape: close what is open on top; False when nothing was."""
        choices = self.choices
        if choices.details is not None:
            choices.details = None
            self.focus_panel(choices.focused)
        elif choices.filters.get(self.filter_target):
            choices.filters.pop(self.filter_target)
        elif choices.problems:
            choices.problems = False
        elif choices.zoomed is not None:
            choices.zoomed = None
        else:
            return False
        return True

    def open_details(self) -> None:
        """Enter: all about the selected row of the focused panel."""
        panel = self.focused_panel
        if isinstance(panel, RowsPanel):
            panel.open_selected()

    def keep_up(self, facts: Facts) -> None:
        """Takes what the state does not keep for long; called between frames, also while another page is shown."""

    # --- rows that are read beside the screen ---------------------------------------------------------------------

    def await_rows(self) -> None:
        """From here on keys that act on rows wait for them."""
        self._waiting = []

    def when_there(self, act: Callable[[], None]) -> None:
        """Act on the rows: at once, or when they are there."""
        if self._waiting is None:
            act()
        else:
            self._waiting.append(act)

    def rows_are_there(self) -> None:
        """What waited for them is done, unless the user has gone elsewhere."""
        waiting, self._waiting = self._waiting or [], None
        for act in waiting if self.display else ():
            act()

    def open_verdicts(self) -> None:
        """What holds the job back."""
        self.frame.go("verdicts")

    # --- time in charts -------------------------------------------------------------------------------------------

    @property
    def time_view(self) -> TimeView:
        return TimeView(WINDOWS_S[self.choices.window], self.choices.end, self.frame.cross, self.choices.log)

    def next_window(self, by: int = 1) -> None:
        """The next time window of the screen's charts."""
        self.choices.window, self.choices.end = (self.choices.window + by) % len(WINDOWS_S), None
        self.redraw()

    def pan(self, seconds: float) -> None:
        """Earlier or later in a window; at the end it follows again."""
        window = WINDOWS_S[self.choices.window]
        if window is None:
            self.frame.say("charts show the whole session; w shows a part of it")
            return
        now = self.frame.facts.state.now
        end = (self.choices.end if self.choices.end is not None else now) + seconds
        first = self.frame.facts.origin + window
        self.choices.end = None if end >= now else max(end, min(first, now))
        self.redraw()

    def toggle_log(self) -> None:
        self.choices.log = not self.choices.log
        self.redraw()

    def on_chart_pointed(self, event: Chart.Pointed) -> None:
        self.frame.point_at(event.at)

    def on_chart_zoomed(self, event: Chart.Zoomed) -> None:
        window = self.choices.window
        wider = (window - event.by) % len(WINDOWS_S) if window else len(WINDOWS_S) - 1 if event.by > 0 else 0
        self.choices.window, self.choices.end = wider, None
        self.redraw()

    def on_chart_dragged(self, event: Chart.Dragged) -> None:
        self.pan(event.seconds)

    # --- drawing --------------------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        yield from self.parts()

    def parts(self) -> Iterable[Widget]:
        return [*self.panels.values(), *self.others]


    def on_mount(self) -> None:
        self.call_after_refresh(self._take_wanted_focus)

    def on_resize(self, event: events.Resize) -> None:
        self.rearrange()
        self._take_wanted_focus()

    def on_show(self, event: events.Show) -> None:
        """Also where the window was too small for a while, and no panel had the keys."""
        if self.screen.focused is None:
            self.take_focus()

    def take_focus(self) -> None:
        """The page that is turned to has the keys; one that has no place yet takes them when it gets one."""
        self.wants_focus = True
        self._take_wanted_focus()

    def leave_focus(self) -> None:
        """Something else has the keys now."""
        self.wants_focus = False

    def _take_wanted_focus(self) -> None:
        if self.wants_focus and self.is_current:
            self.focus_panel(self.choices.focused)
            self.wants_focus = self.screen.focused is not self.panels.get(self.choices.focused)

    @property
    def is_current(self) -> bool:
        return self.display and self.is_mounted and self.size.area > 0

    @property
    def is_arranged(self) -> bool:
        """Whether its parts were given places in its present size."""
        return self.arranged_size == self.size

    def rearrange(self) -> None:
        """Give every part its place, hide those without one, and draw them."""
        if not self.is_current:
            return
        places = self.plan(self.size.width, self.size.height)
        boxed = self.is_boxed()
        for part in self.parts():
            part.display = part.id in places
            if isinstance(part, Panel) and part.boxed is not boxed:
                part.boxed = boxed
                part.redraw()  # also where there is nothing else to draw
        self._arranged_for, self.arranged_size = self.situation(), self.size
        # A child, because the framework forgets the arrangement of a widget's ancestors, not its own.
        next(iter(self.parts())).refresh(layout=True)
        self._draw(places)

    def redraw(self, *only: str) -> None:
        """Draw, or draw `only` some parts: a key that changes one of them should not wait for the others.

        Drawing may itself close details, so what decides the layout is looked at before and after.
        """
        if not self.is_current:
            return
        if self.situation() == self._arranged_for:
            places = self.plan(self.size.width, self.size.height)
            self._draw([name for name in places if not only or name in only])
        if self.situation() != self._arranged_for:
            self.rearrange()

    def _draw(self, places: Iterable[str]) -> None:
        self.draw_parts(self.frame.facts, set(places))

    # --- focus ----------------------------------------------------------------------------------------------------

    def focus_panel(self, name: str) -> None:
        if name not in self.panels:
            return
        self.choices.focused = name
        if self.choices.zoomed is not None:
            self.choices.zoomed = name
        self.redraw()
        if self.is_current:
            self.screen.set_focus(self.panels[name])

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """A click focuses too; a single-panel screen shows the focused panel."""
        name = event.widget.id
        if name in self.panels and name != self.choices.focused:
            self.choices.focused = name
            self.redraw()
            self.frame.page_changed()

    @property
    def focused_panel(self) -> Panel | None:
        """The panel that the movement keys act on."""
        focused = self.screen.focused
        if isinstance(focused, Panel) and focused in self.others:
            return focused
        return self.panels.get(self.choices.focused)

    def navigate(self, where: str) -> None:
        """One of up, down, page_up, page_down, first, last, in the focused panel."""
        panel = self.focused_panel
        if panel is not None:
            panel.navigate(where)

    @property
    def selected_rank(self) -> int | None:
        """The rank that is selected in the table of ranks, where the screen has one."""
        table = self.panels.get("ranks")
        selected = table.model.selected if isinstance(table, RowsPanel) else None
        return selected if isinstance(selected, int) else None

    def focus_ring(self) -> list[str]:
        """The parts that Tab goes through."""
        others = [part.id for part in self.others if isinstance(part, Panel) and part.display and part.id]
        return [*self.panels, *others]

    def step_focus(self, step: int) -> None:
        ring = self.focus_ring()
        focused = self.screen.focused
        here = focused.id if focused in self.others and focused is not None else self.choices.focused
        there = ring[(ring.index(here) + step) % len(ring)] if here in ring else ring[0]
        if there in self.panels:
            self.focus_panel(there)
        else:
            self.screen.set_focus(next(part for part in self.others if part.id == there))

    # --- filter and sort ------------------------------------------------------------------------------------------

    @property
    def filter_target(self) -> str:
        """The panel that a filter applies to; empty where the screen has none to filter."""
        focused = self.choices.focused
        return focused if focused in self.FILTERS else self.FILTERS[-1] if self.FILTERS else ""

    @property
    def idle_actions(self) -> set[str]:
        """Those of every screen that have nothing to do here."""
        served = {"search": self.FILTERS, **dict.fromkeys(("next_sort", "reverse_sort"), self.SORTS)}
        served |= dict.fromkeys(OF_CHARTS, self.TIMED)
        return {action for action, serves in served.items() if not serves}

    def set_filter(self, text: str) -> None:
        self.choices.filters[self.filter_target] = text
        self.redraw(*self.drawn_with(self.filter_target))

    def change_sort(self, change: Callable[[str, tuple[str, ...]], None]) -> None:
        """Sort the focused panel otherwise, or the last that can be sorted where it cannot be, and say how."""
        panel = self.choices.focused if self.choices.focused in self.SORTS else next(reversed(list(self.SORTS)), "")
        if not panel:
            self.frame.say("there is nothing to sort here")
            return
        change(panel, self.SORTS[panel])
        column, descending = self.choices.sorts[panel]
        by = f"by {column.replace('_', ' ')}, {'largest' if descending else 'smallest'} first"
        self.frame.say(f"{panel} {by if column != LISTED else column + (', from behind' if descending else '')}")
        self.redraw(*self.drawn_with(panel))

    def on_rows_panel_sort_asked(self, event: RowsPanel.SortAsked) -> None:
        name = event.panel.id or ""
        if name in self.SORTS:
            self.choices.sort_by(name, event.column)
            self.redraw(*self.drawn_with(name))

    def list_rows(
        self, table: Table[K], records: Mapping[K, Record], cells: Callable[[K], Sequence[Cell]], caption: Sequence[Cell] = ()
    ) -> None:
        """Shows the rows of a table through its filter and in its order, by their records, which a file gets."""
        name = str(table.id)
        self.fields[name] = tuple(dict.fromkeys(field for record in records.values() for field in record))
        table.names = self.fields[name] or table.names
        wanted = read_filter(self.choices.filters.get(name, ""), self.fields[name])
        column, descending = self.choices.sorts[name]
        value = next((c.figure or c.key for c in table.columns if c.key == column), column)
        keys = in_order(passing(records, wanted), records, value, descending=descending)
        table.sort_key, table.descending = column, descending
        table.hidden = all_hidden(told(wanted.text)) if records else ""
        table.figures = lambda found: [records[key] for key in found]
        found = matches(wanted, len(keys), len(records), problems=False)
        table.show(keys, cells, [*found, *[(" · ", "muted")] * bool(found and caption), *caption])

    def toggle_problems(self) -> None:
        if not self.PROBLEMS:
            self.frame.say("there is nothing to hide here")
            return
        self.choices.problems = not self.choices.problems
        self.frame.say("problems only" if self.choices.problems else "")
        self.redraw()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys for left and right act where there are columns; elsewhere they are the replay bar's."""
        if action == "aside" and self.frame.cross is None and not isinstance(self.focused_panel, HeatMap):
            return False
        return self.frame.allows(action)

    def action_aside(self, where: str) -> None:
        panel = self.focused_panel
        if isinstance(panel, HeatMap):
            panel.navigate(where)
        elif self.frame.cross is not None:
            step = (WINDOWS_S[self.choices.window] or self.frame.facts.state.now - self.frame.facts.origin) / 100
            self.frame.point_at(self.frame.cross + (step if where == "right" else -step))

