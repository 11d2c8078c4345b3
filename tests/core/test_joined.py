"""The quick ways to join and to add up ranks find what the plain ones find."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from distmon.core import events as ev
from distmon.core import joined, measures, once
from distmon.core.fold import apply
from distmon.core.state import SessionState
from distmon.core.steps import Generation, Totals

BATCHES = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 30), st.booleans()), min_size=1, max_size=40)
"""(rank, steps, whether the rank leaves out a step before them)."""


def folded(batches: list[tuple[int, int, bool]], *, seen: bool = True) -> Generation:
    state, told = SessionState(), dict.fromkeys(range(4), 0)
    for rank, count, gap in [(0, 1, False), *batches]:
        first = told[rank] = told[rank] + gap
        durations = [1_000 * (first + i + 1) + rank for i in range(count)]
        apply(state, ev.StepsRecorded(
            at=1.0, node="n", worker=f"w{rank}", rank=rank, generation=0, first_step=first, origin=1.0 + first,
            start_ns=[1_000_000 * i for i in range(count)], duration_ns=durations, samples=[32] * count,
            input_wait_ns=[d // 7 for d in durations], compute_ns=[d // 5 for d in durations],
            exposed_communication_ns=[None if not seen and i % 3 == 0 else d // 3 for i, d in enumerate(durations)],
            optimizer_ns=[d // 11 for d in durations],
        ))  # fmt: skip
        told[rank] += count
    return state.generations[0]


@given(BATCHES, st.booleans())
def test_joining_by_rows_is_joining_by_steps(batches: list[tuple[int, int, bool]], seen: bool) -> None:
    generation = folded(batches, seen=seen)
    for since in (0, 17):
        found = joined.joined(generation, since)
        count = 256
        plain = [step for step in joined._by_step(generation, found.ranks, count) if step.step >= since][-count:]
        assert [(s.step, s.duration, [*s.waits], [*s.inputs]) for s in found.steps] == [
            (s.step, s.duration, s.waits, s.inputs) for s in plain
        ]


@given(BATCHES)
def test_steady_sums_of_the_job_are_those_of_its_ranks(batches: list[tuple[int, int, bool]]) -> None:
    generation = folded(batches)
    skip, total = measures.steps_set_aside(generation), Totals()
    for rank in generation.ranks.values():
        total = total.plus(rank.steady(skip))
    assert measures.steady_totals(generation) == total


def test_what_is_kept_goes_with_the_next_step() -> None:
    batches = [(rank, 40, False) for rank in range(4)]
    generation = folded(batches)
    before = measures.recent_sums(generation)
    assert measures.recent_sums(generation) is before
    generation.add([(1, "w1", generation.ranks[0].batches[-1]._replace(first_step=40))], None)
    after = measures.recent_sums(generation)
    assert (after[0], after[1]) != (before[0], before[1])
    once._kept.clear()
    assert measures.recent_sums(generation) == after
