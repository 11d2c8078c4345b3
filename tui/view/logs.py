"""The event log and the ranks' output as numbered lines; filtered as they come, and turned into text only when in view."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice, takewhile
from typing import Any, Generic, TypeVar, overload

from distmon.core.state import LogEntry, OutputLine
from distmon.tui.format import clean, clock
from distmon.tui.view.words import SEVERITY
from distmon.tui.widgets.log_view import LogLine

E = TypeVar("E", bound=LogEntry | OutputLine)


class Feed(Generic[E]):
    """The entries of a bounded log that pass a filter, each with a number that only grows."""

    def __init__(self, write: Callable[[int, E], LogLine], limit: int) -> None:
        self._write = write
        self._kept: deque[tuple[int, E]] = deque(maxlen=limit)
        self._last: E | None = None
        self._next = 0
        self._filter: tuple[int | None, str] = (None, "")

    def set_filter(self, rank: int | None, text: str) -> None:
        """Keep lines of one rank (None: of all) that contain the text, whatever its case."""
        wanted = (rank, text.lower())
        if wanted != self._filter:
            self._filter = wanted
            self._last = None
            self._kept.clear()

    def update(self, log: deque[E]) -> Sequence[LogLine]:
        """Take what was added since the last call; a log that no longer holds the last line seen is read from its start."""
        last = self._last
        new = list(takewhile(lambda entry: entry is not last, reversed(log)))
        if len(new) == len(log):
            self._kept.clear()
        for entry in reversed(new):
            if self._passes(entry):
                self._kept.append((self._next, entry))
                self._next += 1
        self._last = log[-1] if log else None
        return Lines(self._kept, self._write)

    def _passes(self, entry: E) -> bool:
        rank, text = self._filter
        return (rank is None or entry.rank == rank) and (
            not text or text in entry.text.lower() or text in entry.host.lower()
        )


class Lines(Sequence[LogLine], Generic[E]):
    """A view of kept entries that writes only those asked for."""

    def __init__(self, kept: deque[tuple[int, E]], write: Callable[[int, E], LogLine]) -> None:
        self._kept, self._write = kept, write

    def __len__(self) -> int:
        return len(self._kept)

    @overload
    def __getitem__(self, index: int) -> LogLine: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[LogLine]: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            start, stop, _ = index.indices(len(self._kept))
            from_end = (
                [self._kept[i] for i in range(start, stop)]
                if stop - start < 200
                else list(islice(self._kept, start, stop))
            )
            return [self._write(number, entry) for number, entry in from_end]
        return self._write(*self._kept[index])


def event_line(number: int, entry: LogEntry) -> LogLine:
    glyph, role = SEVERITY[entry.severity]
    prefix = ((clock(entry.at) + " ", "muted"), (glyph + " ", role))
    times = f"  ×{entry.count:,}" if entry.count > 1 else ""
    return LogLine(number, prefix, clean(entry.text) + times, "text" if entry.severity == "info" else role)


def output_line(number: int, entry: OutputLine) -> LogLine:
    prefix = ((f"{entry.rank:>3} ", f"series{entry.rank % 6}"), ("! " if entry.output == "stderr" else "│ ", "muted"))
    return LogLine(number, prefix, clean(entry.text), "text")
