"""Batches of steps cut in two."""

from __future__ import annotations

import pytest

from distmon.agent.together import together
from distmon.core.batches import first_steps, single_events
from distmon.core.events import NodeStepsRecorded, StepsRecorded
from distmon.core.step_sums import summed
from distmon.core.synthetic import Script, session

TOLD = [event for event in session(Script(ranks=3, nodes=1, seconds=9, step_s=0.1)) if isinstance(event, StepsRecorded)][-3:]


def steps_of(events: list[StepsRecorded]) -> list[tuple[int, int, int, int, float]]:
    """Of each rank each step: its number, how long it took, its samples, and when it began."""
    columns = ((e, zip(e.duration_ns, e.samples or (), e.start_ns, strict=True)) for e in events)
    return sorted(
        (e.rank, e.first_step + i, duration, samples or 0, round(e.origin + start / 1e9, 6))
        for e, rows in columns
        for i, (duration, samples, start) in enumerate(rows)
    )


@pytest.mark.parametrize("count", [1, 4, 100])
def test_the_first_steps_of_each_worker_are_those_of_the_whole(count: int) -> None:
    (at_once,) = together([[event] for event in TOLD])
    assert isinstance(at_once, NodeStepsRecorded) and min(at_once.table.counts) > 4
    for whole in (at_once, TOLD[1]):
        first, singles = first_steps(whole, count), list(single_events(whole))
        until = {one.rank: one.first_step + count for one in singles}
        assert steps_of(first) == [step for step in steps_of(singles) if step[1] < until[step[0]]]
        assert all(len(one.duration_ns) == min(count, len(other.duration_ns)) for one, other in zip(first, singles, strict=True))
        named = [[(one.at, one.generation, one.worker) for one in events] for events in (first, singles)]
        assert named[0] == named[1]


def test_sums_have_no_single_steps() -> None:
    sums = summed(TOLD[0])
    assert sums is not None and first_steps(sums, 1) == []
