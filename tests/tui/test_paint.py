"""What is written past the framework shows the same as what the framework would have drawn, in fewer bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from distmon.core.synthetic import Script, opening, session
from distmon.tui.theme import DARK
from distmon.tui.widgets.paint import changed_runs, sgr_change
from tests.tui.terminal_model import Terminal, assert_shown, terminal

if TYPE_CHECKING:
    from tests.tui.conftest import OpenApp

STYLES = [DARK.style("text"), DARK.style("muted", bold=True), DARK.style("bad", selected=True), Style(dim=True), Style()]
STYLES += [Style(reverse=True, bold=True), Style(color="#101010", italic=True)]
LINES = st.lists(st.tuples(st.text("ab 1━字", min_size=1, max_size=9), st.sampled_from(STYLES)), min_size=1, max_size=8)


def line(pieces: list[tuple[str, Style]], width: int) -> Strip:
    strip = Strip([Segment(text, style) for text, style in pieces]).crop(0, width)
    return strip.extend_cell_length(width, STYLES[0])


def written(terminal: Terminal, strip: Strip, old: Strip | None) -> None:
    pen: Style | None = None
    whole = [(0, [(segment.text, segment.style or Style()) for segment in strip])]
    for first, pieces in whole if old is None else [(run.first, run.pieces) for run in changed_runs(old, strip)]:
        terminal.write(f"\x1b[1;{first + 1}H")
        for text, style in pieces:
            terminal.write(sgr_change(pen, style, ColorSystem.TRUECOLOR) + text)
            pen = style


@given(st.lists(LINES, min_size=2, max_size=4), st.integers(4, 40))
def test_changed_cells_make_of_one_line_the_next(lines: list[list[tuple[str, Style]]], width: int) -> None:
    changed, strips, old = Terminal(), [line(pieces, width) for pieces in lines], None
    for strip in strips:
        written(changed, strip, old)
        anew = Terminal()
        written(anew, strip, None)
        # The second half of a wide character is told by the first.
        assert {at: c for at, c in changed.cells.items() if c.text} == {at: c for at, c in anew.cells.items() if c.text}
        old = strip


SCRIPT = Script(ranks=12, nodes=3, seconds=40, slow_rank=1, delay_s=0.03, gpus_per_node=2)
KEYS = ("f1", "escape", "f3", "f4", "f2", "4", "enter", "S", "slash", "1", "escape", "t", "ctrl+p", "escape")


async def test_every_frame_stands_on_the_terminal(open_app: OpenApp) -> None:
    """Live frames, screens, the help over them, a filter as it is typed, a theme, a size, and the palette."""
    first, rest = list(opening(SCRIPT)), list(session(SCRIPT))[len(list(opening(SCRIPT))) :]
    with terminal() as model:
        async with open_app(first, size=(100, 30)) as (app, pilot, source):
            for number, key in enumerate(KEYS):
                source.waiting.extend(rest[30 * number : 30 * (number + 1)])
                app.frame()
                await assert_shown(model, app, pilot, f"the frame before {key}")
                await pilot.press(key)
                if app.screen is app.cockpit:
                    await assert_shown(model, app, pilot, key)
            model.cells.clear()
            await pilot.resize_terminal(80, 24)
            await assert_shown(model, app, pilot, "another size")


async def test_a_frame_costs_the_cells_that_changed(open_app: OpenApp) -> None:
    events = list(session(SCRIPT))
    half = len(events) // 2
    with terminal() as model:
        async with open_app(events[:half], size=(120, 40)) as (app, pilot, source):
            await assert_shown(model, app, pilot, "the start")
            whole = model.written
            source.waiting.extend(events[half : half + 17])  # a second
            app.frame()
            await assert_shown(model, app, pilot, "a second")
            assert 0 < model.written - whole < whole / 4


CHANGES = ("f4", "f5", "f6", "f4", "f2", "question_mark", "escape", "slash", "escape", "2", "f1", "escape")


async def test_a_change_of_screen_is_written_once(open_app: OpenApp) -> None:
    """Also a prompt and the help, there and back, another panel with the keys, and another size: no cell twice."""
    with terminal() as model:
        async with open_app(list(session(SCRIPT)), size=(120, 40)) as (app, pilot, _):
            await assert_shown(model, app, pilot, "the start")
            for key in CHANGES:
                model.drawn = model.written = 0
                await pilot.press(key)
                await assert_shown(model, app, pilot, key)
                assert model.drawn < 1.3 * app.size.area, f"{key} wrote {model.drawn:,} cells of {app.size.area:,}"
                assert model.written < 35_000, key
            for size in ((100, 30), (120, 40), (120, 29)):
                model.drawn, model.cells = 0, {}
                await pilot.resize_terminal(*size)
                await assert_shown(model, app, pilot, f"the size {size}")
                assert model.drawn < 1.3 * app.size.area, f"{size}: {model.drawn:,} cells of {app.size.area:,}"


async def test_a_slow_link_gets_colours_in_fewer_bytes(open_app: OpenApp) -> None:
    written = []
    for slow in ("", "1"):
        with terminal() as model:
            async with open_app(list(session(SCRIPT)), size=(120, 40), environment={"DISTMON_SLOW_LINK": slow}) as (_, pilot, _):
                model.written = 0
                await pilot.press("f4")
                written.append(model.written)
    assert 0 < written[1] < 0.95 * written[0]
