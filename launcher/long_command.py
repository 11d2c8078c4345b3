"""Runs a command that takes minutes: its output goes to a log, what it is doing to a progress callback."""

import os
import re
import selectors
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TextIO

from distmon.core.errors import DistmonError

_HEARTBEAT_S = 1.0
_PIPE_INTERVAL_S = 30.0
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
"""A control sequence, as compilers and CMake write for colours."""
_SHOWN_CHARACTERS = 200
_ERROR_LINE = re.compile(r"\b(error|Error|ERROR)\b\s*:|CMake Error|No space left|\bKilled\b")


@dataclass(frozen=True)
class Progress:
    """What a long command is doing now."""

    stage: str
    elapsed_s: float
    detail: str
    """The last line that the command printed; empty before its first."""


ReportProgress = Callable[[Progress], None]
Command = Sequence[str | Path]


class CommandFailed(DistmonError):
    """A long command ended with an exit code other than 0."""

    def __init__(self, stage: str, exit_code: int, reason: str, log: Path) -> None:
        super().__init__(f"{stage} failed (exit code {exit_code}): {reason} Its whole output is in {log}")


def run_long(
    command: Command,
    stage: str,
    log: Path,
    report: ReportProgress,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> None:
    """Run the command to its end, append its output to the log and report at least once a second.

    Raises CommandFailed with the first line of its output that looks like an error.
    """
    started = time.monotonic()
    detail = ""
    report(Progress(stage, 0.0, detail))
    with log.open("ab") as sink:
        log_start = sink.tell()
        process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env,
            cwd=cwd,
        )
        assert process.stdout is not None
        try:
            for chunk in _chunks(process.stdout):
                sink.write(chunk)
                detail = _last_line(chunk) or detail
                report(Progress(stage, time.monotonic() - started, detail))
            exit_code = process.wait()
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
            process.stdout.close()
    if exit_code != 0:
        output = log.read_bytes()[log_start:].decode(errors="replace")
        raise CommandFailed(stage, exit_code, first_error(output), log)


def _chunks(stream: IO[bytes]) -> Iterator[bytes]:
    """Output as it comes, and an empty chunk for every second without any."""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while True:
            if not selector.select(_HEARTBEAT_S):
                yield b""
                continue
            chunk = os.read(stream.fileno(), 65536)
            if not chunk:
                return
            yield chunk


def _last_line(chunk: bytes) -> str:
    """The last line worth showing: pip's warnings about its own configuration say nothing about the work."""
    lines = (line.strip() for line in chunk.decode(errors="replace").splitlines())
    shown = [line for line in lines if line and not line.startswith(("WARNING:", "[notice]"))]
    return shown[-1][:_SHOWN_CHARACTERS] if shown else ""


def first_error(output: str) -> str:
    """The first line that names an error, else the last line; ends with a full stop."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    found = next((line for line in lines if _ERROR_LINE.search(line)), lines[-1] if lines else "no output")
    return found.rstrip(".")[:300] + "."


@contextmanager
def show_progress(stream: TextIO, in_pipe: bool = False) -> Iterator[ReportProgress]:
    """A callback that keeps one status line on a terminal; in a pipe, a line per stage and half minute if that is wanted."""
    if not stream.isatty():
        yield _PlainLines(stream) if in_pipe else _say_nothing
        return
    try:
        yield _StatusLine(stream)
    finally:
        # What is printed next, an error perhaps, starts a line of its own.
        stream.write("\n")
        stream.flush()


def _say_nothing(_: Progress) -> None:
    """For a pipe that is read by a program."""


class _StatusLine:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._stage = ""

    def __call__(self, progress: Progress) -> None:
        """Rewrite the line; a new stage leaves the line of the last one standing."""
        if self._stage and progress.stage != self._stage:
            self._stream.write("\n")
        self._stage = progress.stage
        width = shutil.get_terminal_size().columns - 1
        detail = "".join(character for character in _CONTROL.sub("", progress.detail) if character.isprintable())
        text = f"{progress.stage} {clock(progress.elapsed_s)}  {detail}"[:width]
        self._stream.write(f"\r\x1b[K{text}")
        self._stream.flush()


class _PlainLines:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._stage = ""
        self._due_s = 0.0

    def __call__(self, progress: Progress) -> None:
        """Print if the stage is new or half a minute has gone by."""
        if progress.stage == self._stage and progress.elapsed_s < self._due_s:
            return
        self._stage = progress.stage
        self._due_s = progress.elapsed_s + _PIPE_INTERVAL_S
        self._stream.write(f"{progress.stage} {clock(progress.elapsed_s)}  {progress.detail}".rstrip() + "\n")
        self._stream.flush()


def clock(seconds: float) -> str:
    """Elapsed time as m:ss."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}"
