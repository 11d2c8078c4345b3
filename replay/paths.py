"""Where recordings live, how much of them is kept, and what a SESSION argument means."""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path

from distmon.core.errors import DistmonError, UsageError
from distmon.replay.index import cached_index_path, index_path
from distmon.replay.marks import marks_path

KEEP_BYTES = 2 << 30
KEEP_DAYS = 90
NEWEST_KEPT = 5
"""The newest recordings stay whatever their size and age."""
SUFFIXES = (".jsonl", ".jsonl.zst")


def label(path: Path) -> str:
    """A recording's name without its ending."""
    return next((path.name.removesuffix(suffix) for suffix in SUFFIXES if path.name.endswith(suffix)), path.name)


def sessions_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder of automatic recordings, which need not exist yet."""
    state = environment.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return base / "distmon" / "sessions"


def new_recording(script: str, session_id: str, now: float | None = None, folder: Path | None = None) -> Path:
    """A path for an automatic recording, in a folder made for it alone; old recordings over the limits are removed.

    `script` is what the job runs, of which the name stays readable; raises DistmonError when the folder cannot be made.
    """
    folder = sessions_folder() if folder is None else folder
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid == os.getuid():
            folder.chmod(0o700)
    except OSError as error:
        raise DistmonError(f"{folder} cannot be made: {error.strerror}; name a file with --record") from None
    now = time.time() if now is None else now
    remove_old(folder, now)
    date = time.strftime("%Y-%m-%dT%H-%M-%S", time.localtime(now))
    return folder / f"{date}-{_plain_name(script)}-{_plain_name(session_id)[:12]}.jsonl.zst"


@contextmanager
def passing_recording() -> Iterator[Path]:
    """A path for a recording that only serves a screen and goes with it, or else when the next one is made.

    Where the user's own folder cannot be written it is among temporary files.
    """
    folder = _passing_folder()
    try:
        yield folder / "session.jsonl.zst"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _passing_folder() -> Path:
    base, prefix = sessions_folder().parent / "passing", f"{os.getpid()}-"
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old in base.iterdir():
            if not Path(f"/proc/{old.name.partition('-')[0]}").exists():
                shutil.rmtree(old, ignore_errors=True)
        return Path(tempfile.mkdtemp(prefix=prefix, dir=base))
    except OSError:
        return Path(tempfile.mkdtemp(prefix=f"distmon-{prefix}"))


def remove_old(folder: Path, now: float, keep_bytes: int = KEEP_BYTES, keep_days: float = KEEP_DAYS) -> list[Path]:
    """Removes automatic recordings past the limits in age, and in size with their indexes, the oldest first; returns them."""
    removed, total = [], 0
    for position, (path, info) in enumerate(recordings(folder)):
        total += info.st_size + _size(index_path(path))
        if position >= NEWEST_KEPT and (total > keep_bytes or now - info.st_mtime > keep_days * 86_400):
            remove_recording(path)
            removed.append(path)
    return removed


def remove_recording(path: Path) -> None:
    """Removes a recording, its index and its marks."""
    for part in (cached_index_path(path), index_path(path), marks_path(path), path):
        part.unlink(missing_ok=True)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def recordings(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """The recordings of a folder, the newest first."""
    found = []
    try:
        entries = list(folder.iterdir())
    except OSError:
        return
    for path in entries:
        try:
            info = path.lstat()
        except FileNotFoundError:
            continue
        if path.name.endswith(SUFFIXES) and stat.S_ISREG(info.st_mode):
            found.append((path, info))
    yield from sorted(found, key=lambda item: (item[1].st_mtime_ns, item[0].name), reverse=True)


def find_session(argument: str, folder: Path | None = None) -> Path:
    """A path, the name (or the beginning or a part of it) of an automatic recording, or `last`."""
    folder = sessions_folder() if folder is None else folder
    path = Path(argument).expanduser()
    if path.exists() or path.is_symlink() or "/" in argument:
        return path
    if argument == "last":
        newest = next(recordings(folder), None)
        if newest is None:
            raise DistmonError(f"there is no recording in {folder} yet; `distmon run` makes one")
        return newest[0]
    if argument.endswith(SUFFIXES) and not (folder / argument).exists():
        raise DistmonError(f"{argument}: no such file, here or in {folder}")
    matches = [found for found, _ in recordings(folder) if argument in found.name]
    if not matches:
        raise DistmonError(f"{argument}: no such file, and no recording of that name in {folder}")
    if len(matches) > 1 and not any(m.name in (argument, *(argument + s for s in SUFFIXES)) for m in matches):
        raise UsageError(f"{argument} could be {', '.join(m.name for m in matches[:4])}; say more of the name")
    return next((m for m in matches if m.name in (argument, *(argument + s for s in SUFFIXES))), matches[0])


def demo_session() -> Path:
    """The recording that comes with distmon."""
    resource = files("distmon.replay") / "data" / "demo.jsonl.zst"
    with as_file(resource) as path:
        if not path.exists():
            raise DistmonError("this installation holds no demo session; install distmon from a release")
        return path


def _plain_name(text: str) -> str:
    """Of a path the last part without its ending, in letters, digits, dots and dashes."""
    stem = Path(text).name.removesuffix(".py")
    return re.sub(r"[^A-Za-z0-9.-]+", "-", stem).strip(".-")[:40] or "job"
