"""The surface of the cockpit and of each of its pages: places its children where a function of the size says."""

from __future__ import annotations

from collections.abc import Callable

from textual.geometry import NULL_OFFSET, NULL_SPACING, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.reactive import Reactive
from textual.widget import Widget

from distmon.tui.screens.arrange import Box

Planner = Callable[[int, int], dict[str, Box]]
OVERLAYS = ("help", "question")


class PlacesLayout(Layout):
    """A Textual layout from a function of the size."""

    name = "places"

    def __init__(self, plan: Planner) -> None:
        self._plan = plan

    def arrange(self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True) -> ArrangeResult:
        places = self._plan(size.width, size.height)
        return [
            WidgetPlacement(
                Region(*places[child.id]), NULL_OFFSET, NULL_SPACING, child, 1 if child.id in OVERLAYS else 0
            )
            for child in children
            if child.id in places
        ]


class Board(Widget):
    """Holds parts; its layout is the planner's."""

    virtual_size = Reactive(Size(0, 0), repaint=False)
    """Nothing here scrolls: the framework would lay out and write once more what has another size."""
    DEFAULT_CSS = "Board { width: 1fr; height: 1fr; background: $background; }"

    def __init__(self, plan: Planner, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._places = PlacesLayout(plan)

    @property
    def layout(self) -> Layout:
        return self._places
