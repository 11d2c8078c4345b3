"""The stacks of a worker that does not answer, as py-spy reads them from outside, where that is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from distmon.core.events import ThreadStack

NAME = "py-spy"
LIMIT_S = 10.0
_MOST_THREADS = 16
_MOST_FRAMES = 60


class _Frame(Struct):
    name: str
    filename: str
    line: int


class _Thread(Struct):
    os_thread_id: int | None
    thread_name: str | None
    frames: list[_Frame]


_decoder = msgspec.json.Decoder(list[_Thread])


def find_program(pid: int, path: str) -> str | None:
    """py-spy beside this Python or on this agent's PATH; on a worker's own `path` too, where it is the same user's."""
    own = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    try:
        same_user = Path(f"/proc/{pid}").stat().st_uid == os.geteuid()
    except OSError:
        return None
    return shutil.which(NAME, path=own) or (shutil.which(NAME, path=path) if same_user and path else None)


class Spy:
    """One reading of process `pid`, which goes on while it is read. A child process; nothing here waits for it."""

    def __init__(self, program: str, pid: int) -> None:
        """Raises OSError where it cannot be run."""
        self._pid = pid
        self._begun = time.monotonic()
        # A file, not a pipe, which many threads would fill.
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        command = [program, "dump", "--json", "--nonblocking", "--pid", str(pid)]
        null = subprocess.DEVNULL
        try:
            self._process = subprocess.Popen(command, stdin=null, stdout=self._said, stderr=null)
        except OSError:
            self._said.close()
            raise

    def look(self) -> list[ThreadStack] | None:
        """The threads, the main one first, once it has ended; empty where it could not read them, None while it runs."""
        if self._process.poll() is None:
            if time.monotonic() - self._begun > LIMIT_S:
                self.end()
                return []
            return None
        self._said.seek(0)
        said = self._said.read()
        self.end()
        return parse(said, self._pid)

    def end(self) -> None:
        """Whatever it does now."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._said.close()


def parse(said: bytes, pid: int) -> list[ThreadStack]:
    """`py-spy dump --json`, the main thread of process `pid` first. Empty for what is none."""
    try:
        threads = _decoder.decode(said)
    except msgspec.DecodeError:
        return []
    threads.sort(key=lambda thread: thread.os_thread_id != pid)
    return [
        ThreadStack(
            name="main" if thread.os_thread_id == pid else thread.thread_name or f"thread {number}",
            # As faulthandler names a function: without its class.
            frames=[f"{f.filename}:{f.line} {f.name.rpartition('.')[2]}" for f in thread.frames[:_MOST_FRAMES]],
        )
        for number, thread in enumerate(threads[:_MOST_THREADS])
    ]
