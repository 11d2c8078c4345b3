"""Numbers as a reader wants them. A value that was not measured is a dash."""

from __future__ import annotations

DASH = "–"


def number(value: float | None, digits: int = 4) -> str:
    """A number to so many significant digits, with thousands set apart."""
    if value is None:
        return DASH
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    text = f"{value:,.{digits}g}"
    return f"{value:.{digits}f}".rstrip("0").rstrip(".") if "e" in text else text


def seconds(value: float | None) -> str:
    """A time in the unit that suits it."""
    if value is None:
        return DASH
    size = abs(value)
    if size >= 3600:
        hours, rest = divmod(round(value), 3600)
        return f"{hours} h {rest // 60:02d} min"
    if size >= 100:
        return f"{value:.0f} s"
    if size >= 1:
        return f"{value:.2f} s"
    return f"{value * 1e3:.2f} ms" if size >= 0.0001 or size == 0 else f"{value * 1e6:.1f} µs"


def share(part: float | None, whole: float | None) -> str:
    """A part in percent of a whole."""
    return DASH if part is None or not whole else f"{100 * part / whole:.1f} %"


def count(amount: int, one: str, many: str = "") -> str:
    """3 ranks, 1 rank."""
    return f"{amount:,} {one if amount == 1 else many or one + 's'}"


def unit(value: float | None, name: str, digits: int = 4) -> str:
    return DASH if value is None else f"{number(value, digits)} {name}"
