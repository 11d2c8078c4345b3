"""Writes docs/shortcuts.md, every key by where it acts, from the app's own table of bindings: part of `make pictures`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from distmon.tui.bindings import Command, commands_for, key_name
from distmon.tui.screens.registry import SCREENS

PAGE = Path(__file__).parent / "shortcuts.md"
_HEAD = """# Every key

Made by `make pictures` from the one table that the bindings, the footer, `?` and the palette are made from (`tui/bindings.py`);
a test fails when this page is older. `?` shows those of the screen that you are on, and how filters are written.
"""


def page() -> str:
    """The whole page."""
    everywhere = commands_for("app", "screen")
    groups = dict.fromkeys(command.group for command in everywhere)
    parts = [_table(f"On every screen: {group.lower()}", [c for c in everywhere if c.group == group]) for group in groups]
    parts.append(_table("In a recording, and in a live session that is rewound", commands_for("bar")))
    parts += [_table(f"Only on {screen.title}", commands_for(screen.name)) for screen in SCREENS]
    return "\n".join([_HEAD, *filter(None, parts)])


def _table(title: str, commands: Sequence[Command]) -> str:
    """Empty where there are no commands. What differs only in a panel's number is one row."""
    keys = dict[str, list[str]]()
    for command in commands:
        keys.setdefault(re.sub(r"panel \d", "that panel", command.help), []).extend(command.keys)
    rows = [f"| {' '.join(f'`{key_name(key)}`' for key in those)} | {does} |\n" for does, those in keys.items()]
    return f"## {title}\n\n| key | what it does |\n| --- | --- |\n{''.join(rows)}" if rows else ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
