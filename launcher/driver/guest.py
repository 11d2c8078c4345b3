"""A job's folder on a host that is not the launcher's: the ranks' rings, the probe's files, and the agent that reads them.

Standard library only, and sent as source to other hosts: imports nothing of distmon.
"""

import os
import re
import stat
import time
from typing import Optional

LAST_FILE = "worker.py"
"""Of the probe's files, the one that is written last."""
PLACE = "{guest}"
"""Stands for the folder in what is sent to a host, where alone its path is known."""


def runtime_folder() -> str:
    """Where this user's sockets and rings are, as distmon.wire.addresses has it."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return os.path.join(runtime, "distmon") if runtime else "/tmp/distmon-%d" % os.getuid()


def folder_of(job: str, host: str) -> str:
    """The folder of one job on one host, by the host's name in the job: two of its hosts may share a file system."""
    return os.path.join(runtime_folder(), "guest-{}-{}".format(job, re.sub(r"[^\w.-]", "_", host)))


def make_private(path: str) -> None:
    """Make a folder, or take the one that is there. Raises OSError unless it is real, of this user, and closed to others."""
    os.makedirs(path, mode=0o700, exist_ok=True)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(1, "not a folder of this user's alone", path)


def await_probe(folder: str, limit_s: float) -> bool:
    """Wait for the probe's files, which come with the agent: of a host that has just joined both are on their way."""
    deadline = time.monotonic() + limit_s
    while not os.path.exists(os.path.join(folder, "probe", LAST_FILE)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def find_agent(named: str, beside: str, python: str) -> Optional[str]:
    """distmon-agent on this host: the one named, or at the launcher's own path, on PATH, or beside the training's Python."""
    if named:
        return named if os.access(named, os.X_OK) else None
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    folders += [os.path.expanduser("~/.local/bin"), os.path.dirname(python)]
    candidates = [beside] + [os.path.join(folder, "distmon-agent") for folder in folders]
    return next((path for path in candidates if path and os.path.isfile(path) and os.access(path, os.X_OK)), None)
