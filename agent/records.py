"""What one rank's probe wrote, as events: pure translation of ring records, one `Worker` per ring."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from distmon.agent.step_rows import (
    MOST_STEPS_PER_EVENT,
    UNKNOWN_EPOCH,
    Row,
    alone,
    chained,
    columns_of,
    consecutive,
    joined_tables,
    more_than_one,
    seen,
    steps_of,
)
from distmon.core.events import (
    AnyEvent,
    CommitsCounted,
    EpochStarted,
    GapFound,
    MarkSet,
    MetricsLogged,
    ModelDescribed,
    PhaseUnseen,
    ProgressDeclared,
    SpanRecorded,
    StackTaken,
    StateRestored,
    StepsRecorded,
    ThreadStack,
    TrainingInterrupted,
    WorkerIdentified,
)
from distmon.probe.ring import Batch, Header, Message, Record, Span, Step, Steps, Table
from distmon.wire.clock import SteadyClock

MOST_HELD = 1000
"""Records that wait for the worker to say its rank; after that its launcher's word is taken."""


class Kept(Struct, frozen=True):
    """An event, and the name under which the publisher keeps it for viewers that come late ("" = not at all)."""

    event: AnyEvent
    keep: str = ""


def kept(events: Sequence[AnyEvent]) -> list[Kept]:
    """Without a name."""
    return [Kept(event) for event in events]


_Count = Annotated[int, Meta(ge=0, lt=1 << 31)]


class _Identity(Struct):
    """What the probe says after each init; the rest of it is for people who read rings."""

    rank: _Count
    size: _Count = 0
    """0 where the launcher does not say it."""
    local_rank: _Count = 0
    local_size: _Count = 0
    generation: _Count = 0
    frameworks: dict[str, str] = {}
    horovod: str = ""
    script: str = ""
    visible_devices: dict[str, str] = {}


class WorkerMemory(Struct, frozen=True):
    """What a worker's next records are understood by, for an agent that goes on after another one."""

    rank: int | None
    local_rank: int | None
    visible_devices: dict[str, str]
    local_job: bool
    epoch: int | None
    last_end_ns: int


class Worker:
    """Turns the records of one ring into events, in their order.

    `rank` is None until the worker has said who it is; what it wrote before waits for that. `assumed_rank` is what its launcher
    called it, for a worker whose own word was lost or never came.
    """

    def __init__(self, node: str, header: Header, clock: SteadyClock, assumed_rank: int | None = None) -> None:
        self.node = node
        self.pid = header.pid
        self.host = header.host
        self.worker = f"{node}/{header.pid}-{header.start_ticks}"
        self.rank: int | None = None
        self.local_rank: int | None = None
        """None until the worker has said it itself."""
        self.visible_devices: dict[str, str] = {}
        """The variables of its environment that say which GPUs it may see."""
        self.local_job = False
        """All ranks of the job are on this node."""
        self.unreadable = 0
        """Messages of a form that this version does not know."""
        self._clock = clock
        self._assumed_rank = assumed_rank
        self._held: list[Record] = []
        self._epoch: int | None = None
        self._steps: list[Steps | Table] = []
        self._last_end_ns = header.monotonic_ns

    def memory(self) -> WorkerMemory:
        """To be taken right after `flush`."""
        return WorkerMemory(self.rank, self.local_rank, self.visible_devices, self.local_job, self._epoch, self._last_end_ns)

    def restore(self, memory: WorkerMemory) -> None:
        """Goes on as the worker of which this is the memory."""
        self.rank, self.local_rank, self.local_job = memory.rank, memory.local_rank, memory.local_job
        self.visible_devices, self._epoch, self._last_end_ns = memory.visible_devices, memory.epoch, memory.last_end_ns

    def take(self, batches: Sequence[Batch]) -> list[Kept]:
        """Events of everything but steps, which wait for `flush`; they are flushed before a new identity, to keep the order."""
        if self.rank is None:
            for batch in batches:
                self._held.extend(batch.rows() if isinstance(batch, Steps) else [batch])
            batches = self._ready()
        out: list[Kept] = []
        for batch in batches:
            if isinstance(batch, Steps):
                self._take_steps(batch, out)
            elif isinstance(batch, Step):
                self._take_steps(alone(batch), out)
            elif isinstance(batch, Span):
                out.append(Kept(self._span(batch)))
            else:
                self._take_message(batch, out)
        return out

    def finish(self) -> list[Kept]:
        """What still waits, when nothing more comes."""
        if self.rank is None:
            self.rank = self._assumed_rank
        held, self._held = self._held, []
        if self.rank is None:
            return [Kept(self._gap(len(held), self._clock.now(), f"pid {self.pid} never said its rank"))] if held else []
        return self.take(held) + kept(self.flush())

    def take_table(self, table: Table) -> list[Kept]:
        """The same for steps that came as a table; the worker has said its rank."""
        out: list[Kept] = []
        if table.epoch not in (self._epoch, UNKNOWN_EPOCH):
            self._begin_epoch(table.epoch, self._clock.at(table.start_ns), out)
        self._steps.append(table)
        self._last_end_ns = table.end_ns
        return out

    @property
    def only_steps(self) -> bool:
        """Whether it has said who it is, and all that it wrote is told: steps can be told as they come."""
        return self.rank is not None and not self._steps

    @property
    def epoch(self) -> int | None:
        """The last one that it named."""
        return self._epoch

    @property
    def last_end_ns(self) -> int:
        """Of what it wrote last (CLOCK_MONOTONIC)."""
        return self._last_end_ns

    def told_until(self, end_ns: int) -> None:
        """Its steps up to here were told together with those of others."""
        self._last_end_ns = end_ns

    def flush(self) -> list[StepsRecorded]:
        """The steps taken since the last flush, in columns."""
        return [told.event() if isinstance(told, Row) else told for told in self.flush_rows()]

    def flush_rows(self) -> list[StepsRecorded | Row]:
        """The same, as rows where they came as tables."""
        batches, self._steps = self._steps, []
        if len(batches) == 1 and isinstance(batches[0], Table):
            return [self._row(batches[0])]
        tables = [batch for batch in batches if isinstance(batch, Table)]
        if len(tables) == len(batches):
            return [self._row(table) for table in joined_tables(tables, MOST_STEPS_PER_EVENT)]
        steps = chained([steps_of(batch) if isinstance(batch, Table) else batch for batch in batches])
        return [self._columns(run) for run in consecutive(steps)]

    def stack(self, threads: list[ThreadStack], silent_s: float, at: float, read_by: str) -> StackTaken:
        """Where it is, now that its steps have stopped."""
        rank = self._rank
        return StackTaken(
            at=at, node=self.node, worker=self.worker, rank=rank, silent_s=silent_s, threads=threads, read_by=read_by
        )

    def gap(self, lost: int, until: float) -> GapFound:
        """Records that the writer overtook before they were read."""
        name = f"pid {self.pid}" if self.rank is None else f"rank {self.rank}"
        return self._gap(lost, until, f"{name} wrote faster than its records were taken over")

    def _ready(self) -> list[Record]:
        """The held records once the rank is known, its identity first; [] before."""
        named = [index for index, record in enumerate(self._held) if isinstance(record, Message) and _is_identity(record)]
        if not named and (len(self._held) < MOST_HELD or self._assumed_rank is None):
            return []
        if not named:
            self.rank = self._assumed_rank
        ready = [self._held[index] for index in named[:1]] + [r for i, r in enumerate(self._held) if i not in named[:1]]
        self._held = []
        return ready

    def _identify(self, fields: dict[str, Any], at: float) -> WorkerIdentified | None:
        """Who this worker is now, from its own words; None, and counted, when they are not understood."""
        try:
            known = msgspec.convert(fields, _Identity)
        except msgspec.ValidationError:
            self.unreadable += 1
            return None
        self.rank, self._epoch = known.rank, None
        self.local_rank, self.visible_devices = known.local_rank, known.visible_devices
        self.local_job = 0 < known.size == known.local_size
        framework, version = next(iter(known.frameworks.items()), ("", ""))
        return WorkerIdentified(
            at=at,
            worker=self.worker,
            node=self.node,
            host=self.host,
            pid=self.pid,
            rank=known.rank,
            size=known.size,
            local_rank=known.local_rank,
            generation=known.generation,
            framework=framework,
            framework_version=version,
            horovod_version=known.horovod,
            script=known.script,
            visible_devices=_visible(known.visible_devices),
        )

    def _gap(self, lost: int, until: float, cause: str) -> GapFound:
        started = min(self._clock.at(self._last_end_ns), until)
        return GapFound(at=until, node=self.node, started=started, ended=until, lost_records=lost, cause=cause)

    @property
    def _rank(self) -> int:
        return -1 if self.rank is None else self.rank

    def _take_steps(self, steps: Steps, out: list[Kept]) -> None:
        if steps.epoch.count(UNKNOWN_EPOCH) != len(steps.epoch):
            for epoch, start_ns in zip(steps.epoch, steps.start_ns, strict=True):
                if epoch not in (self._epoch, UNKNOWN_EPOCH):
                    self._begin_epoch(epoch, self._clock.at(start_ns), out)
        self._steps.append(steps)
        self._last_end_ns = steps.start_ns[-1] + steps.duration_ns[-1]

    def _begin_epoch(self, epoch: int, at: float, out: list[Kept]) -> None:
        if epoch != self._epoch:
            self._epoch = epoch
            out.append(Kept(EpochStarted(at=at, worker=self.worker, rank=self._rank, epoch=epoch)))

    def _span(self, span: Span) -> SpanRecorded:
        started = self._clock.at(span.start_ns)
        self._last_end_ns = span.start_ns + span.duration_ns
        return SpanRecorded(
            at=self._clock.at(self._last_end_ns),
            node=self.node,
            worker=self.worker,
            rank=self._rank,
            span=span.kind,
            started=started,
            duration_s=span.duration_ns / 1e9,
            name=span.name,
        )

    def _take_message(self, message: Message, out: list[Kept]) -> None:
        fields = _sendable(message.fields)
        at = self._said_at(fields)
        if _is_identity(message):
            out.extend(kept(self.flush()))
            identified = self._identify(fields, at)
            if identified is not None:
                out.append(Kept(identified, f"identity {self.worker}"))
            return
        epoch = fields.get("epoch")
        if fields.get("type") in ("epoch", "progress") and type(epoch) is int and epoch >= 0:
            self._begin_epoch(epoch, at, out)
        if fields.get("type") in _WITHOUT_EVENT:
            return
        if type(committed_ns := fields.get("committed_ns")) is int:
            fields["committed_at"] = self._clock.at(committed_ns)
        if fields.get("type") == "metrics":
            fields = self._only_numbers(fields, at, out)
        event = _event(fields, {"at": at, "node": self.node, "worker": self.worker, "rank": self._rank})
        if event is None:
            self.unreadable += 1
        else:
            out.append(Kept(event, _keep_name(event)))

    def _only_numbers(self, fields: dict[str, Any], at: float, out: list[Kept]) -> dict[str, Any]:
        """Metrics without those that are infinite or not a number, which no session file can hold: these are told as unseen."""
        values = fields.get("values")
        if not isinstance(values, dict):
            return fields
        odd = {name: value for name, value in values.items() if isinstance(value, float) and not math.isfinite(value)}
        for name, value in odd.items():
            reason = f"its value is {value}"
            unseen = PhaseUnseen(at=at, worker=self.worker, rank=self._rank, field=f"metric {name}", reason=reason)
            out.append(Kept(unseen, _keep_name(unseen)))
        return {**fields, "values": {name: value for name, value in values.items() if name not in odd}}

    def _said_at(self, fields: dict[str, Any]) -> float:
        time_ns = fields.get("time_ns")
        return self._clock.at(time_ns) if type(time_ns) is int else self._clock.now()

    def _row(self, table: Table) -> Row:
        first_step, generation, epoch, start_ns, end_ns, columns, steps, numbers = table
        at, origin = self._clock.at(end_ns), self._clock.at(start_ns)
        known_epoch = None if epoch == UNKNOWN_EPOCH else epoch
        who = (self.node, self.worker, -1 if self.rank is None else self.rank)
        what = (end_ns - start_ns, known_epoch, columns_of(columns), steps, numbers)
        row: Row = tuple.__new__(Row, (at, *who, generation, first_step, origin, *what))
        return row

    def _columns(self, steps: Steps) -> StepsRecorded:
        first_ns, epoch = steps.start_ns[0], steps.epoch[0]
        return StepsRecorded(
            at=self._clock.at(steps.start_ns[-1] + steps.duration_ns[-1]),
            node=self.node,
            worker=self.worker,
            rank=self._rank,
            generation=steps.generation[0],
            first_step=steps.step[0],
            origin=self._clock.at(first_ns),
            start_ns=[start_ns - first_ns for start_ns in steps.start_ns],
            duration_ns=list(steps.duration_ns),
            input_wait_ns=seen(steps.input_wait_ns),
            compute_ns=seen(steps.compute_ns),
            exposed_communication_ns=seen(steps.exposed_communication_ns),
            optimizer_ns=seen(steps.optimizer_ns),
            samples=seen(steps.samples),
            micro_batches=more_than_one(steps.micro_batches),
            epoch=None if epoch == UNKNOWN_EPOCH else epoch,
        )


def _keep_name(event: AnyEvent) -> str:
    """What a viewer that comes late still has to know."""
    if isinstance(event, PhaseUnseen):
        return f"unseen {event.worker} {event.field}"
    return f"{type(event).__name__} {event.worker}" if isinstance(event, ModelDescribed | ProgressDeclared) else ""


_MESSAGES: dict[str, tuple[type[Any], tuple[str, ...]]] = {
    "metrics": (MetricsLogged, ("values", "step", "epoch")),
    "model": (ModelDescribed, ("parameters", "gradient_bytes", "tensors", "backward_passes_per_step", "optimizer")),
    "progress": (ProgressDeclared, ("epochs", "steps_per_epoch")),
    "unseen": (PhaseUnseen, ("field", "reason")),
    "mark": (MarkSet, ("text", "step")),
    "interrupted": (TrainingInterrupted, ("cause", "generation")),
    "restored": (StateRestored, ("generation", "committed_generation", "committed_steps", "committed_at")),
    "commits": (CommitsCounted, ("generation", "commits", "total_s")),
}
"""Type of message -> its event, and the fields that the message brings to it."""
_WITHOUT_EVENT = ("epoch", "phase")
_DEVICE_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def _is_identity(message: Message) -> bool:
    return message.fields.get("type") == "identity"


def _sendable(value: Any) -> Any:
    """The same without what no wire can carry: names that are not UTF-8 on this system, and integers beyond 64 bits."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_sendable(key): _sendable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_sendable(item) for item in value]
    return str(value) if isinstance(value, int) and value.bit_length() > 63 else value


def _visible(variables: dict[str, str]) -> str | None:
    """The devices that the process may see, as its environment says; None when that says nothing."""
    return next((variables[name] for name in _DEVICE_VARIABLES if name in variables), None)


def _event(fields: dict[str, Any], common: dict[str, Any]) -> AnyEvent | None:
    """The event of a message; None when it is of an unknown type or its fields are not what they should be."""
    found = _MESSAGES.get(str(fields.get("type")))
    if found is None:
        return None
    kind, names = found
    named = {name: fields[name] for name in names if name in fields}
    if named.get("epoch") == UNKNOWN_EPOCH:
        del named["epoch"]
    own = {name: value for name, value in common.items() if name in kind.__struct_fields__}
    try:
        event: AnyEvent = msgspec.convert({"kind": kind.__struct_config__.tag, **own, **named}, kind)
    except msgspec.ValidationError:
        return None
    return event
