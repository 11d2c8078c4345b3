"""Heat: a value as one of eight levels, each with a glyph as high as its colour is strong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from distmon.tui.glyphs import SPARKS
from distmon.tui.theme import HEAT_LEVELS, Palette
from distmon.tui.widgets.line import Line

UNKNOWN = "·"


@dataclass(frozen=True)
class Scale:
    """Values from `low` (cold) to `high` (hot), and how they are written. `ramp` is `cool` for amounts and `hot` for troubles."""

    low: float
    high: float
    words: Callable[[float | None], str]
    unit: str
    ramp: str = "cool"
    lowest: bool = False
    """Whether the lowest of several values is the one to show for all of them: an idle GPU among busy ones."""

    def of(self, values: Sequence[float]) -> float:
        """The one value that stands for several."""
        return min(values) if self.lowest else max(values)

    def level(self, value: float) -> int:
        """0 to HEAT_LEVELS - 1."""
        if self.high <= self.low:
            return 0
        return min(max(int((value - self.low) / (self.high - self.low) * HEAT_LEVELS), 0), HEAT_LEVELS - 1)

    def legend(self, palette: Palette) -> Line:
        """The levels, with the values of the ends."""
        line = Line([(f"{self.words(self.low)} ", palette.style("muted"))])
        for level in range(HEAT_LEVELS):
            line.add(SPARKS[level + 1], palette.style(f"{self.ramp}{level}"))
        return line.add(f" {self.words(self.high)} {self.unit}", palette.style("muted"))


def steady_scale(values: list[float], words: Callable[[float | None], str], unit: str, ramp: str = "cool") -> Scale:
    """A scale over these values, with round ends, so that colours hold from frame to frame: 1, 2, 5 times a power of ten."""
    high = max(values, default=0.0)
    if high <= 0:
        return Scale(0.0, 1.0, words, unit, ramp)
    step = 1.0
    while step > high:
        step /= 10
    while step * 10 <= high:
        step *= 10
    top = next(step * factor for factor in (1, 2, 5, 10) if step * factor >= high)
    return Scale(0.0, top, words, unit, ramp)
