"""The event log and the ranks' output as numbered lines; filtered as they come, and turned into text only when in view."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import merge
from itertools import islice, takewhile
from typing import Any, Generic, TypeVar, overload

from distmon.core.printable import clean
from distmon.core.state import REPEATED_WITHIN_LINES, LogEntry, OutputLine, SessionState, Severity
from distmon.tui.format import clock, fit_end
from distmon.tui.theme import Palette
from distmon.tui.view.filters import Filter, read_filter
from distmon.tui.view.words import SEVERITY
from distmon.tui.view.wrap import wrapped
from distmon.tui.widgets.line import Line
from distmon.tui.widgets.log_view import LogLine

E = TypeVar("E", bound=LogEntry | OutputLine)

EVENT_FIELDS = ("rank", "host", "at", "severity")
OUTPUT_FIELDS = (*EVENT_FIELDS, "out")
"""What a filter can ask of an event, and of a line of output; `at` is the time of day, `out` is stdout or stderr."""
TIME = "time"
EVENT_NAMES = ("at_s", "severity", "rank", "host", "times", "text")
OUTPUT_NAMES = ("at_s", "ranks", "hosts", "stream", "severity", "text")
"""Of the values of a line in a file."""
LOG_SORTS = (TIME, "severity", "rank", "host")
_SEVERITIES = {"info": 0, "warning": 1, "error": 2}
_ERROR = re.compile(r"\b(?:ERROR|FATAL|CRITICAL)\b|^Traceback \(most recent|^[\w.]*(?:Error|Exception)(?::|$)")
_WARNING = re.compile(r"\bWARN(?:ING)?\b|Warning:")
"""What loggers and Python itself write into such lines."""
_PARTS = ("ERROR", "Error", "WARN", "Warning", "Traceback", "Exception", "FATAL", "CRITICAL")
"""Without any of these a line is neither, which is soon seen."""
SAME_WITHIN_S = 2.0
"""The same text of another rank so soon after is the same line."""
_REMEMBERED = 4_000


@dataclass(slots=True)
class Kept(Generic[E]):
    """An entry that passed the filter, and the ranks that wrote the same, each with its host."""

    number: int
    entry: E
    ranks: dict[int | None, str] = field(default_factory=dict)

    @property
    def hosts(self) -> list[str]:
        return list(dict.fromkeys(self.ranks.values()))


class Feed(Generic[E]):
    """The entries of a bounded log that pass a filter, each with a number that only grows.

    A filter can ask for `fields`. With `collapse`, a line that several ranks wrote is kept once.
    """

    def __init__(
        self,
        write: Callable[[Kept[E]], LogLine],
        limit: int,
        fields: tuple[str, ...] = OUTPUT_FIELDS,
        *,
        collapse: bool = False,
    ) -> None:
        self._write = write
        self._fields = fields
        self._collapse = collapse
        self._kept: deque[Kept[E]] = deque(maxlen=limit)
        self._same: dict[str, Kept[E]] = {}
        self._log: deque[E] | None = None
        self._last: E | None = None
        self._next = 0
        self.begun = object()
        """Stands for all that was taken since the whole log was read."""
        self.since: tuple[float, int] = (0.0, 0)
        """The moment of the first entry of the log when it was read, and how many that pass were of that very moment."""
        self._series = object()
        """Stands for the lines of one log that passed one filter."""
        self._order: object = None
        """By what lines were sorted last, with the object that stands for them, and the lines as they were then."""
        self._order_series = object()
        self._sorted: tuple[tuple[int, int], list[Kept[E]]] | None = None
        self._placed: tuple[tuple[int, int, int, list[float]], list[Kept[E]]] | None = None
        """What lines were put in order of time last, by numbers and by when the last of them came, and the lines then."""
        self._read: list[Kept[E]] = []
        """All that was kept when a line that a reader has in view was about to be dropped; not added to, and so bounded."""
        self._filter: tuple[int | None, Filter, bool] = (None, Filter(""), False)
        self._judges = False
        """Whether the filter asks for the severity."""

    def set_filter(self, rank: int | None, text: str, *, problems: bool = False) -> str:
        """Keep lines of one rank (None: of all) that pass the filter, with `problems` only warnings and errors.

        Gives what is wrong with the filter, or how it was understood; empty where it is as it was meant.
        """
        wanted = (rank, read_filter(text, self._fields), problems)
        if wanted != self._filter:
            self._filter, self._judges = wanted, "severity" in text.lower()
            self.forget()
        return wanted[1].error or wanted[1].note

    def set_collapse(self, collapse: bool) -> None:
        if collapse != self._collapse:
            self._collapse = collapse
            self.forget()

    def forget(self) -> None:
        """Read the whole log again at the next update."""
        self._last, self._series, self.begun = None, object(), object()
        self._kept.clear()
        self._same.clear()
        self._read = []

    def update(self, log: deque[E], reads_from: int | None = None) -> Lines[E]:
        """Take what was added since the last call; a log that no longer holds the last line seen is read from its start.

        `reads_from` is the number of the first line that a reader has in view, which stays; None where it follows the end.
        """
        if log is not self._log:
            self.forget()
            self._log = log
        before = list(self._kept) if reads_from is not None else []
        self._take(log)
        kept_from = self._kept[0].number if self._kept else self._next
        if reads_from is None or reads_from >= kept_from:
            self._read = []
        elif not self._read or reads_from > self._read[-1].number:
            self._read = before
        return Lines(self._by_time(self._shown), self._write, self._series, self._next - 1)

    def _by_time(self, kept: Sequence[Kept[E]]) -> Sequence[Kept[E]]:
        """What came again and again stands where it came last; it was added when it came first."""
        if not kept or isinstance(kept[0].entry, OutputLine):
            return kept
        last = [one.entry.at for one in islice(reversed(kept), REPEATED_WITHIN_LINES)]  # no other is counted any more
        made_of = self._next, kept[0].number, len(kept), last
        if self._placed is None or self._placed[0] != made_of:
            again = sorted((one for one in kept if _is_again(one.entry)), key=_last_at)
            once = (one for one in kept if not _is_again(one.entry))
            self._placed = made_of, list(merge(once, again, key=_last_at)) if again else list(kept)
        return self._placed[1]

    def in_order(self, lines: Lines[E], column: str, *, descending: bool) -> Lines[E]:
        """The same lines by when they were written, or by one of their fields; those of one value stay in order of time."""
        if column == TIME and not descending:
            return lines
        order, made_of = (lines.series, column, descending), (self._next, len(lines))
        if self._order != order:
            self._order, self._order_series, self._sorted = order, object(), None
        if self._sorted is None or self._sorted[0] != made_of:
            kept = list(lines.kept)
            if column == TIME:
                kept.reverse()
            else:
                kept.sort(key=lambda one: _field(one.entry, column), reverse=descending)
            self._sorted = made_of, kept
        return Lines(self._sorted[1], self._write, self._order_series, lines.newest, in_time=False)

    @property
    def _shown(self) -> Sequence[Kept[E]]:
        """What is kept; with what a reader has in view before it, or only that where lines between them are gone."""
        if not self._read:
            return self._kept
        if not self._kept or self._kept[0].number > self._read[-1].number + 1:
            return self._read
        return [*(kept for kept in self._read if kept.number < self._kept[0].number), *self._kept]

    def _take(self, log: deque[E]) -> None:
        last = self._last
        new = list(takewhile(lambda entry: entry is not last, reversed(log)))
        if len(new) == len(log):
            if last is not None:
                self.begun = object()
            if log:
                first = log[0].at
                self.since = first, sum(self.passes(entry) for entry in takewhile(lambda entry: entry.at == first, log))
            self._kept.clear()
            self._same.clear()
        for entry in reversed(new):
            if self.passes(entry) and not (self._collapse and self._is_same(entry)):
                self._keep(entry)
        self._last = log[-1] if log else None

    def take_older(self, entries: Iterable[E]) -> None:
        """Entries that passed the filter, in order, from before all that is kept: as many of the latest as there is room for."""
        older = Feed(self._write, (self._kept.maxlen or 0) - len(self._kept), self._fields, collapse=self._collapse)
        for entry in entries:
            if not (older._collapse and older._is_same(entry)):
                older._keep(entry)
        first = self._kept[0].number if self._kept else self._next
        for number, kept in enumerate(reversed(older._kept), 1):
            kept.number = first - number
            self._kept.appendleft(kept)

    @property
    def is_full(self) -> bool:
        """Whether there is no room for older ones."""
        return len(self._kept) == self._kept.maxlen

    @property
    def oldest(self) -> E | None:
        return self._kept[0].entry if self._kept else None

    @property
    def is_filtered(self) -> bool:
        """Whether there is anything that an entry must pass."""
        rank, wanted, problems = self._filter
        return rank is not None or bool(wanted) or problems

    def passed(self, total: int) -> list[str]:
        """How many of `total` entries pass; nothing without a filter, or where some are no longer here to be counted."""
        if not self.is_filtered or self._filter[1].error or self._log is None or len(self._log) < total:
            return []
        return [f"{sum(len(kept.ranks) for kept in self._shown):,} of {total:,}"]

    def entry(self, number: int) -> E | None:
        """The entry of a line's number, while it is kept."""
        kept = self.kept(number)
        return None if kept is None else kept.entry

    def kept(self, number: int) -> Kept[E] | None:
        """The same with all that wrote it."""
        shown = self._shown
        if not shown or not 0 <= (index := number - shown[0].number) < len(shown):
            return None
        return shown[index]

    def _keep(self, entry: E) -> None:
        kept = Kept(self._next, entry, {entry.rank: entry.host})
        self._next += 1
        self._kept.append(kept)
        if self._collapse:
            if len(self._same) > _REMEMBERED:
                self._same.clear()
            self._same[entry.text] = kept

    def _is_same(self, entry: E) -> bool:
        kept = self._same.get(entry.text)
        if kept is None or entry.rank in kept.ranks or entry.at - kept.entry.at > SAME_WITHIN_S:
            return False
        kept.ranks[entry.rank] = entry.host
        return True

    def passes(self, entry: LogEntry | OutputLine) -> bool:
        """Whether it passes the filter as it is now."""
        rank, wanted, problems = self._filter
        if rank is not None and entry.rank != rank:
            return False
        if problems and severity_of(entry) == "info":
            return False
        return not wanted or wanted.passes(_fields(entry, judged=self._judges), entry.text)


def events_total(state: SessionState) -> int:
    """Of the event log; more than there are where it is full, for what was dropped is not counted."""
    return len(state.log) + (len(state.log) == state.log.maxlen)


def _is_again(entry: LogEntry | OutputLine) -> bool:
    return isinstance(entry, LogEntry) and entry.count > 1


def _last_at(kept: Kept[Any]) -> float:
    at: float = kept.entry.at
    return at


def _field(entry: LogEntry | OutputLine, column: str) -> tuple[bool, float, str]:
    """To sort by: numbers before texts, and what has no value last."""
    value = _SEVERITIES[severity_of(entry)] if column == "severity" else _fields(entry).get(column)
    return (False, float(value), "") if isinstance(value, int | float) else (True, 0.0, str(value or "~"))


def severity_of(entry: LogEntry | OutputLine) -> Severity:
    """An event has its own; a line of output what it says itself, and on stderr it is a warning at least."""
    if isinstance(entry, LogEntry):
        return entry.severity
    text = entry.text
    least: Severity = "warning" if entry.output == "stderr" else "info"
    for part in _PARTS:
        if part in text:
            return "error" if _ERROR.search(text) else "warning" if _WARNING.search(text) else least
    return least


def _fields(entry: LogEntry | OutputLine, *, judged: bool = False) -> dict[str, float | int | str | None]:
    """Of a line of output the severity is looked for only where it is asked for."""
    if isinstance(entry, LogEntry):
        return {"rank": entry.rank, "host": entry.host, "at": clock(entry.at), "severity": entry.severity}
    fields = _output_fields(entry.rank, entry.host, entry.at, entry.output)
    return {**fields, "severity": severity_of(entry)} if judged else fields


@lru_cache(64)
def _output_fields(rank: int, host: str, at: float, output: str) -> dict[str, float | int | str | None]:
    """Lines come by the hundred at once, with the same fields; not to be changed."""
    return {"rank": rank, "host": host, "at": clock(at), "out": output}


class Lines(Sequence[LogLine], Generic[E]):
    """A view of kept entries that writes only those asked for. `newest` is the number of the last line that there is.

    Where they are not `in_time`, their numbers are in any order, and what is to be seen first is at the top. In order of time a
    line that came again has a number smaller than those before it.
    """

    def __init__(
        self,
        kept: Sequence[Kept[E]],
        write: Callable[[Kept[E]], LogLine],
        series: object,
        newest: int,
        *,
        in_time: bool = True,
    ) -> None:
        self.kept, self._write = kept, write
        self.series, self.newest, self.in_time = series, newest, in_time
        self._places: dict[int, int] | None = None

    def __len__(self) -> int:
        return len(self.kept)

    def index_of(self, number: int) -> int | None:
        """Where the line of a number is; None where it is not there."""
        if not self.kept:
            return None
        if self.in_time:
            index = number - self.kept[0].number
            if 0 <= index < len(self.kept) and self.kept[index].number == number:
                return index
            if isinstance(self.kept[0].entry, OutputLine):
                return None
        if self._places is None:
            self._places = {kept.number: index for index, kept in enumerate(self.kept)}
        return self._places.get(number)

    def below(self, end: int) -> int:
        """How many lines there are after the first `end` of those in order of time; numbers have no gaps."""
        return self.newest + 1 - end - min(one.number for one in islice(self.kept, REPEATED_WITHIN_LINES))

    def record(self, index: int) -> dict[str, object]:
        """A line for a file; its moment in seconds since the epoch."""
        kept = self.kept[index]
        entry = kept.entry
        if isinstance(entry, OutputLine):
            who: dict[str, object] = {"ranks": list(kept.ranks), "hosts": kept.hosts}
            return {"at_s": entry.at, **who, "stream": entry.output, "severity": severity_of(entry), "text": entry.text}
        who = {"severity": entry.severity, "rank": entry.rank, "host": entry.host, "times": entry.count}
        return {"at_s": entry.at, **who, "text": entry.text}

    def shown_record(self, index: int) -> dict[str, object]:
        """The same for the clipboard: the time of day, as it is on the screen."""
        record = self.record(index)
        return {"time": clock(self.kept[index].entry.at), **{k: value for k, value in record.items() if k != "at_s"}}

    @overload
    def __getitem__(self, index: int) -> LogLine: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[LogLine]: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            start, stop, _ = index.indices(len(self.kept))
            from_end = (
                [self.kept[i] for i in range(start, stop)]
                if stop - start < 200
                else list(islice(self.kept, start, stop))
            )
            return [self._write(kept) for kept in from_end]
        return self._write(self.kept[index])


def line_at(lines: Lines[Any], at: float, same: LogEntry | OutputLine | None = None) -> int | None:
    """The number of the last line of lines in order of time that was there at a moment; of one that reads the `same`, if any."""
    there = [kept for kept in lines.kept if kept.entry.at <= at]
    found = [kept for kept in there if same is not None and (kept.entry.rank, kept.entry.text) == (same.rank, same.text)]
    return (found or there)[-1].number if there else None


def order_words(column: str, *, descending: bool) -> list[str]:
    """In what order lines are; nothing where it is that of time."""
    return [] if column == TIME and not descending else [f"by {column}{'↓' if descending else '↑'}"]


def times_of(entry: LogEntry | OutputLine) -> str:
    """Of what came again and again, how often and since when; it is the last that is shown."""
    if isinstance(entry, OutputLine) or entry.first_at is None:
        return ""
    return f"×{entry.count:,} since {clock(entry.first_at)}"


def event_line(kept: Kept[LogEntry]) -> LogLine:
    entry = kept.entry
    glyph, role = SEVERITY[entry.severity]
    prefix = ((clock(entry.at) + " ", "muted"), (glyph + " ", role))
    text = "  ".join(filter(None, [clean(entry.text), times_of(entry)]))
    return LogLine(kept.number, prefix, text, "text" if entry.severity == "info" else role)


def line_in_full(kept: Kept[Any] | None, palette: Palette, width: int, height: int) -> list[Line]:
    """All of a line, over as many rows as it takes, under when, where and by whom it was written."""
    style = palette.style
    if kept is None:
        return [Line([("put the cursor on a line", style("muted"))])]
    entry, hosts = kept.entry, kept.hosts
    stream = entry.output if isinstance(entry, OutputLine) else entry.severity
    where = clean(hosts[0] or "") if len(hosts) == 1 else f"{len(hosts):,} hosts"
    whose = "" if entry.rank is None else f"rank {entry.rank}" if len(kept.ranks) == 1 else f"{len(kept.ranks):,} ranks"
    who = [clock(entry.at), times_of(entry), where, whose, stream]
    return [Line([("  ".join(filter(None, who)), style("muted"))]), *wrapped(clean(entry.text), width, style("text"))]


def output_line(kept: Kept[OutputLine]) -> LogLine:
    entry = kept.entry
    prefix = ((f"{entry.rank:>3} ", f"series{entry.rank % 6}"), ("! " if entry.output == "stderr" else "│ ", "muted"))
    return LogLine(kept.number, prefix, clean(entry.text), "text")


def full_output_line(label: Callable[[str], str], kept: Kept[OutputLine]) -> LogLine:
    """With the time and the host, whose `label` is short; a line of several ranks says of how many."""
    entry, ranks = kept.entry, len(kept.ranks)
    host = fit_end(label(entry.host), 12).strip()
    who = f"{host:>12} {entry.rank:>4} " if ranks == 1 else f"{'×' + format(ranks, ',') + ' ranks':>17} "
    role = f"series{entry.rank % 6}" if ranks == 1 else "accent"
    stream = ("! ", "warn") if entry.output == "stderr" else ("│ ", "muted")
    return LogLine(kept.number, ((clock(entry.at) + " ", "muted"), (who, role), stream), clean(entry.text), "text")
