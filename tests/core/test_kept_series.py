"""Measures of the series that are kept while it grows are those of a look at the whole."""

from __future__ import annotations

import random

import pytest

from distmon.core import events as ev
from distmon.core import kept_series, measures, steps
from distmon.core.fold import apply
from distmon.core.state import SessionState


def batch(rank: int, first: int, source: random.Random, count: int = 20) -> ev.StepsRecorded:
    durations = [round(source.lognormvariate(0, 0.1) * 1e8) for _ in range(count)]
    return ev.StepsRecorded(
        at=1000.0, node="n", worker=f"w{rank}", rank=rank, generation=0, first_step=first, origin=1000.0 + first / 10,
        start_ns=[sum(durations[:i]) for i in range(count)], duration_ns=durations, samples=[source.randint(30, 34)] * count,
    )  # fmt: skip


def looked_at(state: SessionState) -> tuple[object, ...]:
    generation = measures.current_generation(state)
    assert generation is not None
    durations, samples = measures.step_series(generation)
    return [*durations], [*samples], measures.warmup(generation), measures.throughput(generation)


@pytest.mark.parametrize("limit", [65_536, 64])
def test_looking_on_the_way_changes_nothing(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a rank that comes late, one that runs ahead, a gap, and entries that merge."""
    monkeypatch.setattr(steps, "MAX_SERIES", limit)
    source, state = random.Random(1), SessionState()
    for turn in range(20):
        for rank in (0, 1) if turn < 3 else (0, 1, 2):
            if not (rank == 1 and turn == 7):
                apply(state, batch(rank, 20 * (turn + (rank == 0 and turn > 10)), source))
        apply(state, ev.Ticked(at=state.now))
        on_the_way = looked_at(state)
        kept_series._kept.clear()
        assert on_the_way == looked_at(state)
