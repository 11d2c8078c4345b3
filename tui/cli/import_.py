"""`distmon import`: a log of another program as a session that replays and reports."""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from distmon.core.errors import DistmonError, UsageError
from distmon.core.events import AnyEvent, NodeSampled
from distmon.core.printable import clean
from distmon.replay.importers import KINDS
from distmon.replay.importers.base import Importer, ImportNotes, ImportOptions
from distmon.replay.index import index_path
from distmon.replay.paths import SUFFIXES
from distmon.replay.recorder import Recorder
from distmon.replay.report.words import count
from distmon.tui.job import new_session_id

EPILOG = """\
  distmon import tegrastats board.log -o board.jsonl
  distmon import tegrastats old-logs/ -o sessions/ && distmon report sessions/ --html page.html
"""
_SHOWN_EVERY = 5_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "distmon import KIND FILE -o SESSION, or: distmon import KIND FILE ... or FOLDER -o FOLDER"
    parser.epilog = EPILOG
    parser.add_argument("what", choices=KINDS, metavar="KIND", help=f"what made the file: {', '.join(KINDS)}")
    parser.add_argument("file", type=Path, nargs="+", metavar="FILE", help="the log; several, or a folder of them")
    parser.add_argument(
        "-o",
        dest="out",
        type=Path,
        required=True,
        metavar="SESSION",
        help="the file to make: NAME.jsonl[.zst]; of several logs the folder to put a session of each into",
    )
    parser.add_argument("--host", metavar="NAME", help="the machine that it is of (default: the file's name)")
    parser.add_argument(
        "--start",
        metavar="TIME",
        help="when the first reading was taken, as 2026-05-09T18:42:06 or in seconds since 1970 (default: the log's clock; UTC)",
    )
    parser.add_argument("--interval", metavar="SECONDS", help="time between readings (default: by the log's clock, or 1)")


def run(arguments: argparse.Namespace) -> int:
    start = None if arguments.start is None else _start(arguments.start)
    interval = None if arguments.interval is None else _interval(arguments.interval)
    logs, out = _logs(arguments.file), arguments.out
    importer = KINDS[arguments.what]
    if arguments.file == logs and len(logs) == 1 and not out.is_dir():
        _import(importer, logs[0], out, _options(arguments.host or logs[0].stem, start, interval))
        return 0
    if out.name.endswith(SUFFIXES):
        raise UsageError(f"-o {out}: several logs make several sessions; name a folder for them")
    made = 0
    for log, name in zip(logs, _names(logs), strict=True):
        try:
            _import(importer, log, out / f"{name}.jsonl.zst", _options(arguments.host or name, start, interval))
            made += 1
        except DistmonError as error:
            if log in arguments.file:
                raise
            sys.stderr.write(f"distmon: warning: left out: {clean(str(error))}\n")
    if not made:
        raise DistmonError(f"nothing was imported: no file there is a log of {arguments.what}")
    sys.stdout.write(f"for one page of plots and tables: distmon report {clean(str(out))} --html page.html\n")
    return 0


def _logs(given: list[Path]) -> list[Path]:
    """The files named, and the files in the folders named. Raises DistmonError."""
    logs: list[Path] = []
    for path in given:
        if not path.is_dir():
            logs.append(path)
            continue
        found = sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith("."))
        if not found:
            raise DistmonError(f"{path} holds no file: nothing to import")
        logs += found
    return logs


def _names(logs: list[Path]) -> list[str]:
    """A name of its own for each log: what comes before its ending, all of it where that is another's too, or numbered."""
    stems = Counter(log.stem for log in logs)
    names = [log.stem if stems[log.stem] == 1 else log.name for log in logs]
    counts = Counter(names)
    return [name if counts[name] == 1 else f"{name}-{number}" for number, name in enumerate(names, 1)]


def _options(host: str, start: float | None, interval_s: float | None) -> ImportOptions:
    return ImportOptions(
        session_id=new_session_id(), distmon_version=version("distmon"), host=host, start=start, interval_s=interval_s
    )


def _import(importer: Importer, log: Path, out: Path, options: ImportOptions) -> None:
    """One log into one session file; its warnings go to standard error. Raises DistmonError."""
    notes = ImportNotes()
    events = importer(log, options, notes)
    # Before anything is made: what cannot be imported shows with the first event.
    first = next(events)
    out.parent.mkdir(parents=True, exist_ok=True)
    readings = 0
    with _Unfinished(out) as recorder:
        recorder.write(first)
        for event in events:
            recorder.write(event)
            readings += isinstance(event, NodeSampled)
            _progress(readings, event)
    for sentence in notes.sentences():
        sys.stderr.write(f"distmon: warning: {clean(str(log))}: {clean(sentence)}\n")
    sys.stdout.write(f"{clean(str(out))}: {count(readings, 'reading')} of {clean(options.host)}\n")


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
