"""A recording at a glance: what can be said of it from its beginning, without reading it through."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from distmon.core.errors import DistmonError
from distmon.core.events import JobStarted
from distmon.replay.session_file import Notes, open_session

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
