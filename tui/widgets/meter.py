"""Bars and sparklines as pieces of a line: pure functions of numbers."""

from __future__ import annotations

from collections.abc import Sequence

from distmon.tui.format import MISSING
from distmon.tui.glyphs import SHADES, SPARKS
from distmon.tui.theme import Palette
from distmon.tui.widgets.line import Line


def load_role(percent: float) -> str:
    """The role of a load: calm, busy, or full."""
    return "bad" if percent >= 95 else "warn" if percent >= 80 else "good"


def spark(value: float | None, top: float) -> str:
    """One cell of a sparkline; a value that is missing is a dot, never an empty bar."""
    if value is None:
        return "·"
    level = 0 if top <= 0 else round(min(max(value / top, 0.0), 1.0) * (len(SPARKS) - 1))
    return SPARKS[max(level, 1)]


def sparkline(values: Sequence[float | None], width: int, top: float) -> str:
    """The newest `width` values, newest at the right; padded at the left."""
    recent = list(values[-width:]) if width > 0 else []
    return " " * (width - len(recent)) + "".join(spark(value, top) for value in recent)


def meter(palette: Palette, percent: float | None, width: int, role: str | None = None) -> Line:
    """A horizontal bar on a thin track, to half a cell; anything above zero shows."""
    if width <= 0:
        return Line()
    if percent is None:
        return Line([(MISSING.ljust(width, "┄")[:width], palette.style("muted"))])
    halves = round(min(max(percent, 0.0), 100.0) / 100 * width * 2)
    full, half = divmod(max(halves, 1) if percent > 0 else 0, 2)
    line = Line([("━" * full + "╸" * half, palette.style(role or load_role(percent)))])
    return line.pad(width, palette.style("track"), "─")


def cores(palette: Palette, percents: Sequence[float | None], width: int) -> Line:
    """One bar per core; more cores than cells are joined by their maximum, so that a full core stays visible."""
    line = Line()
    if not percents or width <= 0:
        return line
    values = percents if len(percents) <= width else [_greatest(group) for group in _groups(percents, width)]
    for value in values:
        line.add(spark(value, 100.0), palette.style("muted" if value is None else load_role(value)))
    return line


def _greatest(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _groups(values: Sequence[float | None], count: int) -> list[Sequence[float | None]]:
    return [values[i * len(values) // count : (i + 1) * len(values) // count] for i in range(count)]


def stacked(parts: Sequence[tuple[float, str]], width: int, palette: Palette) -> Line:
    """Parts (value, role) of one whole in `width` cells; every part that is not zero gets a cell where there is room."""
    line = Line()
    for index, (count, (_, role)) in enumerate(zip(shares([value for value, _ in parts], width), parts, strict=True)):
        line.add(SHADES[index % len(SHADES)] * count, palette.style(role))
    return line


def shares(values: Sequence[float], width: int) -> list[int]:
    """Whole cells for each value that add up to `width` (largest remainders), or to 0 when there is nothing to show."""
    total = sum(values)
    if total <= 0 or width <= 0:
        return [0] * len(values)
    exact = [value / total * width for value in values]
    counts = [int(cells) for cells in exact]
    by_remainder = sorted(range(len(values)), key=lambda i: counts[i] - exact[i])
    for i in by_remainder[: width - sum(counts)]:
        counts[i] += 1
    return _with_small_ones(counts, values)


def _with_small_ones(counts: list[int], values: Sequence[float]) -> list[int]:
    for i, value in enumerate(values):
        largest = max(range(len(counts)), key=counts.__getitem__)
        if value > 0 and counts[i] == 0 and counts[largest] > 1:
            counts[i], counts[largest] = 1, counts[largest] - 1
    return counts
