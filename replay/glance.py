"""A recording at a glance: what can be said of it from its beginning, without reading it through."""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from distmon.core.codec import BadEvent, UnknownKind, decode_json
from distmon.core.errors import DistmonError
from distmon.core.events import JobEnded, JobStarted, SessionEnded
from distmon.replay.lines import near_the_end, read_lines
from distmon.replay.recorder import is_being_written
from distmon.replay.session_file import LAST_LINES, Notes, open_session

LAST_PARTS = 2
"""Parts of a compressed recording, from behind, in which the end of the job is looked for."""
LOOKED_AT = 64
"""Events from the beginning among which the start of the job is looked for."""


@dataclass(frozen=True)
class Glance:
    """`started` and `changed` are in seconds since the epoch, `changed` when something was last written to the file."""

    path: Path
    size_bytes: int
    changed: float
    session_id: str = ""
    started: float | None = None
    command: tuple[str, ...] = ()
    ranks: int | None = None
    """As many as were asked for."""
    outcome: str = ""
    """How it ended, as `outcome` says it; empty where that was not looked for."""
    trouble: str = ""
    """Why it cannot be opened."""


def glance(path: Path, info: os.stat_result) -> Glance:
    """Never raises for what is in the file."""
    try:
        session = open_session(path)
        first = islice(session.events(Notes()), LOOKED_AT)
        job = next((event for event in first if isinstance(event, JobStarted)), None)
    except DistmonError as error:
        return Glance(path, info.st_size, info.st_mtime, trouble=str(error).removeprefix(f"{path} "))
    return Glance(
        path,
        info.st_size,
        info.st_mtime,
        session.header.session_id,
        session.header.at,
        tuple(job.command) if job else (),
        job.np if job else None,
    )


def outcome(path: Path) -> str:
    """How a job ended, told from the last lines of its recording: ended, failed, stopped or lost; else running, or cut off.

    Raises DistmonError where the file cannot be read.
    """
    complete = False
    for position in islice(near_the_end(path), LAST_PARTS):
        for line in reversed(deque(read_lines(path, position), maxlen=LAST_LINES)):
            data = line.data or b""
            if b'"job_ended"' not in data and b'"session_ended"' not in data:
                continue
            with suppress(UnknownKind, BadEvent):
                event = decode_json(data)
                if isinstance(event, JobEnded):
                    return _word(event)
                complete = complete or isinstance(event, SessionEnded)
    return "ended" if complete else "running" if is_being_written(path) else "cut off"


def _word(ended: JobEnded) -> str:
    return ended.reason if ended.reason != "finished" else "failed" if ended.exit_code else "ended"
