"""The screens of the event log and of the ranks' output: lines with a cursor, under a chart that shows their moment."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from textual import work
from textual.message import Message
from textual.timer import Timer

from distmon.core.errors import DistmonError
from distmon.core.state import LogEntry, OutputLine
from distmon.tui.bindings import bindings_for
from distmon.tui.format import clock
from distmon.tui.screens.arrange import Rows
from distmon.tui.screens.page import Frame, Page
from distmon.tui.view import chart
from distmon.tui.view.facts import Facts
from distmon.tui.view.filters import all_hidden, literal_words, told
from distmon.tui.view.logs import (
    EVENT_FIELDS,
    EVENT_NAMES,
    LOG_SORTS,
    OUTPUT_FIELDS,
    OUTPUT_NAMES,
    TIME,
    Feed,
    Kept,
    Lines,
    event_line,
    events_total,
    full_output_line,
    line_at,
    line_in_full,
    order_words,
    output_line,
)
from distmon.tui.widgets.chart import Chart
from distmon.tui.widgets.cursor_log import CursorLog
from distmon.tui.widgets.text_panel import TextPanel

if TYPE_CHECKING:
    from distmon.replay.search import OutputSearch, Stretch
    from distmon.tui.ports import Player

KEPT_LINES = 5_000
TOLD_EVERY_S = 1.0
SAME_MOMENT_S = 2.0
"""A state is of a moment only so far from that at which a live session was paused, or a line opened."""
LOOK_AFTER_S = 1.2
"""A filter is looked for in the recording when it has stood so long: what is here is on the disk then, and nobody types."""
LOOK_BACK_BLOCKS = 64
"""Blocks of the recording (search.BLOCK_BYTES each) that are looked through by themselves; more when one asks for it."""
ROUNDING_S = 0.001
"""Past a line's own moment, so that the line is there."""


class LinesPage(Page):
    """A log and the chart over it; the crosshair is at the selected line."""

    PROBLEMS = True
    FILTERS: ClassVar[tuple[str, ...]] = ("lines",)
    SORTS: ClassVar[Mapping[str, tuple[str, ...]]] = {"lines": LOG_SORTS}
    TIMED: ClassVar[tuple[str, ...]] = ("chart",)
    LINES = ("lines", "nothing yet")
    """Title of the log, and what it says while it is empty."""
    NAMES: ClassVar[Sequence[str]] = ()
    """Of the values of a line in a file."""

    def __init__(self, frame: Frame, name: str) -> None:
        super().__init__(frame, name)
        self.choices.focused = "lines"
        self.lines = CursorLog(self.LINES[0], 1, empty=self.LINES[1], id="lines")
        self.lines.names = self.NAMES
        self.chart = Chart("throughput", 2, id="chart")
        self.panels = {"lines": self.lines, "chart": self.chart}
        self.details = TextPanel("the line", 0, id="details")
        self.others = [self.details]
        self._shown_of: tuple[object, float, bool] = (None, 0.0, False)
        """The log that lines were last shown of, its moment, and whether it is that of what happens now."""
        self._series: object = None
        """Stands for the filter that the lines had passed then."""
        self._came_from: tuple[float, LogEntry | OutputLine] | None = None
        """The moment at which a line was opened, and that line, while it may be come back to."""

    def rows(self, width: int, height: int) -> Rows:
        """The line in full takes the place of the chart, below the log."""
        rows: Rows = [(1, [("chart", 1)]), (3, [("lines", 1)])]
        return rows if self.choices.details is None else rows[::-1]

    def feed(self) -> Feed[LogEntry] | Feed[OutputLine]:
        """Where the lines come from."""
        raise NotImplementedError

    def has_lines(self, facts: Facts) -> bool:
        """Whether there are any, hidden or not."""
        raise NotImplementedError

    def update_feed(self, facts: Facts) -> tuple[Lines[Any], str, list[str]]:
        """The lines that there are now, what is wrong with the filter or how it was understood, and notes about the lines."""
        raise NotImplementedError

    def close_topmost(self) -> bool:
        """As on every screen; then the cursor goes, and the lines are followed again."""
        if super().close_topmost():
            return True
        if self.lines.cursor is None:
            return False
        self.lines.navigate("last" if self.choices.sorts["lines"] == (TIME, False) else "first")
        return True

    def draw_parts(self, facts: Facts, shown: set[str]) -> None:
        if "chart" in shown:
            self.chart.show(chart.throughput_chart(facts, self.time_view))
        if "lines" in shown:
            was = self.line()
            lines, error, notes = self.update_feed(facts)
            there = self._line_there(facts, was.entry, lines) if was is not None else None
            of_now = self._is_live or (self._shown_of[0] is facts.state.log and self._shown_of[2])
            self._shown_of, self._series = (facts.state.log, facts.state.now, of_now), lines.series
            text, rank = self.choices.filters.get("lines", ""), self.choices.only_rank
            words = told(text, problems=self.choices.problems, rank=rank)
            self.lines.hidden = all_hidden(words) if self.has_lines(facts) else ""
            column, descending = self.choices.sorts["lines"]
            lines = self.feed().in_order(lines, column, descending=descending)
            asked = " ".join(filter(None, [*words, error, *order_words(column, descending=descending)]))
            self.lines.show(lines, " · ".join(filter(None, [asked, *notes])))
            if there is not None:
                self.lines.put_cursor(there)
        if "details" in shown:
            self.details.show(partial(line_in_full, self.line()), [("Esc closes", "muted")])

    @property
    def _is_live(self) -> bool:
        return self.frame.player is None or self.frame.player.live

    def _line_there(self, facts: Facts, was: LogEntry | OutputLine, lines: Lines[Any]) -> int | None:
        """After a jump, the line for the cursor: the last at that moment, on the way back the one that was left.

        After another filter it is the one that it was on, or the last before that.

        None where there was no jump, or what happens now is followed.
        """
        (log, before, of_now), now = self._shown_of, facts.state.now
        if log is facts.state.log and lines.series is not self._series:
            return line_at(lines, was.at, was)
        if log is facts.state.log or self._is_live:
            return None
        if of_now and abs(now - before) < SAME_MOMENT_S:
            return line_at(lines, was.at, was)
        if self._came_from is not None and abs(now - self._came_from[0]) < SAME_MOMENT_S:
            (_, left), self._came_from = self._came_from, None
            return line_at(lines, left.at, left)
        return line_at(lines, now)

    def line(self) -> Kept[LogEntry] | Kept[OutputLine] | None:
        """The line under the cursor."""
        return self.feed().kept(self.lines.cursor) if self.lines.cursor is not None else None

    def action_whole_line(self) -> None:
        """The line under the cursor in full, or as before."""
        if self.lines.cursor is None:
            self.lines.navigate("up")
        self.choices.details = ("line", None) if self.choices.details is None else None
        self.rearrange()

    def open_details(self) -> None:
        if self.focused_panel is self.lines:
            self.lines.open_selected()

    def on_cursor_log_selected(self, event: CursorLog.Selected) -> None:
        entry = None if event.number is None else self.feed().entry(event.number)
        self.frame.point_at(entry.at if entry is not None else None)
        self.redraw("details")

    def on_cursor_log_opened(self, event: CursorLog.Opened) -> None:
        """The moment of the line, there and back."""
        entry = self.feed().entry(event.number)
        if entry is not None:
            self._came_from = self.frame.facts.state.now, entry
            self.frame.visit(entry.at)


class Events(LinesPage):
    """What happened: launch, rounds, joins and leaves, deaths, actions, marks, notices."""

    BINDINGS = bindings_for("events")
    LINES = ("events", "nothing has happened yet")
    NAMES = EVENT_NAMES

    def __init__(self, frame: Frame, name: str) -> None:
        super().__init__(frame, name)
        self._feed = Feed(event_line, KEPT_LINES, EVENT_FIELDS)

    def feed(self) -> Feed[LogEntry]:
        return self._feed

    def has_lines(self, facts: Facts) -> bool:
        return bool(facts.state.log)

    def update_feed(self, facts: Facts) -> tuple[Lines[Any], str, list[str]]:
        error = self._feed.set_filter(None, self.choices.filters.get("lines", ""), problems=self.choices.problems)
        lines = self._feed.update(facts.state.log, self.lines.reads_from)
        return lines, error, self._feed.passed(events_total(facts.state))


class Logs(LinesPage):
    """The output of all ranks in one log; a line that several ranks wrote is shown once."""

    BINDINGS = bindings_for("logs")
    LINES = ("output", "no rank has written anything yet")
    NAMES = OUTPUT_NAMES

    def __init__(self, frame: Frame, name: str) -> None:
        super().__init__(frame, name)
        self.collapse = True
        self._feed = Feed(partial(full_output_line, self._host_label), KEPT_LINES, collapse=True)
        self._search: OutputSearch | None = None
        """Under way through the recording."""
        self._telling: Timer | None = None
        """Says how far it is."""
        self._begun: object = None
        """Stands for the lines that older ones are looked for to."""
        self._looking_back: OutputSearch | None = None
        """In the recording, for lines from before those that are here that pass the filter."""
        self._back_soon: Timer | None = None
        self._since: float | None = None
        """From when on the recording was looked through for them; None where it was not."""

    def _host_label(self, name: str) -> str:
        return self.frame.facts.host_label(name)

    def feed(self) -> Feed[OutputLine]:
        return self._feed

    def open_subject(self, subject: object) -> None:
        if isinstance(subject, int):
            self.choices.only_rank = subject

    def trail(self) -> list[str]:
        return [f"rank {self.choices.only_rank}"] if self.choices.only_rank is not None else []

    def has_lines(self, facts: Facts) -> bool:
        return bool(facts.state.output)

    def update_feed(self, facts: Facts) -> tuple[Lines[Any], str, list[str]]:
        self._feed.set_collapse(self.collapse)
        rank, text = self.choices.only_rank, self.choices.filters.get("lines", "")
        error = self._feed.set_filter(rank, text, problems=self.choices.problems)
        dropped = facts.state.output_dropped
        notes = [f"{dropped:,} lines lost"] * bool(dropped)
        lines = self._feed.update(facts.state.output, self.lines.reads_from)
        older = facts.state.output_lines - len(facts.state.output)
        if self._feed.begun is not self._begun:
            self._begun = self._feed.begun
            self._stop_looking_back()
            if older and self._feed.is_filtered and self.frame.player is not None:
                self._back_soon = self.set_timer(LOOK_AFTER_S, self._look_back)
        notes = [*self._feed.passed(facts.state.output_lines), *notes]
        return lines, error, [*notes, *self._from_when(older), *["same lines once"] * self.collapse]

    def _from_when(self, older: int) -> list[str]:
        """In words, from when on lines are here, where there are older ones."""
        if not older or self._since == -math.inf:
            return ["in all of the output"] * bool(older and not self._feed.is_full)
        oldest = self._feed.oldest
        since = oldest.at if self._feed.is_full and oldest is not None else self._held_since
        looking = self._back_soon is not None or self._looking_back is not None
        more = " and looking back" * looking or f"; ( and ) look through {older:,} more" * (self.frame.player is not None)
        return [f"since {clock(since)}{more}"]

    @property
    def _held_since(self) -> float:
        return self._since if self._since is not None else self._feed.since[0]

    @property
    def opened(self) -> set[str]:
        return super().opened | {"search"} if self._search is not None else super().opened

    def close_topmost(self) -> bool:
        if self._search is not None:
            self._stop_search()
            self.frame.say("stopped looking")
            return True
        if super().close_topmost():
            return True
        if self.choices.only_rank is None:
            return False
        self.choices.only_rank = None
        return True

    def keep_up(self, facts: Facts) -> None:
        """With a filter, lines that pass are kept also while so many come that the state no longer has them at the next frame."""
        if self._feed.is_filtered and self.is_mounted:
            self._feed.update(facts.state.output, self.lines.reads_from)

    # --- what is on the disk --------------------------------------------------------------------------------------

    @dataclass
    class Older(Message):
        """What was found on the way back through the recording; `done` where no more is looked through."""

        search: OutputSearch
        stretch: Stretch
        done: bool

    def _matching(self) -> tuple[Callable[[OutputLine], bool], tuple[tuple[str, ...], ...]]:
        """What passes the filter as it is now, in any thread, and words that are in it."""
        matcher, text = Feed(output_line, 1), self.choices.filters.get("lines", "")
        matcher.set_filter(self.choices.only_rank, text, problems=self.choices.problems)
        return matcher.passes, literal_words(text, OUTPUT_FIELDS)

    def _look_back(self) -> None:
        self._back_soon = None
        if self.frame.player is not None:
            self._looking_back = self.frame.player.output_search(*self._matching())
            self._back(self._looking_back, *self._feed.since)

    @work(thread=True, group="back")
    def _back(self, search: OutputSearch, edge: float, held: int) -> None:
        left, room = LOOK_BACK_BLOCKS, KEPT_LINES
        try:
            for stretch in search.back_from(edge, held):
                left, room = left - 1, room - len(stretch.lines)
                done = left <= 0 or room <= 0 or stretch.since == -math.inf
                self.post_message(self.Older(search, stretch, done))
                if done:
                    return
        except DistmonError as error:
            self.app.call_from_thread(self._back_failed, search, str(error))

    def _back_failed(self, search: OutputSearch, why: str) -> None:
        if search is self._looking_back:
            self._stop_looking_back()
            self.frame.say(why)

    def on_logs_older(self, event: Older) -> None:
        if event.search is not self._looking_back:
            return
        self._since = event.stretch.since
        self._feed.take_older(event.stretch.lines)
        if event.done or self._feed.is_full:
            event.search.cancel()
            self._looking_back = None
        self.redraw("lines")

    def _stop_looking_back(self) -> None:
        if self._back_soon is not None:
            self._back_soon.stop()
        if self._looking_back is not None:
            self._looking_back.cancel()
        self._back_soon = self._looking_back = self._since = None

    @dataclass
    class Found(Message):
        """What a search has come to."""

        search: OutputSearch
        line: OutputLine | None

    def action_find(self, step: int) -> None:
        """The nearest line that passes the filter, before the oldest that is still here (-1) or after the moment (1)."""
        player, state = self.frame.player, self.frame.facts.state
        if player is None:
            self.frame.say("this session is not recorded, and so there is nothing else to look through")
            return
        self._stop_search()
        self._search = player.output_search(*self._matching())
        at = state.now if step > 0 or not state.output else self._held_since
        self._tell_progress(self._search)
        self._telling = self.set_interval(TOLD_EVERY_S, partial(self._tell_progress, self._search))
        self._look(self._search, at, step)

    def _tell_progress(self, search: OutputSearch) -> None:
        self.frame.say(f"looking through the recording, {search.share:.0%} of it; Esc stops")

    def _stop_search(self) -> None:
        if self._search is not None:
            self._search.cancel()
            self._search = None
        if self._telling is not None:
            self._telling.stop()
            self._telling = None

    @work(thread=True, group="search")
    def _look(self, search: OutputSearch, at: float, step: int) -> None:
        try:
            line = search.earlier(at) if step < 0 else search.later(at)
        except DistmonError as error:
            self.app.call_from_thread(self._search_failed, search, str(error))
        else:
            self.post_message(self.Found(search, line))

    def _search_failed(self, search: OutputSearch, why: str) -> None:
        if search is self._search:
            self._stop_search()
            self.frame.say(why)

    def on_logs_found(self, event: Found) -> None:
        player = self.frame.player
        if event.search is not self._search or player is None:
            return
        self._stop_search()
        if event.line is None:
            self.frame.say("no such line in the rest of the recording")
            return
        position_s = max(event.line.at - player.started_at, 0.0)
        if position_s > player.reach_s:
            self.frame.say(f"there is one at {clock(event.line.at)}, but {player.unread}")
            return
        try:
            self.frame.go_elsewhere(partial(_paused_at, player, position_s + ROUNDING_S))
        except DistmonError as error:
            self.frame.say(str(error))
        else:
            self.frame.say(f"at {clock(event.line.at)}, where the line was written; Esc goes back")

    def on_unmount(self) -> None:
        self._stop_search()
        self._stop_looking_back()

    def action_collapse(self) -> None:
        self.collapse = not self.collapse
        self.redraw()

    def action_only_rank(self) -> None:
        """The rank of the line under the cursor; again: all."""
        entry = self._feed.entry(self.lines.cursor) if self.lines.cursor is not None else None
        if self.choices.only_rank is not None:
            self.choices.only_rank = None
        elif entry is not None:
            self.choices.only_rank = entry.rank
        else:
            self.frame.say("put the cursor on a line of the rank first")
        self.redraw()
        self.frame.page_changed()


def _paused_at(player: Player, position_s: float) -> None:
    player.pause()
    player.seek(position_s)
