"""The short way to the terminal: of a widget that nothing covers, only the cells that changed are written.

The framework composes a frame of all widgets for each change, and writes lines from the widget's left edge on. Most frames of a
live session change a few figures in many places: for them this takes a tenth of the time and of the bytes. Whatever is not
plainly the usual case (no terminal, a layout to come, a filter, something on top) is left to the framework, which draws the same
lines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from rich.color import ColorSystem
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from textual._ansi_sequences import SYNC_END, SYNC_START
from textual._compositor import CompositorUpdate
from textual.app import App
from textual.filter import ANSIToTruecolor
from textual.geometry import Region, Size
from textual.reactive import Reactive
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

if TYPE_CHECKING:
    Places = dict[Widget, tuple[Region, Region]]

NEAR = 6
"""Changed cells so close to each other are written in one go: to move the cursor takes as many bytes."""
_NO_STYLE = Style()
_MARKS = {"bold": ("1", "22"), "dim": ("2", "22"), "reverse": ("7", "27")}
"""How each is set and taken back."""


class Run(NamedTuple):
    """Changed cells of a line from a cell on: their text, in pieces of one style."""

    first: int
    pieces: Sequence[tuple[str, Style]]
    width: int


Lines = Sequence[tuple[int, Sequence[Run]]]
"""The changed cells of a widget's lines, by row."""


def changed_runs(old: Strip, new: Strip) -> list[Run]:
    """What of a line is to be written again: cells that do not show the same in the same style already."""
    changed = _changed_cells(old, new)
    if changed is None:
        return [_whole(new)]
    if not changed:
        return []
    text, styles = new.text, _styles(new)
    return [_run(text, styles, first, last) for first, last in _spans(changed)]


def _changed_cells(old: Strip, new: Strip) -> list[int] | None:
    """By whole segments first, as most stand where they stood. None where a character takes two cells."""
    changed: list[int] = []
    same = x = 0  # segments at the start that have style and length of those that stood there, and their cells
    before_segments, segments = old._segments, new._segments
    for was, segment in zip(before_segments, segments, strict=False):
        text = segment[0]
        if was is not segment:
            if was[1] is not segment[1] or len(was[0]) != len(text):
                break
            changed += _other_characters(was[0], text, x)
        x += len(text)
        same += 1
    there, end = dict[int, Segment](), x
    for segment in before_segments[same:]:
        there[end] = segment
        end += len(segment[0])
    if end != old.cell_length or end != new.cell_length:
        return None
    before, styles = "", list[Style]()
    for segment in segments[same:]:
        text, style, _ = segment
        end, stood = x + len(text), there.get(x)
        if stood is not None and stood[1] is style and len(stood[0]) == len(text):
            changed += _other_characters(stood[0], text, x)
        else:
            if not styles:
                before, styles = old.text, _styles(old)
            if len(text) > len(styles) - x:
                return None
            style = style or _NO_STYLE
            cells = enumerate(zip(text, before[x:end], styles[x:end], strict=True), x)
            changed += [i for i, (a, b, other) in cells if a != b or other is not style]
        x = end
    return changed if x == new.cell_length else None


def _other_characters(old: str, new: str, x: int) -> list[int]:
    """Of two texts as long as each other that begin at `x`, where they differ."""
    return [i for i, (a, b) in enumerate(zip(old, new, strict=True), x) if a != b] if old != new else []


def _whole(line: Strip) -> Run:
    """With characters of two cells a line is written as one."""
    return Run(0, [(segment.text, segment.style or _NO_STYLE) for segment in line], line.cell_length)


def _styles(line: Strip) -> list[Style]:
    """Of each cell."""
    styles: list[Style] = []
    for text, style, _ in line:
        styles += [style or _NO_STYLE] * len(text)
    return styles


def _spans(changed: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(first, last) of the changed cells that are written together."""
    first = last = -1
    for x in changed:
        if first >= 0 and x - last > NEAR:
            yield first, last
            first = -1
        first, last = (x if first < 0 else first), x
    if first >= 0:
        yield first, last


def _run(text: str, styles: Sequence[Style], first: int, last: int) -> Run:
    pieces, begin = [], first
    for x in range(first + 1, last + 2):
        if x > last or styles[x] is not styles[begin]:
            pieces.append((text[begin:x], styles[begin]))
            begin = x
    return Run(first, pieces, last + 1 - first)


class HoldingScreen(Screen[None]):
    """Holds back a frame that is not whole yet: a link of 40 kB/s takes half a second for each."""

    virtual_size = Reactive(Size(0, 0), repaint=False)
    holds = True
    """Whether what changes is only noted, until the next layout."""

    @property
    def is_whole(self) -> bool:
        """Whether every part has its place."""
        raise NotImplementedError

    def _refresh_layout(self, size: Size | None = None, scroll: bool = False) -> None:
        self.holds = False
        super()._refresh_layout(size, scroll)

    def _compositor_refresh(self) -> None:
        self.holds = self.holds or not self.is_whole
        if not self.holds:
            # With what widgets are about to tell: or else they are written again once they have told it.
            compositor = self._compositor
            compositor.update_widgets(set(compositor.visible_widgets))
            dirty = sum(region.area for region in compositor._dirty_regions)
            if self is self.app.screen and dirty > compositor.size.area // 2:
                compositor._dirty_regions.add(compositor.size.region)  # which takes fewer bytes
            super()._compositor_refresh()


def regions(lines: Lines) -> list[Region]:
    """Where a widget changed, by row."""
    return [Region(run.first, y, run.width, 1) for y, runs in lines for run in runs]


def painted(widget: Widget, lines: Lines) -> bool:
    """Whether the changed cells of the widget's lines, by row, are on their way to the terminal; else it has to be refreshed."""
    app = widget.app
    painter = _painters.get(app)
    if painter is None:
        painter = _painters[app] = _Painter(app)
    return painter.take(widget, lines)


class _Painter:
    """Collects what all widgets write in one turn of the loop, and writes it together."""

    def __init__(self, app: App[object]) -> None:
        self._app = app
        self._output: list[str] = []
        self._taken: list[tuple[Widget, Lines]] = []
        """What the output shows."""
        self._style: Style | None = None
        self._places: Places | None = None
        """Where the widgets are; another mapping means another layout."""
        self._free: dict[Widget, Region | None] = {}

    def take(self, widget: Widget, lines: Lines) -> bool:
        place = self._place(widget)
        if place is None:
            return False
        if not self._output:
            asyncio.get_running_loop().call_soon(self._write)
        self._taken.append((widget, lines))
        system = self._app.console._color_system or ColorSystem.TRUECOLOR
        for y, runs in lines:
            for run in runs:
                self._output.append(f"\x1b[{place.y + y + 1};{place.x + run.first + 1}H")
                for text, style in run.pieces:
                    if style is not self._style:
                        self._output.append(sgr_change(self._style, style, system))
                        self._style = style
                    self._output.append(text)
        return True

    def _place(self, widget: Widget) -> Region | None:
        """Where the widget is; None where something covers it, or where that is not sure."""
        if not self._usual(widget.screen):
            return None
        places = widget.screen._compositor.visible_widgets
        if places is not self._places:
            if self._output:
                return None
            self._places, self._free = places, {}
        if widget not in self._free:
            self._free[widget] = _uncovered(widget, places)
        place = self._free[widget]
        return place if place is not None and place.size == widget.size else None

    def _usual(self, screen: Screen[object]) -> bool:
        app, compositor = self._app, screen._compositor
        if not app._running or app._exit or app._closed or app.is_headless or app._driver is None or app._batch_count:
            return False
        if app.screen is not screen or screen._layout_required or compositor._full_map_invalidated:
            return False
        if isinstance(screen, HoldingScreen) and screen.holds:
            return False
        return all(isinstance(each, ANSIToTruecolor) for each in app.get_line_filters())

    def _write(self) -> None:
        output, taken, self._output, self._taken, self._style = "".join(self._output), self._taken, [], [], None
        app = self._app
        if not app._running or app._exit or app._closed or app._driver is None:
            return
        screen = app.screen
        if not self._usual(screen) or screen._compositor.visible_widgets is not self._places:
            for widget, lines in taken:  # they may be elsewhere by now
                widget.refresh(*regions(lines))
            return
        x, y = screen.outer_size.clamp_offset(app.cursor_position)
        begin, end = (SYNC_START, SYNC_END) if app._sync_available else ("", "")
        app._driver.write(f"{begin}{output}\x1b[0m\x1b[{y + 1};{x + 1}H{end}")


_painters: WeakKeyDictionary[App[object], _Painter] = WeakKeyDictionary()


def _uncovered(widget: Widget, places: Places) -> Region | None:
    """Where a widget is, if it is wholly visible and no other lies over it; those in front come first."""
    own = places.get(widget)
    if own is None or not own[1].contains_region(own[0]):
        return None
    for other, (region, clip) in places.items():
        if other is widget:
            return own[0]
        if region.intersection(clip).overlaps(own[0]):
            return None
    return None


class WholeFrame(CompositorUpdate):
    """All lines of the screen, each style told only where it changes: half the bytes of the framework's way, style by style."""

    def __init__(self, lines: Sequence[Iterable[Strip]]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from (segment for line in self._lines for strip in line for segment in strip)

    def render_segments(self, console: Console) -> str:
        output, before = list[str](), None
        system = console._color_system or ColorSystem.TRUECOLOR
        for y, line in enumerate(self._lines):
            output.append(f"\x1b[{y + 1};1H")
            for text, style, _ in chain.from_iterable(line):
                style = style or _NO_STYLE
                if style is not before and not (before is not None and text.isspace() and _same_blank(before, style)):
                    output.append(sgr_change(before, style, system))
                    before = style
                output.append(text)
        return "".join([*output, "\x1b[0m"])


@lru_cache(8192)
def _same_blank(one: Style, other: Style) -> bool:
    """Whether blanks look the same in both."""
    return one.bgcolor == other.bgcolor and not any(style.reverse or _odd(style) for style in (one, other))


@lru_cache(8192)
def sgr_change(before: Style | None, after: Style, system: ColorSystem) -> str:
    """The escape sequence that takes the terminal from one style to another; None is an unknown one."""
    if before is None or any(_odd(style) for style in (before, after)):
        ansi = Strip.render_ansi(after, system)
        return f"\x1b[0;{ansi}m" if ansi else "\x1b[0m"
    codes = dict.fromkeys(chain(_mark_codes(before, after)))
    for was, now, foreground in ((before.color, after.color, True), (before.bgcolor, after.bgcolor, False)):
        if was != now:
            default = ("39" if foreground else "49",)
            codes |= {";".join(now.downgrade(system).get_ansi_codes(foreground) if now is not None else default): None}
    return f"\x1b[{';'.join(codes)}m" if codes else ""


def _odd(style: Style) -> bool:
    """Whether it has marks that the short way does not know."""
    return bool(style.italic or style.underline or style.blink or style.strike or style.overline or style.link)


def _mark_codes(before: Style, after: Style) -> Iterator[str]:
    lost = [_MARKS[mark][1] for mark in _MARKS if getattr(before, mark) and not getattr(after, mark)]
    yield from lost
    for mark, (on, off) in _MARKS.items():
        if getattr(after, mark) and (not getattr(before, mark) or off in lost):
            yield on
