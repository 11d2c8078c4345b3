"""Every key of the app, once: the bindings, the footer, the help and the palette are made from this table."""

from __future__ import annotations

import re
from dataclasses import dataclass

from textual.binding import Binding

from distmon.tui.screens.registry import TABS


@dataclass(frozen=True)
class Command:
    """Something the user can do: its action, the keys that do it, and how it is called."""

    action: str
    keys: tuple[str, ...]
    label: str
    """For the footer and the palette."""
    help: str
    group: str
    where: str = "screen"
    """"app", "screen" (every screen), "bar" (the replay bar), or the name of the one screen that has it."""
    footer: int = 0
    """Place in the footer; 0 is not in the footer. The lowest stay when it is narrow."""


    @property
    def keys_while_typing(self) -> tuple[str, ...]:
        """Those of its keys that a field of text leaves alone."""
        return tuple(key for key in self.keys if key not in TYPED and (key.startswith("ctrl+") or _FUNCTION_KEY.fullmatch(key)))


TYPED = ("ctrl+c", "ctrl+z")
"""Copy and undo, in a field."""
_FUNCTION_KEY = re.compile(r"f\d+")
MAX_PANELS = 9
WHILE_HELPING = ("help", "back", "navigate", "leave", "next_theme", "suspend_process")
"""Actions that keep their meaning while the help is open."""

COMMANDS: tuple[Command, ...] = (
    Command(
        "leave", ("q", "ctrl+c", "ctrl+q"), "quit", "leave; asks first if a job started here would end", "App", "app", 1
    ),
    Command("help", ("question_mark", "f1"), "help", "show or close this help", "App", "app", 2),
    Command("command_palette", ("ctrl+p",), "palette", "find any command by its name or what it does", "App", "app", 7),
    Command("next_theme", ("t",), "theme", "next theme: dark, light, colour-blind safe, terminal", "App", "app", 8),
    Command("export", ("e",), "save view", "save the view: SVG, HTML, text, CSV or JSON", "App", "app"),
    Command("copy", ("y",), "copy", "copy the selected row, or the panel, to the clipboard", "App", "app"),
    Command("alert", ("a",), "last alert", "to the screen and the moment of the last alert", "App", "app"),
    Command("suspend_process", ("ctrl+z",), "suspend", "suspend to the shell; fg comes back", "App", "app"),
    Command("back", ("escape",), "back", "close what is open, or back to the screen before", "Find"),
    Command("search", ("slash",), "filter", "only rows of the focused panel with a text in them", "Find", footer=3),
    Command("next_sort", ("s",), "sort", "sort the focused table by its next column", "Find", footer=4),
    Command("reverse_sort", ("S",), "reverse", "reverse the order of the focused table", "Find"),
    Command("only_rank", ("r",), "rank's output", "only the output of the selected rank; again: all", "Find", "overview"),
    *(
        Command(f"go('{screen.name}')", screen.keys, screen.title, screen.help, "Screens", "app")
        for screen in TABS
    ),
    Command("go('against')", ("A",), "A/B", "this session beside a recording", "Screens", "app"),
    Command("go('launch')", ("J",), "Launch", "a new job: its fields, hosts and plan; start it", "Screens", "app"),
    Command("go('sessions')", ("o",), "Sessions", "recordings: open, report, compare, delete", "Screens", "app"),
    *(
        Command(f"panel({i})", (str(i),), f"panel {i}", f"to panel {i}; again: the whole screen", "Panels")
        for i in range(1, MAX_PANELS + 1)
    ),
    Command("next_panel", ("tab",), "next panel", "focus the next panel", "Panels"),
    Command("previous_panel", ("shift+tab",), "previous panel", "focus the previous panel", "Panels"),
    Command("zoom", ("z",), "zoom", "the whole screen for the focused panel, or back", "Panels", footer=5),
    Command(
        "details", ("enter",), "details", "all about the selected row, and why a value is missing", "Panels", footer=6
    ),
    Command("verdicts", ("v",), "why", "what holds the job back: evidence and what to try", "Panels", footer=4),
    Command("window", ("w",), "time window", "charts: whole session, or the last 1, 5, 15 minutes", "Panels"),
    Command("pan(-1)", ("less_than_sign",), "earlier", "charts: a quarter of the window earlier", "Panels"),
    Command("pan(1)", ("greater_than_sign",), "later", "charts: a quarter of the window later", "Panels"),
    Command("log_axis", ("l",), "log axis", "charts: a logarithmic value axis, or a plain one", "Panels"),
    Command("crosshair", ("x",), "crosshair", "a crosshair on all charts; left and right move it", "Panels"),
    Command("problems", ("p",), "problems only", "only rows that need a look; again: all", "Find"),
    Command("navigate('up')", ("up", "k"), "up", "one row up; a scroll up stops following", "Move"),
    Command("navigate('down')", ("down", "j"), "down", "one row down", "Move"),
    Command("navigate('page_up')", ("pageup",), "page up", "one page up", "Move"),
    Command("navigate('page_down')", ("pagedown",), "page down", "one page down", "Move"),
    Command("navigate('first')", ("g",), "first", "first row", "Move"),
    Command("navigate('last')", ("G", "f"), "last, follow", "last row; a log follows its end again", "Move"),
    *(
        Command("next_metric", ("d",), "measure", "the next measure in heat maps and charts", "Find", screen, 6)
        for screen in ("ranks", "nodes")
    ),
    *(
        Command(f"aside('{where}')", (where,), where, f"heat map and crosshair: to the {where}", "Move", screen)
        for screen in ("overview", "ranks", "nodes", "node", "events", "logs", "timeline", "against")
        for where in ("left", "right")
    ),
    Command("only_rank", ("r",), "rank's output", "only the rank of the line under the cursor; again: all", "Find", "logs", 4),
    *(
        Command("whole_line", ("i",), "whole line", "the line under the cursor in full; again: the chart", "Find", screen, 4)
        for screen in ("events", "logs")
    ),
    Command("find(-1)", ("left_parenthesis",), "earlier line", "the filter, in all that was recorded before", "Find", "logs"),
    Command("find(1)", ("right_parenthesis",), "later line", "the filter, in all that was recorded after", "Find", "logs"),
    Command("baseline", ("b",), "baseline", "compare with the selected run", "Find", "scaling", 4),
    Command("lock", ("c",), "lock", "A and B at the same step, time or epoch", "Find", "against", 4),
    Command("report", ("r",), "report", "the report of the selected recording", "Find", "sessions", 4),
    Command("base", ("b",), "base", "the selected recording is what others are compared with", "Find", "sessions", 5),
    Command("compare", ("c",), "compare", "the selected recording against the base", "Find", "sessions", 5),
    Command("beside", ("i",), "A/B", "the selected one beside the base, or beside this session", "Find", "sessions", 6),
    Command("delete", ("X", "delete"), "delete", "delete the selected recording; asks first", "Find", "sessions", 6),
    Command("start", ("f10",), "start", "start the job in place of what is on the screen", "Job", "launch", 2),
    Command("copy_line", ("ctrl+y",), "copy line", "copy the command line that does the same", "Job", "launch", 3),
    Command("check", ("ctrl+r",), "ask hosts", "ask the hosts of the plan again", "Job", "launch", 6),
    Command("save_preset", ("ctrl+s",), "save preset", "keep the fields in distmon.toml under a name", "Job", "launch", 7),
    Command("delete_preset", ("ctrl+l",), "delete preset", "delete the chosen preset; asks first", "Job", "launch"),
    Command("recall(1)", ("up",), "earlier", "in the command: an earlier one; else the plan scrolls", "Job", "launch"),
    Command("recall(-1)", ("down",), "later", "in the command: a later one; else the plan scrolls", "Job", "launch"),
    Command("collapse", ("c",), "same lines", "lines that several ranks wrote once, or each", "Find", "logs", 5),
    *(
        Command(f"act('{kind}')", (key,), label, help_text, "Job", "app")
        for kind, key, label, help_text in (
            ("stop", "K", "stop job", "end the job: politely, then at once; asks first"),
            ("restart", "B", "restart job", "end the job and begin it again; asks first"),
            ("signal", "I", "signal rank", "send one rank a signal, on whatever host; asks first"),
            ("add_host", "H", "add host", "let a host join the elastic job; asks first"),
            ("drain_host", "W", "drain host", "take a host out of the elastic job; asks first"),
        )
    ),
    Command("play_pause", ("space",), "play", "play or pause; a live session goes on unseen", "Play", "bar", 3),
    Command("faster", ("plus", "equals_sign"), "faster", "play faster", "Play", "bar", 12),
    Command("slower", ("minus",), "slower", "play slower", "Play", "bar", 13),
    Command("step(1)", ("full_stop",), "step", "pause, and on to the next moment with an event", "Play", "bar", 14),
    Command("step(-1)", ("comma",), "step back", "pause, and back to the moment before", "Play", "bar"),
    Command("skip(10)", ("right",), "+10 s", "ten seconds on", "Play", "bar", 15),
    Command("skip(-10)", ("left",), "-10 s", "ten seconds back", "Play", "bar"),
    Command("skip(60)", ("right_square_bracket",), "+1 min", "one minute on", "Play", "bar"),
    Command("skip(-60)", ("left_square_bracket",), "-1 min", "one minute back", "Play", "bar"),
    Command("next_event(1)", ("n",), "next", "to the next tick on the bar: failure, verdict, mark ...", "Play", "bar", 5),
    Command("next_event(-1)", ("N",), "last event", "back to the tick before", "Play", "bar"),
    Command("mark", ("m",), "mark", "name this moment; without a name the mark goes", "Play", "bar", 16),
    Command("go_to", ("colon",), "go to", "to a moment: 1:30, step:1234, mark:NAME, a date, end", "Play", "bar", 10),
    Command("by_step", ("u",), "by step", "so many steps a second, however long; again: by time", "Play", "bar"),
    Command("to_start", ("home",), "start", "to the start", "Play", "bar"),
    Command("to_end", ("end",), "end, live", "to the end, or back to what happens now", "Play", "bar", 11),
)

_NAMES = {
    "question_mark": "?", "slash": "/", "full_stop": ".", "comma": ",", "plus": "+", "minus": "-", "equals_sign": "=",
    "left_square_bracket": "[", "right_square_bracket": "]", "less_than_sign": "<", "colon": ":",
    "left_parenthesis": "(", "right_parenthesis": ")", "greater_than_sign": ">", "escape": "Esc", "enter": "Enter", "tab": "Tab",
    "shift+tab": "Shift+Tab", "pageup": "PgUp", "pagedown": "PgDn", "up": "↑", "down": "↓", "left": "←", "right": "→",
    "space": "Space", "home": "Home", "delete": "Del", "end": "End", "ctrl+c": "^C", "ctrl+p": "^P", "ctrl+q": "^Q",
    "ctrl+z": "^Z", "ctrl+y": "^Y", "ctrl+r": "^R", "ctrl+s": "^S", "ctrl+l": "^L",
}  # fmt: skip


def key_name(key: str) -> str:
    """A key as it is written on a keyboard."""
    return _NAMES.get(key) or (key.upper() if _FUNCTION_KEY.fullmatch(key) else key)


def bindings_for(where: str) -> list[Binding | tuple[str, str] | tuple[str, str, str]]:
    """Textual's bindings for one place."""
    return [
        Binding(",".join(c.keys), c.action, c.label, show=False, priority=False) for c in COMMANDS if c.where == where
    ]


def commands_for(*places: str) -> list[Command]:
    return [command for command in COMMANDS if command.where in places]
