"""Asks every sensor and makes one NodeSampled of their answers; no sensor can stop it by failing or by hanging."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any

from distmon.agent.sensors import SOURCES, Source
from distmon.agent.sensors.base import REAL_ROOTS, Reading, Roots, Sensor, why
from distmon.agent.sensors.network import NetworkSensor
from distmon.agent.sensors.processes import ProcessSensor
from distmon.core.events import NodeSampled

_WAIT_FOR_SLOW_S = 0.05
_OLDEST_SHOWN_S = 5.0
_ASK_AGAIN_S = 30.0
"""A machine that lacks a source now will hardly get it within the second."""


class Sampler:
    """`network` and `processes` are open for whoever knows the ranks."""

    def __init__(self, node: str, roots: Roots = REAL_ROOTS, sources: Iterable[Source] = SOURCES) -> None:
        self.node = node
        self.network = NetworkSensor(roots)
        self.processes = ProcessSensor(roots)
        self._readers: list[_Direct | _Threaded] = [_Direct(self.network), _Direct(self.processes)]
        for source in sources:
            sensor = source.make(roots)
            self._readers.append(_Threaded(source.name, sensor) if source.may_block else _Direct(sensor))
        self._last_ns: int | None = None

    def prime(self) -> None:
        """Reads every counter once, so that the first sample has rates and no made-up zeros."""
        self.sample(at=0.0)

    def sample(self, at: float) -> NodeSampled:
        """A reading of everything now; `at` is stamped on it."""
        now_ns = time.monotonic_ns()
        interval_s = 0.0 if self._last_ns is None else (now_ns - self._last_ns) / 1e9
        self._last_ns = now_ns
        for reader in self._readers:
            reader.start(now_ns)
        values: dict[str, Any] = {}
        unavailable: dict[str, str] = {}
        age_s: dict[str, float] = {}
        deadline = time.monotonic() + _WAIT_FOR_SLOW_S
        for reader in self._readers:
            reading, age = reader.result(deadline)
            values.update(reading.values)
            unavailable.update(reading.unavailable)
            if age:
                age_s.update(dict.fromkeys(reading.values, round(age, 3)))
        return NodeSampled(at=at, node=self.node, interval_s=round(interval_s, 6), **values, unavailable=unavailable, age_s=age_s)


class _Direct:
    """A sensor whose reads never block, read in the caller's thread."""

    def __init__(self, sensor: Sensor) -> None:
        self._sensor = sensor
        self._now_ns = 0

    def start(self, now_ns: int) -> None:
        self._now_ns = now_ns

    def result(self, deadline: float) -> tuple[Reading, float]:
        return _read(self._sensor, self._now_ns), 0.0


class _Threaded:
    """A sensor that may hang, in a thread of its own; while it does, its last values are given with their age."""

    def __init__(self, name: str, sensor: Sensor) -> None:
        self._sensor = sensor
        self._last: tuple[int, Reading] | None = None
        self._asked_ns = 0
        self._wanted = threading.Semaphore(0)
        self._idle = threading.Event()
        self._idle.set()
        threading.Thread(target=self._run, name=f"sensor-{name}", daemon=True).start()

    def start(self, now_ns: int) -> None:
        if self._idle.is_set() and not (self._lacks_source() and now_ns - self._asked_ns < _ASK_AGAIN_S * 1e9):
            self._idle.clear()
            self._asked_ns = now_ns
            self._wanted.release()

    def result(self, deadline: float) -> tuple[Reading, float]:
        """The reading and its age in seconds, 0 for one that was just taken."""
        if self._idle.wait(max(0.0, deadline - time.monotonic())) and self._last is not None:
            return self._last[1], 0.0
        last, now_ns = self._last, time.monotonic_ns()
        if last is not None and now_ns - last[0] < _OLDEST_SHOWN_S * 1e9:
            return last[1], (now_ns - last[0]) / 1e9
        silent_s = (now_ns - self._asked_ns) / 1e9
        return _absent(self._sensor, f"no answer for {silent_s:.0f} s"), 0.0

    def _lacks_source(self) -> bool:
        return self._last is not None and not any(self._last[1].values.values())

    def _run(self) -> None:
        while True:
            self._wanted.acquire()
            reading = _read(self._sensor, self._asked_ns)
            self._last = (self._asked_ns, reading)
            self._idle.set()


def _read(sensor: Sensor, now_ns: int) -> Reading:
    """The reading, or its absence with the reason. A defect in one sensor is told as well, and must not end the others."""
    try:
        return sensor.read(now_ns)
    except Exception as error:
        return _absent(sensor, why(error))


def _absent(sensor: Sensor, reason: str) -> Reading:
    return Reading({}, dict.fromkeys(sensor.fields, reason))
