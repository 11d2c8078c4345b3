"""Metrics that a script prints with the number of its epoch: `epoch 3/10: loss 0.41, accuracy 0.87`."""

from __future__ import annotations

import re
from collections.abc import Iterable

MOST_EPOCHS = 10_000
MOST_NAMES = 16
_EPOCH = re.compile(r"\bepoch\b[^\w-]{0,3}(\d{1,7})\b(?:\s*/\s*\d+)?", re.IGNORECASE)
_VALUE = re.compile(r"\b([A-Za-z][A-Za-z_@-]*\d{0,2})\s*[:=]?\s*(-?\d+\.\d+(?:[eE][+-]?\d+)?)\b")


def read_printed(line: str) -> tuple[int, dict[str, float]] | None:
    """(epoch as printed, metric -> value), or None for a line that tells no epoch or no decimal number by name."""
    found = _EPOCH.search(line)
    if found is None:
        return None
    rest = line[: found.start()] + " " + line[found.end() :]
    values = {name.lower(): float(value) for name, value in _VALUE.findall(rest)[:MOST_NAMES]}
    return (int(found[1]), values) if values else None


def add_printed(printed: dict[int, dict[str, float]], lines: Iterable[str]) -> None:
    """What the lines of the lowest rank tell; a later line of an epoch adds to an earlier one."""
    for line in lines:
        if "poch" in line and len(line) < 1000 and (found := read_printed(line)) is not None:
            epoch, values = found
            if epoch in printed or len(printed) < MOST_EPOCHS:
                printed.setdefault(epoch, {}).update(values)
