"""How every benchmark prints a figure: one JSON line on standard output."""

from __future__ import annotations

import json
import os
import sys

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what starts here would compile its own source each time, as no user's does


def figure(
    name: str, value: float | None, unit: str, how: str, *, peer: str | None = None, peer_value: float | None = None
) -> None:
    """Prints one figure; `ratio` is the value over the peer's, both measured in this run."""
    ratio = value / peer_value if value is not None and peer_value else None
    line = {"name": name, "value": _short(value), "unit": unit, "how": how, "peer": peer}
    line |= {"peer_value": _short(peer_value), "ratio": _short(ratio)}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
