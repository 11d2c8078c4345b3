"""The app's own themes, and the palette of roles that widgets draw with.

A role says what a colour means; a theme says what it looks like. Every text role and every level of heat has a contrast of at
least 4.5:1 on the theme's background and on its selection, also in the nearest of 256 colours (tests/tui/test_theme.py); every
state has a glyph of its own, too.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property, lru_cache

from rich.style import Style
from textual.theme import Theme

HEAT_LEVELS = 8
"""Levels of a heat map, coldest first: the roles cool0 to cool7 and hot0 to hot7."""
PHASE_ROLES = ("input_wait", "compute", "exposed_communication", "optimizer", "rest")


@dataclass(frozen=True)
class Palette:
    """Colours by role, each as a name that Rich understands (`#rrggbb`, or an ANSI name)."""

    name: str
    dark: bool
    background: str
    raised: str
    """Background of dialogs and of the header."""
    text: str
    muted: str
    border: str
    """Frames; not text, so it may be fainter."""
    focus: str
    """Frame of the panel that has the keys."""
    accent: str
    good: str
    warn: str
    bad: str
    selected: str
    """Background of the selected row."""
    track: str
    """Empty part of a bar."""
    input_wait: str
    compute: str
    exposed_communication: str
    optimizer: str
    rest: str
    series: tuple[str, ...]
    """Lines of a chart, in order."""
    ansi: bool = False
    """The terminal's own sixteen colours, for terminals that have no more and for NO_COLOR."""

    @cached_property
    def styles(self) -> dict[str, Style]:
        """One prebuilt style per role, plus `title`, `key` and `reverse`."""
        roles = {f.name: getattr(self, f.name) for f in fields(self) if isinstance(getattr(self, f.name), str)}
        ground = None if self.ansi else self.background
        styles = {role: Style(color=colour, bgcolor=ground) for role, colour in roles.items() if role != "name"}
        if self.ansi:
            styles["muted"] = Style(dim=True)
            styles["text"] = Style()
        styles["title"] = styles["text"] + Style(bold=True)
        styles["key"] = styles["accent"] + Style(bold=True)
        for number, colour in enumerate(self.series):
            styles[f"series{number}"] = Style(color=colour, bgcolor=ground)
            faint = colour if self.ansi else mixed(colour, self.background, 0.62)
            styles[f"series{number}_area"] = Style(color=faint, bgcolor=ground, dim=self.ansi or None)
        for level in range(HEAT_LEVELS):
            styles[f"cool{level}"] = Style(color=_heat(self, ("muted", "accent", "series4"), level), bgcolor=ground)
            styles[f"hot{level}"] = Style(color=_heat(self, ("muted", "warn", "bad"), level), bgcolor=ground)
        return styles

    def style(self, role: str, *, bold: bool = False, selected: bool = False) -> Style:
        """The style of a role, from a cache, so that equal cells hold the very same object."""
        key = role, bold, selected
        style = self._made.get(key)
        if style is None:
            style = self.styles[role] + Style(bold=True) if bold else self.styles[role]
            style = self._made[key] = self.marked(style) if selected else style
        return style

    @cached_property
    def _made(self) -> dict[tuple[str, bool, bool], Style]:
        return {}

    def marked(self, style: Style) -> Style:
        """A style as it is on a selected row."""
        return _marked(self, style)

    def __hash__(self) -> int:
        return hash(self.name)


@lru_cache(2048)
def _marked(palette: Palette, style: Style) -> Style:
    return style + (Style(reverse=True) if palette.ansi else Style(bgcolor=palette.selected))


def _heat(palette: Palette, stops: tuple[str, str, str], level: int) -> str:
    """A colour on the way through three roles; the terminal's own colours do not mix."""
    names = [palette.series[4] if stop == "series4" else getattr(palette, stop) for stop in stops]
    place = level / (HEAT_LEVELS - 1) * 2
    if palette.ansi:
        return str(names[round(place)])
    return mixed(names[0], names[1], place) if place <= 1 else mixed(names[1], names[2], place - 1)


def mixed(colour: str, other: str, share: float) -> str:
    """`share` of the second colour in the first; both `#rrggbb`."""
    pairs = [(int(colour[i : i + 2], 16), int(other[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


DARK = Palette(
    name="distmon-dark", dark=True, background="#0e1116", raised="#171c24", text="#d7dde6", muted="#939eac", border="#323b48",
    focus="#5aa9f7", accent="#5aa9f7", good="#5fd38a", warn="#f0b75a", bad="#ff7b72", selected="#1b2d47", track="#2a323e",
    input_wait="#f0b75a", compute="#5aa9f7", exposed_communication="#d78cf0", optimizer="#5fd3bf", rest="#939eac",
    series=("#5aa9f7", "#5fd38a", "#f0b75a", "#d78cf0", "#5fd3bf", "#ff7b72"),
)  # fmt: skip
LIGHT = Palette(
    name="distmon-light", dark=False, background="#fbfbfa", raised="#eceef1", text="#1c2530", muted="#57616e", border="#c3cad3",
    focus="#0b5cad", accent="#0b5cad", good="#14703a", warn="#855400", bad="#b3161e", selected="#d3ecf8", track="#dde2e8",
    input_wait="#855400", compute="#0b5cad", exposed_communication="#862e9f", optimizer="#0d6b61", rest="#57616e",
    series=("#0b5cad", "#14703a", "#855400", "#862e9f", "#0d6b61", "#b3161e"),
)  # fmt: skip
# Okabe and Ito's hues, lightened where the contrast asks for it: told apart with every common colour blindness.
SAFE = Palette(
    name="distmon-safe", dark=True, background="#000000", raised="#141414", text="#ffffff", muted="#b4b4b4", border="#5c5c5c",
    focus="#56b4e9", accent="#56b4e9", good="#56b4e9", warn="#f0e442", bad="#ff8f3f", selected="#1e2e52", track="#333333",
    input_wait="#f0e442", compute="#56b4e9", exposed_communication="#e69ac4", optimizer="#2fc79a", rest="#b4b4b4",
    series=("#56b4e9", "#f0e442", "#e69ac4", "#ff8f3f", "#2fc79a", "#ffffff"),
)  # fmt: skip
SAFE_LIGHT = Palette(
    name="distmon-safe-light", dark=False, background="#ffffff", raised="#efefef", text="#000000", muted="#4d4d4d",
    border="#9a9a9a", focus="#005a8c", accent="#005a8c", good="#005a8c", warn="#735c00", bad="#992e00", selected="#cfecf8",
    track="#d8d8d8", input_wait="#735c00", compute="#005a8c", exposed_communication="#8f2e6b", optimizer="#00664a",
    rest="#4d4d4d", series=("#005a8c", "#735c00", "#8f2e6b", "#992e00", "#00664a", "#000000"),
)  # fmt: skip
ANSI = Palette(
    name="distmon-ansi", dark=True, background="default", raised="default", text="default", muted="default",
    border="bright_black", focus="bright_blue", accent="bright_cyan", good="green", warn="yellow", bad="bright_red",
    selected="default", track="bright_black", input_wait="yellow", compute="bright_blue",
    exposed_communication="bright_magenta", optimizer="bright_cyan", rest="default",
    series=("bright_blue", "green", "yellow", "bright_magenta", "bright_cyan", "bright_red"), ansi=True,
)  # fmt: skip

PALETTES = {palette.name: palette for palette in (DARK, LIGHT, SAFE, SAFE_LIGHT, ANSI)}


def palette_named(theme: str) -> Palette:
    """The palette of a theme; a theme that is not ours is drawn with the dark one."""
    return PALETTES.get(theme, DARK)


_ANSI_VARIABLES = {
    "ansi-background": "ansi_black",
    "ansi-foreground": "ansi_white",
    "border-blurred": "ansi_black",
    "block-cursor-foreground": "ansi_black",
    "block-cursor-background": "ansi_white",
    "input-cursor-background": "ansi_black",
    "input-cursor-foreground": "ansi_bright_white",
    "input-cursor-text-style": "reverse",
    "input-selection-background": "ansi_bright_blue",
    "input-selection-foreground": "ansi_black",
}
"""What the framework's own widgets ask of a theme of sixteen colours."""


def textual_theme(palette: Palette) -> Theme:
    """The palette as a Textual theme, for the framework's own widgets (palette, scroll bars, inputs)."""
    if palette.ansi:
        return Theme(
            name=palette.name, primary="ansi_blue", accent="ansi_cyan", success="ansi_green", warning="ansi_yellow",
            error="ansi_red", foreground="ansi_default", background="ansi_default", surface="ansi_default",
            panel="ansi_default", boost="ansi_default", ansi=True, variables=_ANSI_VARIABLES,
        )  # fmt: skip
    return Theme(
        name=palette.name, primary=palette.accent, secondary=palette.muted, accent=palette.accent, success=palette.good,
        warning=palette.warn, error=palette.bad, foreground=palette.text, background=palette.background,
        surface=palette.raised, panel=palette.raised, dark=palette.dark,
    )  # fmt: skip
