"""The folder of a sweep: what was asked for, and a recording and a log of each run. One sweep at a time works in it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

import msgspec

from distmon.core.errors import DistmonError, told
from distmon.launcher.sweep import Run, Sweep
from distmon.replay.paths import remove_recording
from distmon.tui.sweeps import PLAN, read_sweep, recording_of


class SweepFolder:
    """Holds a lock that the runs inherit: while one of them goes on, whatever became of the sweep itself, no other may start."""

    def __init__(self, path: Path, sweep: Sweep, lock: int) -> None:
        self.path = path
        self.sweep = sweep
        self.lock = lock

    @classmethod
    def made(cls, path: Path, sweep: Sweep) -> SweepFolder:
        """A new folder. Raises DistmonError where it is there already or cannot be made."""
        try:
            path.mkdir(parents=True)
            (path / PLAN).write_bytes(msgspec.json.format(msgspec.json.encode(sweep), indent=2) + b"\n")
            return cls(path, sweep, _locked(path / PLAN))
        except FileExistsError:
            swept = (path / PLAN).is_file()
            mend = f"--resume {path} goes on with it" if swept else "it holds no sweep: give --folder another name"
            raise DistmonError(f"{path} is there already; {mend}") from None
        except OSError as error:
            raise DistmonError(f"{path} cannot be made: {told(error)}") from None

    @classmethod
    def opened(cls, path: Path) -> SweepFolder:
        """The folder of a sweep that was begun. Raises DistmonError."""
        sweep = read_sweep(path)
        if sweep is None:
            raise DistmonError(f"{path} holds no sweep: there is no {PLAN} in it")
        try:
            return cls(path, sweep, _locked(path / PLAN))
        except OSError as error:
            raise DistmonError(told(error)) from None

    def recording(self, run: Run) -> Path:
        return recording_of(self.path, run)

    def log(self, run: Run) -> Path:
        """The output of a run, its own and distmon's."""
        return self.path / f"{run.name}.log"

    def forget(self, run: Run) -> None:
        """Removes what an earlier try left."""
        remove_recording(self.recording(run))
        self.log(run).unlink(missing_ok=True)

    def __enter__(self) -> SweepFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        os.close(self.lock)


def _locked(path: Path) -> int:
    lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise DistmonError(f"a sweep, or a run of one, is still going on in {path.parent}; wait for it or end it") from None
    return lock
