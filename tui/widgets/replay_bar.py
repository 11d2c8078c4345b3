"""The one row that talks to the player: where the recording is, how fast it plays, and where to go."""

from __future__ import annotations

from textual import events
from textual.strip import Strip

from distmon.tui.format import duration
from distmon.tui.ports import Player
from distmon.tui.view.words import SEVERITY
from distmon.tui.widgets.canvas import Canvas
from distmon.tui.widgets.line import Line

SPEEDS = (0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 100, 300, 1000)


class ReplayBar(Canvas):
    """Play, pause, speed, step and seek; a click or a drag on the track seeks."""

    def __init__(self, player: Player, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._player = player
        self._track = (0, 1)
        """First cell and length of the track as last drawn."""
        self._dragging = False

    def draw(self, width: int, height: int) -> list[Strip]:
        style, player = self.palette.style, self._player
        total = player.duration_s
        sign = "⏸ paused" if not player.playing else "▶ playing"
        line = Line(
            [(f" {sign} ", style("accent", bold=True)), (f"{_speed_words(player.speed):>6} ", style("text", bold=True))]
        )
        position = duration(player.position_s)
        line.add(position.rjust(len(duration(total))), style("text", bold=True)).add(" ", style("text"))
        end = Line([(f" {duration(total)} ", style("muted"))])
        length = max(width - line.width - end.width, 1)
        self._track = (line.width, length)
        return [line.extend(self._draw_track(length, total)).extend(end).strip(width, self.base)]

    def _draw_track(self, length: int, total: float) -> Line:
        style, done = self.palette.style, self._cell(self._player.position_s, total, length)
        cells = [("━" if x < done else "─", style("accent" if x < done else "border")) for x in range(length)]
        for at, severity in self._player.marks:
            cells[self._cell(at, total, length)] = ("╋", style(SEVERITY[severity][1]))
        cells[done] = ("●", style("accent", bold=True))
        return Line(cells)

    @staticmethod
    def _cell(position: float, total: float, length: int) -> int:
        share = position / total if total > 0 else 0.0
        return min(max(int(share * length), 0), length - 1)

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

    def action_skip(self, seconds: int) -> None:
        self._seek(self._player.position_s + seconds)

    def action_to_start(self) -> None:
        self._seek(0.0)

    def action_to_end(self) -> None:
        self._seek(self._player.duration_s)

    def _seek(self, position: float) -> None:
        self._player.seek(min(max(position, 0.0), self._player.duration_s))
        self.redraw()

    def on_mouse_down(self, event: events.MouseDown) -> None:
        first, length = self._track
        if first <= event.x < first + length:
            self._dragging = True
            self.capture_mouse()
            self._seek_to_cell(event.x)
        elif event.x < first:
            self.action_play_pause()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self._dragging:
            self._seek_to_cell(event.x)

    def on_mouse_up(self, event: events.MouseUp) -> None:
        if self._dragging:
            self._dragging = False
            self.release_mouse()

    def _seek_to_cell(self, x: int) -> None:
        first, length = self._track
        self._seek((x - first + 0.5) / length * self._player.duration_s)


def _speed_words(speed: float) -> str:
    return f"{speed:g}x"
