"""NVIDIA GPUs through NVML (nvidia-ml-py).

Calls are made in threads of their own (nvidia_crew), because a sick GPU can hold one up for seconds; it waits in C, without
Python's lock. A process would cost the node another interpreter, and an initialisation that hangs blocks this sensor alone.
When the whole driver is away (reloaded, updated, taken from a container), it is initialised anew, less and less often.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Raw, Struct

from distmon.agent.machine_code import native
from distmon.agent.sensors import nvidia_gpm as gpm
from distmon.agent.sensors import nvidia_library
from distmon.agent.sensors.base import KernelFile, Notice, Reading, Roots
from distmon.agent.sensors.kernel_log import KERNEL_LOG, LoggedXid, PciAddress, XidLog
from distmon.agent.sensors.memory import kilobytes
from distmon.agent.sensors.nvidia_calls import Handle, Nvml, in_words, is_loss
from distmon.agent.sensors.nvidia_crew import Crew, read_all
from distmon.agent.sensors.nvidia_device import Answer, Instance, NvidiaDevice
from distmon.agent.sensors.nvidia_packed import read_at
from distmon.core.events import GpuProcess, GpuReading

_ANSWER_WITHIN_S = 0.02
_OLDEST_SHOWN_NS = 2 * 10**9
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_END_WITHIN_S = 0.2
_SETTLING_S = 3.0
"""After the driver is loaded, a GPU with ECC looks busy for a moment."""
_LOG_EVERY_NS = 2 * 10**9 - 50_000_000
_OK, _LOST, _SILENT, _UNREADABLE = "ok", "lost", "silent", "unreadable"
_OF_AN_INSTANCE = {"others": "not reported for a MIG instance"}
_SOURCES = {"gpus": "nvml"}
_ONE_COUNT = "its counter has not been read in two samples in a row"
_FROM_THE_LOG = "from the kernel's log: the driver hands out no events"
_ACTIVITY = (*gpm.FIELDS, "utilization_percent")


class _Condition(NamedTuple):
    state: str
    reason: str = ""


_WELL = _Condition(_OK)


class _Row(Struct):
    """A GPU's place in the sample, which it keeps while the agent runs. Its identity is from a time when it answered."""

    index: int
    uuid: str
    name: str
    device: NvidiaDevice | None
    missing: _Condition
    """What is wrong when there is no device."""
    since_ns: int = 0
    last: Answer | None = None
    energy_mj: int | None = None
    """The counter at the last sample; None when that had none."""
    address: PciAddress | None = None
    last_xid: int | None = None
    told: str = _OK
    xids_told: set[int] = set()


class _Usual(Struct):
    """GPUs of which machine code makes a sample: all are well, and say nothing but numbers."""

    crew: Crew
    round: int
    """Of its slow readings, that the programs show."""
    programs: list[bytes]
    """In the order of the rows."""
    slow_due_ns: int


class NvidiaSensor:
    fields: tuple[str, ...] = ("gpus",)

    def __init__(self, roots: Roots, answer_within_s: float = _ANSWER_WITHIN_S, kernel_log: Path = KERNEL_LOG) -> None:
        self._meminfo = KernelFile(roots.proc / "meminfo")
        self._answer_within_s = answer_within_s
        self._nvml: Nvml = None
        self._crews: list[Crew] = []
        self._asked: list[Crew] = []
        """Those that were asked by `begin`, at `_asked_ns`."""
        self._asked_ns = -1
        self._rows: dict[str, _Row] = {}
        """By UUID."""
        self._away = ""
        """Why the driver cannot be asked, while it cannot."""
        self._letting_go = False
        self._order: list[_Row] = []
        """The rows by index."""
        self._troubled = True
        """Not all GPUs were well at the last reading, or there was none."""
        self._log_due_ns = 0
        self._kernel_log: Path | None = kernel_log
        """None once it could not be read."""
        self._log: XidLog | None = None
        self._logged: list[LoggedXid] = []
        """What it newly said, for the next `read`."""
        self._retry_ns = 0
        self._pause_s = _FIRST_PAUSE_S
        self._looking = False
        """At the next reading GPUs are looked for that could not be reached when the driver was taken up."""
        self._usual: _Usual | None = None

    def may_block(self) -> bool:
        """Only while the driver is taken up or let go of, or GPUs are looked for: they are asked by threads of their own."""
        return self._nvml is None or self._letting_go or self._looking

    def settled(self) -> bool:
        """False while rates and activity, which take two slow readings, are still to come."""
        return all(row.device is None or row.device.settled for row in self._rows.values())

    def begin(self, now_ns: int) -> None:
        """Has the GPUs asked while others are read, where that takes no turns at Python's lock."""
        usual = self._usual
        if usual is not None and (usual.crew.round == usual.round or self._says_again(usual)) and not self._has_logged(now_ns):
            usual.crew.again(now_ns)
            self._asked, self._asked_ns = self._crews, now_ns
        elif native is not None and not self.may_block():
            self.unusual()
            self._asked, self._asked_ns = [crew for crew in self._crews if crew.ask(now_ns)], now_ns

    def _says_again(self, usual: _Usual) -> bool:
        """Whether a slow reading that has come since says the same of all GPUs."""
        if (current := usual.crew.round) is None:
            return False
        programs: list[bytes] = []
        for row, program in zip(self._in_order(), usual.programs, strict=True):
            taken_ns = row.device.slow_taken_ns if row.device is not None else None
            if row.device is None or row.last is None or taken_ns is None or not row.device.says_again(row.last):
                return False
            row.last.slow_taken_ns = taken_ns
            programs.append(read_at(program, taken_ns))
        usual.round, usual.programs = current, programs
        usual.slow_due_ns = min([device.slow_due_ns for device in usual.crew.devices])
        return True

    def packed(self, now_ns: int) -> Reading:
        """As `read`, in machine code where all GPUs say the usual."""
        usual = self._usual
        if usual is not None and self._asked_ns == now_ns:
            found = usual.crew.packed(time.monotonic() + self._answer_within_s, usual.programs, usual.slow_due_ns)
            if found is not None:
                return Reading({"gpus": Raw(found), "sources": _SOURCES}, {})
        return self.read(now_ns)

    def shown(self, gpus: list[GpuReading]) -> None:
        """What the sample of this moment shows of the last `read`. The next ones show the same, but for what GPUs answer."""
        rows, now_ns = self._in_order(), self._asked_ns
        if self._troubled or len(self._crews) != 1 or len(gpus) != len(rows):
            return
        crew, slow = self._crews[0], self._crews[0].round
        programs = [_program(row, gpu, now_ns) for row, gpu in zip(rows, gpus, strict=True)]
        devices = [row.device for row in rows]
        known = [program for program in programs if program is not None]
        if slow is not None and crew.heard_ns == now_ns and crew.devices == devices and len(known) == len(rows):
            slow_due_ns = min([device.slow_due_ns for device in crew.devices])
            self._usual = _Usual(crew, slow, known, slow_due_ns)

    def unusual(self) -> None:
        """What the GPUs show changes: leaves each as if it had been read by itself."""
        usual, self._usual = self._usual, None
        if usual is None:
            return
        for row, answers in zip(self._in_order(), usual.crew.heard(), strict=True):
            if row.device is not None and row.last is not None:
                row.last.taken_ns, row.last.values = usual.crew.heard_ns, row.device.told(answers)
                row.energy_mj = row.last.values.get("energy_j")

    def read(self, now_ns: int) -> Reading:
        """All GPUs, with those that do not answer. Raises DriverError while not one has ever been seen."""
        self.unusual()
        if self._letting_go:
            self.close()
        if self._nvml is None:
            self._come_back(now_ns)
        elif self._looking:
            self._look_again(now_ns)
        asked = self._asked if self._asked_ns == now_ns else None
        self._crews = read_all(self._crews, now_ns, self._answer_within_s, asked)
        rows = self._in_order()
        gpus: list[GpuReading] = []
        conditions: list[_Condition] = []
        notices: list[Notice] = []
        logged, self._logged = [*self._logged, *self._logged_xids(rows, now_ns)], []
        for row in rows:
            condition, fresh = self._hear(row, now_ns)
            conditions.append(condition)
            codes = [*fresh.xids] if fresh is not None else []
            if logged:
                codes += [xid.code for xid in logged if xid.address == row.address]
            if codes:
                notices += _xid_notices(row, codes)
            if self._log is not None and fresh is not None and fresh.unavailable.pop("last_xid", "") and row.last_xid is not None:
                fresh.notes["last_xid"] = _FROM_THE_LOG
            gpus += _readings(row, condition, fresh, now_ns)
        # What runs once a second runs with cold caches: where all is well and was so before, there is nothing to judge.
        troubled, self._troubled = self._troubled, conditions.count(_WELL) < len(conditions) or not conditions
        if troubled or self._troubled:
            notices += _notices_of_change(rows, conditions)
            self._judge(conditions, now_ns)
        if not gpus:
            return Reading({"gpus": []}, {"gpus": "the NVIDIA driver shows no GPU"}, tuple(notices))
        return Reading({"gpus": gpus, "sources": _SOURCES}, {}, tuple(notices))

    def close(self) -> None:
        """Ends the threads and lets go of the driver."""
        for row in self._rows.values():
            row.device = None
        ended = [crew.close(_END_WITHIN_S) for crew in self._crews]
        self._crews, self._usual, self._letting_go = [], None, False
        if self._nvml is not None and all(ended):
            nvidia_library.shut_down(self._nvml)
        self._nvml = None

    def _come_back(self, now_ns: int) -> None:
        """Initialises the driver when it is time to."""
        if not self._rows and not nvidia_library.is_present():
            raise nvidia_library.DriverError("no NVIDIA driver on this machine")
        if now_ns < self._retry_ns and self._rows:
            return
        try:
            self._nvml = nvidia_library.initialize()
            self._find_gpus(now_ns)
        except nvidia_library.DriverError as error:
            self._away = str(error)
            self._wait_longer(now_ns)
            if not self._rows:
                raise
        for row in self._rows.values():
            if self._nvml is None:
                row.missing = _Condition(_UNREADABLE, self._away)

    def _find_gpus(self, now_ns: int) -> None:
        """Gives each GPU that is there a device, and a row where it is new. Raises DriverError."""
        nvml = self._nvml
        try:
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            self._nvml = None
            raise nvidia_library.DriverError(in_words(error)) from None
        for row in self._rows.values():
            row.missing = _Condition(_LOST, "it is no longer there")
        for number in range(count):
            self._find_gpu(number, now_ns)
        self._order = []
        devices = [row.device for row in self._rows.values() if row.device is not None]
        self._crews = [Crew(devices)] if devices else []

    def _look_again(self, now_ns: int) -> None:
        """Gives a device to each GPU that has none and can be reached by now. The others are left to their threads."""
        self._looking = False
        nvml, had = self._nvml, [row.device for row in self._rows.values()]
        try:
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError:
            return
        reached = {row.index for row in self._rows.values() if row.device is not None}
        for number in range(count):
            if number not in reached:
                self._find_gpu(number, now_ns)
        self._order = []
        if new := [row.device for row in self._rows.values() if row.device is not None and row.device not in had]:
            self._crews = [*self._crews, Crew(new)]

    def _find_gpu(self, number: int, now_ns: int) -> None:
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(number)
            uuid, name = nvml.nvmlDeviceGetUUID(handle), nvml.nvmlDeviceGetName(handle)
        except nvml.NVMLError as error:
            condition = _Condition(_LOST if is_loss(error) else _UNREADABLE, in_words(error))
            known = next((row for row in self._rows.values() if row.index == number), None)
            if known is None:
                self._rows[f"unknown {number}"] = _Row(number, "", "", None, condition)
            elif known.device is None:
                known.missing = condition
            return
        row = self._rows.get(uuid)
        if row is not None and row.device is not None:
            return
        if row is None:
            unknown = self._rows.pop(f"unknown {number}", None)
            taken = {other.index for other in self._rows.values()}
            index = number if number not in taken else max(taken) + 1
            row = self._rows[uuid] = _Row(index, uuid, name, None, _WELL, told=unknown.told if unknown else _OK)
        row.address = _pci_address(nvml, handle)
        row.device = NvidiaDevice(nvml, row.index, uuid, name, handle, self._system_memory)
        row.since_ns, row.last = now_ns, None

    def _in_order(self) -> list[_Row]:
        if len(self._order) != len(self._rows):
            self._order = sorted(self._rows.values(), key=lambda row: row.index)
        return self._order

    def _logged_xids(self, rows: list[_Row], now_ns: int) -> list[LoggedXid]:
        """Where a driver hands out no events, what the kernel's log newly says of them."""
        if self._log is not None and now_ns < self._log_due_ns:
            return []
        self._log_due_ns = now_ns + _LOG_EVERY_NS
        if self._kernel_log is None or all(row.device is None or row.device.has_xid_events for row in rows):
            return []
        try:
            self._log = self._log or XidLog(self._kernel_log)
            return self._log.read()
        except OSError:
            self._kernel_log = self._log = None
            return []

    def _has_logged(self, now_ns: int) -> bool:
        """Whether the kernel's log says something new, or can no longer be read, where it is listened to."""
        if (log := self._log) is None or now_ns < self._log_due_ns:
            return False
        self._logged += self._logged_xids(self._in_order(), now_ns)
        return bool(self._logged) or self._log is not log

    def _hear(self, row: _Row, now_ns: int) -> tuple[_Condition, Answer | None]:
        """How the GPU is, and what it newly said."""
        if row.device is None:
            return row.missing, None
        answer = row.device.take()
        row.last = answer or row.last
        last, heard_ns = row.last, row.last.taken_ns if row.last else row.since_ns
        if last is not None and last.loss:
            return _Condition(_LOST, last.loss), answer
        if answer is None and now_ns - heard_ns >= _OLDEST_SHOWN_NS:
            return _Condition(_SILENT, f"its driver call has not returned for {(now_ns - heard_ns) / 1e9:.0f} s"), None
        if last is not None and last.failure:
            return _Condition(_UNREADABLE, last.failure), answer
        return _WELL, answer

    def _judge(self, conditions: list[_Condition], now_ns: int) -> None:
        """Lets go of the driver when no GPU can be read through it, or it knows of none: it looks for them when it is taken up.
        Threads that hang keep it: they may yet return. Where some can be read, those that could not be reached are looked for."""
        if self._nvml is None:
            return
        states = {condition.state for condition in conditions}
        if all(row.device is not None for row in self._rows.values()) and _OK in states:
            self._pause_s = _FIRST_PAUSE_S
        elif _OK in states:
            if now_ns >= self._retry_ns:
                self._looking = True
                self._wait_longer(now_ns)
        elif (states & {_LOST, _UNREADABLE} or not states) and _SILENT not in states and now_ns >= self._retry_ns:
            for row, condition in zip(sorted(self._rows.values(), key=lambda row: row.index), conditions, strict=True):
                row.missing = condition
            self._letting_go = True
            self._wait_longer(now_ns)

    def _wait_longer(self, now_ns: int) -> None:
        self._retry_ns = now_ns + int(self._pause_s * 1e9)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    def _system_memory(self) -> tuple[int, int]:
        text = self._meminfo.read()
        total, free = kilobytes(text, b"MemTotal"), kilobytes(text, b"MemAvailable")
        return 1024 * ((total or 0) - (free or 0)), 1024 * (total or 0)


def _pci_address(nvml: Nvml, handle: Handle) -> PciAddress | None:
    try:
        found = nvml.nvmlDeviceGetPciInfo(handle)
    except nvml.NVMLError:
        return None
    return PciAddress(found.domain, found.bus, found.device)


def _program(row: _Row, shown: GpuReading, now_ns: int) -> bytes | None:
    """For machine code, of a GPU that just answered and says nothing out of the ordinary."""
    last, device = row.last, row.device
    if device is None or last is None or last.taken_ns != now_ns or last.instances or shown.state != _OK:
        return None
    return device.program(shown, last.slow_taken_ns)


def _readings(row: _Row, condition: _Condition, fresh: Answer | None, now_ns: int) -> list[GpuReading]:
    """The GPU and its MIG instances."""
    last = row.last
    if condition.state != _OK or last is None or row.device is None:
        row.energy_mj = None
        reason = condition.reason or "its first reading is not there yet"
        who: dict[str, Any] = {"index": row.index, "uuid": row.uuid, "name": row.name, "last_xid": row.last_xid}
        return [GpuReading(**who, state=condition.state, unavailable={"all": reason})]
    values = last.slow_values | last.values
    values["energy_j"] = _energy_j(row, fresh)
    missing = last.unavailable
    if values["energy_j"] is None and "energy_j" not in missing:
        missing = missing | {"energy_j": _ONE_COUNT}
    if last.instances:
        in_instances = {pid for _, of in last.instances for pid, _ in of.get("processes", ())}
        values["processes"] = [pair for pair in values.get("processes", ()) if pair[0] not in in_instances]
    if pairs := values.get("processes"):
        values["processes"] = _processes(pairs)
    whole = GpuReading(
        index=row.index,
        uuid=row.uuid,
        name=row.name,
        last_xid=row.last_xid,
        **values,
        unavailable=missing,
        notes=last.notes | _doubts(values, row.energy_mj) if values.get("utilization_percent") else last.notes,
        age_s=_ages(last, now_ns),
    )
    if not last.instances:
        return [whole]
    activity_age_s = round((now_ns - (last.slow_taken_ns or now_ns)) / 1e9, 3)
    return [whole, *[_instance_reading(row.index, instance, of, activity_age_s) for instance, of in last.instances]]


def _doubts(values: dict[str, Any], energy_mj: int | None) -> dict[str, str]:
    """Values that are known to mislead; `energy_mj` counts from when the driver was loaded."""
    notes: dict[str, str] = {}
    if values["utilization_percent"] == 100 and values.get("sm_active_percent") == 0:
        notes["sm_active_percent"] = "doubtful: kernels run all the time, and counters can stick at 0 after an Xid"
    power_w = values.get("power_w")
    if power_w and energy_mj is not None and energy_mj < 1000 * power_w * _SETTLING_S:
        notes["utilization_percent"] = "the driver was loaded seconds ago, and its check of the memory counts as use"
    return notes


def _instance_reading(index: int, instance: Instance, values: dict[str, Any], activity_age_s: float) -> GpuReading:
    activity = {name: values[name] for name in _ACTIVITY if name in values}
    return GpuReading(
        index=index,
        instance=instance.number,
        uuid=instance.uuid,
        name=instance.name,
        memory_used_bytes=values.get("memory_used_bytes"),
        memory_total_bytes=values.get("memory_total_bytes"),
        processes=_processes(values.get("processes", ())),
        unavailable=values["unavailable"] | _OF_AN_INSTANCE,
        age_s=dict.fromkeys(activity, activity_age_s) if activity_age_s else {},
        **activity,
    )


def _processes(pairs: Any) -> list[GpuProcess]:
    return [GpuProcess(pid=pid, memory_bytes=size) for pid, size in pairs]


def _ages(answer: Answer, now_ns: int) -> dict[str, float]:
    ages: dict[str, float] = {}
    if answer.slow_taken_ns is not None and answer.slow_taken_ns < now_ns:
        ages = dict.fromkeys(answer.slow_values, round((now_ns - answer.slow_taken_ns) / 1e9, 3))
    if answer.taken_ns < now_ns:
        ages["all"] = round((now_ns - answer.taken_ns) / 1e9, 3)
    return ages


def _energy_j(row: _Row, fresh: Answer | None) -> float | None:
    """Of this sample alone. Where the last one had no reading, or the driver began its count anew, it cannot be told."""
    before, now = row.energy_mj, None if fresh is None else fresh.values.get("energy_j")
    row.energy_mj = now
    if before is None or now is None or now < before:
        return None
    return float(now - before) / 1000


def _notices_of_change(rows: list[_Row], conditions: list[_Condition]) -> list[Notice]:
    """One for each GPU whose state changed, or one for all when they changed alike."""
    changed = [(row, condition) for row, condition in zip(rows, conditions, strict=True) if condition.state != row.told]
    for row, condition in changed:
        row.told = condition.state
    if len(changed) == len(rows) > 1 and len({condition for _, condition in changed}) == 1:
        return [_notice(f"all {len(rows)} GPUs", changed[0][1])]
    return [_notice(f"GPU {row.index} ({row.name or 'unknown'})", condition) for row, condition in changed]


def _notice(who: str, condition: _Condition) -> Notice:
    if condition.state == _OK:
        return Notice("info", f"{who}: can be read again")
    return Notice("warning", f"{who}: {condition.state}: {condition.reason}")


def _xid_notices(row: _Row, codes: list[int]) -> list[Notice]:
    """Each code once for a GPU: a broken program can cause the same one by the thousand."""
    new: list[int] = []
    for code in codes:
        row.last_xid = code
        if code not in row.xids_told:
            row.xids_told.add(code)
            new.append(code)
    return [Notice("warning", f"GPU {row.index} ({row.name}): the NVIDIA driver reports Xid {code}; see dmesg") for code in new]
