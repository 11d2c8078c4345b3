"""What one rank's probe wrote, as events: pure translation of ring records, one `Worker` per ring."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from distmon.agent.clock import SteadyClock
from distmon.core.events import (
    AnyEvent,
    EpochStarted,
    GapFound,
    MarkSet,
    MetricsLogged,
    ModelDescribed,
    PhaseUnseen,
    ProgressDeclared,
    SpanRecorded,
    StepsRecorded,
    WorkerIdentified,
)
from distmon.probe.ring import Header, Message, Record, Span, Step

MOST_STEPS_PER_EVENT = 2000
_UNKNOWN_EPOCH = -1


class Kept(Struct, frozen=True):
    """An event, and the name under which the publisher keeps it for viewers that come late ("" = not at all)."""

    event: AnyEvent
    keep: str = ""


class _Identity(Struct):
    rank: int
    size: int
    local_rank: int
    local_size: int = 0
    generation: int = 0
    framework: str = ""
    framework_version: str = ""
    horovod_version: str = ""
    script: str = ""
    visible_devices: str | None = None


class Worker:
    """Turns the records of one ring into events, in their order. `rank` is None until the worker has said who it is."""

    def __init__(self, node: str, header: Header, clock: SteadyClock) -> None:
        self.node = node
        self.pid = header.pid
        self.host = header.host
        self.worker = f"{node}/{header.pid}-{header.start_ticks}"
        self.rank: int | None = None
        self.local_job = False
        """All ranks of the job are on this node."""
        self.unreadable = 0
        """Messages of a form that this version does not know."""
        self._clock = clock
        self._epoch: int | None = None
        self._steps: list[Step] = []
        self._last_end = clock.at(header.monotonic_ns)

    def take(self, records: Iterable[Record]) -> list[Kept]:
        """Events of everything but steps, which wait for `flush`; they are flushed before a new identity, to keep the order."""
        out: list[Kept] = []
        for record in records:
            if isinstance(record, Step):
                self._take_step(record, out)
            elif isinstance(record, Span):
                out.append(Kept(self._span(record)))
            else:
                self._take_message(record, out)
        return out

    def flush(self) -> list[Kept]:
        """The steps taken since the last flush, in columns."""
        steps, self._steps = self._steps, []
        return [Kept(self._columns(run)) for run in consecutive(steps)]

    def gap(self, lost: int, until: float) -> GapFound:
        """Records that the writer overtook before they were read."""
        cause = f"rank {self.rank} (pid {self.pid}) wrote faster than its records were taken over"
        return GapFound(at=until, node=self.node, started=min(self._last_end, until), ended=until, lost_records=lost, cause=cause)

    def identify(self, fields: dict[str, Any]) -> WorkerIdentified | None:
        """Who this worker is now, from its own words; None, and counted, when they are not understood."""
        try:
            known = msgspec.convert(fields, _Identity)
        except msgspec.ValidationError:
            self.unreadable += 1
            return None
        self.rank, self._epoch = known.rank, None
        self.local_job = known.size == known.local_size
        return WorkerIdentified(
            at=self._clock.now(),
            worker=self.worker,
            node=self.node,
            host=self.host,
            pid=self.pid,
            rank=known.rank,
            size=known.size,
            local_rank=known.local_rank,
            generation=known.generation,
            framework=known.framework,
            framework_version=known.framework_version,
            horovod_version=known.horovod_version,
            script=known.script,
            visible_devices=known.visible_devices,
        )

    @property
    def _rank(self) -> int:
        return -1 if self.rank is None else self.rank

    def _take_step(self, step: Step, out: list[Kept]) -> None:
        if step.epoch != _UNKNOWN_EPOCH:
            self._begin_epoch(step.epoch, self._clock.at(step.start_ns), out)
        self._steps.append(step)
        self._last_end = self._clock.at(step.start_ns + step.duration_ns)

    def _begin_epoch(self, epoch: int, at: float, out: list[Kept]) -> None:
        if epoch != self._epoch:
            self._epoch = epoch
            out.append(Kept(EpochStarted(at=at, worker=self.worker, rank=self._rank, epoch=epoch)))

    def _span(self, span: Span) -> SpanRecorded:
        started = self._clock.at(span.start_ns)
        self._last_end = self._clock.at(span.start_ns + span.duration_ns)
        return SpanRecorded(
            at=self._last_end,
            node=self.node,
            worker=self.worker,
            rank=self._rank,
            span=span.kind,
            started=started,
            duration_s=span.duration_ns / 1e9,
            name=span.name,
        )

    def _take_message(self, message: Message, out: list[Kept]) -> None:
        fields = message.fields
        if fields.get("type") == "identity":
            out.extend(self.flush())
            identified = self.identify(fields)
            if identified is not None:
                out.append(Kept(identified, f"identity {self.worker}"))
            return
        event = _event(fields, {"at": self._clock.now(), "worker": self.worker, "rank": self._rank})
        if event is None:
            self.unreadable += 1
            return
        if isinstance(event, EpochStarted):
            self._begin_epoch(event.epoch, event.at, out)
        else:
            out.append(Kept(event, _keep_name(event)))

    def _columns(self, steps: Sequence[Step]) -> StepsRecorded:
        first, last = steps[0], steps[-1]
        return StepsRecorded(
            at=self._clock.at(last.start_ns + last.duration_ns),
            node=self.node,
            worker=self.worker,
            rank=self._rank,
            generation=first.generation,
            first_step=first.step,
            origin=self._clock.at(first.start_ns),
            start_ns=[step.start_ns - first.start_ns for step in steps],
            duration_ns=[step.duration_ns for step in steps],
            input_wait_ns=_seen([step.input_wait_ns for step in steps]),
            compute_ns=_seen([step.compute_ns for step in steps]),
            exposed_communication_ns=_seen([step.exposed_communication_ns for step in steps]),
            optimizer_ns=_seen([step.optimizer_ns for step in steps]),
            samples=_seen([step.samples for step in steps]),
            micro_batches=_more_than_one([step.micro_batches for step in steps]),
            epoch=None if first.epoch == _UNKNOWN_EPOCH else first.epoch,
        )


def consecutive(steps: Sequence[Step]) -> list[Sequence[Step]]:
    """Runs of steps that one event can hold: same generation and epoch, no step missing in between."""
    runs: list[Sequence[Step]] = []
    begin = 0
    for end in range(1, len(steps) + 1):
        if end == len(steps) or end - begin == MOST_STEPS_PER_EVENT or not _follows(steps[end - 1], steps[end]):
            runs.append(steps[begin:end])
            begin = end
    return runs


def _follows(before: Step, after: Step) -> bool:
    return (after.step, after.generation, after.epoch) == (before.step + 1, before.generation, before.epoch)


def _seen(column: list[int | None]) -> list[int | None] | None:
    return None if all(value is None for value in column) else column


def _more_than_one(column: list[int]) -> list[int] | None:
    return None if all(value == 1 for value in column) else column


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
    "epoch": (EpochStarted, ("epoch",)),
    "mark": (MarkSet, ("text", "step")),
}
"""Type of message -> its event, and the fields that the message brings to it."""


def _event(fields: dict[str, Any], common: dict[str, Any]) -> AnyEvent | None:
    """The event of a message; None when it is of an unknown type or its fields are not what they should be."""
    found = _MESSAGES.get(str(fields.get("type")))
    if found is None:
        return None
    kind, names = found
    named = {name: fields[name] for name in names if name in fields}
    own = {name: value for name, value in common.items() if name in kind.__struct_fields__}
    try:
        event: AnyEvent = msgspec.convert({"kind": kind.__struct_config__.tag, **own, **named}, kind)
    except msgspec.ValidationError:
        return None
    return event
