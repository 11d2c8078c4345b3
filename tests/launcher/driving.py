"""Running jobs in tests: the real horovod.runner, with scripts that need no framework."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from distmon.core.codec import decode_json
from distmon.core.events import AnyEvent, Event, JobEnded, OutputWritten

CASES = Path(__file__).resolve().parent.parent / "data" / "cases"
PROGRAM = Path(__file__).with_name("job_program.py")
E = TypeVar("E", bound=Event)


class Ran(NamedTuple):
    """A job that has ended."""

    exit_code: int
    events: list[AnyEvent]
    stderr: str

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def ended(self) -> JobEnded:
        (ended,) = self.of(JobEnded)
        return ended

    def lines(self, rank: int, output: str = "stdout") -> list[str]:
        return [line for e in self.of(OutputWritten) if (e.rank, e.output) == (rank, output) for line in e.lines]


def command(*arguments: str) -> list[str]:
    return [sys.executable, str(PROGRAM), *arguments]


def environment(**changes: str) -> dict[str, str]:
    return {**os.environ, **changes}


def run(*arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None, timeout_s: float = 60) -> Ran:
    done = subprocess.run(
        command(*arguments), capture_output=True, env=env or environment(), cwd=cwd, timeout=timeout_s, stdin=subprocess.DEVNULL
    )
    events = [decode_json(line) for line in done.stdout.splitlines()]
    return Ran(done.returncode, events, done.stderr.decode())


def python(code: str) -> Sequence[str]:
    """A worker's command: the training's Python is the tests' own."""
    return ("--", sys.executable, "-c", code)


def within(limit_s: float, holds: Callable[[], bool]) -> bool:
    """Whether `holds` becomes true in time."""
    deadline = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def alive(pid: int) -> bool:
    """Listed and not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
