"""Batches of steps cut in two."""

from __future__ import annotations

import pytest

from distmon.agent.together import together
from distmon.core.batches import single_events, split_steps
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
def test_the_first_steps_and_the_rest_are_all_of_them(count: int) -> None:
    (at_once,) = together([[event] for event in TOLD])
    assert isinstance(at_once, NodeStepsRecorded) and min(at_once.table.counts) > 4
    for whole in (at_once, TOLD[1]):
        first, rest = split_steps(whole, count)
        whole_steps = steps_of(list(single_events(whole)))
        assert steps_of(first + rest) == whole_steps
        assert all(len(one.duration_ns) == min(count, len(whole_steps) // len(first)) for one in first)
        assert {(one.at, one.generation, one.worker) for one in first} >= {(one.at, one.generation, one.worker) for one in rest}


def test_sums_have_no_single_steps() -> None:
    sums = summed(TOLD[0])
    assert sums is not None and split_steps(sums, 1) == ([], [])
