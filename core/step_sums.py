"""Steps of a node added up, as a viewer asks for that cannot take each of them."""

from __future__ import annotations

from distmon.core.batches import Batch, told_by
from distmon.core.events import NodeStepsRecorded, NodeStepsSummed, StepsRecorded
from distmon.core.step_table import COLUMNS


def summed(event: StepsRecorded | NodeStepsRecorded) -> NodeStepsSummed | None:
    """What the event tells, with a sum for each column of each worker; None for one without steps."""
    told = told_by(event)
    if not told:
        return None
    batches = [batch for *_, batch in told]
    origin = min(batch.begin for batch in batches)
    names = [name for name in COLUMNS[:-1] if any(name in batch.columns for batch in batches)]
    return NodeStepsSummed(
        at=event.at,
        stream=event.stream,
        seq=event.seq,
        node=event.node,
        generation=event.generation,
        epoch=event.epoch,
        origin=origin,
        workers=[worker for _, worker, _ in told],
        ranks=[rank for rank, *_ in told],
        first_steps=[batch.first_step for batch in batches],
        counts=[batch.steps for batch in batches],
        start_ns=[round((batch.begin - origin) * 1e9) for batch in batches],
        span_ns=[max(round((batch.end - batch.begin) * 1e9), 0) for batch in batches],
        sums={name: [_sum(batch, name) for batch in batches] for name in names},
    )


def _sum(batch: Batch, name: str) -> int | None:
    values = batch.column(name)
    if values is None:
        return None
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == batch.steps else None
