"""A program that prints a line for each reading, run as a child: lines are taken as they come, and it is started again."""

from __future__ import annotations

import os
import subprocess
import weakref
from typing import NamedTuple

_READ_BYTES = 1 << 16
_MOST_READS = 16
_LONGEST_LINE = 1 << 18
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 10.0, 300.0
_SILENT_S = 15.0
"""Without a line for this long it is taken for hung."""
_END_WITHIN_S = 0.5


class Line(NamedTuple):
    text: bytes
    read_ns: int
    """CLOCK_MONOTONIC when it was taken from the pipe."""


class LineChild:
    """`problem` says why there are no lines. A child that fails is tried again after 10 s, then less and less often."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self.command = command
        self.problem = ""
        self.heard = False
        """Whether it has printed a line since it was started."""
        self._process: subprocess.Popen[bytes] | None = None
        self._fd = -1
        self._buffer = b""
        self._heard_ns = 0
        self._next_start_ns = 0
        self._pause_s = _FIRST_PAUSE_S
        self._end: weakref.finalize[[subprocess.Popen[bytes]], LineChild] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None

    def lines(self, now_ns: int) -> list[Line]:
        """What it printed since the last call, in order, without line ends; starts it when that is due. Never waits for it."""
        if self._process is None and not self._start(now_ns):
            return []
        found, open_ended = self._drain()
        if found:
            self.heard, self._heard_ns = True, now_ns
        if not open_ended:
            self._ended(now_ns)
        elif now_ns - self._heard_ns > _SILENT_S * 1e9:
            self._fail(now_ns, f"{self.name} printed nothing for {_SILENT_S:.0f} s")
        return [Line(text, now_ns) for text in found]

    def answered(self) -> None:
        """Its lines are good: the next failure is tried again soon."""
        self.problem = ""
        self._pause_s = _FIRST_PAUSE_S

    def stop(self) -> None:
        """Ends it, for now or for good: the next call of `lines` starts it again."""
        if self._end is not None:
            self._end()
            os.close(self._fd)
        self._process, self._end, self._buffer, self._fd, self.heard = None, None, b"", -1, False

    def _start(self, now_ns: int) -> bool:
        if now_ns < self._next_start_ns:
            return False
        try:
            # A session of its own: a Ctrl-C at the agent's terminal is for the agent, which then ends its children.
            process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            self._fail(now_ns, f"{self.command[0]} cannot be started: {error.strerror}")
            return False
        assert process.stdout is not None
        self._process, self._fd, self._heard_ns = process, os.dup(process.stdout.fileno()), now_ns
        process.stdout.close()
        os.set_blocking(self._fd, False)
        # When the agent is killed, the child ends of its next write to the broken pipe.
        self._end = weakref.finalize(self, _end, process)
        return True

    def _drain(self) -> tuple[list[bytes], bool]:
        """(complete lines, whether more can come). One that prints without a pause is left for the next time."""
        found: list[bytes] = []
        for _ in range(_MOST_READS):
            try:
                data = os.read(self._fd, _READ_BYTES)
            except BlockingIOError:
                break
            if not data:
                return found, False
            *ended, rest = (self._buffer + data).split(b"\n")
            # Of a line that is too long the end alone comes through, which is no reading.
            self._buffer = rest if len(rest) <= _LONGEST_LINE else b""
            found += [line for line in ended if line.strip()]
        return found, True

    def _ended(self, now_ns: int) -> None:
        assert self._process is not None
        try:
            code = self._process.wait(_END_WITHIN_S)
            self._fail(now_ns, f"{self.name} ended with {code}")
        except subprocess.TimeoutExpired:
            self._fail(now_ns, f"{self.name} closed its output")

    def _fail(self, now_ns: int, reason: str) -> None:
        self.stop()
        self.problem = reason
        self._next_start_ns = now_ns + int(self._pause_s * 1e9)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Asks first."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_END_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
