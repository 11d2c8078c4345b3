"""The base of all widgets: a rectangle of lines that refreshes only the cells that changed."""

from __future__ import annotations

from rich.style import Style
from textual.app import RenderResult
from textual.geometry import Region, Size
from textual.reactive import Reactive
from textual.strip import Strip
from textual.widget import Widget

from distmon.tui.theme import Palette, palette_named
from distmon.tui.widgets.paint import changed_runs, painted, regions


class Canvas(Widget):
    """Draws whole lines with `draw`, keeps them, and on `redraw` marks as dirty only what differs.

    A terminal over ssh is paid by the byte: a refresh in which nothing changed writes nothing.
    """

    ALLOW_SELECT = False
    virtual_size = Reactive(Size(0, 0), repaint=False)
    """Nothing here scrolls: the framework would lay out and write once more what has another size."""
    DEFAULT_CSS = "Canvas { background: $background; height: 1fr; width: 1fr; }"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._drawn: list[Strip] = []
        self._drawn_as: tuple[int, int, str] = (0, 0, "")
        self._palette: Palette | None = None

    def draw(self, width: int, height: int) -> list[Strip]:
        """The widget's lines in this size; fewer than `height` are filled up with blanks."""
        raise NotImplementedError

    @property
    def palette(self) -> Palette:
        """Of the theme in which it is drawn; asked for a hundred times a frame."""
        return self._palette or palette_named(self.app.theme)

    @property
    def base(self) -> Style:
        return self.palette.style("text")

    def redraw(self) -> None:
        """Compose the lines again and show those cells that changed; a widget without a size waits for one."""
        width, height = self.size
        if not self.is_mounted or not width or not height or not self.display:
            self._drawn_as = (0, 0, "")
            return
        lines = self._compose_lines(width, height)
        key = (width, height, self.app.theme)
        if key != self._drawn_as:
            self._drawn, self._drawn_as = lines, key
            self.refresh()
            return
        changed = [
            (y, runs)
            for y, (old, new) in enumerate(zip(self._drawn, lines, strict=True))
            if old is not new and (runs := changed_runs(old, new))
        ]
        self._drawn = lines
        if changed and not painted(self, changed):
            self.refresh(*regions(changed))

    def _compose_lines(self, width: int, height: int) -> list[Strip]:
        self._palette = palette_named(self.app.theme)
        lines = self.draw(width, height)[:height]
        lines.extend(Strip.blank(width, self.base) for _ in range(height - len(lines)))
        return lines

    def render_lines(self, crop: Region) -> list[Strip]:
        """The lines as they were drawn last; there is nothing around them that the framework would have to add."""
        width, height = self.size
        key = (width, height, self.app.theme)
        if key != self._drawn_as:
            self._drawn, self._drawn_as = self._compose_lines(width, height), key
        lines = self._drawn[crop.y : crop.bottom]
        background = self.background_colors[1]
        for each in self.get_line_filters():
            lines = [line.apply_filter(each, background) for line in lines]
        lines.extend(Strip.blank(width, self.base) for _ in range(crop.height - len(lines)))
        return lines if crop.column_span == (0, width) else [line.crop(*crop.column_span) for line in lines]

    def render(self) -> RenderResult:
        return ""
