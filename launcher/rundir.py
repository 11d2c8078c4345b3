"""The folder of one running job: sockets and ring files, gone with the job. Which jobs there are."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from distmon.core.errors import DistmonError, UsageError
from distmon.wire.addresses import private_directory, runtime_directory

CONTROL_SOCKET = "control.sock"
"""In the folder of a job for as long as it can be acted on: its screen may stay open when it has ended."""


class RunningJob(NamedTuple):
    """A job of this user that a distmon on this machine runs."""

    name: str
    folder: Path


def running_jobs(having: str = CONTROL_SOCKET) -> list[RunningJob]:
    """Those with such a file in their folder that have not ended, the oldest first."""
    found = []
    for path in Path(runtime_directory()).glob(f"job-*-*/{CONTROL_SOCKET}"):
        pid = path.parent.name.split("-")[1]
        if pid.isdecimal() and Path(f"/proc/{pid}").exists() and path.with_name(having).exists():
            with suppress(FileNotFoundError):  # it ends just now
                found.append((path.stat().st_mtime, RunningJob(path.parent.name, path.parent)))
    return [job for _, job in sorted(found)]


@contextmanager
def job_directory() -> Iterator[Path]:
    """A new folder under this user's runtime folder, which nobody else can enter. Its name is the job's.

    Raises DistmonError when the runtime folder is not safe to use.
    """
    base = private_directory(runtime_directory())
    _remove_dead(base)
    path = base / f"job-{os.getpid()}-{secrets.token_hex(3)}"
    try:
        path.mkdir(mode=0o700)
        (path / "rings").mkdir(mode=0o700)
    except OSError as error:
        raise DistmonError(f"cannot make the folder {path}: {error.strerror}") from None
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _remove_dead(base: Path) -> None:
    """Folders of jobs whose distmon was killed."""
    for path in base.glob("job-*-*"):
        pid = path.name.split("-")[1]
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(path, ignore_errors=True)


def choose_job(file_name: str, name: str, *, unknown: str, none: str) -> RunningJob:
    """The running job of that name with such a file, or the only one.

    Raises UsageError, with `unknown`, or DistmonError, with `none`.
    """
    jobs = running_jobs(file_name)
    if name:
        jobs = [job for job in jobs if job.name == name]
        if not jobs:
            raise UsageError(unknown)
    if not jobs:
        raise DistmonError(none)
    if len(jobs) > 1:
        raise UsageError(f"several jobs run here; say which with --job: {', '.join(job.name for job in jobs)}")
    return jobs[0]
