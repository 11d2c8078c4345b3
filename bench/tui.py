"""What the screen costs, in a terminal of its own: first paint, CPU, bytes to the terminal, and the time from key to paint.

`python bench/tui.py` measures; the same file with the word `feed` is the app under test, fed by a clock from ready-made events.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import statistics
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from figures import figure

from distmon.core.events import AnyEvent, OutputWritten
from distmon.core.synthetic import Script, host_name, session

ROWS, COLUMNS = 50, 200
READY = b"samples/s"
BEFORE_S = 10
"""Session seconds that are there when the app starts."""
SETTLE_S, WATCH_S = 3.0, 10.0
KEYS = 120
LOG_LINES_PER_S = 5_000
DEADLINE_S = 120.0


# --- the app under test ---------------------------------------------------------------------------------------------


class ClockSource:
    """Gives ready-made events at their time; with `log_lines` also so many lines of output a second."""

    def __init__(self, events: list[AnyEvent], log_lines: int) -> None:
        self._events = iter(events)
        self._pending = next(self._events, None)
        self._start = events[0].at
        self._begun = time.monotonic() - BEFORE_S
        self._log_lines = log_lines
        self._logged = 0.0

    def poll(self) -> Iterator[AnyEvent]:
        now = time.monotonic() - self._begun
        while self._pending is not None and self._pending.at - self._start <= now:
            yield self._pending
            self._pending = next(self._events, None)
        if self._log_lines:
            yield self._output(now)

    def _output(self, now: float) -> AnyEvent:
        count = int((now - self._logged) * self._log_lines) if self._logged else 1
        self._logged = now
        lines = [f"batch {now:.3f} {i}: loss {i % 97 / 97:.4f}" for i in range(count)]
        return OutputWritten(
            at=self._start + now, rank=0, host=host_name(0), local_rank=0, output="stdout", lines=lines
        )


def feed(ranks: int, nodes: int, log_lines: int) -> None:
    """Run the app; the events are made before it begins."""
    from distmon.tui.app import DistmonApp
    from distmon.tui.terminal import run_app

    seconds = BEFORE_S + int(SETTLE_S + WATCH_S) + 30
    events = list(session(Script(ranks=ranks, nodes=nodes, seconds=seconds, slow_rank=1, delay_s=0.03)))
    os.write(1, b"\x1b]0;made\x07")
    run_app(DistmonApp(ClockSource(events, log_lines)))


# --- measuring ------------------------------------------------------------------------------------------------------


class Watched:
    """The app on a pseudo-terminal."""

    def __init__(self, ranks: int, nodes: int, log_lines: int = 0) -> None:
        arguments = [sys.executable, __file__, "feed", str(ranks), str(nodes), str(log_lines)]
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.execve(sys.executable, arguments, {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"})
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.bytes = 0

    def until(self, found: Callable[[bytes], bool]) -> None:
        seen = b""
        deadline = time.monotonic() + DEADLINE_S
        while not found(seen):
            if time.monotonic() > deadline:
                raise SystemExit(f"bench/tui.py: the app did not show what was waited for in {DEADLINE_S:.0f} s")
            seen += self.read(0.01)

    def read(self, patience_s: float) -> bytes:
        if not select.select([self.master], [], [], patience_s)[0]:
            return b""
        data = os.read(self.master, 1 << 16)
        self.bytes += len(data)
        return data

    def watch(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.read(0.02)

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.master)


def first_paint() -> None:
    """CPU of the process from exec to the first full screen, less the CPU that making the test's events took."""
    seconds = []
    for _ in range(5):
        app = Watched(4, 2)
        app.until(partial(contains, b"made"))
        made = app.cpu_s()
        imports = import_cpu_s()
        app.until(partial(contains, READY))
        seconds.append(app.cpu_s() - made + imports)
        app.end()
    how = f"{COLUMNS}x{ROWS} pty, 4 ranks, {BEFORE_S} s of session; interpreter and core included; median of 5"
    figure("tui_first_paint_cpu_s", statistics.median(seconds), "s", how)


def import_cpu_s() -> float:
    """CPU of the interpreter with the core: what the feeder had already paid when it began to make events."""
    before = os.times()
    os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", "import distmon.core.fold"])
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def steady(ranks: int, nodes: int) -> tuple[float, float]:
    """(percent of a core, kB/s to the terminal) at one batch a second per rank."""
    app = Watched(ranks, nodes)
    app.until(partial(contains, READY))
    app.watch(SETTLE_S)
    cpu, count, begun = app.cpu_s(), app.bytes, time.monotonic()
    app.watch(WATCH_S)
    elapsed = time.monotonic() - begun
    result = (100 * (app.cpu_s() - cpu) / elapsed, (app.bytes - count) / elapsed / 1e3)
    app.end()
    return result


def key_to_paint(ranks: int, nodes: int) -> list[float]:
    """Milliseconds from writing a key to reading the words that it puts on the screen."""
    app = Watched(ranks, nodes, LOG_LINES_PER_S)
    app.until(partial(contains, READY))
    app.watch(SETTLE_S)
    times = []
    for number in range(KEYS):
        # Reversing the order of the ranks says which end comes first, in turn.
        words = b"largest first" if number % 2 == 0 else b"smallest first"
        app.watch(0.05)
        begun = time.perf_counter()
        os.write(app.master, b"S")
        app.until(partial(contains, words))
        times.append((time.perf_counter() - begun) * 1e3)
    app.end()
    return sorted(times)


def contains(words: bytes, seen: bytes) -> bool:
    return words in seen


def main() -> None:
    first_paint()
    percent, _ = steady(40, 10)
    where = f"{COLUMNS}x{ROWS} pty, 1 Hz, over {WATCH_S:.0f} s, fold included"
    figure("tui_core_percent_10_nodes", percent, "%", f"40 ranks on 10 nodes; {where}")
    percent, kilobytes = steady(1024, 128)
    figure("tui_core_percent_1024_ranks", percent, "%", f"1,024 ranks on 128 nodes; {where}")
    figure("tui_tty_kb_per_s_1024_ranks", kilobytes, "kB/s", f"1,024 ranks on 128 nodes; {where}")
    times = key_to_paint(1024, 128)
    how = f"1,024 ranks and {LOG_LINES_PER_S:,} log lines/s, {COLUMNS}x{ROWS} pty, {KEYS} keys"
    figure("tui_key_to_paint_p95_ms", times[int(0.95 * len(times))], "ms", how)
    figure("tui_key_to_paint_p99_ms", times[int(0.99 * len(times))], "ms", how)


if __name__ == "__main__":
    if sys.argv[1:2] == ["feed"]:
        feed(*map(int, sys.argv[2:5]))
    else:
        main()
