"""The fold in machine code makes the state that the fold in Python makes, to the bit."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distmon.agent.together import together
from distmon.core import arrivals, batches, columns, step_bins, steps
from distmon.core.events import AnyEvent, NodeStepsRecorded, StepsRecorded
from distmon.core.fold import apply
from distmon.core.state import SessionState
from distmon.core.step_sums import summed
from distmon.replay.keyframe import decode_state, encode_state

PYTHON = {
    (arrivals, "compiled_fold"): None,
    (batches, "compiled_fold"): None,
    (batches, "column_sums"): columns.column_sums_python,
    (batches, "tuple_sums"): columns.tuple_sums_python,
    (steps, "compiled_fold"): None,
    (steps, "compiled_columns"): None,
    (steps, "row_sums"): columns.row_sums_python,
    (steps, "spread_amounts"): columns.spread_python,
}


def told(rank: int, first: int, at: float, source: random.Random, generation: int, count: int) -> StepsRecorded:
    """Now and then of another worker, with an unseen phase, a long step, several micro-batches, or no epoch."""
    odd = source.random()
    durations = [source.randrange(50_000_000, 400_000_000) for _ in range(count)]
    durations[0] *= 20 if odd < 0.03 else 1
    unseen: list[int | None] = [None if odd < 0.08 and i == 0 else 1_000 for i in range(count)]
    return StepsRecorded(
        at=at + sum(durations) / 1e9,
        node=f"n{rank // 4}",
        worker=f"w{rank}" + "b" * (odd > 0.995),
        rank=rank,
        generation=generation,
        first_step=first,
        origin=at,
        start_ns=[sum(durations[:i]) for i in range(count)],
        duration_ns=durations,
        input_wait_ns=unseen,
        compute_ns=[source.randrange(40_000_000) for _ in range(count)] if odd < 0.95 else None,
        exposed_communication_ns=[source.randrange(10_000_000) for _ in range(count)],
        optimizer_ns=[2_000] * count,
        samples=[source.choice((8, 32))] * count,
        micro_batches=[2] * count if 0.9 < odd < 0.92 else None,
        epoch=first // 50 if odd < 0.97 else None,
    )


def job(seed: int, ranks: int, seconds: int) -> Iterator[AnyEvent]:
    """Ranks of some nodes, told each second; seconds are lost, told twice, or late."""
    source = random.Random(seed)
    most = source.choice((1, 3, 10))
    step = [0] * ranks
    generation = 0
    for second in range(seconds):
        if source.random() < 0.02:
            generation, step = generation + 1, [0] * ranks
        counts = [source.randrange(1, most + 1) if source.random() < 0.2 else most for _ in range(ranks)]
        flushes = []
        for rank in range(ranks):
            if source.random() < 0.03:
                continue
            flushes.append([told(rank, step[rank], 1e9 + second, source, generation, counts[rank])])
            step[rank] += counts[rank] if source.random() > 0.02 else 0
        for first in range(0, len(flushes), 4):
            yield from together(flushes[first : first + 4])


def folded(events: Iterable[AnyEvent]) -> SessionState:
    state = SessionState()
    for event in events:
        apply(state, event)
    return state


def _in_sums(event: AnyEvent) -> AnyEvent:
    return (summed(event) or event) if isinstance(event, StepsRecorded | NodeStepsRecorded) else event


@pytest.mark.skipif(columns.compiled_fold is None, reason="machine code is not built")
@given(st.integers(0, 2**32), st.sampled_from((1, 3, 8, 70)), st.sampled_from((5, 25)))
@settings(max_examples=10, deadline=None)
def test_both_make_the_same_state(seed: int, ranks: int, seconds: int) -> None:
    """Also where some seconds came as sums."""
    told_in_order = enumerate(job(seed, ranks, seconds))
    events = [_in_sums(event) if seed % 2 and place % 3 == 0 else event for place, event in told_in_order]
    native = folded(events)
    with pytest.MonkeyPatch.context() as patch:
        for (module, name), value in PYTHON.items():
            patch.setattr(module, name, value)
        python = folded(events)
        assert encode_state(native) == encode_state(python)
    assert decode_state(encode_state(native)).generations == native.generations


@pytest.mark.skipif(columns.compiled_fold is None, reason="machine code is not built")
def test_long_runs_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the exact first steps, checkpoints that are thinned, step times that go into bins, and steps that merge."""
    monkeypatch.setattr(steps, "MAX_SERIES", 4_096)
    monkeypatch.setattr(steps, "BLOCK", 256)
    monkeypatch.setattr(step_bins, "BLOCK", 256)
    monkeypatch.setattr(step_bins, "_WINDOW", 512)
    source = random.Random(1)
    events = [e for turn in range(700) for e in together([[told(r, 10 * turn, 1e9 + turn, source, 0, 10)] for r in range(2)])]
    native = folded(events)
    assert any(rank.durations.bins for rank in native.generations[0].ranks.values())
    singles = native.generations[0].series.singles
    assert singles is not None and singles.first > 5_000
    with pytest.MonkeyPatch.context() as patch:
        for (module, name), value in PYTHON.items():
            patch.setattr(module, name, value)
        assert encode_state(native) == encode_state(folded(events))
    assert decode_state(encode_state(native)).generations == native.generations


@pytest.mark.skipif(columns.compiled_fold is None, reason="machine code is not built")
def test_what_is_no_batch_is_refused() -> None:
    fold = columns.compiled_fold
    assert fold is not None
    for rows in ([1], [(0, "w")], [(0, "w", (1, 2))]):
        with pytest.raises(TypeError):
            fold.add_batches({}, rows, None, steps.RankSteps, batches.USUAL, 512, 256, False)
        with pytest.raises(TypeError):
            fold.arrive({}, rows, 0, None, batches.USUAL, 0, 5, 1024)
    with pytest.raises(ValueError):
        fold.join_block({}, 0)


def test_a_block_is_joined_when_all_ranks_have_told_it_however_many_come() -> None:
    source, state = random.Random(2), SessionState()
    first = [[told(rank, 0, 1e9, source, 0, 3 if rank == 0 else 6)] for rank in range(72)]
    then = [[told(rank, 3 if rank == 0 else 6, 1e9 + 3, source, 0, 6)] for rank in range(72)]
    joined = []
    for flushes in (first, then, [[told(0, 9, 1e9 + 6, source, 0, 3)]]):
        for flush in flushes:
            for event in together([flush]):
                apply(state, event)
        arrivals = state.generations[0].arrivals
        joined.append((arrivals.blocks, arrivals.next_step))
    assert joined == [(0, 0), (1, 5), (2, 10)]
