"""The screen of the recordings: open, report, compare and delete them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual import work
from textual.message import Message
from textual.worker import get_current_worker

from distmon.core.comparison import run_values
from distmon.core.epoch_comparison import epoch_run
from distmon.core.errors import DistmonError
from distmon.core.held import FindingsHeld
from distmon.core.printable import clean
from distmon.replay.glance import Glance, ending, glances
from distmon.replay.paths import remove_recording, sessions_folder
from distmon.replay.report import compare as comparing
from distmon.replay.report.render import to_text
from distmon.replay.report.sections import sections
from distmon.replay.report.summarise import summarise
from distmon.replay.session_file import load_state
from distmon.tui.bindings import bindings_for
from distmon.tui.screens.arrange import Rows
from distmon.tui.screens.page import Frame, Page, on_rows
from distmon.tui.view import sessions as view
from distmon.tui.view.facts import Facts
from distmon.tui.view.listing import sorts_of
from distmon.tui.widgets.rows import Cell, RowsPanel
from distmon.tui.widgets.table import Table
from distmon.tui.widgets.text_panel import TextPanel

LISTED = 1_000
"""Recordings in the list, the newest first."""
LOOK_EVERY_S = 2.0
"""While it is shown the list is read anew this often."""


class Sessions(Page):
    """All is read beside the screen: the list again and again, whole recordings only when asked."""

    BINDINGS = bindings_for("sessions")
    SORTS: ClassVar[Mapping[str, tuple[str, ...]]] = {"recordings": sorts_of(view.COLUMNS)}
    FILTERS: ClassVar[tuple[str, ...]] = ("recordings",)

    @dataclass
    class OpenAsked(Message):
        """The user wants to see this recording in place of what is on the screen, with another one beside it."""

        path: Path
        beside: Path | None = None

    def __init__(self, frame: Frame, name: str) -> None:
        super().__init__(frame, name)
        self.choices.focused = "recordings"
        self.table: Table[str] = Table("recordings", 1, view.COLUMNS, empty=view.READING, id="recordings")
        self.text = TextPanel("about", 2, id="about")
        self.panels = {"recordings": self.table, "about": self.text}
        self.base: str | None = None
        self._known: dict[str, Glance] = {}
        self._records: dict[str, dict[str, object]] = {}
        """Of what is known, for filters, orders and files."""
        self._said, self._title = "\n".join(view.HINT), "about"

    def rows(self, width: int, height: int) -> Rows:
        return [(1, [("recordings", 1)]), (1, [("about", 1)])]

    def on_mount(self) -> None:
        super().on_mount()
        self.set_interval(LOOK_EVERY_S, self._look)

    def _look(self) -> None:
        if self.display and not any(worker.group == "list" for worker in self.workers):
            self._list(dict(self._known))

    def take_focus(self) -> None:
        if self.table.empty == view.READING:
            self.await_rows()
        self._list(dict(self._known))
        super().take_focus()

    @work(thread=True, exclusive=True, group="list")
    def _list(self, known: Mapping[str, Glance]) -> None:
        """First what there is; then how it ended, for which some megabytes are unpacked. Until then it stays as it was."""
        found = glances(sessions_folder(), LISTED, known)
        endings = {key: one.ending for key, one in known.items()}
        self._tell(self._took_list, {key: replace(one, ending=one.ending or endings.get(key)) for key, one in found.items()})
        for key, one in found.items():
            if get_current_worker().is_cancelled:
                return
            if not one.trouble and one.outcome in ("", "running"):
                with suppress(DistmonError):  # it went meanwhile
                    found[key] = replace(one, ending=ending(one.path))
        self._tell(self._took_list, found)

    def _tell(self, take: Callable[[dict[str, Glance]], None], found: dict[str, Glance]) -> None:
        if not get_current_worker().is_cancelled:
            self.app.call_from_thread(take, dict(found))

    def _took_list(self, found: dict[str, Glance]) -> None:
        if self.table.empty == view.EMPTY and found == self._known:
            return
        self._know(found)
        self.table.empty = view.EMPTY
        self.draw_parts(self.frame.facts, set(self.panels))  # also before it has its place
        self.rows_are_there()

    def _know(self, found: dict[str, Glance]) -> None:
        self._known, self._records = found, view.records(found)

    def draw_parts(self, facts: Facts, shown: set[str]) -> None:
        base = self._known.get(self.base or "")
        caption: list[Cell] = [(f"the newest {LISTED:,}", "muted")] if len(self._known) == LISTED else []
        caption += [(f"base {view.name_of(base.path)}", "accent")] if base is not None else []
        self.list_rows(self.table, self._records, partial(view.cells, self._known, self.base), caption)
        self.text.show(partial(view.text_lines, self._said), title=self._title)

    def _selected(self) -> Glance | None:
        """The selected recording, or else the first, if it can be opened; else the footer says why not."""
        if self.table.model.selected is None:
            self.table.move(0)
        found = self._known.get(self.table.model.selected or "")
        if found is None:
            self.frame.say(view.EMPTY)
        elif found.trouble:
            self.frame.say(found.trouble)
            return None
        return found

    def on_rows_panel_opened(self, event: RowsPanel.Opened) -> None:
        found = self._selected()
        if found is not None and self._is_on_screen(found):
            self.frame.say("that is the session on the screen")
        elif found is not None:
            self.post_message(self.OpenAsked(found.path))

    def _is_on_screen(self, found: Glance) -> bool:
        return bool(found.session_id) and found.session_id == self.frame.facts.state.session_id

    # --- actions --------------------------------------------------------------------------------------------------

    @on_rows
    def action_base(self) -> None:
        found = self._selected()
        if found is not None:
            self.base = str(found.path)
            self.redraw()

    @on_rows
    def action_report(self) -> None:
        found = self._selected()
        if found is not None:
            self._read(f"report of {found.path.name}", partial(_report, found.path, self._text_width))

    @on_rows
    def action_compare(self) -> None:
        found = self._selected()
        if found is None:
            return
        if self.base not in self._known or self.base == str(found.path):
            self.frame.say("b makes a recording the base; then select another one and press c")
            return
        base = Path(self.base)
        self._read(f"{found.path.name} against {base.name}", partial(_comparison, base, found.path, self._text_width))

    @on_rows
    def action_beside(self) -> None:
        """A/B: the selected recording beside the base, or beside the session on the screen where there is no base."""
        found, base = self._selected(), self._known.get(self.base or "")
        if found is None:
            return
        if base is not None and base is not found and not self._is_on_screen(base):
            self.post_message(self.OpenAsked(base.path, found.path))
        elif self._is_on_screen(found):
            self.frame.say("that is the session on the screen; select another one")
        else:
            self.frame.go("against", found.path)

    @on_rows
    def action_delete(self) -> None:
        """Also one that cannot be opened; not one that is still written."""
        found = self._known.get(self.table.model.selected or "")
        if self.frame.rights.refusal:
            self.frame.say(self.frame.rights.refusal)
        elif found is None:
            self.frame.say("select a recording first")
        elif self._is_on_screen(found):
            self.frame.say("that is the session on the screen; leave it first")
        elif found.outcome == "running":
            self.frame.say("that job is running and being recorded; end it first")
        else:
            question = f"Delete {clean(found.path.name)},\nits index and its marks? This cannot be undone."
            self.frame.ask(question, partial(self._delete, found))

    def _delete(self, found: Glance) -> None:
        try:
            remove_recording(found.path)
        except OSError as error:
            self.frame.say(f"{found.path.name} cannot be deleted: {error.strerror}")
            return
        self._know({key: one for key, one in self._known.items() if key != str(found.path)})
        self.redraw()
        self._list(dict(self._known))
        self.frame.say(f"deleted {found.path.name}")

    @property
    def _text_width(self) -> int:
        return self.text.size.width - 2 * self.text.body_left

    # --- whole recordings -----------------------------------------------------------------------------------------

    def _read(self, title: str, read: Callable[[], str]) -> None:
        self._title, self._said = title, "reading ..."
        self.redraw()
        self._read_beside(title, read)

    @work(thread=True)
    def _read_beside(self, title: str, read: Callable[[], str]) -> None:
        try:
            text = read()
        except DistmonError as error:
            text = str(error)
        self.app.call_from_thread(self._took, title, text)

    def _took(self, title: str, text: str) -> None:
        """What was asked for last is shown, in whatever order the answers come."""
        if title == self._title:
            self._said = text
            self.redraw()


def _report(path: Path, width: int) -> str:
    held = FindingsHeld()
    state, notes = load_state(path, lambda state, _: held.look(state))
    return to_text(sections(summarise(state, str(path), notes.sentences(), held=held)), width)


def _comparison(base: Path, other: Path, width: int) -> str:
    found = comparing.compare([_compared(base)], [_compared(other)])
    return to_text(comparing.sections(found), width)


def _compared(path: Path) -> comparing.Compared:
    state, notes = load_state(path)
    return comparing.Compared(summarise(state, str(path), notes.sentences()), run_values(state), epoch_run(state))
