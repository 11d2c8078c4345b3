"""Numbers and user-made text as the screens show them: fixed widths, one unit per quantity, nothing that a terminal could obey.

A value that could not be measured is None and is shown as MISSING; no function here turns None into 0.
"""

from __future__ import annotations

import time
from typing import Literal

from rich.cells import cell_len, set_cell_size

MISSING = "–"
ELLIPSIS = "…"


def fit(text: str, width: int, align: Literal["left", "right", "centre"] = "left") -> str:
    """The text in exactly `width` cells: padded, or cut with an ellipsis."""
    if width <= 0:
        return ""
    length = len(text) if text.isascii() else cell_len(text)
    if length > width:
        return set_cell_size(text, width - 1) + ELLIPSIS
    if align == "right":
        return " " * (width - length) + text
    if align == "centre":
        left = (width - length) // 2
        return " " * left + text + " " * (width - length - left)
    return text + " " * (width - length)


def fit_end(text: str, width: int) -> str:
    """As `fit`, but what is too long keeps its end: where many names begin alike, the end tells them apart."""
    surplus = cell_len(text) - width
    if surplus <= 0 or width <= 0:
        return fit(text, width)
    while cell_len(text) > width - 1:
        text = text[1:]
    return fit(ELLIPSIS + text, width)


def fit_ends(text: str, width: int) -> str:
    """As `fit`, but what is too long keeps its beginning and its end: a date, and what tells one name from the next."""
    if width < 5 or cell_len(text) <= width:
        return fit(text, width)
    first = width // 2
    return fit(set_cell_size(text, first) + fit_end(text, width - first), width)


def compact(value: float | None) -> str:
    """Three significant digits, at most five characters up to a billion: 0.042, 1.23, 12.3, 123, 1,234, 12.3k, 1.23M."""
    if value is None:
        return MISSING
    size = abs(value)
    if size < 0.9995:
        return "0" if size < 0.0005 else f"{value:.3f}".rstrip("0")
    if size < 9.995:
        return f"{value:.2f}"
    if size < 99.95:
        return f"{value:.1f}"
    if size < 9999.5:
        return f"{value:,.0f}"
    for limit, divisor, suffix in ((999.5e3, 1e3, "k"), (999.5e6, 1e6, "M"), (999.5e9, 1e9, "G")):
        if size < limit:
            return _three_digits(value / divisor) + suffix
    return f"{value:.2e}"


def _three_digits(value: float) -> str:
    size = abs(value)
    return f"{value:.2f}" if size < 9.995 else f"{value:.1f}" if size < 99.95 else f"{value:.0f}"


def milliseconds(seconds: float | None) -> str:
    """A step or phase time in ms, without its unit (the column names it): 0.85, 12.3, 1,234."""
    if seconds is None:
        return MISSING
    value = seconds * 1e3
    size = abs(value)
    if size < 0.005:
        return "0.00"
    if size < 9.995:
        return f"{value:.2f}"
    if size < 99.95:
        return f"{value:.1f}"
    return f"{value:,.0f}"


def duration(seconds: float | None) -> str:
    """A span of time for a header: 0:42, 12:03, 1:02:03, 3d 04:05."""
    if seconds is None:
        return MISSING
    total = int(max(seconds, 0.0))
    minutes, secs = divmod(total, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d {hours:02}:{minutes:02}"
    return f"{hours}:{minutes:02}:{secs:02}" if hours else f"{minutes}:{secs:02}"


def span(seconds: float | None) -> str:
    """A span of time in words for a sentence or a list: 850 µs, 12.3 ms, 4.2 s, 3 min 20 s."""
    if seconds is None:
        return MISSING
    size = abs(seconds)
    if size < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    if size < 1.0:
        return f"{milliseconds(seconds)} ms"
    if size < 100.0:
        return f"{seconds:.1f} s"
    if size < 3600.0:
        return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
    return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:.0f} min"


def age(seconds: float | None) -> str:
    """How old a reading is, in at most three characters: 0s, 42s, 7m, 3h, 9d."""
    if seconds is None:
        return MISSING
    total = max(seconds, 0.0)
    for limit, divisor, suffix in ((100, 1, "s"), (5940, 60, "m"), (86400, 3600, "h")):
        if total < limit:
            return f"{total // divisor:.0f}{suffix}"
    return f"{total // 86400:.0f}d"


def size(count: float | None) -> str:
    """Bytes in at most five characters, powers of 1024: 512B, 4.2K, 312M, 15.6G."""
    if count is None:
        return MISSING
    value = float(count)
    for suffix in "BKMGTP":
        if abs(value) < 999.5 or suffix == "P":
            digits = 0 if suffix == "B" or abs(value) >= 99.95 else 1
            return f"{value:.{digits}f}{suffix}"
        value /= 1024
    return MISSING


def percent(value: float | None, width: int = 4) -> str:
    """A percentage, right-aligned: ` 43%`."""
    return fit(MISSING if value is None else f"{value if abs(value) > 0.5 else 0.0:.0f}%", width, "right")


def watts(value: float | None) -> str:
    """Power: 4.2W, 43W, 1.2kW."""
    if value is None:
        return MISSING
    if value < 9.95:
        return f"{value:.1f}W"
    return f"{value:.0f}W" if value < 999.5 else f"{value / 1e3:.1f}kW"


def joules(value: float | None) -> str:
    """Energy: 850 J, 22.3 kJ, 1.2 MJ."""
    if value is None:
        return MISSING
    for limit, divisor, unit in ((999.5, 1, "J"), (999.5e3, 1e3, "kJ"), (999.5e6, 1e6, "MJ")):
        if value < limit:
            return f"{compact(value / divisor)} {unit}"
    return f"{compact(value / 1e9)} GJ"


def clock(wall_seconds: float | None) -> str:
    """A moment as local time of day, HH:MM:SS."""
    return "--:--:--" if wall_seconds is None else time.strftime("%H:%M:%S", time.localtime(wall_seconds))
