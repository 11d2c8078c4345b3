"""A recording at a glance: what can be said of it from its beginning, without reading it through."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from distmon.core.clocks import node_of
from distmon.core.codec import BadEvent, UnknownKind, decode_json
from distmon.core.errors import DistmonError
from distmon.core.events import JobEnded, JobStarted, SessionEnded
from distmon.replay.lines import near_the_end, read_lines
from distmon.replay.paths import recordings
from distmon.replay.recorder import is_being_written
from distmon.replay.session_file import LAST_LINES, Notes, open_session

LAST_PARTS = 2
"""Parts of a compressed recording, from behind, in which the end of the job is looked for."""
LOOKED_AT = 64
"""Events from the beginning among which the start of the job is looked for."""


class Ending(NamedTuple):
    """How a recording ends: ended, failed, stopped or lost as its job did; else running, or cut off."""

    outcome: str
    at: float | None
    """When its job ended, or else about when the last of it was seen; None where its last lines tell nothing."""


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
    begun: float | None = None
    """When the job started, or the session where none was seen to."""
    ending: Ending | None = None
    """None where that was not looked for."""
    trouble: str = ""
    """Why it cannot be opened."""

    @property
    def outcome(self) -> str:
        return self.ending.outcome if self.ending is not None else ""

    @property
    def ran_s(self) -> float | None:
        """How long the job ran, or has so far: not by when the file was written, which a copy is much later."""
        ended = self.ending.at if self.ending is not None else None
        return max(ended - self.begun, 0.0) if ended is not None and self.begun is not None else None


def glances(folder: Path, most: int, known: Mapping[str, Glance]) -> dict[str, Glance]:
    """By their paths, the newest `most` recordings of a folder, the newest first; those `known` that have not changed stay."""
    found = {}
    for path, info in islice(recordings(folder), most):
        before = known.get(str(path))
        same = before is not None and (before.size_bytes, before.changed) == (info.st_size, info.st_mtime)
        found[str(path)] = before if before is not None and same else glance(path, info)
    return found


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
        job.at if job else session.header.at,
    )


def ending(path: Path) -> Ending:
    """Told from the last lines of a recording. Raises DistmonError where the file cannot be read.

    What nodes say of the time counts only where the viewer says nothing there: their clocks may differ.
    """
    complete, ours, theirs = False, None, None
    for position in islice(near_the_end(path), LAST_PARTS):
        for line in reversed(deque(read_lines(path, position), maxlen=LAST_LINES)):
            data = line.data or b""
            if ours is not None and b'"job_ended"' not in data and b'"session_ended"' not in data:
                continue
            with suppress(UnknownKind, BadEvent):
                event = decode_json(data)
                if isinstance(event, JobEnded):
                    return Ending(_word(event), event.at)
                complete = complete or isinstance(event, SessionEnded)
                if node_of(event):
                    theirs = theirs or event.at
                else:
                    ours = ours or event.at
    return Ending("ended" if complete else "running" if is_being_written(path) else "cut off", ours or theirs)


def _word(ended: JobEnded) -> str:
    return ended.reason if ended.reason != "finished" else "failed" if ended.exit_code else "ended"
