"""Steps of a node's workers in as few events as can be: what an event costs is paid once per node and second, not per rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from distmon.agent.step_rows import Row, joined_numbers, row_of
from distmon.core.events import NodeStepsRecorded, StepsRecorded
from distmon.core.step_table import LARGEST, MOST_STEPS, StepTable


def together(by_worker: Sequence[Sequence[StepsRecorded | Row]]) -> Iterator[StepsRecorded | NodeStepsRecorded]:
    """The same steps, those of each worker still in their order."""
    turns: Iterator[Sequence[StepsRecorded | Row | None]] = zip_longest(*by_worker)
    for turn in turns:
        groups: dict[object, list[Row]] = {}
        for told in turn:
            row = row_of(told) if isinstance(told, StepsRecorded) else told
            if row is not None:
                groups.setdefault((row.generation, row.epoch, row.columns), []).append(row)
            elif isinstance(told, StepsRecorded) and told.duration_ns:
                yield told
        for group in groups.values():
            if _fits(group):
                yield _joined(group)
            else:
                yield from map(_joined, _parts(group))


def _fits(group: Sequence[Row]) -> bool:
    """Whether nanoseconds from the earliest origin reach all of it."""
    origins = [row.origin for row in group]
    last_s = max([row.origin + row.length_ns / 1e9 for row in group])
    return last_s - min(origins) <= LARGEST / 1e9 and sum([row.steps for row in group]) <= MOST_STEPS


def _parts(group: Sequence[Row]) -> list[list[Row]]:
    """As few as can be that fit, in order; one of a single row fits."""
    parts: list[list[Row]] = []
    for row in group:
        if parts and _fits([*parts[-1], row]):
            parts[-1].append(row)
        else:
            parts.append([row])
    return parts


def _joined(group: list[Row]) -> StepsRecorded | NodeStepsRecorded:
    first = group[0]
    if len(group) == 1:
        return first.event()
    origin = min([row.origin for row in group])
    numbers = joined_numbers([(row.numbers, row.steps, round((row.origin - origin) * 1e9)) for row in group])
    return NodeStepsRecorded(
        at=max([row.at for row in group]),
        node=first.node,
        generation=first.generation,
        epoch=first.epoch,
        origin=origin,
        workers=[row.worker for row in group],
        ranks=[row.rank for row in group],
        first_steps=[row.first_step for row in group],
        table=StepTable(first.columns, [row.steps for row in group], numbers),
    )
