"""The driver's two pipes to distmon: JSON lines out, orders in.

Out: what happens to the job always arrives; the ranks' output waits a moment when distmon is slow and is then dropped and
counted, so that a viewer that has stopped never stops a rank. In: a first line with the spec, then "stop N" or "kill N", N
being the signal that distmon got, and "signal RANK N"; the end of the pipe means that distmon is gone.
"""

import json
import os
import signal
import threading
import time
from typing import Any, Callable, Dict, List, Tuple

OUTPUT_LIMIT = 8 << 20
"""Bytes of output that may wait for distmon."""
OUTPUT_PATIENCE_S = 1.0


class EventWriter:
    """Sends events from any thread, in order, by a thread of its own."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._changed = threading.Condition()
        self._pending: List[bytes] = []
        self._size = 0
        self._dropping = False
        self._dropped: Dict[Tuple[int, str, int, str], int] = {}
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        self._thread.start()

    def emit(self, event: str, **fields: Any) -> None:
        """Queue what happened; `t` is CLOCK_MONOTONIC in ns unless it is given."""
        line = _line(event, fields)
        with self._changed:
            self._append(line)

    def emit_output(self, rank: int, host: str, local_rank: int, stream: str, pieces: List[Any]) -> None:
        """Queue output, or count its lines as dropped when distmon has not read for a while."""
        key = (rank, host, local_rank, stream)
        names = {"rank": rank, "host": host, "local_rank": local_rank, "stream": stream}
        with self._changed:
            if self._size > OUTPUT_LIMIT and not self._dropping:
                self._changed.wait_for(lambda: self._size <= OUTPUT_LIMIT, OUTPUT_PATIENCE_S)
            self._dropping = self._size > OUTPUT_LIMIT
            if self._dropping:
                self._dropped[key] = self._dropped.get(key, 0) + len(pieces)
            else:
                self._append(_line("output", dict(names, pieces=pieces, dropped=self._dropped.pop(key, 0))))

    def close(self, timeout_s: float) -> None:
        """Wait until everything is sent, or for `timeout_s`."""
        with self._changed:
            for (rank, host, local_rank, stream), count in self._dropped.items():
                names = {"rank": rank, "host": host, "local_rank": local_rank, "stream": stream}
                self._append(_line("output", dict(names, pieces=[], dropped=count)))
            self._dropped.clear()
            self._closed = True
            self._changed.notify_all()
        self._thread.join(timeout_s)

    def _append(self, line: bytes) -> None:
        self._pending.append(line)
        self._size += len(line)
        self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._closed)
                if not self._pending:
                    return
                lines, self._pending = self._pending, []
            self._send(b"".join(lines))
            with self._changed:
                self._size -= sum(map(len, lines))
                self._changed.notify_all()

    def _send(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError:
            # distmon is gone: the control pipe has ended too, and its reader ends the job.
            return


def _line(event: str, fields: Dict[str, Any]) -> bytes:
    record = {"event": event, "t": time.monotonic_ns() if hasattr(time, "monotonic_ns") else int(time.monotonic() * 1e9)}
    record.update(fields)
    # Names that are no UTF-8 hold lone surrogates, which the reader would refuse.
    return json.dumps(record, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def read_line(fd: int) -> bytes:
    """The first line of a pipe, byte by byte so that nothing behind it is taken."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(fd, 1)
        if not byte:
            break
        line += byte
    return line


def watch_orders(fd: int, obey: Callable[[str, List[int]], None]) -> None:
    """Call `obey(word, numbers)` for each order, from a thread; the end of the pipe is an order to stop."""

    def run() -> None:
        while True:
            order = read_line(fd).decode("ascii", "replace").split()
            if not order:
                obey("stop", [signal.SIGTERM])
                return
            obey(order[0], [int(word) for word in order[1:]])

    threading.Thread(target=run, name="orders", daemon=True).start()
