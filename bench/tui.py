"""What the screen costs, in a terminal of its own: first paint, CPU, bytes to the terminal, and the time from key to paint.

`python bench/tui.py` measures; the same file with the word `feed` is the app under test, fed by a clock from ready-made events as
agents send them: one for the ranks of a node and one sample a second, each node at a time of its own.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import statistics
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from figures import figure
from memory import kept_in_use

from distmon.agent.together import together
from distmon.core.events import AnyEvent, OutputWritten, StepsRecorded
from distmon.core.synthetic import Script, host_name, session
from distmon.replay.recorder import Recorder

ROWS, COLUMNS = 50, 200
READY = b"samples/s"
BEFORE_S = 10
"""Session seconds that are there when the app starts."""
SETTLE_S, WATCH_S = 8.0, 15.0
"""The first toasts are gone after so long."""
KEYS = 120
LOG_LINES_PER_S = 5_000
DEADLINE_S = 240.0
FRAME_S = 0.5
"""Of the largest job, whose frames are counted."""


# --- the app under test ---------------------------------------------------------------------------------------------


class ClockSource:
    """Gives ready-made events at their time; with `log_lines` also so many lines of output a second."""

    def __init__(self, events: list[tuple[float, AnyEvent]], log_lines: int) -> None:
        """`events` with their times."""
        self._events = iter(events)
        self._pending = next(self._events, None)
        self._start = events[0][0]
        self._begun = time.monotonic() - BEFORE_S
        self._log_lines = log_lines
        self._logged = 0.0

    def poll(self) -> Iterator[AnyEvent]:
        now = time.monotonic() - self._begun
        while self._pending is not None and self._pending[0] - self._start <= now:
            event, self._pending = self._pending[1], next(self._events, None)
            yield event
        if self._log_lines:
            yield self._output(now)

    def _output(self, now: float) -> AnyEvent:
        count = int((now - self._logged) * self._log_lines) if self._logged else 1
        self._logged = now
        lines = [f"batch {now:.3f} {i}: loss {i % 97 / 97:.4f}" for i in range(count)]
        return OutputWritten(
            at=self._start + now, rank=0, host=host_name(0), local_rank=0, output="stdout", lines=lines
        )


def as_sent(events: Iterable[AnyEvent], nodes: int) -> Iterator[tuple[float, AnyEvent]]:
    """The events by the time at which they come: of the ranks of a node together, and of each node a little after the last."""
    for node, group in groupby(events, key=lambda event: event.node if isinstance(event, StepsRecorded) else None):
        found = list(group)
        steps = [[event] for event in found if isinstance(event, StepsRecorded)]
        for event in found if node is None else together(steps):
            sender = str(getattr(event, "node", ""))
            yield event.at + (int(sender[1:]) / nodes if sender else 0.0), event


def feed(ranks: int, nodes: int, log_lines: int) -> None:
    """Run the app; the events are made before it begins. Of the largest job it says what drawing took."""
    from distmon.tui.app import DistmonApp
    from distmon.tui.terminal import run_app

    seconds = BEFORE_S + int(SETTLE_S + WATCH_S) + (30 if log_lines else 6)
    script = Script(ranks=ranks, nodes=nodes, seconds=seconds, slow_rank=1, delay_s=0.03)
    events = sorted(as_sent(session(script), nodes), key=itemgetter(0))
    os.write(1, b"\x1b]0;made\x07")
    app = DistmonApp(ClockSource(events, log_lines))
    if nodes >= 1000:
        app._spacing_s, show = FRAME_S, DistmonApp._show
        app._show = partial(told, show, app)  # type: ignore[method-assign]
    run_app(app)


def told(show: Callable[..., None], app: object, measured: object) -> None:
    """Says what a frame took: composing it, and writing it, which is done when the loop comes round."""
    import asyncio

    begun = time.thread_time()
    show(app, measured)

    def after() -> None:
        os.write(1, f"\x1b]0;drawn {time.thread_time() - begun:.6f}\x07".encode())

    asyncio.get_running_loop().call_soon(after)


# --- measuring ------------------------------------------------------------------------------------------------------


class Cost(NamedTuple):
    process: float
    """Percent of a core, as the next."""
    main_thread: float
    kilobytes: float
    """To the terminal, a second."""
    frames: list[float]
    """Seconds of CPU that drawing each took, where the app told."""

    @property
    def words(self) -> str:
        return f"its main thread {self.main_thread:.1f} %, load {os.getloadavg()[0]:.1f}"


class LastRow:
    """What stands in the terminal's last row: only cells that change are written, so that words may come in pieces."""

    def __init__(self) -> None:
        self.cells = [" "] * COLUMNS
        self._row, self._column, self._rest = 0, 0, b""

    @property
    def text(self) -> str:
        return "".join(self.cells)

    def take(self, data: bytes) -> None:
        data, end = self._rest + data, 0
        for found in SEQUENCE.finditer(data):
            self._put(data[end : found.start()])
            end = found.end()
            if found[1]:
                self._row, self._column = int(found[1]), int(found[2]) - 1
        begun = data.find(b"\x1b", end)  # a sequence of which the rest is still to come
        self._put(data[end : begun if begun >= 0 else len(data)])
        self._rest = data[begun:] if begun >= 0 else b""

    def _put(self, text: bytes) -> None:
        for character in text.decode(errors="ignore"):
            if self._row == ROWS and self._column < COLUMNS:
                self.cells[self._column] = character
            self._column += 1


SEQUENCE = re.compile(rb"\x1b\[(\d+);(\d+)H|\x1b\[[?>=]?[\d;:]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[=>78]|[\r\n]")


class Watched:
    """The app on a pseudo-terminal."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        variables = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", **(environment or {})}
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.execve(sys.executable, [*arguments], variables)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.bytes = 0
        self.frames: list[float] = []
        self.last_row: LastRow | None = None

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
        self.frames += [float(found) for found in DRAWN.findall(data)]
        if self.last_row is not None:
            self.last_row.take(data)
        return data

    def watch(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.read(0.02)

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def main_thread_s(self) -> float:
        return int(Path(f"/proc/{self.pid}/task/{self.pid}/schedstat").read_text().split()[0]) / 1e9

    def end(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.master)


def fed(ranks: int, nodes: int, log_lines: int = 0, environment: Mapping[str, str] | None = None) -> Watched:
    """The app on ready-made events."""
    return Watched([sys.executable, __file__, "feed", str(ranks), str(nodes), str(log_lines)], environment)


DRAWN = re.compile(rb"\x1b\]0;drawn ([0-9.]+)\x07")


def first_paint() -> None:
    """CPU of `distmon replay` from exec on, all imports included: to the first words, and to the whole screen."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "session.jsonl"
        with Recorder(path) as recorder:
            for event in session(Script(ranks=4, nodes=2, seconds=2 * BEFORE_S)):
                recorder.write(event)
        first, whole = [], []
        for _ in range(7):
            app = Watched([sys.executable, "-m", "distmon.tui.cli.main", "replay", str(path), "--from", str(BEFORE_S)])
            app.until(partial(contains, b"opening"))
            first.append(app.cpu_s())
            app.until(partial(contains, READY))
            whole.append(app.cpu_s())
            app.end()
    bare, framework = (statistics.median(import_cpu_s(code) for _ in range(7)) for code in ("pass", "import textual.app"))
    how = f"distmon replay, {COLUMNS}x{ROWS} pty, 4 ranks, {BEFORE_S} s into a session; exec and imports included; median of 7"
    beside = f"beside it here: the interpreter alone {bare:.3f} s, Textual imported and nothing done {framework:.3f} s"
    figure("tui_first_paint_cpu_s", statistics.median(first), "s", f"{how}: a line that says what is being opened; {beside}")
    how += f": all panels; {beside}"
    figure("tui_first_screen_cpu_s", statistics.median(whole), "s", how, peer="import textual.app", peer_value=framework)


def import_cpu_s(code: str) -> float:
    """CPU of an interpreter that runs a line."""
    before = os.times()
    os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", code])
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def steady(ranks: int, nodes: int, **environment: str) -> Cost:
    """At one batch a second per rank, each node at a time of its own."""
    app = fed(ranks, nodes, 0, environment)
    app.until(partial(contains, READY))
    app.watch(SETTLE_S)
    cpu, thread, count, begun = app.cpu_s(), app.main_thread_s(), app.bytes, time.monotonic()
    app.frames.clear()
    app.watch(WATCH_S)
    elapsed = time.monotonic() - begun
    whole, main_thread = (100 * spent / elapsed for spent in (app.cpu_s() - cpu, app.main_thread_s() - thread))
    result = Cost(whole, main_thread, (app.bytes - count) / elapsed / 1e3, app.frames)
    app.end()
    return result


def key_to_paint(ranks: int, nodes: int) -> list[float]:
    """Milliseconds from writing a key to reading the words that it puts on the screen."""
    app = fed(ranks, nodes, LOG_LINES_PER_S)
    app.last_row = row = LastRow()
    app.until(partial(contains, READY))
    app.watch(SETTLE_S)
    times = []
    for number in range(KEYS):
        # Reversing the order of the ranks says which end comes first, in turn.
        words = "largest first" if number % 2 == 0 else "smallest first"
        app.watch(0.05)
        begun = time.perf_counter()
        os.write(app.master, b"S")
        app.until(partial(stands, words, row))
        times.append((time.perf_counter() - begun) * 1e3)
    app.end()
    return sorted(times)


def contains(words: bytes, seen: bytes) -> bool:
    return words in seen


def stands(words: str, row: LastRow, seen: bytes) -> bool:
    return words in row.text


def main() -> None:
    first_paint()
    with kept_in_use() as memory:
        measure_steady(f"{COLUMNS}x{ROWS} pty, 1 Hz, over {WATCH_S:.0f} s, fold included, wire not; {memory}")
        measure_keys(memory)


def measure_steady(where: str) -> None:
    """Of jobs of three sizes."""
    cost = steady(40, 10)
    figure("tui_core_percent_10_nodes", cost.process, "%", f"40 ranks on 10 nodes; {where}; {cost.words}")
    cost = steady(1024, 128)
    figure("tui_core_percent_1024_ranks", cost.process, "%", f"1,024 ranks on 128 nodes; {where}; {cost.words}")
    figure("tui_tty_kb_per_s_1024_ranks", cost.kilobytes, "kB/s", f"1,024 ranks on 128 nodes; {where}")
    slow = steady(1024, 128, DISTMON_SLOW_LINK="1").kilobytes
    figure("tui_tty_kb_per_s_slow_link", slow, "kB/s", f"the same with --slow-link; {where}")
    cost = steady(8000, 1000)
    per_frame = statistics.fmean(cost.frames)
    how = f"8,000 ranks on 1,000 nodes; {where}; {len(cost.frames) / WATCH_S:.1f} frames/s; {cost.words}"
    figure("tui_core_percent_1000_nodes", cost.process, "%", how)
    how = f"two frames of {per_frame * 1e3:.1f} ms CPU a second, mean of {len(cost.frames)}; 8,000 ranks on 1,000 nodes; {where}"
    figure("tui_draw_core_percent_1000_nodes", 100 * per_frame / FRAME_S, "%", how)


def measure_keys(memory: str) -> None:
    times = key_to_paint(1024, 128)
    setting = f"1,024 ranks and {LOG_LINES_PER_S:,} log lines/s, {COLUMNS}x{ROWS} pty, {KEYS} keys"
    how = f"{setting}; load {os.getloadavg()[0]:.1f}; {memory}"
    figure("tui_key_to_paint_p95_ms", times[int(0.95 * len(times))], "ms", how)
    figure("tui_key_to_paint_p99_ms", times[int(0.99 * len(times))], "ms", how)


if __name__ == "__main__":
    if sys.argv[1:2] == ["feed"]:
        feed(*map(int, sys.argv[2:5]))
    else:
        main()
