"""Threads that ask GPUs, as few as will do.

Waking a thread costs more than reading a healthy GPU, so one thread reads them all, one after the other. When it is not done
in time, the GPU that it is at is left to it, and a new thread takes over the others: a call that does not return holds up its
own GPU alone, and on a machine with slow calls there are soon as many threads as it takes.

What every sample asks is asked by a second thread that never runs Python, where machine code was built: then the first one has
the slow calls alone, and mostly sleeps.
"""

from __future__ import annotations

import threading
import time
from queue import Empty, SimpleQueue
from typing import NamedTuple

from distmon.agent.machine_code import native
from distmon.agent.sensors.nvidia_device import NvidiaDevice

_SLOW_WITHIN_S = 0.06
"""No GPU is begun with later: slow calls can take 40 ms for each, and the next sample should not find the thread still at them.
Where they are quick, all GPUs are asked at one wake-up."""


class _Order(NamedTuple):
    """When a reading was asked for (CLOCK_MONOTONIC), and whether to ask what every sample needs, or just what is slow."""

    now_ns: int
    fast: bool


class Crew:
    """A thread and the GPUs that it reads."""

    def __init__(self, devices: list[NvidiaDevice]) -> None:
        self.devices = devices
        self._at: NvidiaDevice | None = None
        self._lock = threading.Lock()
        """Over `devices` and `_at`: a GPU is in one thread's hands at a time."""
        self._owing = False
        self._orders = self._through = 0
        """Given to the thread to do, and done by it, counted each on its own side: in between all GPUs are its own."""
        self._caller = None if native is None else native.Caller()
        self._called: list[NvidiaDevice] = []
        """The GPUs that the other thread was asked about, at `_called_ns`."""
        self._called_ns = 0
        self.heard_ns = -1
        """When that other thread was asked for the answers that were taken last."""
        self._settled = False
        """All GPUs have had their first slow reading."""
        self._asked: SimpleQueue[_Order | None] = SimpleQueue()
        """None ends the thread."""
        self._answered: SimpleQueue[None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="nvidia", daemon=True)
        self._thread.start()

    def ask(self, now_ns: int) -> bool:
        """Has all GPUs read once more; False while it still owes the last reading."""
        if not self.wait(0.0):
            return False
        self._owing = True
        if self._orders == self._through and self._caller is not None:
            questions = [asked for device in self.devices if (asked := device.questions()) is not None]
            if len(questions) == len(self.devices):
                self._called, self._called_ns = self.devices, now_ns
                self._caller.ask(questions)
                return True
        self._order(_Order(now_ns, fast=True))
        return True

    @property
    def round(self) -> int | None:
        """Of the slow readings, the last that is done with; None while one goes on, or where GPUs cannot be asked `again`."""
        return self._through if self._orders == self._through and not self._owing and self._caller is not None else None

    def again(self, now_ns: int) -> None:
        """As `ask`, of all GPUs what was asked last."""
        assert self._caller is not None
        self._caller.again()
        self._owing, self._called, self._called_ns = True, self.devices, now_ns

    def packed(self, deadline: float, programs: list[bytes], slow_due_ns: int) -> bytes | None:
        """What answers make of the programs; None where it is for `wait` to take them."""
        assert self._caller is not None
        packed = self._caller.packed(deadline - time.monotonic(), programs, self._called_ns)
        if packed is not None:
            self._called, self._owing, self.heard_ns = [], False, self._called_ns
            if self._called_ns >= slow_due_ns:
                self._order(_Order(self._called_ns, fast=False))
        return packed

    def heard(self) -> list[bytes]:
        """The answers of each GPU that were taken last."""
        assert self._caller is not None
        return self._caller.heard()

    def wait(self, deadline: float) -> bool:
        """Until all have answered or `deadline` (time.monotonic) has come; whether they have."""
        if self._called:
            return self._hear(deadline)
        if self._owing:
            try:
                self._answered.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                return False
            self._owing = False
        return True

    def _order(self, order: _Order) -> None:
        self._orders += 1
        self._asked.put(order)

    def _hear(self, deadline: float) -> bool:
        """What the thread without Python was answered."""
        assert self._caller is not None
        answers = self._caller.wait(deadline - time.monotonic())
        if answers is None:
            return False
        now_ns = self._called_ns
        for device, answer in zip(self._called, answers, strict=True):
            if device in self.devices:
                device.hear(now_ns, answer)
        self._called, self._owing, self.heard_ns = [], False, now_ns
        if now_ns >= min([device.slow_due_ns for device in self.devices]):
            self._order(_Order(now_ns, fast=False))
        return True

    def split(self) -> list[NvidiaDevice]:
        """Leaves it the GPU that it is at, and gives the others; [] when it is through or has no others."""
        if self._called and self._caller is not None:
            place = self._caller.at()
            if place < 0 or self.devices != self._called:
                return []
            self._caller.keep(place)
            self.devices = [self._called[place]]
            return [device for device in self._called if device is not self._called[place]]
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
        through = self._caller is None or self._caller.wait(timeout_s) is not None
        return through and not self._thread.is_alive()

    def _run(self) -> None:
        while (order := self._asked.get()) is not None:
            now_ns = order.now_ns
            if order.fast:
                for device in self.devices:
                    if self._begin(device):
                        device.read(now_ns)
                self._end()
                self._answered.put(None)
            begun = time.monotonic()
            for device in [device for device in self.devices if device.is_slow_due(now_ns)]:
                if self._begin(device):
                    device.read_slow(now_ns)
                if self._settled and time.monotonic() - begun >= _SLOW_WITHIN_S:
                    break
            self._settled = True
            self._end()
            self._through += 1
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


def read_all(crews: list[Crew], now_ns: int, within_s: float, asked: list[Crew] | None = None) -> list[Crew]:
    """Has every GPU read, in `within_s` where all is well and in twice that where one hangs; gives the crews, with new ones.

    `asked` are those of which `ask` was true already.
    """
    asked = [crew for crew in crews if crew.ask(now_ns)] if asked is None else asked
    deadline = time.monotonic() + within_s
    late = [crew for crew in crews if crew not in asked or not crew.wait(deadline)]
    if not late:
        return crews
    fresh = [Crew(others) for crew in late if (others := crew.split())]
    deadline = time.monotonic() + within_s
    for crew in fresh:
        crew.ask(now_ns)
    for crew in fresh:
        crew.wait(deadline)
    return [*crews, *fresh]
