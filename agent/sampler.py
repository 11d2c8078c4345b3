"""Asks every sensor and makes one NodeSampled of their answers; no sensor can stop it by failing or by hanging."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Raw
from msgspec.msgpack import encode
from msgspec.structs import replace

from distmon.agent.gpu_ranks import GpuRanks
from distmon.agent.sensors import SOURCES, Source
from distmon.agent.sensors.base import REAL_ROOTS, Notice, Reading, Roots, Sensor, why
from distmon.agent.sensors.cgroup import ControlGroupSensor
from distmon.agent.sensors.infiniband import InfinibandSensor
from distmon.agent.sensors.joined_gpus import joined_gpus
from distmon.agent.sensors.network import NetworkSensor
from distmon.agent.sensors.processes import ProcessSensor
from distmon.core.events import GpuReading, NodeSampled

_WAIT_FOR_SLOW_S = 0.05
_OLDEST_SHOWN_S = 5.0
_SETTLE_POLL_S = 0.05
_MOST_NOTICES = 100
_ASK_AGAIN_S = 30.0
"""A machine that lacks a source now will hardly get it within the second."""
_EARLY_NS = 50_000_000
"""A sample that comes this much early still counts as the one for which a rare reading is due."""
_ADDED_UP = frozenset({"power", "temperatures", "gpus", "engines"})
"""Fields that several sources fill, each with devices of its own."""


class Sampler:
    """`network`, `processes` and `gpus` are open for whoever knows the ranks."""

    def __init__(
        self, node: str, roots: Roots = REAL_ROOTS, sources: Iterable[Source] = SOURCES, *, packed: bool = False
    ) -> None:
        """With `packed`, samples are to be sent on and nothing else: their values may be ready msgpack (`msgspec.Raw`)."""
        self.node = node
        self.network = NetworkSensor(roots)
        self.processes = ProcessSensor(roots)
        self.gpus = GpuRanks(roots)
        self.gpu_names: list[str] = []
        """Of whole GPUs in the last sample, by their numbers."""
        self.notices: deque[Notice] = deque(maxlen=_MOST_NOTICES)
        """What sensors have to say, for whoever publishes it."""
        group = ControlGroupSensor(roots, self.processes.first_pid)
        infiniband = InfinibandSensor(roots, lambda: self.network.used_by_training)
        own: list[Sensor] = [self.network, infiniband, self.processes, group]
        made = [(source, sensor) for source in sources if (sensor := source.make(roots)) is not None]
        answers = Counter(name for sensor in (*own, *(sensor for _, sensor in made)) for name in sensor.fields)
        # What several answer for is put together from all their values.
        alone = frozenset(name for name, count in answers.items() if packed and count == 1)
        self._readers: list[_Direct | _Threaded] = [_Direct(sensor, _asked(sensor, alone), self.notices) for sensor in own]
        for source, sensor in made:
            reader = _Threaded if source.may_block else _Direct
            self._readers.append(reader(sensor, _asked(sensor, alone, source.every_s), self.notices, source.every_s))
        self._threaded = [reader for reader in self._readers if isinstance(reader, _Threaded)]
        self._last_ns: int | None = None

    def prime(self) -> None:
        """Reads every counter once, so that the first sample has rates and no made-up zeros."""
        self.sample(at=0.0)

    def settle(self, within_s: float, *, best: bool = False) -> None:
        """Waits for the first answer of sources that take long to start, such as a GPU's driver.

        With `best` also for what only later readings hold: rates, and programs in whose place another source answers meanwhile.
        """
        deadline = time.monotonic() + within_s
        for reader in self._threaded:
            reader.wait(deadline)
        while best and not all(reader.settled() for reader in self._threaded) and time.monotonic() < deadline:
            time.sleep(_SETTLE_POLL_S)
            self.sample(at=0.0)

    def sample(self, at: float) -> NodeSampled:
        """A reading of everything now; `at` is stamped on it."""
        now_ns = time.monotonic_ns()
        interval_s = 0.0 if self._last_ns is None else (now_ns - self._last_ns) / 1e9
        self._last_ns = now_ns
        if self.gpus.changed:
            for threaded in self._threaded:
                threaded.unusual()
        for threaded in self._threaded:
            threaded.start(now_ns)
        # Two threads at work at once would hand Python's lock to and fro: the others' answers first, then what this one reads.
        deadline = time.monotonic() + _WAIT_FOR_SLOW_S
        for threaded in self._threaded:
            threaded.wait(deadline)
        values, unavailable, age_s = _merged([reader.result(now_ns) for reader in self._readers])
        gpus = values.get("gpus", ())
        if not isinstance(gpus, Raw):  # which are those of the sample before
            self.gpu_names = [gpu.name for gpu in gpus if gpu.instance is None]
            if gpus:
                gpus = values["gpus"] = self.gpus.assign(gpus)
                for threaded in self._threaded:
                    threaded.shown(gpus)
        return NodeSampled(at=at, node=self.node, interval_s=round(interval_s, 6), **values, unavailable=unavailable, age_s=age_s)


Ask = Callable[[int], Reading]
"""A sensor's `read`, or `packed`."""


def _asked(sensor: Sensor, alone: frozenset[str], every_s: float = 0.0) -> Ask:
    """How to have it read. Of fields that only it answers for (`alone`) values may be packed; those of a rare reading are, for
    they are sent many times."""
    if not alone.issuperset(sensor.fields):
        return sensor.read
    packed: Ask | None = getattr(sensor, "packed", None)
    return packed or ((lambda now_ns: _packed(sensor.read(now_ns))) if every_s else sensor.read)


def _packed(reading: Reading) -> Reading:
    """With lists as what they are sent as."""
    values = {name: Raw(encode(value)) if value and isinstance(value, list) else value for name, value in reading.values.items()}
    return replace(reading, values=values)


def _merged(results: list[tuple[Reading, float]]) -> tuple[dict[str, Any], dict[str, str], dict[str, float]]:
    """Values, reasons and ages by field. Where several sources answer for a field, a reason of one that
    gave nothing counts only if none gave anything."""
    values: dict[str, Any] = {}
    age_s: dict[str, float] = {}
    for reading, age in results:
        ages = reading.age_s or {}
        for name, value in reading.values.items():
            values[name] = _both(name, values[name], value) if name in values else value
            oldest = age + ages.get(name, 0.0) if ages else age
            if oldest and _is_value(value):
                age_s[name] = max(round(oldest, 3), age_s.get(name, 0.0))
    reasons: dict[str, list[str]] = {}
    for reading, _ in results:
        for name, reason in reading.unavailable.items():
            if _is_value(reading.values.get(name)) or not _is_value(values.get(name)):
                reasons.setdefault(name, []).append(reason)
    return values, {name: "; ".join(texts) for name, texts in reasons.items()}, age_s


def _both(name: str, before: Any, value: Any) -> Any:
    """What two sources say of a field: all devices of both, or else the later one's word."""
    if not _is_value(value):
        return value if before is None else before
    if name == "sources":
        return _both_sources(before, value)
    if before and name == "gpus":
        return joined_gpus(before, value)
    return [*before, *value] if before and name in _ADDED_UP else value


def _both_sources(before: dict[str, str], after: dict[str, str]) -> dict[str, str]:
    """By field; both of one that two programs gave together."""
    return before | {name: f"{before[name]}, {source}" if name in before else source for name, source in after.items()}


def _is_value(value: object) -> bool:
    return value is not None and value != []


class _Turn:
    """When a source is due that is read every `every_s` seconds. Two first readings come at once: rates need both."""

    def __init__(self, every_s: float) -> None:
        self._every_ns = int(every_s * 1e9)
        self._taken = 0
        self.due_ns = 0

    def take(self, now_ns: int) -> None:
        self._taken += 1
        if self._taken > 1:
            self.due_ns = now_ns + self._every_ns - _EARLY_NS


class _Direct:
    """A sensor whose reads never block, read in the caller's thread."""

    def __init__(self, sensor: Sensor, ask: Ask, notices: deque[Notice], every_s: float = 0.0) -> None:
        self._sensor = sensor
        self._ask = ask
        self._notices = notices
        self._turn = _Turn(every_s)
        self._read_ns = 0
        self._last = Reading({}, {})

    def result(self, now_ns: int) -> tuple[Reading, float]:
        """The reading and its age in seconds, 0 for one that was just taken."""
        if now_ns >= self._turn.due_ns:
            self._turn.take(now_ns)
            self._last, self._read_ns = _read(self._sensor, self._ask, now_ns), now_ns
            if self._last.notices:
                self._notices.extend(self._last.notices)
            return self._last, 0.0
        return self._last, (now_ns - self._read_ns) / 1e9


class _Threaded:
    """A sensor that may hang, in a thread of its own; while it does, its last values are given with their age."""

    def __init__(self, sensor: Sensor, ask: Ask, notices: deque[Notice], every_s: float = 0.0) -> None:
        self._sensor = sensor
        self._ask = ask
        self._notices = notices
        self._turn = _Turn(every_s)
        self._may_block: Callable[[], bool] = getattr(sensor, "may_block", lambda: True)
        self._begin: Callable[[int], None] = getattr(sensor, "begin", lambda now_ns: None)
        self._begun = self._is_own = False
        """`_begun`: it is read by `result`. `_is_own`: it was, just now."""
        self.settled: Callable[[], bool] = getattr(sensor, "settled", lambda: True)
        packed = ask != sensor.read
        self._show: Callable[[list[GpuReading]], None] | None = getattr(sensor, "shown", None) if packed else None
        self.unusual: Callable[[], None] = getattr(sensor, "unusual", lambda: None)
        self._last: tuple[int, Reading] | None = None
        self._asked_ns = 0
        self._wanted = threading.Semaphore(0)
        self._idle = threading.Event()
        self._idle.set()
        threading.Thread(target=self._run, name=f"sensor-{sensor.fields[0]}", daemon=True).start()

    def start(self, now_ns: int) -> None:
        """Has it read, where it is time to."""
        if not self._idle.is_set() or now_ns < self._turn.due_ns or self._lacks_source(now_ns):
            return
        self._turn.take(now_ns)
        self._asked_ns = now_ns
        if self._may_block():
            self._idle.clear()
            self._wanted.release()
        else:
            # Read in this thread, for waking another one costs more than most readings; last, if it asks a driver meanwhile.
            self._begun = True
            try:
                self._begin(now_ns)
            except Exception:
                return  # what fails here fails in the reading too, where it is told

    def wait(self, deadline: float) -> None:
        """For the answer to what was asked, until `deadline` (time.monotonic) at the latest."""
        if not self._idle.is_set():
            self._idle.wait(max(0.0, deadline - time.monotonic()))

    def result(self, now_ns: int) -> tuple[Reading, float]:
        """The reading and its age in seconds, 0 for one that was just taken."""
        self._begun, self._is_own = False, self._begun
        if self._is_own:
            self._take()
        if self._idle.is_set() and self._last is not None:
            return self._last[1], (now_ns - self._last[0]) / 1e9
        last, now_ns = self._last, time.monotonic_ns()
        if last is not None and now_ns - self._asked_ns < _OLDEST_SHOWN_S * 1e9:
            return last[1], (now_ns - last[0]) / 1e9
        silent_s = (now_ns - self._asked_ns) / 1e9
        return _absent(self._sensor, f"no answer for {silent_s:.0f} s"), 0.0

    def shown(self, gpus: list[GpuReading]) -> None:
        """To a sensor that is to know, what the sample shows of the GPUs that it just read."""
        if self._is_own and self._show is not None:
            self._show(gpus)

    def _lacks_source(self, now_ns: int) -> bool:
        if self._last is None or now_ns - self._asked_ns >= _ASK_AGAIN_S * 1e9:
            return False
        return not any(self._last[1].values.values())

    def _take(self) -> None:
        reading = _read(self._sensor, self._ask, self._asked_ns)
        self._notices.extend(reading.notices)
        self._last = (self._asked_ns, reading)

    def _run(self) -> None:
        while True:
            self._wanted.acquire()
            self._take()
            self._idle.set()


def _read(sensor: Sensor, ask: Ask, now_ns: int) -> Reading:
    """The reading, or its absence with the reason. A defect in one sensor is told as well, and must not end the others."""
    try:
        return ask(now_ns)
    except Exception as error:
        return _absent(sensor, why(error))


def _absent(sensor: Sensor, reason: str) -> Reading:
    return Reading({}, dict.fromkeys(sensor.fields, reason))
