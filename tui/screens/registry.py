"""Every screen of the cockpit, once: its name, its keys and where its page is. A page is imported when it is first shown."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distmon.tui.screens.page import Frame, Page


@dataclass(frozen=True)
class ScreenEntry:
    """A screen. The first key stands in the tabs; the second is for terminals that keep the function keys to themselves."""

    name: str
    title: str
    keys: tuple[str, ...]
    page: str
    """`module:class` of its page."""
    help: str


SCREENS: tuple[ScreenEntry, ...] = (
    ScreenEntry("overview", "Overview", ("f2", "O"), "distmon.tui.screens.overview:Overview", "the whole job at a glance"),
)


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
