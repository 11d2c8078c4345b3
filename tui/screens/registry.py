"""Every screen of the cockpit, once: its name, its keys and where its page is. A page is imported when it is first shown."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distmon.tui.screens.page import Frame, Page


@dataclass(frozen=True)
class ScreenEntry:
    """A screen. The first key stands in the tabs; the second is for terminals that keep the function keys to themselves.

    One without keys is reached only from another screen.
    """

    name: str
    title: str
    keys: tuple[str, ...]
    page: str
    """`module:class` of its page."""
    help: str


SCREENS: tuple[ScreenEntry, ...] = (
    ScreenEntry("overview", "Overview", ("f2", "O"), "distmon.tui.screens.overview:Overview", "the whole job at a glance"),
    ScreenEntry("nodes", "Nodes", ("f3", "D"), "distmon.tui.screens.nodes:Nodes", "every node and every GPU at once"),
    ScreenEntry("node", "Node", (), "distmon.tui.screens.node:NodeDetail", "one node in full"),
    ScreenEntry("ranks", "Ranks", ("f4", "R"), "distmon.tui.screens.ranks:Ranks", "every rank: who differs, and since when"),
    ScreenEntry(
        "scaling", "Scaling", ("f5", "U"), "distmon.tui.screens.scaling:ScalingPage", "speedup and efficiency against a baseline"
    ),
    ScreenEntry(
        "timeline", "Timeline", ("f6", "T"), "distmon.tui.screens.timeline:Timeline", "workers, rounds and time lost to changes"
    ),
    ScreenEntry("events", "Events", ("f7", "E"), "distmon.tui.screens.logs:Events", "what happened, line by line"),
    ScreenEntry("logs", "Logs", ("f8", "L"), "distmon.tui.screens.logs:Logs", "the output of all ranks in one log"),
    ScreenEntry(
        "verdicts", "Verdicts", ("f9", "V"), "distmon.tui.screens.verdicts:Verdicts", "what holds the job back, and what to try"
    ),
    ScreenEntry("launch", "Launch", (), "distmon.tui.screens.launch:Launch", "a new job, before it is started"),
    ScreenEntry("against", "A/B", (), "distmon.tui.screens.against:AgainstPage", "this session beside a recording"),
    ScreenEntry("sessions", "Sessions", (), "distmon.tui.screens.sessions:Sessions", "the recordings that there are"),
)


TABS = tuple(screen for screen in SCREENS if screen.keys)


def entry(name: str) -> ScreenEntry:
    """The screen of this name. Raises KeyError where there is none."""
    for screen in SCREENS:
        if screen.name == name:
            return screen
    raise KeyError(name)


def make_page(name: str, frame: Frame) -> Page:
    """The page of a screen, for this frame."""
    module, _, kind = entry(name).page.partition(":")
    page: Page = getattr(import_module(module), kind)(frame, name)
    return page
