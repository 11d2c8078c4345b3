"""The agent of this machine for one job: started with it, and gone with it or with the distmon that started it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from distmon.core.errors import DistmonError

START_LIMIT_S = 10.0
STOP_LIMIT_S = 3.0
JOURNAL_MB = 64
"""In the job's folder, which is in memory; about an hour of 16 ranks that make ten steps a second."""


class LocalAgent:
    """A child process that reads the job's rings, samples this machine, and listens on a socket in the job's folder."""

    def __init__(self, job_folder: Path) -> None:
        self.address = f"ipc://{job_folder / 'agent.sock'}"
        self._rings = job_folder / "rings"
        self._journal = job_folder / "journal"
        self._log = job_folder / "agent.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it listens. Raises DistmonError with what it said if it does not."""
        ready, tell = os.pipe()
        command = [sys.executable, "-m", "distmon.agent.main", "--listen", self.address, "--rings", str(self._rings)]
        command += ["--journal", str(self._journal), "--journal-mb", str(JOURNAL_MB)]
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    [*command, "--stop-with-parent", "--ready-fd", str(tell)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=[tell],
                    start_new_session=True,
                )
        finally:
            os.close(tell)
        try:
            said = _first_bytes(ready, START_LIMIT_S)
        finally:
            os.close(ready)
        if not said:
            self.stop()
            raise DistmonError(f"the agent did not start: {self._last_words()}")

    def stop(self) -> bool:
        """Let it pass on what the ranks recorded last, and end it. False if it had died, or did not answer and was killed."""
        if self._process is None:
            return True
        self._process.terminate()
        try:
            return self._process.wait(STOP_LIMIT_S) == 0
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return False

    @property
    def death(self) -> str:
        """How its process ended, in words; empty while it lives."""
        code = self._process.poll() if self._process is not None else None
        if code is None:
            return ""
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    @property
    def running(self) -> bool:
        """Whether its process lives."""
        return self._process is not None and self._process.poll() is None

    def _last_words(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else f"no answer within {START_LIMIT_S:g} s"


def _first_bytes(fd: int, limit_s: float) -> bytes:
    """What comes first; empty at the end of the pipe or of the time."""
    deadline = time.monotonic() + limit_s
    while (left := deadline - time.monotonic()) > 0:
        if select.select([fd], [], [], left)[0]:
            return os.read(fd, 4096)
    return b""
