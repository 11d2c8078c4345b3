"""Footer, help, question and the too-small notice, from the table of bindings."""

from __future__ import annotations

from dataclasses import dataclass

from distmon.tui.bindings import PANELS, Command, key_name
from distmon.tui.format import clean, fit
from distmon.tui.theme import Palette
from distmon.tui.widgets.line import Line, cells, spread


@dataclass(frozen=True)
class FooterItem:
    """A command in the footer, from its first cell on; `command` is None for the keys of the panels."""

    left: int
    key: str
    label: str
    command: Command | None

    @property
    def width(self) -> int:
        return cells(self.key) + cells(self.label) + 1


def footer_items(commands: list[Command], room: int) -> list[FooterItem]:
    """The commands that fit, in order of importance."""
    chosen = sorted((c for c in commands if c.footer), key=lambda c: (c.where == "bar", c.footer))
    entries: list[tuple[str, str, Command | None]] = [(key_name(c.keys[0]), c.label, c) for c in chosen]
    entries.insert(2, (f"1-{len(PANELS)}", "panels", None))
    items: list[FooterItem] = []
    left = 1
    for key, label, command in entries:
        item = FooterItem(left, key, label, command)
        if left + item.width + 1 > room:
            break
        items.append(item)
        left += item.width + 2
    return items


def footer(commands: list[Command], note: str, palette: Palette, width: int) -> list[Line]:
    """The commands that fit beside a note of what just happened."""
    style = palette.style
    right = Line([(clean(note) + " ", style("warn", bold=True))]) if note else Line()
    line = Line()
    for item in footer_items(commands, width - right.width):
        line.pad(item.left, style("text")).add(item.key, style("key")).add(f" {item.label}", style("muted"))
    return [spread(line, right, width, style("text"))]


def command_at(commands: list[Command], note: str, width: int, x: int) -> Command | None:
    """The footer's command under a cell."""
    room = width - (cells(clean(note)) + 1 if note else 0)
    found = (item.command for item in footer_items(commands, room) if item.left <= x < item.left + item.width)
    return next(found, None)


def help_lines(commands: list[Command], palette: Palette, width: int, height: int) -> list[Line]:
    """Every command with all of its keys, by group."""
    style = palette.style
    lines: list[Line] = []
    group = ""
    for command in commands:
        if command.group != group:
            group = command.group
            lines += [Line()] * bool(lines) + [Line([(group, style("accent", bold=True))])]
        keys = " ".join(key_name(key) for key in command.keys)
        lines.append(Line([("  " + fit(keys, 14), style("key")), (command.help, style("text"))]))
    legend = "● good  ◐ starting  ○ idle  ▲ look here  ✖ dead or failed  ✔ ended  – not measured: Enter says why"
    words = legend.split("  ")
    lines += [Line(), Line([("Signs", style("accent", bold=True))])]
    return lines + [Line([("  " + word, style("text"))]) for word in words]


def question_lines(question: str, palette: Palette, width: int, height: int) -> list[Line]:
    style = palette.style
    lines = [
        Line(),
        *(Line([(fit(part, width, "centre"), style("text", bold=True))]) for part in question.split("\n")),
        Line(),
    ]
    choices = Line(
        [("y", style("key")), (" or ^C: yes   ", style("text")), ("n", style("key")), (" or Esc: no", style("text"))]
    )
    return [*lines, Line([(" " * max((width - choices.width) // 2, 0), style("text"))]).extend(choices)]


def too_small_lines(palette: Palette, width: int, height: int, needed: tuple[int, int]) -> list[Line]:
    """One line in whatever room there is: the size it has and the size it needs."""
    text = f"{width}x{height}, needs {needed[0]}x{needed[1]}"
    long = f"the terminal is {width}x{height}; distmon needs {needed[0]}x{needed[1]}"
    shown = long if len(long) <= width else text
    lines = [Line()] * ((height - 1) // 2)
    return [*lines, Line([(fit(shown, width, "centre"), palette.style("warn"))])]
