"""Footer, help, question and the too-small notice, from the table of bindings."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from distmon.core.printable import clean
from distmon.tui.bindings import Command, key_name
from distmon.tui.format import fit
from distmon.tui.glyphs import SPARKS
from distmon.tui.screens.registry import TABS, ScreenEntry
from distmon.tui.theme import Palette
from distmon.tui.view import logs, node_table, ranks
from distmon.tui.view.filters import LANGUAGE
from distmon.tui.view.minimap import HIGHEST_LEVEL, TICK_WORDS, TICKS, UNREAD, USUAL_LEVEL
from distmon.tui.view.wrap import wrapped
from distmon.tui.widgets.line import Line, cells, cut, spread

LEAST_BESIDE = 32
"""In less room than this beside a key, what it does stands below it."""


@dataclass(frozen=True)
class FooterItem:
    """A command in the footer, from its first cell on; `command` is None where it stands for several keys."""

    left: int
    key: str
    label: str
    command: Command | None

    @property
    def width(self) -> int:
        return cells(self.key) + cells(self.label) + 1


def footer_items(commands: list[Command], panels: int, room: int) -> list[FooterItem]:
    """The commands that fit, in order of importance, with the keys of the screens and of so many panels."""
    chosen = sorted((c for c in commands if c.footer), key=lambda c: c.footer)
    entries: list[tuple[str, str, Command | None]] = [(key_name(c.keys[0]), c.label, c) for c in chosen]
    entries.insert(2, (f"F2-F{max(int(screen.keys[0][1:]) for screen in TABS)}", "screens", None))
    if panels > 1:
        entries.insert(3, (f"1-{panels}", "panels", None))
    items: list[FooterItem] = []
    left = 1
    for key, label, command in entries:
        item = FooterItem(left, key, label, command)
        if left + item.width + 1 > room:
            break
        items.append(item)
        left += item.width + 2
    return items


def footer(commands: list[Command], panels: int, note: str, palette: Palette, width: int) -> list[Line]:
    """The commands that fit beside a note of what just happened."""
    style = palette.style
    right = cut(Line([(clean(note) + " ", style("warn", bold=True))]), width - 1) if note else Line()
    line = Line()
    for item in footer_items(commands, panels, width - right.width):
        line.pad(item.left, style("text")).add(item.key, style("key")).add(f" {item.label}", style("muted"))
    return [spread(line, right, width, style("text"))]


def command_at(commands: list[Command], panels: int, note: str, width: int, x: int) -> Command | None:
    """The footer's command under a cell."""
    room = width - (cells(clean(note)) + 1 if note else 0)
    found = (item.command for item in footer_items(commands, panels, room) if item.left <= x < item.left + item.width)
    return next(found, None)


def tabs(current: str, palette: Palette, width: int) -> list[Line]:
    """The screens with their keys, the current one marked."""
    style = palette.style
    line = Line()
    for left, screen in tab_places(current, width):
        here = screen.name == current
        key = style("accent" if here else "muted", bold=here, selected=here)
        line.pad(left, style("text")).add(key_name(screen.keys[0]), key)
        line.add(f" {screen.title}", style("text" if here else "muted", bold=here, selected=here))
    return [line]


def tab_places(current: str, width: int) -> list[tuple[int, ScreenEntry]]:
    """(first cell, screen) of the tabs that fit; the current one is always among them."""
    widths = {screen.name: cells(f"{key_name(screen.keys[0])} {screen.title}") + 2 for screen in TABS}
    shown = list(TABS)
    while len(shown) > 1 and 1 + sum(widths[screen.name] for screen in shown) > width:
        shown.remove(next(screen for screen in reversed(shown) if screen.name != current))
    places, left = [], 1
    for screen in shown:
        places.append((left, screen))
        left += widths[screen.name]
    return places


def tab_at(current: str, width: int, x: int) -> str | None:
    """The name of the screen whose tab is under a cell."""
    before = [screen.name for left, screen in tab_places(current, width) if left <= x]
    return before[-1] if before else None


def help_lines(
    commands: list[Command], fields: Mapping[str, Sequence[str]], palette: Palette, width: int, height: int
) -> list[Line]:
    """Every command with all of its keys, by group; `fields` are those that a filter can ask of the screen's own tables."""
    style = palette.style
    lines: list[Line] = []
    group = ""
    groups = list(dict.fromkeys(command.group for command in commands))
    for command in sorted(commands, key=lambda command: groups.index(command.group)):
        if command.group != group:
            group = command.group
            lines += [Line()] * bool(lines) + [Line([(group, style("accent", bold=True))])]
        keys = " ".join(key_name(key) for key in command.keys)
        lines += _explained(keys, 14, command.help, palette, width)
    lines += [Line(), Line([("Filters (/): all terms must hold", style("accent", bold=True))])]
    lines += [line for term, meaning in LANGUAGE for line in _explained(term, 20, meaning, palette, width)]
    of_logs = (("events", logs.EVENT_FIELDS), ("output", logs.OUTPUT_FIELDS))
    for rows, names in (("ranks", ranks.FIELDS), ("nodes", node_table.FIELDS), *of_logs, *fields.items()):
        lines += wrapped(f"fields of {rows}: {' '.join(names)}", width - 2, style("text"), "  ")
    legend = "● good  ◐ starting  ○ idle  ▲ look here  ▲ slow: a verdict names the rank, or the node or a rank on it; v says why"
    legend += "  ✖ dead or failed  ✔ ended  – not measured: Enter says why"
    bar = f"{SPARKS[USUAL_LEVEL]} a usual step  {SPARKS[HIGHEST_LEVEL]} three times as long  {UNREAD} not read yet"
    bar += "".join(f"  {glyph} {TICK_WORDS[kind]}" for kind, glyph in TICKS.items())
    for title, signs in (("Signs", legend), ("Signs of the replay bar", bar)):
        lines += [Line(), Line([(title, style("accent", bold=True))])]
        lines += [line for sign in signs.split("  ") for line in wrapped(sign, width - 2, style("text"), "  ")]
    return lines


def _explained(term: str, column: int, meaning: str, palette: Palette, width: int) -> list[Line]:
    """A term in its column and what it means beside it, or below where there is no room for that."""
    term_style, style, room = palette.style("key"), palette.style("text"), width - column - 2
    if room < LEAST_BESIDE:
        return [Line([(f"  {term}", term_style)]), *wrapped(meaning, width - 4, style, " " * 4)]
    first, *more = textwrap.wrap(meaning, room)
    lines = [Line([("  " + fit(term, column), term_style), (first, style)])]
    return lines + [Line([(" " * (column + 2) + part, style)]) for part in more]


def question_parts(question: str, width: int) -> list[str]:
    """Its lines, those that are too long broken between words."""
    return [part for line in question.split("\n") for part in textwrap.wrap(clean(line), max(width, 8)) or [""]]


def question_lines(question: str, answers: list[tuple[str, str]], palette: Palette, width: int, height: int) -> list[Line]:
    style = palette.style
    lines = [
        Line(),
        *(Line([(fit(part, width, "centre"), style("text", bold=True))]) for part in question_parts(question, width)),
        Line(),
    ]
    rows = [Line()]
    for key, words in [*answers, ("Esc", "closes")]:
        gap = "   " if rows[-1].width else ""
        if rows[-1].width + cells(f"{gap}{key} {words}") > width:
            rows.append(Line())
            gap = ""
        rows[-1].add(gap, style("text")).add(key, style("key")).add(f" {words}", style("muted" if key == "Esc" else "text"))
    return lines + [Line([(" " * max((width - row.width) // 2, 0), style("text"))]).extend(row) for row in rows]


def too_small_lines(palette: Palette, width: int, height: int, needed: tuple[int, int]) -> list[Line]:
    """One line in whatever room there is: the size it has and the size it needs."""
    text = f"{width}x{height}, needs {needed[0]}x{needed[1]}"
    long = f"the terminal is {width}x{height}; distmon needs {needed[0]}x{needed[1]}"
    shown = long if len(long) <= width else text
    lines = [Line()] * ((height - 1) // 2)
    return [*lines, Line([(fit(shown, width, "centre"), palette.style("warn"))])]
