"""`distmon import`: a log of another program as a session that replays and reports."""

from __future__ import annotations

import argparse
import math
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from distmon.core.errors import DistmonError, UsageError
from distmon.core.events import AnyEvent, NodeSampled
from distmon.replay.importers import KINDS
from distmon.replay.importers.base import ImportNotes, ImportOptions
from distmon.replay.index import index_path
from distmon.replay.recorder import Recorder
from distmon.replay.report.mask import plain
from distmon.tui.job import new_session_id

_SHOWN_EVERY = 5_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=KINDS, metavar="KIND", help=f"what made the file: {', '.join(KINDS)}")
    parser.add_argument("file", type=Path, metavar="FILE", help="the log")
    parser.add_argument("-o", dest="out", type=Path, required=True, metavar="SESSION", help="the file to make: NAME.jsonl[.zst]")
    parser.add_argument("--host", metavar="NAME", help="the machine that it is of (default: the file's name)")
    parser.add_argument(
        "--start",
        metavar="TIME",
        help="when the first reading was taken, as 2026-05-09T18:42:06 or in seconds since 1970 (default: the log's clock; UTC)",
    )
    parser.add_argument("--interval", metavar="SECONDS", help="time between readings (default: by the log's clock, or 1)")


def run(arguments: argparse.Namespace) -> int:
    options = ImportOptions(
        session_id=new_session_id(),
        distmon_version=version("distmon"),
        host=arguments.host or arguments.file.stem,
        start=None if arguments.start is None else _start(arguments.start),
        interval_s=None if arguments.interval is None else _interval(arguments.interval),
    )
    notes = ImportNotes()
    events = KINDS[arguments.what](arguments.file, options, notes)
    # Before anything is made: what cannot be imported shows with the first event.
    first = next(events)
    readings = 0
    with _Unfinished(arguments.out) as recorder:
        recorder.write(first)
        for event in events:
            recorder.write(event)
            readings += isinstance(event, NodeSampled)
            _progress(readings, event)
    for sentence in notes.sentences():
        sys.stderr.write(f"distmon: warning: {arguments.file}: {plain(sentence)}\n")
    sys.stdout.write(f"{arguments.out}: {readings} readings of {plain(options.host)}\n")
    return 0


class _Unfinished:
    """A recording that is removed again when it could not be written in full."""

    def __init__(self, path: Path) -> None:
        self._recorder = Recorder(path)

    def __enter__(self) -> Recorder:
        return self._recorder

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._recorder.close()
        if error is not None or self._recorder.failed:
            self._recorder.path.unlink(missing_ok=True)
            index_path(self._recorder.path).unlink(missing_ok=True)
        if error is None and self._recorder.failed:
            raise DistmonError(self._recorder.failed)


def _progress(readings: int, event: AnyEvent) -> None:
    if isinstance(event, NodeSampled) and readings % _SHOWN_EVERY == 0 and sys.stderr.isatty():
        sys.stderr.write(f"\r{readings} readings\r")


def _start(text: str) -> float:
    try:
        return _finite(float(text))
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--start {text}: not a time such as 2026-05-09T18:42:06, nor seconds since 1970") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("not finite")
    return value


def _interval(text: str) -> float:
    try:
        value = _finite(float(text))
    except ValueError:
        value = 0.0
    if value <= 0:
        raise UsageError(f"--interval {text}: not a number of seconds above 0")
    return value
