"""Warm-up found from step times: case ST-04 and seeded series of known truth."""

import json
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distmon.core.step_series import NOISES, SHAPES, series
from distmon.core.warmup import Warmup, find_warmup

CASE = Path(__file__).parents[1] / "data/cases/ST-04"
SERIES = json.loads((CASE / "series.json").read_text())
EXPECTED = json.loads((CASE / "expected.json").read_text())


@pytest.mark.parametrize("name", ["A", "B", "D", "E"])
def test_case_series(name: str) -> None:
    found = find_warmup(SERIES[name])
    assert found.steps is not None
    assert abs(found.steps - EXPECTED["warmup_steps"][name]) <= EXPECTED["tolerance_steps"]
    assert found.steady_step_s == pytest.approx(EXPECTED["steady_step_s"][name], rel=EXPECTED["tolerance_pct"] / 100)


def test_too_few_steps_gives_no_speed() -> None:
    found = find_warmup(SERIES["C"])
    assert (found.shape, found.steps, found.steady_step_s) == ("too_few_steps", None, None)


def test_one_late_stall_moves_nothing() -> None:
    found = find_warmup(SERIES["D"])
    after = SERIES["D"][found.steps :]
    assert sum(after) / len(after) == pytest.approx(EXPECTED["D"]["mean_of_all_after_warmup_s"], abs=0.001)


def test_slow_drift_is_not_swallowed() -> None:
    found = find_warmup(SERIES["F"])
    assert found.shape == "slowdown"
    assert found.steps is not None
    assert 1 <= found.steps <= 5


@pytest.mark.parametrize("n", [50, 200, 1000, 5000])
@pytest.mark.parametrize(("plateau", "factor"), [(0, 1.0), (5, 3.0), (1, 40.0)])
def test_seeded_truth(n: int, plateau: int, factor: float) -> None:
    rng = random.Random(n + plateau)
    stalls = [3 if rng.random() < 0.03 else 1 for _ in range(n)]
    values = [0.1 * (factor if i < plateau else 1) * rng.lognormvariate(0, 0.03) * stalls[i] for i in range(n)]
    found = find_warmup(values)
    assert found.steps is not None
    assert abs(found.steps - plateau) <= 2
    assert found.steady_step_s == pytest.approx(statistics.median(values[plateau:]), rel=0.005)


def tried(length: int, seeds: int) -> list[tuple[Warmup, float | None]]:
    """(what was found, median of the truly steady steps; None where there are none) of every shape and noise."""
    found = []
    for shape in SHAPES:
        for noise in NOISES:
            for seed in range(seeds):
                values, truth = series(shape, noise, length, seed)
                steady = None if truth.steady_from is None else statistics.median(values[truth.steady_from :])
                found.append((find_warmup(values), steady))
    return found


@pytest.mark.parametrize(
    ("length", "seeds", "tolerance", "least"), [(50, 8, 0.015, 0.85), (200, 4, 0.005, 0.95), (1_000, 2, 0.005, 0.95)]
)
def test_steady_states_of_every_shape_and_noise(length: int, seeds: int, tolerance: float, least: float) -> None:
    """The short form of bench/accuracy.py, which has the whole table."""
    results = tried(length, seeds)
    unsteady = [found.shape == "no_steady_state" for found, steady in results if steady is None]
    assert sum(unsteady) >= least * len(unsteady)
    steady = [(found.steady_step_s, truth) for found, truth in results if truth is not None]
    assert sum(value is None for value, _ in steady) <= 0.02 * len(steady)
    near = [abs(value / truth - 1) <= tolerance for value, truth in steady if value is not None]
    assert sum(near) >= 0.98 * len(near)


def test_levels_in_turns_are_no_correlated_noise_in_a_run_of_50_steps() -> None:
    """They are found in 95 % of fresh seeds; and noise that does wander, or stalls, is as seldom taken for them as before."""
    seeds = range(2000, 2060)
    fresh = [series(shape, noise, 50, seed)[0] for shape in ("two_levels", "flat") for noise in NOISES for seed in seeds]
    unsteady = [find_warmup(values).shape == "no_steady_state" for values in fresh]
    half = len(unsteady) // 2
    assert sum(unsteady[:half]) >= 0.95 * half
    assert sum(unsteady[half:]) <= 0.02 * half


def drifting(seed: int, noise: float, by: float, stalls: float = 0.03) -> list[float]:
    """200 steps that go up by a share all along, with a scatter as large as half of that or more."""
    rng = random.Random(seed)
    return [0.1 * (1 + by * i / 200) * rng.lognormvariate(0, noise) * (3 if rng.random() < stalls else 1) for i in range(200)]


def test_a_slow_drift_among_much_noise_is_seldom_called_flat_and_noise_alone_no_drift() -> None:
    shapes = {noise: [find_warmup(drifting(seed, noise, 0.2)).shape for seed in range(7_000, 7_100)] for noise in (0.1, 0.15)}
    assert shapes[0.1].count("flat") <= 5 and shapes[0.15].count("flat") <= 27
    flat = [find_warmup(drifting(seed, noise, 0.0)).shape for noise in (0.03, 0.1, 0.15) for seed in range(7_000, 7_100)]
    assert flat.count("no_steady_state") <= 0.01 * len(flat)


def test_an_even_drift_to_faster_steps_is_no_warm_up() -> None:
    def getting_faster(seed: int) -> list[float]:
        source, wander, found = random.Random(seed), 0.0, list[float]()
        for i in range(1_000):
            wander = 0.36 * wander + 0.933 * source.gauss(0, 1)
            stall = 1 + source.expovariate(2) if source.random() < 0.03 else 1.0
            found.append(0.1 * (1 - 0.05 * i / 1_000) * (1 + 0.015 * wander) * stall)
        return found

    assert {find_warmup(getting_faster(seed)).shape for seed in range(20)} == {"no_steady_state"}


def test_a_plateau_of_40_in_10_000_steps_is_found_within_a_tenth_of_a_second() -> None:
    values, _ = series("low_plateau", "heavy", 10_000, 0)
    begun = time.process_time()
    found = find_warmup(values)
    assert time.process_time() - begun < 0.1
    assert found.shape == "warmup"
    assert found.steps == pytest.approx(40, abs=3)


def test_what_was_faster_before_a_slowdown_is_neither_warm_up_nor_steady() -> None:
    values, truth = series("slowdown", "normal", 400, 0)
    found = find_warmup(values)
    assert (found.shape, found.steps) == ("slowdown", 0)
    assert found.steady_from == pytest.approx(truth.steady_from, abs=8)


def levels(steps: int, noise: float, *changes: tuple[int, float]) -> list[float]:
    """Steps of 0.1 s times the factor of the last (step, factor) before each."""
    rng = random.Random(steps)
    factor = [1.0] * steps
    for first, value in changes:
        factor[first:] = [value] * (steps - first)
    return [0.1 * f * rng.lognormvariate(0, noise) for f in factor]


@pytest.mark.parametrize("noise", [0.01, 0.03])
@pytest.mark.parametrize(
    ("steps", "first", "end", "factor"),
    [(1_000, at, at + 30, 5.0) for at in (20, 50, 100, 200, 300)] + [(600, 100, 200, 1.2), (1_000, 200, 230, 0.5)],
)
def test_a_spell_after_which_steps_are_as_before_is_no_warm_up(
    steps: int, first: int, end: int, factor: float, noise: float
) -> None:
    found = find_warmup(levels(steps, noise, (first, factor), (end, 1.0)))
    assert (found.shape, found.steps, found.leading_steps, found.steady_from) == ("flat", 0, 0, 0)
    (spell,) = found.spells
    assert spell.first == pytest.approx(first, abs=4)
    assert spell.end == pytest.approx(end, abs=4)
    assert spell.step_s == pytest.approx(0.1 * factor, rel=0.02)
    assert found.steady_step_s == pytest.approx(0.1, rel=0.005)


def test_several_spells_after_a_warm_up() -> None:
    episodes = [change for at in (50, 100, 200, 300) for change in ((at, 3.0), (at + 20, 1.0))]
    found = find_warmup(levels(1_000, 0.02, (0, 8.0), (30, 1.0), *episodes))
    assert (found.shape, found.steps, len(found.spells)) == ("warmup", 30, 4)
    assert found.steady_step_s == pytest.approx(0.1, rel=0.005)


def test_a_few_fast_steps_within_the_warm_up_do_not_end_it() -> None:
    """As when a tuner tries what it settles on in the end."""
    found = find_warmup(levels(1_000, 0.01, (0, 1.5), (40, 1.0), (50, 1.3), (200, 1.0)))
    assert (found.shape, found.spells) == ("warmup", ())
    assert found.steps == pytest.approx(200, abs=3)


@pytest.mark.parametrize("noise", [0.01, 0.03])
@pytest.mark.parametrize("factor", [6.0, 1.5])
@pytest.mark.parametrize("plateau", [10, 20, 30, 60])
@pytest.mark.parametrize("slower_from", [70, 250, 400])
def test_the_warm_up_before_a_slowdown_is_found(plateau: int, slower_from: int, factor: float, noise: float) -> None:
    found = find_warmup(levels(1_000, noise, (0, factor), (plateau, 1.0), (slower_from, 1.3)))
    assert (found.shape, found.steps) == ("slowdown", plateau)
    assert found.steady_from == pytest.approx(slower_from, abs=4)
    assert found.steady_step_s == pytest.approx(0.13, rel=0.005)


def test_the_warm_up_before_a_drift_and_before_a_late_change_is_found() -> None:
    drift = [0.1 * (6 if i < 30 else 1 + i / 1_000) * random.Random(i).lognormvariate(0, 0.01) for i in range(1_000)]
    found = find_warmup(drift)
    assert (found.shape, found.steps) == ("slowdown", 30)
    late = find_warmup(levels(1_000, 0.01, (0, 6.0), (30, 1.0), (700, 1.3)))
    assert (late.shape, late.steps, late.leading_steps) == ("no_steady_state", None, 30)


SLOW_STEPS: dict[str, tuple[float, Callable[[random.Random, int], bool]]] = {
    "a coin's": (2.0, lambda rng, i: rng.random() < 0.5),
    "a coin's, 1.3 times": (1.3, lambda rng, i: rng.random() < 0.5),
    "one in four": (1.5, lambda rng, i: rng.random() < 0.25),
    "three in four": (2.0, lambda rng, i: rng.random() < 0.75),
    "every second": (2.0, lambda rng, i: i % 2 == 1),
    "every third": (2.0, lambda rng, i: i % 3 == 2),
    "every fourth": (4.0, lambda rng, i: i % 4 == 3),
    "every fourth from the first on": (4.0, lambda rng, i: i % 4 == 0),
}
"""How many times as long they take, and which they are."""


def of_two_values(slow: str, steps: int, seed: int) -> list[float]:
    rng = random.Random(f"{slow} {steps} {seed}")
    factor, is_slow = SLOW_STEPS[slow]
    return [0.1 * (factor if is_slow(rng, i) else 1.0) * rng.lognormvariate(0, 0.02) for i in range(steps)]


@pytest.mark.parametrize("steps", [100, 200, 300, 1_000])
@pytest.mark.parametrize("slow", SLOW_STEPS)
def test_steps_of_two_values_are_flat(slow: str, steps: int) -> None:
    found = [find_warmup(of_two_values(slow, steps, seed)) for seed in range(20)]
    assert sum(f.shape == "flat" and not f.spells for f in found) >= 19


@pytest.mark.parametrize("slow", SLOW_STEPS)
def test_a_change_of_level_in_steps_of_two_values_is_found(slow: str) -> None:
    for seed in range(5):
        values = of_two_values(slow, 300, seed)
        late = find_warmup([value * (1.5 if i >= 210 else 1.0) for i, value in enumerate(values)])
        assert late.shape == "no_steady_state"
        plateau = find_warmup([value * (3.0 if i < 60 else 1.0) for i, value in enumerate(values)])
        assert plateau.shape == "warmup"
        assert plateau.steps == pytest.approx(60, abs=4)
        first = find_warmup([values[0] * 30, *values[1:]])
        assert (first.shape, first.steps) == ("warmup", 1)


@given(st.lists(st.floats(1e-6, 1e3), max_size=300))
def test_any_series_is_answered_within_its_bounds(values: list[float]) -> None:
    found = find_warmup(values)
    if found.steps is None:
        assert found.shape in ("too_few_steps", "no_steady_state")
    else:
        assert found.steady_from is not None
        assert 0 <= found.steps <= found.steady_from <= len(values) // 2
        edges = [found.steady_from, *(edge for spell in found.spells for edge in (spell.first, spell.end)), len(values)]
        assert edges == sorted(set(edges))
        assert found.duration_s == pytest.approx(sum(values[: found.steps]))
