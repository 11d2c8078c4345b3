"""The one row that talks to the player: where the recording is, how fast it plays, and where to go."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from textual import events
from textual.message import Message
from textual.strip import Strip

from distmon.core.errors import DistmonError, UsageError
from distmon.core.printable import clean
from distmon.replay.marks import plain_name
from distmon.tui.format import duration, milliseconds
from distmon.tui.moment import moment_named
from distmon.tui.ports import Player
from distmon.tui.view.minimap import EMPTY, UNREAD, cell_of, pace_at, pace_cells, tick_cells, with_ticks
from distmon.tui.widgets.canvas import Canvas
from distmon.tui.widgets.line import Line

FIGURES_WIDTH = 110
"""From here on the bar gives the step times at its position in figures."""
KEEPS_UP_S = 5.0
"""A recording that is being written is read a little later."""
SPEEDS = (0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 100, 300, 1000)


class ReplayBar(Canvas):
    """Play, pause, speed, step and seek; its track is a map of the whole session, on which a click or a drag seeks."""

    @dataclass
    class Said(Message):
        """Something to tell the user."""

        text: str

    @dataclass
    class PlaceAsked(Message):
        """The user is to say where to go."""

    def __init__(self, player: Player, ask_name: Callable[[float, str], None], *, id: str | None = None) -> None:
        """`ask_name` is given the position of a moment to be named, and its name so far."""
        super().__init__(id=id)
        self._player, self._ask_name = player, ask_name
        self._track = (0, 1)
        """First cell and length of the track as last drawn."""
        self._dragging = False

    @property
    def standing(self) -> str:
        """In words how far the view is behind what goes on, for the header; empty where it keeps up, or nothing does."""
        player, behind_s = self._player, self._player.behind_s
        if behind_s is None or (player.playing and behind_s < KEEPS_UP_S):
            return ""
        word = "READING" if player.busy else "PLAYING" if player.playing else "PAUSED"
        return f"{word} {duration(behind_s)} behind live" + (f", {player.news}" if player.news else "")

    def draw(self, width: int, height: int) -> list[Strip]:
        style, player = self.palette.style, self._player
        total = player.duration_s
        sign = "… reading" if player.busy else "▲ cut off" if player.cut_off else "▶ playing" if player.playing else "‖ paused"
        speed = f"{player.speed:g}" + (" st/s" if player.by_step else "x")
        line = Line([(f" {sign} ", style("accent", bold=True)), (f"{speed:>6} ", style("text", bold=True))])
        position = duration(player.position_s)
        line.add(position.rjust(len(duration(total))), style("text", bold=True)).add(" ", style("text"))
        end = Line([(f" {duration(total)} ", style("muted"))])
        if player.unread:
            end.add(f"{int(100 * player.reach_s / total)}% read " if total else "", style("muted"))
        if width >= FIGURES_WIDTH:
            end.extend(self._figures())
        length = max(width - line.width - end.width, 1)
        self._track = (line.width, length)
        return [line.extend(self._draw_track(length, total)).extend(end).strip(width, self.base)]

    def _figures(self) -> Line:
        """Step times at the position, over ranks."""
        style, point = self.palette.style, pace_at(self._player.pace[1], self._player.started_at + self._player.position_s)
        line = Line()
        for name, value in (("p50", point.p50_s if point else None), ("p95", point.p95_s if point else None)):
            line.add(f"{name} ", style("muted")).add(f"{milliseconds(value):>6} ", style("text"))
        return line.add("ms ", style("muted"))

    def _draw_track(self, length: int, total: float) -> Line:
        style, player, start = self.palette.style, self._player, self._player.started_at
        here = cell_of(player.position_s, total, length)
        width_s, points = player.pace
        found = pace_cells(points, width_s, start, total, length)
        ticks = tick_cells(player.moments, start, total, length)
        read_to = cell_of(player.reach_s, total, length)
        cells = []
        for x, pace in enumerate(found):
            glyph, role = ticks.get(x) or pace or (EMPTY if x <= read_to else UNREAD, "border")
            if x > here and x not in ticks and role != "warn":
                role = "border" if pace is None else "muted"
            cells.append((glyph, style(role)))
        cells[here] = ("●", style("accent", bold=True))
        return Line(cells)

    def action_play_pause(self) -> None:
        if self._player.playing:
            self._player.pause()
        else:
            self._player.play()
        self.redraw()

    def action_faster(self) -> None:
        self._change_speed([speed for speed in SPEEDS if speed > self._player.speed][:1])

    def action_slower(self) -> None:
        self._change_speed([speed for speed in SPEEDS if speed < self._player.speed][-1:])

    def _change_speed(self, speeds: list[float]) -> None:
        for speed in speeds:
            self._player.set_speed(speed)
        self.redraw()

    def action_step(self, count: int) -> None:
        self._player.step(count)
        self.redraw()

    def action_by_step(self) -> None:
        """The speed counts steps, or seconds again."""
        self._player.set_by_step(not self._player.by_step)
        self.post_message(self.Said("plays steps per second" if self._player.by_step else "plays as time went by"))
        self.redraw()

    def action_next_event(self, count: int) -> None:
        """To the next (1) or the last (-1) moment that has a tick."""
        player = self._player
        here, start = player.position_s, player.started_at
        moments = with_ticks(player.moments, start, player.duration_s, self._track[1])
        if count > 0:
            moment = next((found for found in moments if found.at - start > here), None)
        else:
            moment = next((found for found in reversed(moments) if found.at - start < here), None)
        if moment is None:
            none = "no event after this" if count > 0 else "no event before this"
            self.post_message(self.Said(f"{none}; {player.unread}" if player.unread else none))
            return
        self._seek(moment.at - start, exact=True)
        self.post_message(self.Said(f"mark: {clean(moment.text)}" if moment.kind == "mark" else clean(moment.text)))

    def action_mark(self) -> None:
        """Names this moment; time stands still meanwhile, where marks may be set."""
        here, start = self._player.position_s, self._player.started_at
        name = next((found.text for found in self._player.moments if found.kind == "mark" and found.at == start + here), "")
        self._ask_name(here, name)
        self.redraw()

    def name_moment(self, position_s: float, name: str) -> None:
        """Raises DistmonError where the mark cannot be kept, UsageError where another moment has that name."""
        start, marks = self._player.started_at, (moment for moment in self._player.moments if moment.kind == "mark")
        others = (mark.at for mark in marks if mark.text == plain_name(name) and mark.at != start + position_s)
        if (other := next(others, None)) is not None:
            raise UsageError(f"a mark of that name is at {duration(other - start)}; another name")
        self._player.name_mark(position_s, name)
        self.redraw()

    def action_go_to(self) -> None:
        self.post_message(self.PlaceAsked())

    def go_to(self, text: str) -> None:
        """To a moment as people write it. Raises DistmonError for one that there is not."""
        there, player = moment_named(text)(self._player), self._player
        if math.inf > there > player.duration_s:
            raise DistmonError(f"the recording lasts {duration(player.duration_s)}")
        self._seek(there, exact=True)

    def action_skip(self, seconds: int) -> None:
        self._seek(self._player.position_s + seconds)

    def action_to_start(self) -> None:
        self._seek(0.0)

    def action_to_end(self) -> None:
        self._seek(self._player.duration_s)

    def _seek(self, position: float, *, exact: bool = False) -> None:
        position = min(max(position, 0.0), self._player.duration_s)
        if position > self._player.reach_s:
            self.post_message(self.Said(f"{self._player.unread}; this is as far as it goes"))
        self._player.seek(position, exact=exact)
        self.redraw()

    def on_mouse_down(self, event: events.MouseDown) -> None:
        first, length = self._track
        if first <= event.x < first + length:
            self._dragging = True
            self.capture_mouse()
            self._seek_to_cell(event.x)
        elif event.x < first:
            self._try(self.action_play_pause)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self._dragging:
            self._seek_to_cell(event.x)

    def on_mouse_up(self, event: events.MouseUp) -> None:
        if self._dragging:
            self._dragging = False
            self.release_mouse()

    def _seek_to_cell(self, x: int) -> None:
        first, length = self._track
        self._try(partial(self._seek, (x - first + 0.5) / length * self._player.duration_s))

    def _try(self, act: Callable[[], None]) -> None:
        """What the mouse asks for; of what a key asks for the screen says why it cannot be."""
        try:
            act()
        except DistmonError as error:
            self.post_message(self.Said(str(error)))
