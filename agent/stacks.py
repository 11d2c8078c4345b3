"""Asks a worker whose steps have stopped where it is: its probe writes the stack of every thread when it gets a signal.

One that does not answer, because it blocks signals or is stopped, is read from outside where there is a program for it.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from distmon.core.batches import USUAL_STEPS
from distmon.core.events import ThreadStack
from distmon.probe.ring import Header, process_start_ticks

if TYPE_CHECKING:
    from distmon.agent import spied

SUFFIX = ".stacks"
SILENT_STEPS = 3.0
SILENT_S = 1.0
"""Steps have stopped after SILENT_STEPS of their usual time and so much more."""
AGAIN_S = (3.0, 10.0, 20.0, 40.0)
"""From one asking to the next; the last holds from then on."""
WRITTEN_S = 0.1
"""After so much time an answer that is there is whole."""
ANSWER_S = 2.0
_MOST_BYTES = 1 << 18
_MOST_THREADS = 16
_MOST_FRAMES = 60
_SIGNAL = rb"signal (\d+)\n"
_THREAD = r"(?:Current thread|Thread) 0x[0-9a-f]+(?: \[(.*?)\])? \(most recent call first\):"
_FRAME = r'\s+File "(.*)", line (\d+|\?\?\?) in (.*)'
"""Most agents never have to look: these, and modules that only a silent worker needs, are left until then."""


class StackWatch:
    """Of one worker. Owned by the agent's loop."""

    def __init__(self, ring: Path, header: Header, path: str = "") -> None:
        """`path` is the worker's own PATH."""
        self._path = ring.with_suffix(SUFFIX)
        self._pid, self._start_ticks = header.pid, header.start_ticks
        self._durations: Sequence[int] = ()
        """Of the last steps, of which USUAL_STEPS count."""
        self._last_step: float | None = None
        self._asked_at: float | None = None
        self._askings = 0
        self._next = 0.0
        self._read_to = 0
        self._programs = path
        self._spy: spied.Spy | None = None
        self.silent_s = 0.0
        """How long its steps had been missing when it was asked last."""
        self.read_by = ""
        """What read the last answer from outside; empty where the worker gave it."""

    @property
    def asked(self) -> bool:
        """Whether an answer is awaited."""
        return self._asked_at is not None or self._spy is not None

    def steps_came(self, durations_ns: Sequence[int], now: float) -> None:
        """The latest steps, as they are read from the ring."""
        self._durations = durations_ns if len(durations_ns) >= USUAL_STEPS else [*self._durations, *durations_ns][-USUAL_STEPS:]
        self._last_step, self._asked_at, self._askings, self._next = now, None, 0, 0.0
        if self._spy is not None:
            self.close()

    def look(self, now: float) -> list[ThreadStack]:
        """Asks when it is time to; gives the answer once it is there, the main thread first."""
        if self._spy is not None:
            return self._look_at_spy()
        if self._asked_at is not None:
            waited = now - self._asked_at
            threads = parse_stacks(self._answer()) if waited >= WRITTEN_S else []
            if threads or waited > ANSWER_S:
                self._asked_at, self.read_by = None, ""
            if not threads and self._asked_at is None and not self._read_from_outside():
                self._next = now
            return threads
        if self._last_step is not None and len(self._durations) >= USUAL_STEPS and self._is_time(now - self._last_step, now):
            self.silent_s = now - self._last_step
            self._next = now + AGAIN_S[min(self._askings, len(AGAIN_S) - 1)]
            self._askings += 1
            if self._ask():
                self._asked_at = now
            else:
                self._read_from_outside()
        return []

    def remove(self) -> None:
        """The worker is gone, and its file is of no more use."""
        self.close()
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Nothing goes on after it."""
        if self._spy is not None:
            self._spy.end()
            self._spy = None

    def _read_from_outside(self) -> bool:
        """Whether there is a program that does."""
        from distmon.agent import spied

        program = spied.find_program(self._pid, self._programs)
        if program is None or not self._lives():
            return False
        try:
            self._spy = spied.Spy(program, self._pid)
        except OSError:
            return False
        return True

    def _look_at_spy(self) -> list[ThreadStack]:
        from distmon.agent import spied

        assert self._spy is not None
        threads = self._spy.look()
        if threads is None:
            return []
        self._spy, self.read_by = None, spied.NAME
        return threads

    def _lives(self) -> bool:
        try:
            return process_start_ticks(self._pid) == self._start_ticks
        except OSError:
            return False

    def _is_time(self, silent_s: float, now: float) -> bool:
        if silent_s <= SILENT_S or now < self._next:
            return False
        from distmon.core.quantiles import median

        return silent_s > SILENT_STEPS * (median(self._durations[-USUAL_STEPS:]) or 0.0) / 1e9 + SILENT_S

    def _ask(self) -> bool:
        """Whether the signal was sent. Only to the process that made the file, which is ready for it."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            named = re.match(_SIGNAL, os.pread(descriptor, 32, 0))
            self._read_to = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
        number = int(named[1]) if named else 0
        if not signal.SIGRTMIN <= number <= signal.SIGRTMAX:
            return False
        if not self._lives():
            return False
        try:
            os.kill(self._pid, number)
        except OSError:
            return False
        return True

    def _answer(self) -> str:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return ""
        try:
            return os.pread(descriptor, _MOST_BYTES, self._read_to).decode("utf-8", "replace")
        finally:
            os.close(descriptor)


def parse_stacks(text: str) -> list[ThreadStack]:
    """What faulthandler wrote, the main thread first; it writes that one last. Empty for what is none, or not complete yet."""
    if not text.endswith("\n"):
        return []
    threads: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if head := re.fullmatch(_THREAD, line.strip()):
            threads.append((head[1] or "", []))
        elif threads and (frame := re.fullmatch(_FRAME, line)) and len(threads[-1][1]) < _MOST_FRAMES:
            threads[-1][1].append(f"{frame[1]}:{frame[2]} {frame[3]}")
    ordered = [*threads[-1:], *reversed(threads[:-1])][:_MOST_THREADS]
    return [
        ThreadStack(name=name or ("main" if number == 0 else f"thread {number}"), frames=frames)
        for number, (name, frames) in enumerate(ordered)
    ]
