"""What `nvpmodel -q` prints: a Jetson's power mode."""

from __future__ import annotations

import re

_MODE = re.compile(r"^NV Power Mode:[ \t]*(\S.*?)[ \t]*$", re.M)


def power_mode(text: str) -> str | None:
    """The mode's name, such as MAXN or 15W; None where the text does not tell it."""
    found = _MODE.search(text)
    return found[1] if found else None
