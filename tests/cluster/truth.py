"""What the harness did to its hosts, and when, by its own clock: what distmon's story is compared with."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Literal, NamedTuple

Deed = Literal["up", "join", "leave", "cut", "heal", "kill", "lose", "signal"]


class Entry(NamedTuple):
    """One deed. It was done between `began` and `at`, in seconds since the epoch (the machine's wall clock)."""

    deed: Deed
    host: str
    began: float
    at: float
    detail: str = ""


class TruthLog:
    """Kept in memory, and as JSON lines in a file for who looks later."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: list[Entry] = []

    def add(self, deed: Deed, host: str, began: float, detail: str = "") -> Entry:
        """Note a deed that began at `began` and has just been done."""
        entry = Entry(deed, host, began, time.time(), detail)
        self.entries.append(entry)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry._asdict()) + "\n")
        return entry

    def last(self, deed: Deed, host: str) -> Entry:
        """The latest entry of its kind. Raises LookupError when there is none."""
        for entry in reversed(self.entries):
            if (entry.deed, entry.host) == (deed, host):
                return entry
        raise LookupError(f"the harness has not done {deed!r} to {host}")
