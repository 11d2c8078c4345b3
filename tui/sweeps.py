"""The folders of sweeps: what was asked for, and how far each is, as its recordings tell."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from distmon.core.errors import DistmonError
from distmon.launcher.sweep import FORMAT, Run, Sweep, runs
from distmon.replay.recorder import is_being_written

PLAN = "sweep.json"


def read_sweep(path: Path) -> Sweep | None:
    """What was asked for in a sweep's folder; None for another folder. Raises DistmonError where it cannot be read."""
    try:
        sweep = msgspec.json.decode((path / PLAN).read_bytes(), type=Sweep)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise DistmonError(f"{path / PLAN} cannot be read: {error}") from None
    if sweep.format != FORMAT:
        raise DistmonError(f"{path / PLAN} has format {sweep.format} and this distmon reads {FORMAT}; use a newer distmon")
    return sweep


def recording_of(folder: Path, run: Run) -> Path:
    return folder / f"{run.name}.jsonl.zst"


class Progress(NamedTuple):
    """How far a sweep is. A run that failed has a recording too, until it is run again."""

    folder: Path
    recorded: tuple[Path, ...]
    """In the order of the runs, with the one under way."""
    runs: int
    under_way: Run | None


def sweeps_in(folder: Path) -> list[Progress]:
    """Those whose folders are in this one, by name."""
    found = []
    with suppress(OSError):
        for plan in sorted(folder.glob(f"*/{PLAN}")):
            with suppress(DistmonError):  # it says so itself when it is gone on with
                found += [_progress(plan.parent, sweep)] if (sweep := read_sweep(plan.parent)) is not None else []
    return found


def _progress(folder: Path, sweep: Sweep) -> Progress:
    order = runs(sweep)
    there = [run for run in order if recording_of(folder, run).exists()]
    under_way = next((run for run in there if is_being_written(recording_of(folder, run))), None)
    return Progress(folder, tuple(recording_of(folder, run) for run in there), len(order), under_way)
