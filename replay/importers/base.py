"""What every importer is given and gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from distmon.core.events import AnyEvent

NUMBERS_NAMED = 20


@dataclass(slots=True, frozen=True, kw_only=True)
class ImportOptions:
    """What the file itself may not say. Times are seconds since the epoch."""

    session_id: str
    distmon_version: str
    host: str
    start: float | None = None
    """When the first reading was taken; moves the file's own clock where there is one."""
    interval_s: float | None = None


@dataclass(slots=True)
class ImportNotes:
    """What could not be read: each kind of fault once, with the numbers of its lines, counted from 1."""

    faults: dict[str, list[int]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    """What to know about the result."""

    def fault(self, what: str, line: int) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1
        numbers = self.faults.setdefault(what, [])
        if len(numbers) < NUMBERS_NAMED:
            numbers.append(line)

    def sentences(self) -> list[str]:
        """One line for each thing to say; empty when the file was read in full."""
        return [_sentence(what, numbers, self.counts[what]) for what, numbers in self.faults.items()] + self.remarks


def _sentence(what: str, numbers: list[int], count: int) -> str:
    shown = ", ".join(map(str, numbers)) + (f" and {count - len(numbers)} more" if count > len(numbers) else "")
    return f"{what}: {'line' if count == 1 else f'{count} lines:'} {shown}"


Importer = Callable[[Path, ImportOptions, ImportNotes], Iterator[AnyEvent]]
"""Yields the session's events in order, its SessionStarted first, and fills the notes on the way.

Raises DistmonError when the file cannot be read or holds nothing of its kind.
"""
