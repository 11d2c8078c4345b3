"""Talking with a program of distmon's on a host: JSON lines over the pipes of its ssh, none of which can hold anybody."""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Sequence
from typing import Any

_LARGEST_LINE = 1 << 20


class Silent(Exception):
    """A host says nothing, or nothing more; the text tells why."""


class Conversation:
    """Used by one thread at a time, but for `end`, which may come from any."""

    def __init__(self, command: Sequence[str], payload: bytes) -> None:
        """Raises OSError where the command cannot be run."""
        self._unread = b""
        self._unsent = payload
        # A file, not a pipe: a shared connection that ssh leaves in the background would hold a pipe open.
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        pipe, said = subprocess.PIPE, self._said
        try:
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=said, bufsize=0, start_new_session=True)
        except OSError:
            self._said.close()
            raise
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        os.set_blocking(self._in.fileno(), False)

    def ask(self, order: dict[str, Any] | None, deadline: float) -> dict[str, Any]:
        """Send an order, or only what is still unsent, and give the answer. Raises Silent."""
        if order is not None:
            self.send(order)
        limit_s = deadline - time.monotonic()
        answer = self.read(deadline)
        if answer is None:
            raise Silent(f"timed out: no answer in {limit_s:.0f} s")
        return answer

    def send(self, order: dict[str, Any]) -> None:
        """Have an order sent by the next `read`."""
        self._unsent += json.dumps(order).encode("ascii") + b"\n"

    def read(self, deadline: float) -> dict[str, Any] | None:
        """The next line that comes, by time.monotonic(); None when there is none by then. Raises Silent at the end."""
        while b"\n" not in self._unread:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            readable, writable, _ = select.select([self._out], [self._in] if self._unsent else [], [], left)
            if writable:
                self._send()
            if readable:
                self._receive()
        line, _, self._unread = self._unread.partition(b"\n")
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise Silent(f"its shell prints {line[:60].decode('utf-8', 'replace')!r} where nothing should be printed")
        return answer

    def end_input(self) -> None:
        """The program on the host then ends by itself, in its own time."""
        self._unsent = b""
        self._in.close()

    def end(self) -> None:
        """End the ssh, whatever it does now."""
        if self._process.poll() is None:
            self._process.kill()

    def close(self) -> None:
        self.end()
        self._process.wait()
        for file in (self._in, self._out, self._said):
            file.close()

    def _send(self) -> None:
        try:
            self._unsent = self._unsent[os.write(self._in.fileno(), self._unsent) :]
        except BrokenPipeError:
            self._unsent = b""  # its end is told by its output

    def _receive(self) -> None:
        data = os.read(self._out.fileno(), 65536)
        if not data:
            raise Silent(self._last_words())
        self._unread += data
        if len(self._unread) > _LARGEST_LINE:
            raise Silent("its shell prints without an end")

    def _last_words(self) -> str:
        code = self._process.wait()
        self._said.seek(0)
        lines = self._said.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip().removesuffix(".") if lines else f"ssh ended with {code}"
