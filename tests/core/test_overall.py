from __future__ import annotations

import random

import pytest

from distmon.core import events as ev
from distmon.core import steps as series
from distmon.core.fold import apply
from distmon.core.measures import current_generation, steps_set_aside, throughput, warmup
from distmon.core.overall import rank_overalls, throughput_interval
from distmon.core.quantiles import EXACT_LIMIT, Quantiles
from distmon.core.state import SessionState
from distmon.core.synthetic import Script, session


def steps(rank: int, generation: int, durations_s: list[float]) -> ev.StepsRecorded:
    ns = [round(d * 1e9) for d in durations_s]
    return ev.StepsRecorded(
        at=1000.0 * (generation + 1),
        node="n",
        worker=f"w{rank}-{generation}",
        rank=rank,
        generation=generation,
        first_step=0,
        origin=1000.0 * generation,
        start_ns=[sum(ns[:i]) for i in range(len(ns))],
        duration_ns=ns,
        samples=[8] * len(ns),
    )


def test_a_rank_is_counted_over_all_its_generations() -> None:
    state = SessionState()
    for event in (steps(0, 0, [0.1] * 30), steps(1, 0, [0.1] * 30), steps(0, 1, [0.3] * 50)):
        apply(state, event)
    first, second = rank_overalls(state)
    assert (first.rank, first.steps, second.steps) == (0, 80, 30)
    assert first.step_median_s == pytest.approx(0.3)
    assert first.steady and first.steady.step_s == pytest.approx((30 * 0.1 + 50 * 0.3) / 80)


@pytest.mark.parametrize("count", [10, EXACT_LIMIT - 5, EXACT_LIMIT + 5])
def test_merged_quantiles_are_those_of_all_values(count: int) -> None:
    source = random.Random(1)
    parts = [[source.lognormvariate(0, 1) for _ in range(count)] for _ in range(3)]
    merged, whole = Quantiles(), Quantiles()
    for part in parts:
        one = Quantiles()
        one.extend(part)
        merged.merge(one)
        whole.extend(part)
    for q in (0.05, 0.5, 0.95):
        assert merged.quantile(q) == pytest.approx(whole.quantile(q), rel=2 * 0.0025)
    assert merged.count == 3 * count


def test_the_interval_holds_the_true_rate_about_as_often_as_it_says() -> None:
    true_rate, hits, runs = 80.0, 0, 40
    for seed in range(runs):
        source = random.Random(seed)
        state = SessionState()
        apply(state, steps(0, 0, [0.1 * source.uniform(0.9, 1.1) for _ in range(300)]))
        interval = throughput_interval(state)
        assert interval is not None
        hits += interval[0] <= true_rate <= interval[1]
    assert 0.8 <= hits / runs <= 1.0


def test_the_interval_lies_around_the_reported_mean_and_needs_enough_steps() -> None:
    state = SessionState()
    for event in session(Script(seconds=40)):
        apply(state, event)
    interval, mean = throughput_interval(state), throughput(current_generation(state)).mean
    assert interval and mean and interval[0] < mean < interval[1]
    short = SessionState()
    apply(short, steps(0, 0, [0.1] * 20))
    assert throughput_interval(short) is None
    assert throughput_interval(SessionState()) is None


def test_warm_up_is_told_in_steps_where_neighbours_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    durations = [0.3] * 40 + [0.1 * (1 + i % 3 / 100) for i in range(360)]
    state, merged = SessionState(), SessionState()
    apply(state, steps(0, 0, durations))
    generation = current_generation(state)
    assert generation is not None and warmup(generation).steps == 40
    monkeypatch.setattr(series, "MAX_SERIES", 256)
    apply(merged, steps(0, 0, durations))
    generation = current_generation(merged)
    assert generation is not None and generation.series.width == 2
    found = warmup(generation)
    assert (found.steps, steps_set_aside(generation)) == (40, 40)
    assert found.duration_s == pytest.approx(12.0) and found.excess_s == pytest.approx(8.0, rel=0.01)
    assert throughput(generation).mean == pytest.approx(8 / 0.101, rel=1e-3)
