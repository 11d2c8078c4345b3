"""A small terminal: what stands on it after all that the app wrote, and whether that is what the app meant to show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from unittest.mock import patch

from rich.cells import cell_len
from rich.color import Color
from rich.style import Style
from textual.drivers.headless_driver import HeadlessDriver

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from distmon.tui.app import DistmonApp

SEQUENCE = re.compile(r"\x1b\[([?>=]?)([\d;:]*)([@-~])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[=>78]|(\r|\n)")
ROUNDS = 100


class Cell(NamedTuple):
    text: str = "?"
    colour: str = ""
    ground: str = ""
    marks: frozenset[str] = frozenset()


class Terminal:
    """Cells by (row, column), and a pen; knows what Textual and the painter write, and nothing more."""

    def __init__(self) -> None:
        self.cells: dict[tuple[int, int], Cell] = {}
        self.at = (0, 0)
        self.pen = Cell(" ")
        self.written = 0
        """Characters, escape codes and all."""
        self.drawn = 0
        """Cells, each as often as it was written."""

    def write(self, data: str) -> None:
        self.written += len(data)
        end = 0
        for found in SEQUENCE.finditer(data):
            self._put(data[end : found.start()])
            end = found.end()
            private, numbers, kind = found.group(1), found.group(2) or "", found.group(3)
            if kind == "H" and not private:
                row, column = (int(number or 1) for number in (numbers or "1;1").split(";"))
                self.at = row - 1, column - 1
            elif kind == "m" and not private:
                self._style([int(code or 0) for code in numbers.split(";")])
        self._put(data[end:])

    def text(self) -> str:
        """Its lines, as they are read."""
        rows: dict[int, dict[int, str]] = {}
        for (row, column), cell in self.cells.items():
            rows.setdefault(row, {})[column] = cell.text
        return "\n".join("".join(rows[row].get(x, " ") for x in range(max(rows[row]) + 1)) for row in sorted(rows))

    def _put(self, text: str) -> None:
        row, column = self.at
        for character in text:
            width = cell_len(character)
            self.drawn += width
            self.cells[row, column] = self.pen._replace(text=character)
            if width == 2:
                self.cells[row, column + 1] = self.pen._replace(text="")
            column += width
        self.at = row, column

    def _style(self, codes: list[int]) -> None:
        pen, marks = self.pen, set(self.pen.marks)
        while codes:
            code, *codes = codes
            if code == 0:
                pen, marks = Cell(" "), set()
            elif code in (1, 2, 7):
                marks.add({1: "bold", 2: "dim", 7: "reverse"}[code])
            elif code in (22, 27):
                marks -= {"bold", "dim"} if code == 22 else {"reverse"}
            elif code in (38, 48):
                if codes[0] == 5:
                    name, codes = _name(Color.from_ansi(codes[1])), codes[2:]
                else:
                    (red, green, blue), codes = codes[1:4], codes[4:]
                    name = f"#{red:02x}{green:02x}{blue:02x}"
                pen = pen._replace(colour=name) if code == 38 else pen._replace(ground=name)
            elif code in range(30, 38) or code in range(90, 98):
                pen = pen._replace(colour=_of_sixteen(code - 30))
            elif code in range(40, 48) or code in range(100, 108):
                pen = pen._replace(ground=_of_sixteen(code - 40))
            elif code in (39, 49):
                pen = pen._replace(colour="") if code == 39 else pen._replace(ground="")
            else:
                assert code in (3, 4), f"a terminal of the tests does not know SGR {code}"
        self.pen = pen._replace(marks=frozenset(marks))

    def differences(self, app: DistmonApp) -> list[str]:
        """Cells that do not show what the app's screen holds."""
        width, height = app.size
        wrong = []
        for row, strip in enumerate(app.screen._compositor.render_strips()[:height]):
            column = 0
            for text, style, _ in strip:
                for character in text:
                    wanted, shown = _cell(character, style or Style()), self.cells.get((row, column), Cell())
                    if column < width and _seen(wanted) != _seen(shown):
                        wrong.append(f"row {row}, column {column}: {shown} in place of {wanted}")
                    column += cell_len(character)
        return wrong


@lru_cache(4096)
def _cell(character: str, style: Style) -> Cell:
    marks = frozenset(mark for mark in ("bold", "dim", "reverse") if getattr(style, mark))
    return Cell(character, _name(style.color), _name(style.bgcolor), marks)


def _seen(cell: Cell) -> Cell:
    """A blank shows nothing but its ground, in whatever colour it is written."""
    return Cell(" ", ground=cell.ground) if cell.text == " " and "reverse" not in cell.marks else cell


def _of_sixteen(number: int) -> str:
    """The bright ones are 60 beyond the others."""
    return _name(Color.from_ansi(number if number < 8 else number - 60 + 8))


def _name(colour: Color | None) -> str:
    return "" if colour is None or colour.is_default else colour.get_truecolor().hex


@contextmanager
def terminal(model: Terminal | None = None) -> Iterator[Terminal]:
    """Apps of the tests that start within it write to this terminal, as they would to a real one."""
    model = model or Terminal()

    def write(driver: HeadlessDriver, data: str) -> None:
        model.write(data)

    with (
        patch.object(HeadlessDriver, "is_headless", False),
        patch.object(HeadlessDriver, "write", write),
        patch("textual.constants.COLOR_SYSTEM", "truecolor"),
        patch("distmon.tui.app.hung_up", lambda: False),
        patch("distmon.tui.app.on_hangup", lambda leave: None),
    ):
        yield model


async def assert_shown(model: Terminal, app: DistmonApp, pilot: Pilot[int], after: str) -> None:
    """The terminal comes to show what the app's screen holds."""
    wrong: list[str] = []
    for _ in range(ROUNDS):
        await pilot.pause()
        if app._exit or not (wrong := model.differences(app)):
            return
    raise AssertionError(f"after {after} {len(wrong)} cells are wrong, the first: {'; '.join(wrong[:3])}")
