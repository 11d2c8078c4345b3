"""Steps of a node's workers in as few events as can be: what an event costs is paid once per node and second, not per rank."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from distmon.core.batches import Batch, batch_of
from distmon.core.events import NodeStepsRecorded, StepsRecorded
from distmon.core.step_table import LARGEST, MOST_STEPS, StepTable, UInt32s

_Told = tuple[StepsRecorded, Batch]


def together(by_worker: Sequence[Sequence[StepsRecorded]]) -> Iterator[StepsRecorded | NodeStepsRecorded]:
    """The same steps, those of each worker still in their order."""
    for turn in zip_longest(*by_worker):
        groups: dict[object, list[_Told]] = {}
        for event in turn:
            batch = batch_of(event) if event is not None and event.duration_ns else None
            if event is None or batch is None:
                continue
            if batch.numbers.typecode != "I":
                yield event
                continue
            group = groups.setdefault((event.generation, event.epoch, batch.columns), [])
            if group and (not _near(group[0][0], event) or sum(told.steps for _, told in group) + batch.steps > MOST_STEPS):
                yield _joined(group)
                group.clear()
            group.append((event, batch))
        for group in groups.values():
            yield _joined(group)


def _near(one: StepsRecorded, other: StepsRecorded) -> bool:
    """Whether nanoseconds from one's origin, and a second before it, reach all of the other."""
    return other.origin - one.origin >= -1 and other.origin - one.origin + other.start_ns[-1] / 1e9 < LARGEST / 1e9 - 1.1


def _joined(group: list[_Told]) -> StepsRecorded | NodeStepsRecorded:
    first = group[0][0]
    if len(group) == 1:
        return first
    origin = min(event.origin for event, _ in group)
    numbers: UInt32s = array("I")
    for event, batch in group:
        later_ns = round((event.origin - origin) * 1e9)
        numbers.extend(batch.numbers[: -batch.steps])
        numbers.extend(array("I", [start + later_ns for start in batch.numbers[-batch.steps :]]))
    return NodeStepsRecorded(
        at=max(event.at for event, _ in group),
        node=first.node,
        generation=first.generation,
        epoch=first.epoch,
        origin=origin,
        workers=[event.worker for event, _ in group],
        ranks=[event.rank for event, _ in group],
        first_steps=[event.first_step for event, _ in group],
        table=StepTable(group[0][1].columns, [batch.steps for _, batch in group], numbers),
    )
