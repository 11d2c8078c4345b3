"""One NVIDIA GPU: what it is asked, and what is remembered of its answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from msgspec import Struct

from distmon.agent.sensors.base import rate, why
from distmon.agent.sensors.nvidia_calls import (
    COUNTERS,
    NOT_REPORTED,
    PROCESSES,
    SLOW,
    Call,
    Handle,
    Nvml,
    in_words,
    is_lasting,
    is_loss,
)
from distmon.agent.sensors.nvidia_fast import FAST, MEMORY, Questions
from distmon.agent.sensors.nvidia_gpm import FIELDS, NOT_ON_THIS_GPU, NOT_YET, Gpm, has_gpm
from distmon.agent.sensors.nvidia_packed import program_of
from distmon.core.events import GpuReading

_SLOW_EVERY_NS = 5 * 10**9
_SECOND_AFTER_NS = 10**9 // 5
"""The second slow reading comes at once: rates need both, and GPM a tenth of a second between them."""
_TRY_AGAIN_NS = 4 * 10**9
"""How often a lost GPU is looked for."""
_MEMORY = tuple(MEMORY.fields)
_FAST_FIELDS = tuple(name for call in FAST for name in call.fields)
_SLOW_FIELDS = (*(name for call in SLOW for name in call.fields), *(counter[0] for counter in COUNTERS), *FIELDS)
_NOT_ASKED_YET = "it has not been asked yet"
_UNKNOWN = "the driver does not know it now"
_IN_INSTANCES = "it is split into instances, which report it themselves"
_SHARED = "system memory, which this GPU shares"

SystemMemory = Callable[[], tuple[int, int]]
"""(used, total) in bytes."""


class Instance(NamedTuple):
    """A MIG instance and what is known of it all the time."""

    number: int
    uuid: str
    name: str
    handle: Handle
    memory: Questions


class Answer(Struct):
    """What one GPU said. `loss` is not empty when it is gone, `failure` when every call on it failed."""

    taken_ns: int
    values: dict[str, Any] = {}
    unavailable: dict[str, str] = {}
    notes: dict[str, str] = {}
    slow_taken_ns: int | None = None
    slow_values: dict[str, Any] = {}
    slow_reasons: dict[str, str] = {}
    """As far as they are of slow things, what `unavailable` began with."""
    instances: list[tuple[Instance, dict[str, Any]]] = []
    xids: list[int] = []
    loss: str = ""
    failure: str = ""


class NvidiaDevice:
    """Made by the sensor after each initialisation of the driver; what a call said once and for all is remembered until then."""

    def __init__(self, nvml: Nvml, index: int, uuid: str, name: str, handle: Handle, system_memory: SystemMemory) -> None:
        self.index, self.uuid, self.name = index, uuid, name
        self._nvml = nvml
        self._handle: Handle = handle
        self._system_memory = system_memory
        self._questions: Questions | None = None
        self._never: dict[str, str] = {}
        """Field -> why this GPU does not have it."""
        self._never_fast: dict[str, str] = {}
        """The same of what every sample needs."""
        self._counts: dict[str, tuple[int, int]] = {}
        """Field of a counter -> its last value and when."""
        self._slow_values: dict[str, Any] = {}
        self._slow_reasons: dict[str, str] = dict.fromkeys(_SLOW_FIELDS, _NOT_ASKED_YET)
        self.slow_taken_ns: int | None = None
        """When the slow values were asked for that it gives now."""
        self._slow_readings = 0
        self.slow_due_ns = 0
        """When it is time for `read_slow`, unless it is lost."""
        self._instances: list[Instance] = []
        self._gpms: dict[int | None, Gpm] = {}
        """By number of the MIG instance, None for the whole GPU."""
        self._activity: dict[int | None, dict[str, float]] = {}
        self._events: Any = None
        self._xids: list[int] = []
        self._loss = ""
        self._tried_ns = 0
        self._answers: deque[Answer] = deque(maxlen=1)

    def read(self, now_ns: int) -> None:
        """Asks what every sample needs, for `take`. Like `read_slow`, in one thread at a time."""
        self._answers.append(self._read(now_ns))

    def questions(self) -> tuple[int, bytes] | None:
        """What every sample asks, for `hear`; None where `read` has to: the first time, of a lost GPU, of one with instances."""
        return None if self._questions is None or self._loss or self._instances else self._questions.packed

    def program(self, shown: GpuReading, slow_taken_ns: int | None) -> bytes | None:
        """What makes a reading such as this one, with slow values of that time, of answers to `questions`; None where more than
        their numbers can change."""
        shares_memory = self._never.get(_MEMORY[0]) == NOT_REPORTED
        if slow_taken_ns is None or slow_taken_ns != self.slow_taken_ns or shares_memory or self.questions() is None:
            return None
        return None if self._questions is None else program_of(shown, self._questions, slow_taken_ns)

    def says_again(self, last: Answer) -> bool:
        """Whether what it says of slow things is what it said in this answer."""
        same = self._slow_values == last.slow_values and self._slow_reasons == last.slow_reasons
        return same and not self._xids and self.questions() is not None

    def told(self, answers: bytes) -> dict[str, Any]:
        """The values in answers to `questions` that are no refusals."""
        return {} if self._questions is None else self._questions.told(answers)[0]

    def hear(self, asked_ns: int, answers: bytes) -> None:
        """As `read`, of questions that machine code has asked."""
        self._answers.append(self._read(asked_ns, answers))

    def take(self) -> Answer | None:
        """The answer that has not been taken yet."""
        try:
            return self._answers.popleft()
        except IndexError:
            return None

    def is_slow_due(self, now_ns: int) -> bool:
        """Whether it is time for `read_slow`."""
        return not self._loss and now_ns >= self.slow_due_ns

    @property
    def settled(self) -> bool:
        """Whether the next sample has every value that there can be: rates need two slow readings."""
        return bool(self._loss) or self._slow_readings > 1

    @property
    def has_xid_events(self) -> bool:
        """Whether the driver says by itself what goes wrong; True until it has refused."""
        return "last_xid" not in self._never

    def close(self) -> None:
        """After this nothing may be asked any more."""
        with suppress(self._nvml.NVMLError):  # the driver may be gone, and all this with it
            if self._events is not None:
                self._nvml.nvmlEventSetFree(self._events)
            for gpm in self._gpms.values():
                gpm.close()

    def _read(self, now_ns: int, answers: bytes | None = None) -> Answer:
        try:
            if self._loss:
                if now_ns - self._tried_ns < _TRY_AGAIN_NS:
                    return Answer(now_ns, loss=self._loss)
                self._tried_ns = now_ns
                self._find_again()
            answer = Answer(now_ns, *self._ask_fast(answers))
            if self._instances:
                answer.instances = [(instance, self._read_instance(instance)) for instance in self._instances]
        except self._nvml.NVMLError as error:
            # A GPU that was lost is lost until it answers, whatever its calls say meanwhile.
            self._loss, self._tried_ns = self._loss or in_words(error), now_ns
            return Answer(now_ns, loss=self._loss)
        self._loss = ""
        if answer.unavailable:
            answer.failure = _common_failure(answer)
            self._share_memory(answer)
        answer.slow_taken_ns, answer.slow_values = self.slow_taken_ns, self._slow_values
        answer.slow_reasons, answer.unavailable = self._slow_reasons, self._slow_reasons | answer.unavailable
        answer.xids, self._xids = self._xids, []
        return answer

    def _find_again(self) -> None:
        """By its UUID: another GPU may have come to its number. Raises NVMLError."""
        self._handle = self._nvml.nvmlDeviceGetHandleByUUID(self.uuid)
        self._nvml.nvmlDeviceGetUUID(self._handle)
        self._questions = None
        self._never.clear()
        self._never_fast = {}
        self._counts.clear()

    def _ask_fast(self, answers: bytes | None) -> tuple[dict[str, Any], dict[str, str]]:
        """What every sample needs, and reasons where there is none. Raises NVMLError when the GPU is gone."""
        never = self._never
        if self._questions is None:
            self._questions = Questions(self._nvml, self._handle, [call for call in FAST if call.fields[0] not in never])
        found, refusals = self._questions.ask() if answers is None else self._questions.told(answers)
        reasons: dict[str, str] = {}
        if refusals:
            lasting = [call for call, code in refusals if self._refused(call.fields, self._nvml.NVMLError(code), reasons)]
            if lasting:
                self._questions.leave_out(lasting)
                self._never_fast = {name: never[name] for name in _FAST_FIELDS if name in never}
        return found, reasons | self._never_fast

    def _ask_slow(self, calls: Iterable[Call], values: dict[str, Any], reasons: dict[str, str]) -> None:
        """The same of the calls between samples."""
        for fields, ask in calls:
            if known := self._never.get(fields[0]):
                reasons.update(dict.fromkeys(fields, known))
                continue
            try:
                values.update(zip(fields, ask(self._nvml, self._handle), strict=True))
            except self._nvml.NVMLError as error:
                self._refused(fields, error, reasons)

    def _refused(self, fields: Sequence[str], error: Any, reasons: dict[str, str]) -> bool:
        """Notes why there are no values; whether that lasts. Raises the error when the GPU is gone."""
        if is_loss(error):
            raise error
        known = dict.fromkeys(fields, in_words(error))
        reasons.update(known)
        if is_lasting(error):
            self._never.update(known)
        return is_lasting(error)

    def _read_counters(self, now_ns: int, values: dict[str, Any], reasons: dict[str, str]) -> None:
        """Rates of the bus and the links."""
        wanted = [counter for counter in COUNTERS if counter[1] not in self._never]
        if not wanted:
            return
        numbers = [(getattr(self._nvml, name), scope) for _, name, scope, _ in wanted]
        try:
            fields = self._nvml.nvmlDeviceGetFieldValues(self._handle, numbers)
        except self._nvml.NVMLError as error:
            if is_loss(error):
                raise
            if is_lasting(error):
                self._never.update((name, in_words(error)) for _, name, _, _ in wanted)
            return
        for (into, name, _, unit), found in zip(wanted, fields, strict=True):
            if found.nvmlReturn != self._nvml.NVML_SUCCESS:
                refusal = self._nvml.NVMLError(found.nvmlReturn)
                if is_lasting(refusal):
                    self._never[name] = in_words(refusal)
                continue
            count = int(found.value.ullVal) * unit
            before, before_ns = self._counts.get(into, (None, 0))
            self._counts[into] = count, now_ns
            values[into] = rate(before, count, (now_ns - before_ns) / 1e9)
            reasons[into] = "its counter has not been read twice"

    def _share_memory(self, answer: Answer) -> None:
        """A GPU without memory of its own (Grace's small siblings, Jetson) uses the system's; not one that may not be asked."""
        if self._never.get(_MEMORY[0]) == NOT_REPORTED:
            try:
                answer.values.update(zip(_MEMORY, self._system_memory(), strict=True))
            except OSError as error:
                answer.unavailable.update(dict.fromkeys(_MEMORY, why(error)))
            else:
                answer.notes.update(dict.fromkeys(_MEMORY, _SHARED))
                for name in _MEMORY:
                    del answer.unavailable[name]

    def _read_instance(self, instance: Instance) -> dict[str, Any]:
        """What it says, with its reasons under `unavailable`. Raises NVMLError when the GPU is gone."""
        reasons: dict[str, str] = {}
        values, refusals = instance.memory.ask()
        for call, code in refusals:
            if is_loss(error := self._nvml.NVMLError(code)):
                raise error
            reasons.update(dict.fromkeys(call.fields, in_words(error)))
        try:
            values.update(zip(PROCESSES.fields, PROCESSES.ask(self._nvml, instance.handle), strict=True))
        except self._nvml.NVMLError as error:
            if is_loss(error):
                raise
            reasons.update(dict.fromkeys(PROCESSES.fields, in_words(error)))
        return values | self._activity.get(instance.number, {}) | {"unavailable": reasons}

    def read_slow(self, now_ns: int) -> None:
        """Asks what changes slowly or takes long, for the answers to come."""
        values: dict[str, Any] = {}
        reasons: dict[str, str] = {}
        try:
            self._read_counters(now_ns, values, reasons)
            self._ask_slow(SLOW, values, reasons)
            self._instances = self._find_instances()
            self._read_activity(values, reasons)
        except self._nvml.NVMLError:
            return  # the next sample tells of the loss
        for into, name, _, _ in COUNTERS:
            if name in self._never and into not in values:
                reasons.setdefault(into, self._never[name])
        self._xids += self._take_xids()
        if "last_xid" in self._never:
            reasons["last_xid"] = self._never["last_xid"]
        reasons = {name: reason for name, reason in reasons.items() if values.get(name) is None}
        reasons.update([(name, _UNKNOWN) for name, value in values.items() if value is None and name not in reasons])
        self._slow_values = {name: value for name, value in values.items() if value is not None}
        self._slow_reasons, self.slow_taken_ns = reasons, now_ns
        self._slow_readings += 1
        self.slow_due_ns = now_ns + (_SECOND_AFTER_NS if self._slow_readings == 1 else _SLOW_EVERY_NS)

    def _read_activity(self, values: dict[str, Any], reasons: dict[str, str]) -> None:
        """Of the whole GPU; of a GPU in instances, what each of them does. Raises NVMLError when the GPU is gone."""
        nvml = self._nvml
        numbers: list[int | None] = [instance.number for instance in self._instances]
        try:
            if "gpm" not in self._never and not self._gpms and not has_gpm(nvml, self._handle):
                self._never["gpm"] = NOT_ON_THIS_GPU
            if "gpm" not in self._never:
                self._gpms = {number: self._gpms.get(number) or Gpm(nvml, self._handle, number) for number in numbers or [None]}
            self._activity = {number: gpm.read() for number, gpm in self._gpms.items()}
        except nvml.NVMLError as error:
            if is_loss(error):
                raise
            self._activity = {}
            if is_lasting(error):
                self._never["gpm"], self._gpms = in_words(error), {}
        whole = self._activity.get(None, {})
        values.update((name, whole.get(name)) for name in FIELDS)
        missing = _IN_INSTANCES if self._instances else NOT_REPORTED if whole else NOT_YET
        reasons.update(dict.fromkeys(FIELDS, self._never.get("gpm", missing)))

    def _find_instances(self) -> list[Instance]:
        """Those that this process may see: a container has its own ones. Raises NVMLError when the GPU is gone."""
        nvml = self._nvml
        try:
            if "mig" in self._never or not nvml.nvmlDeviceGetMigMode(self._handle)[0]:
                return []
            places = range(nvml.nvmlDeviceGetMaxMigDeviceCount(self._handle))
        except nvml.NVMLError as error:
            if is_lasting(error):
                self._never["mig"] = in_words(error)
            return []
        found: list[Instance] = []
        for place in places:
            try:
                handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(self._handle, place)
                number = nvml.nvmlDeviceGetGpuInstanceId(handle)
                uuid, name = nvml.nvmlDeviceGetUUID(handle), nvml.nvmlDeviceGetName(handle)
            except nvml.NVMLError as error:
                if is_loss(error):
                    raise
                continue  # none there, one that is another container's, or one that was unmade just now
            found.append(Instance(number, uuid, name, handle, Questions(nvml, handle, (MEMORY,))))
        return found

    # --- Xid: the driver's error messages ---

    def _listen_for_xids(self) -> None:
        try:
            self._events = self._nvml.nvmlEventSetCreate()
            self._nvml.nvmlDeviceRegisterEvents(self._handle, self._nvml.nvmlEventTypeXidCriticalError, self._events)
        except self._nvml.NVMLError as error:
            self._never["last_xid"] = in_words(error)

    def _take_xids(self) -> list[int]:
        """Those that came since the last time; does not wait for more."""
        if self._events is None and "last_xid" not in self._never:
            self._listen_for_xids()
        found: list[int] = []
        while "last_xid" not in self._never and len(found) < 16:
            try:
                found.append(int(self._nvml.nvmlEventSetWait_v2(self._events, 0).eventData))
            except self._nvml.NVMLError:
                break  # none left
        return found


def _common_failure(answer: Answer) -> str:
    """The reason when not one of the calls for each sample gave a value; "" when one did."""
    if not answer.unavailable or any(value is not None for value in answer.values.values()):
        return ""
    return next(iter(answer.unavailable.values()), "")
