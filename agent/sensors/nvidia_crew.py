"""Threads that ask GPUs, as few as will do.

Waking a thread costs more than reading a healthy GPU, so one thread reads them all, one after the other. When it is not done
in time, the GPU that it is at is left to it, and a new thread takes over the others: a call that does not return holds up its
own GPU alone, and on a machine with slow calls there are soon as many threads as it takes.
"""

from __future__ import annotations

import threading
import time
from queue import Empty, SimpleQueue

from distmon.agent.sensors.nvidia_device import NvidiaDevice

_MOST_SLOW_AT_ONCE = 2
"""Slow calls can take 40 ms a GPU; the next sample should not find the thread still at them."""


class Crew:
    """A thread and the GPUs that it reads."""

    def __init__(self, devices: list[NvidiaDevice]) -> None:
        self.devices = devices
        self._at: NvidiaDevice | None = None
        self._lock = threading.Lock()
        """Over `devices` and `_at`: a GPU is in one thread's hands at a time."""
        self._owing = False
        self._settled = False
        """All GPUs have had their first slow reading."""
        self._asked: SimpleQueue[int | None] = SimpleQueue()
        """When a reading was asked for (CLOCK_MONOTONIC); None ends the thread."""
        self._answered: SimpleQueue[None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="nvidia", daemon=True)
        self._thread.start()

    def ask(self, now_ns: int) -> bool:
        """Has all GPUs read once more; False while it still owes the last reading."""
        if not self.wait(0.0):
            return False
        self._owing = True
        self._asked.put(now_ns)
        return True

    def wait(self, deadline: float) -> bool:
        """Until all have answered or `deadline` (time.monotonic) has come; whether they have."""
        if self._owing:
            try:
                self._answered.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                return False
            self._owing = False
        return True

    def split(self) -> list[NvidiaDevice]:
        """Leaves it the GPU that it is at, and gives the others; [] when it is through or has no others."""
        with self._lock:
            if self._at is None:
                return []
            others = [device for device in self.devices if device is not self._at]
            self.devices = [self._at]
            return others

    def close(self, timeout_s: float) -> bool:
        """Ends the thread; False when it hangs in a call, and then it is left to itself."""
        self._asked.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (now_ns := self._asked.get()) is not None:
            for device in self.devices:
                if self._begin(device):
                    device.read(now_ns)
            self._end()
            self._answered.put(None)
            due = [device for device in self.devices if device.is_slow_due(now_ns)]
            for device in due[: _MOST_SLOW_AT_ONCE if self._settled else None]:
                if self._begin(device):
                    device.read_slow(now_ns)
            self._settled = True
            self._end()
        for device in self.devices:
            device.close()

    def _begin(self, device: NvidiaDevice) -> bool:
        """False when another thread has taken it over."""
        with self._lock:
            self._at = device if device in self.devices else None
            return self._at is not None

    def _end(self) -> None:
        with self._lock:
            self._at = None


def read_all(crews: list[Crew], now_ns: int, within_s: float) -> list[Crew]:
    """Has every GPU read, in `within_s` where all is well and in twice that where one hangs; gives the crews, with new ones."""
    asked = [crew for crew in crews if crew.ask(now_ns)]
    deadline = time.monotonic() + within_s
    late = [crew for crew in crews if crew not in asked or not crew.wait(deadline)]
    fresh = [Crew(others) for crew in late if (others := crew.split())]
    deadline = time.monotonic() + within_s
    for crew in fresh:
        crew.ask(now_ns)
    for crew in fresh:
        crew.wait(deadline)
    return [*crews, *fresh]
