"""Finding and ending processes through /proc: a worker's descendants, and those that carry the job's mark.

Standard library only, and sent as source to other hosts: imports nothing of distmon.
"""

import ctypes
import os
import resource
import signal
from typing import Dict, Iterable, List, Optional, Set

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
MARK = "DISTMON_JOB"


def _prctl(option: int, value: int) -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(option, value, 0, 0, 0) == 0)


def adopt_orphans() -> bool:
    """Make orphaned descendants children of this process instead of init's; False where the kernel cannot."""
    return _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(signum: int = signal.SIGKILL) -> None:
    """Have the kernel end this process when its parent dies; for use between fork and exec."""
    _prctl(PR_SET_PDEATHSIG, signum)


def _pids() -> List[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat(pid: int) -> Optional[List[str]]:
    """Fields of /proc/PID/stat from the state on; None when the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().decode("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return None


def _children() -> Dict[int, List[int]]:
    """Living children by parent; zombies count as gone."""
    children: Dict[int, List[int]] = {}
    for pid in _pids():
        fields = _stat(pid)
        if fields and fields[0] not in "ZX":
            children.setdefault(int(fields[1]), []).append(pid)
    return children


def descendants(root: int) -> Set[int]:
    """Living processes below `root`, without it."""
    children = _children()
    found: Set[int] = set()
    todo = list(children.get(root, ()))
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo.extend(children.get(pid, ()))
    return found


def _has_mark(pid: int, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return any(entry.startswith(mark) for entry in file.read().split(b"\0"))
    except OSError:
        return False


def marked(value_prefix: str) -> Set[int]:
    """Living processes, this one excepted, that were started with `DISTMON_JOB=<value_prefix>…`."""
    mark = os.fsencode(f"{MARK}={value_prefix}")
    found = set()
    for pid in _pids():
        if pid != os.getpid() and _has_mark(pid, mark):
            fields = _stat(pid)
            if fields and fields[0] not in "ZX":
                found.add(pid)
    return found


_inherited_open_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_open_files_limit() -> None:
    """Allow this process all the files that it may have: a driver holds a few for each rank."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def inherited_open_files_limit() -> int:
    """The soft limit that this process started with, which its workers are to have."""
    return _inherited_open_files


def set_open_files_limit(soft: int) -> None:
    """For this process and those that it starts."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def name_of(pid: int) -> str:
    """The short name of a process; empty when it is gone."""
    try:
        with open(f"/proc/{pid}/comm", "rb") as file:
            return file.read().decode("utf-8", "replace").strip()
    except OSError:
        return ""


def oom_kills() -> int:
    """Processes that the kernel has ended since its start to get memory back, in control groups too; 0 if unknown."""
    try:
        with open("/proc/vmstat", "rb") as file:
            return next((int(line.split()[1]) for line in file if line.startswith(b"oom_kill ")), 0)
    except OSError:
        return 0


def send(pids: Iterable[int], signum: int) -> None:
    """Signal each process; one that is gone, or no longer ours, is passed over."""
    for pid in pids:
        try:
            os.kill(pid, signum)
        except (ProcessLookupError, PermissionError):
            continue
