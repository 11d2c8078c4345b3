"""A limit of memory for a host of the harness, by the kernel's memory control group (version 1 or 2)."""

from __future__ import annotations

from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


def _place() -> tuple[Path, str, str] | None:
    """The folder to make groups in, and the names of its limits of memory and of memory with swap; None where there is none."""
    if (ROOT / "memory/memory.limit_in_bytes").exists():
        return ROOT / "memory", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"
    try:
        if "memory" in (ROOT / "cgroup.subtree_control").read_text().split():
            return ROOT, "memory.max", "memory.swap.max"
    except OSError:
        return None
    return None


def why_not() -> str:
    """Why no limit can be set here; empty where it can."""
    place = _place()
    if place is None:
        return f"there is no memory control group to limit a host with in {ROOT}"
    trial = place[0] / "distmon-cluster-trial"
    try:
        trial.mkdir(exist_ok=True)
        trial.rmdir()
    except OSError as error:
        return f"cannot make a memory control group in {place[0]}: {error.strerror}"
    return ""


def limit(name: str, size: int) -> Path:
    """Make the group `name`; a process joins by writing its number into the returned folder's cgroup.procs. Raises OSError."""
    place = _place()
    if place is None:
        raise OSError(why_not())
    folder, memory, swap = place[0] / name, place[1], place[2]
    folder.mkdir()
    (folder / memory).write_text(str(size))
    if (folder / swap).exists():
        (folder / swap).write_text(str(size) if memory == "memory.limit_in_bytes" else "0")
    return folder


def remove_all(prefix: str) -> None:
    """Remove groups whose processes have ended."""
    place = _place()
    for folder in place[0].glob(prefix + "*") if place else ():
        try:
            folder.rmdir()
        except OSError:
            # Its last process is still on its way out; the next start looks again.
            continue
