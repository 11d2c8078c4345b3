"""One worker as the driver sees it: its supervisor's process, the frames that come from it, the orders that go to it."""

import collections
import json
import os
import selectors
import subprocess
import threading
import time
from typing import Any, Callable, Deque, Dict, List, Optional

from .failure import LAST_LINES
from .lines import LineSplitter
from .supervisor import BEAT, BEAT_S, SIGNAL

CHUNK = 65536
SSH_FAILED = 255
"""What ssh itself exits with when its connection breaks."""
CLOCK_BEATS = 30
"""A minute's: short enough for clocks that drift, long enough for one beat that came without delay."""
ORDER_PATIENCE_S = 8.0
"""A supervisor needs at most 7 s to end its worker politely; past this, its transport is cut."""


Transport = Any
"""What ends when its supervisor does: a process with three pipes, or what stands for one."""


def start(command: List[str]) -> "subprocess.Popen[bytes]":
    """A supervisor, here or by ssh."""
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, start_new_session=True)


class Worker:
    """Feed a supervisor its `payload`, and hand its frames to `on_frame` while `read` is called."""

    def __init__(self, transport: Transport, payload: bytes, on_frame: Callable[[Dict[str, Any]], None]) -> None:
        self.tails: Dict[str, Deque[str]] = {name: collections.deque(maxlen=LAST_LINES) for name in ("stdout", "stderr")}
        self.exit: Optional[Dict[str, Any]] = None
        self.ordered_at: Optional[float] = None
        self.heard_at = time.monotonic()
        """When its supervisor last said anything."""
        self._beat_at = 0.0
        self._delays_ns: Deque[int] = collections.deque(maxlen=CLOCK_BEATS)
        self._on_frame = on_frame
        self._payload: Optional[bytes] = payload
        self._orders: List[bytes] = []
        self._input = threading.Lock()
        self._rest = b""
        self._complaints = LineSplitter()
        self.process = transport
        self._selector = selectors.DefaultSelector()
        for pipe, reader in ((self.process.stdout, self._on_frames), (self.process.stderr, self._on_complaint)):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, reader)

    def feed(self) -> None:
        """Send the payload, then the orders that came meanwhile. May block for as long as the transport does."""
        with self._input:
            payload, self._payload = self._payload, None
            self._write((payload or b"") + b"".join(self._orders))

    def order(self, order: bytes) -> None:
        """Ask the supervisor to end its worker; cut the transport where even that does not pass."""
        if self.ordered_at is None:
            self.ordered_at = time.monotonic()
        if not self._say(order):
            self.process.kill()

    def pass_on(self, signum: int) -> None:
        """Have the supervisor send its worker a signal; a transport that is stuck takes none."""
        self._say(bytes([SIGNAL + signum]))

    def _say(self, order: bytes) -> bool:
        """False where the transport is stuck."""
        if not self._input.acquire(timeout=0.5):
            return False
        try:
            if self._payload is not None:
                self._orders.append(order)
            else:
                self._write(order)
        finally:
            self._input.release()
        return True

    def cut(self) -> None:
        """End its transport: its host is given up."""
        self.process.kill()

    def read(self, timeout_s: float) -> bool:
        """Handle what has come; False once the supervisor has closed its output."""
        now = time.monotonic()
        if self.ordered_at is not None and now - self.ordered_at > ORDER_PATIENCE_S:
            self.process.kill()
        if now - self._beat_at >= BEAT_S:
            self._beat_at = now
            self._beat()
        going = True
        for key, _ in self._selector.select(timeout_s):
            going = key.data() and going
        return going

    def finish(self) -> int:
        """Exit code of the worker as a shell gives it, or of the transport where the worker never reported."""
        code = self.process.wait()
        self._on_complaint()
        self._tell_complaints(self._complaints.feed(b"", final=True))
        self._selector.close()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()
        if self.exit is not None:
            return int(self.exit["exit_code"])
        return 128 - code if code < 0 else code or 1

    def local_ns(self, there_ns: int) -> int:
        """CLOCK_MONOTONIC here when the supervisor's host had `there_ns`: by the beat that came fastest, and never after now."""
        now = int(time.monotonic() * 1e9)
        return min(there_ns + min(self._delays_ns), now) if self._delays_ns else now

    @property
    def transport_broke(self) -> bool:
        """Whether the connection ended, and not what ran at its end; known once it has ended."""
        code = self.process.returncode
        return code is not None and (code < 0 or code == SSH_FAILED)

    def last_lines(self) -> List[str]:
        """What it said last: on stderr, else on stdout."""
        return list(self.tails["stderr"] or self.tails["stdout"])

    def _beat(self) -> None:
        """Let the supervisor know that the driver is there. A transport that is stuck takes it later, or never."""
        if self._input.acquire(blocking=False):
            try:
                self._write(BEAT)
            finally:
                self._input.release()

    def _write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self.process.stdin.fileno(), view) :]
        except (OSError, ValueError):
            # The supervisor or its ssh has ended; the end of its output tells.
            return

    def _on_frames(self) -> bool:
        assert self.process.stdout is not None
        try:
            data = os.read(self.process.stdout.fileno(), CHUNK)
        except ConnectionResetError:
            # Over a socket, the end of a supervisor that has not read all orders.
            data = b""
        if data:
            self.heard_at = time.monotonic()
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._handle(json.loads(line.decode("utf-8")))
        return bool(data)

    def _handle(self, frame: Dict[str, Any]) -> None:
        if frame["frame"] == "output":
            self.tails[frame["stream"]].extend(text for text, _ in frame["pieces"] if text)
        elif frame["frame"] == "exited":
            self.exit = frame
        elif frame["frame"] == "beat":
            self._delays_ns.append(int(time.monotonic() * 1e9) - frame["at_ns"])
        self._on_frame(frame)

    def _on_complaint(self) -> bool:
        """Pass on what ssh or the supervisor itself says. Never the end of a worker: a shared ssh master may keep it open."""
        assert self.process.stderr is not None
        try:
            data = os.read(self.process.stderr.fileno(), CHUNK)
        except BlockingIOError:
            return True
        if data:
            self._tell_complaints(self._complaints.feed(data))
        elif self.process.stderr in self._selector.get_map():
            self._selector.unregister(self.process.stderr)
        return True

    def _tell_complaints(self, pieces: List[Any]) -> None:
        if pieces:
            self._handle({"frame": "output", "stream": "stderr", "pieces": pieces})
