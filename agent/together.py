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
        sizes: dict[object, int] = {}
        for told in turn:
            row = row_of(told) if isinstance(told, StepsRecorded) else told
            if row is None:
                if isinstance(told, StepsRecorded) and told.duration_ns:
                    yield told
                continue
            key = row.generation, row.epoch, row.columns
            group = groups.setdefault(key, [])
            if group and (not _near(group[0], row) or sizes[key] + row.steps > MOST_STEPS):
                yield _joined(group)
                group.clear()
            group.append(row)
            sizes[key] = row.steps + (sizes[key] if len(group) > 1 else 0)
        for group in groups.values():
            yield _joined(group)


def _near(one: Row, other: Row) -> bool:
    """Whether nanoseconds from one's origin, and a second before it, reach all of the other."""
    later_s = other.origin - one.origin
    return later_s >= -1 and later_s + other.length_ns / 1e9 < LARGEST / 1e9 - 1.1


def _joined(group: list[Row]) -> StepsRecorded | NodeStepsRecorded:
    first = group[0]
    if len(group) == 1:
        return first.event()
    origin = min(row.origin for row in group)
    numbers = joined_numbers([(row.numbers, row.steps, round((row.origin - origin) * 1e9)) for row in group])
    return NodeStepsRecorded(
        at=max(row.at for row in group),
        node=first.node,
        generation=first.generation,
        epoch=first.epoch,
        origin=origin,
        workers=[row.worker for row in group],
        ranks=[row.rank for row in group],
        first_steps=[row.first_step for row in group],
        table=StepTable(first.columns, [row.steps for row in group], numbers),
    )
