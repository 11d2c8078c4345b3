"""A log of tegrastats as the session of one node."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path

from distmon.core import events as ev
from distmon.core.errors import DistmonError
from distmon.core.formats.board import doubt, mislabelled
from distmon.core.formats.tegrastats import NotTegrastats, TegrastatsLine, parse_line
from distmon.core.formats.tegrastats_fields import memory_fields, node_fields
from distmon.replay.importers.base import ImportNotes, ImportOptions
from distmon.replay.importers.times import Timeline, reading_times

ORIGIN = "tegrastats"
_LONGEST_LINE = 1 << 16
_KINDS_OF_FAULT = 50
_GAP_INTERVALS = 2.5
_NOT_IN_A_LOG = dict.fromkeys(("load_1m", "networks", "disks"), "tegrastats does not print it")
_NO_TIMES = (
    "the log holds no times: the last reading is put at the file's time of change, the others {interval:g} s apart "
    "(--start and --interval say otherwise)"
)


@dataclass(slots=True)
class _Survey:
    """What has to be known before the first event can be made."""

    numbers: list[int] = field(default_factory=list)
    clocks: list[float | None] = field(default_factory=list)
    cores: int = 0
    memory_bytes: int | None = None

    def add(self, number: int, line: TegrastatsLine) -> None:
        self.numbers.append(number)
        self.clocks.append(None if line.clock is None else line.clock.replace(tzinfo=UTC).timestamp())
        self.cores = max(self.cores, len(line.cores))
        if self.memory_bytes is None and line.ram is not None:
            self.memory_bytes = line.ram.total_bytes


def import_tegrastats(path: Path, options: ImportOptions, notes: ImportNotes) -> Iterator[ev.AnyEvent]:
    """The log is read twice: its times must be known first. A clock in it has no time zone and is taken as UTC."""
    survey = _survey(path, notes)
    if not survey.numbers:
        raise DistmonError(f"{path} holds no line of tegrastats: nothing to import")
    line = reading_times(survey.clocks, options.start, options.interval_s)
    if not line.has_clock and options.start is None:
        line = line.moved(path.stat().st_mtime - line.times[-1])
        notes.remarks.append(_NO_TIMES.format(interval=line.interval_s))
    for index in line.went_back:
        notes.fault("the log's clock goes back, time goes on from there", survey.numbers[index])
    yield ev.SessionStarted(
        at=line.times[0], session_id=options.session_id, distmon_version=options.distmon_version, origin=ORIGIN
    )
    yield ev.NodeJoined(
        at=line.times[0], node=options.host, host=options.host, cores=survey.cores or None, memory_bytes=survey.memory_bytes
    )
    yield from _readings(path, options.host, line, notes)
    for sentence in notes.sentences():
        yield ev.NoticeGiven(at=line.times[-1], severity="warning", text=sentence, source=ORIGIN)
    yield ev.SessionEnded(at=line.times[-1])


def _survey(path: Path, notes: ImportNotes) -> _Survey:
    survey = _Survey()
    for number, line in _parsed(path, notes):
        survey.add(number, line)
    return survey


def _readings(path: Path, node: str, timeline: Timeline, notes: ImportNotes) -> Iterator[ev.AnyEvent]:
    sums: dict[str, float] = {}
    before: float | None = None
    # The faults of the lines are known from the survey.
    for (_, line), at in zip(_parsed(path, None), timeline.times, strict=False):
        if before is not None and at - before > _GAP_INTERVALS * timeline.interval_s:
            lost = round((at - before) / timeline.interval_s) - 1
            yield ev.GapFound(at=at, node=node, started=before, ended=at, lost_records=lost, cause="no lines in the log")
        for rail in line.rails:
            sums[rail.name] = sums.get(rail.name, 0.0) + rail.milliwatts / 1000
        yield _sample(node, line, at, timeline.interval_s)
        before = at
    notes.remarks += [doubt(part, whole) for part, whole in mislabelled(sums)]


def _sample(node: str, line: TegrastatsLine, at: float, interval_s: float) -> ev.NodeSampled:
    """Every reading stands for the usual interval, so that a gap in the log adds no energy."""
    fields, memory = node_fields(line), memory_fields(line)
    return ev.NodeSampled(
        at=at,
        node=node,
        interval_s=interval_s,
        **fields.values,
        **memory.values,
        unavailable=fields.unavailable | memory.unavailable | _NOT_IN_A_LOG,
    )


def _parsed(path: Path, notes: ImportNotes | None) -> Iterator[tuple[int, TegrastatsLine]]:
    """The lines of tegrastats with their numbers; what is not understood goes into `notes`. Raises DistmonError."""
    for number, text in _lines(path):
        try:
            line = parse_line(text)
        except NotTegrastats:
            if notes is not None and text.strip():
                notes.fault("no line of tegrastats", number)
            continue
        if notes is not None:
            for piece in line.unread:
                _note(notes, piece, number)
        yield number, line


def _note(notes: ImportNotes, piece: str, number: int) -> None:
    """Pieces that differ in their numbers alone are one kind of fault."""
    what = f"not understood: {re.sub(r'[0-9]+', 'N', piece)[:40]!r}"
    known = what in notes.counts or len(notes.counts) < _KINDS_OF_FAULT
    notes.fault(what if known else "more that is not understood", number)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise DistmonError(f"{path} is not a regular file: it has to be read twice")
            number = 0
            while line := file.readline(_LONGEST_LINE):
                number += 1
                yield number, line.decode(errors="replace")
    except OSError as error:
        raise DistmonError(f"{path} cannot be read: {os.strerror(error.errno or 0)}") from None
