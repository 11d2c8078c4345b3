"""Percentiles of runs whose series merges neighbours: within the stated error of the exact ones, whatever the steps are like."""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Callable

import pytest

from distmon.core import kept_series, measures, step_bins, steps
from distmon.core.batches import USUAL, Batch, make_batch
from distmon.core.quantiles import RELATIVE_ERROR, quantile
from distmon.core.step_bins import BLOCK, StepBins
from distmon.core.steps import Generation

Draw = Callable[[random.Random, int], float]
"""Seconds of a step, by its number."""


def heavy_tailed(source: random.Random, step: int) -> float:
    return min(0.002 * source.paretovariate(1.5), 4.0)


def of_two_modes(source: random.Random, step: int) -> float:
    """p95 of the speed and of the step time lie where hardly a step does."""
    return (0.02 if (share := source.random()) < 0.05 else 0.9 if share > 0.95 else 0.1) * source.uniform(0.99, 1.01)


class Correlated:
    """AR(1) of 0.9 after a warm-up of 600 steps."""

    wander = 0.0

    def __call__(self, source: random.Random, step: int) -> float:
        self.wander = 0.9 * self.wander + math.sqrt(1 - 0.81) * source.gauss(0, 1)
        return (0.5 if step < 600 else 0.1) * math.exp(0.1 * self.wander)


def batches(draw: Draw, count: int, ranks: int, told: int = 100) -> list[list[Batch]]:
    """Of each rank the same steps, the last of which differ a little from rank to rank."""
    source = random.Random(7)
    found: list[list[Batch]] = [[] for _ in range(ranks)]
    for first in range(0, count, told):
        seconds = [draw(source, first + i) for i in range(told)]
        samples = [source.choice((30, 32, 64)) for _ in seconds]
        for rank, of in enumerate(found):
            ns = [round(1e9 * s) + 1_000 * rank for s in seconds]
            numbers = array("I", [*ns, *[0] * (4 * told), *samples, *range(told)])
            of.append(make_batch(first, told, 1000.0, USUAL, numbers))
    return found


def exact(of: list[list[Batch]], skip: int) -> tuple[list[float], list[float]]:
    """(mean seconds over ranks, samples per second of all) of each step, in order of size."""
    seconds, rates = [], []
    for same in zip(*of, strict=True):
        numbers = [(batch.durations_ns, batch.column("samples") or ()) for batch in same]
        for i in range(same[0].steps):
            mean = sum(ns[i] for ns, _ in numbers) / len(numbers) / 1e9
            seconds.append(mean)
            rates.append(sum(samples[i] or 0 for _, samples in numbers) / mean)
    return sorted(seconds[skip:]), sorted(rates[skip:])


@pytest.mark.parametrize("draw", [heavy_tailed, of_two_modes, Correlated()])
def test_percentiles_of_very_many_steps_are_within_the_stated_error(draw: Draw) -> None:
    """One rank tells of its steps seconds after the others."""
    of, late = batches(draw, 105_000, 2, told=500), 8
    generation = Generation(0, world_size=2)
    for turn in range(len(of[0]) + late):
        told = [(rank, f"w{rank}", of[rank][n]) for rank, n in enumerate((turn, turn - late)) if 0 <= n < len(of[rank])]
        generation.add(told, None, aligned=False)
    found, skip = measures.throughput(generation), measures.steps_set_aside(generation)
    singles = generation.series.singles
    assert singles is not None and singles.first > 80_000 and skip >= (600 if isinstance(draw, Correlated) else 0)
    assert found.quantile_error == RELATIVE_ERROR and found.steps == found.quantile_steps == 105_000 - skip
    seconds, rates = exact(of, skip)
    within = RELATIVE_ERROR * (1 + 1e-9)
    for share, value in ((0.5, found.median), (0.05, found.p5), (0.95, found.p95)):
        assert value == pytest.approx(quantile(rates, share), rel=within, abs=0)
        assert measures.step_quantiles(generation, share) == [pytest.approx(quantile(seconds, share), rel=within, abs=0)]


def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "MAX_SERIES", 512)
    monkeypatch.setattr(steps, "BLOCK", 64)
    monkeypatch.setattr(step_bins, "BLOCK", 64)
    monkeypatch.setattr(step_bins, "_WINDOW", 128)


def test_looking_on_the_way_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """One rank falls so far behind that what it tells in the end is no longer waited for."""
    small(monkeypatch)
    of, generation = batches(Correlated(), 3_000, 2, told=20), Generation(0, world_size=2)
    second = 0
    for turn in range(150):
        behind = 30 if 60 < turn < 110 else 0
        told = [(0, "w0", of[0][turn])]
        while second <= turn - behind:
            told.append((1, "w1", of[1][second]))
            second += 1
        generation.add(told, None)
        if turn % 10:
            continue
        on_the_way = measures.throughput(generation), measures.step_quantiles(generation, 0.5)
        kept_series._kept.clear()
        assert on_the_way == (measures.throughput(generation), measures.step_quantiles(generation, 0.5))


def test_blocks_merge_and_a_long_warm_up_goes_by_whole_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    bins = StepBins()
    for first in range(0, 70 * 64, 64):
        bins.add(first, [100 + first] * 64, [32] * 64, 1)
    assert len(bins.rates) <= step_bins.MAX_BLOCKS and bins.block == 128 and len(bins.reports) <= 128
    for step, begin in ((0, 0), (10, 10), (64, 64), (65, 128), (129, 256), (bins.first + 1, bins.first + 1)):
        assert bins.begin(step) == begin
        assert bins.spread(begin).durations.count == max(bins.first - begin, 0)


def test_steps_that_are_told_of_too_late_or_far_ahead_do_no_harm() -> None:
    bins = StepBins()
    bins.add(0, [100] * 3, [1] * 3, 1)
    bins.add(10**12, [100] * 3, [1] * 3, 1)
    bins.add(5, [100] * 3, [1] * 3, 1)
    assert len(bins.reports) <= 2 * BLOCK and len(bins.rates) <= step_bins.MAX_BLOCKS
    whole = bins.extended(bins.spread(0), bins.first, 10**12 + 3)
    assert whole.rates.count == 6


@pytest.mark.parametrize("count", [20_000, 90_000])
def test_stalls_are_counted_step_by_step_where_the_series_merges_neighbours(count: int) -> None:
    def one_in_a_hundred(source: random.Random, step: int) -> float:
        return (0.4 if source.random() < 0.01 else 0.1) * source.uniform(0.99, 1.01)

    of = batches(one_in_a_hundred, count, 2)
    generation = Generation(0, world_size=2)
    for turn in range(len(of[0])):
        generation.add([(rank, f"w{rank}", of[rank][turn]) for rank in range(2)], None, aligned=False)
    assert (generation.series.width > 1) == (count > 65_536)
    stalled = sum(ns > 3e8 for batch in of[0] for ns in batch.durations_ns)
    assert measures.stalls(generation) == stalled > 100
