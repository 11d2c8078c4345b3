"""The folder of one running job: sockets and ring files, gone with the job."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from distmon.core.errors import DistmonError
from distmon.wire.addresses import private_directory, runtime_directory


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
