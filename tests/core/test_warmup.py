"""Warm-up found from step times: case ST-04 and seeded series of known truth."""

import json
import random
import statistics
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distmon.core.warmup import find_warmup

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


def test_one_late_stall_is_counted_and_moves_nothing() -> None:
    found = find_warmup(SERIES["D"])
    assert found.stalls == EXPECTED["D"]["stalls"]
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
    series = [0.1 * (factor if i < plateau else 1) * rng.lognormvariate(0, 0.03) * stalls[i] for i in range(n)]
    found = find_warmup(series)
    assert found.steps is not None
    assert abs(found.steps - plateau) <= 2
    assert found.steady_step_s == pytest.approx(statistics.median(series[plateau:]), rel=0.005)


@given(st.lists(st.floats(1e-6, 1e3), max_size=300))
def test_any_series_is_answered_within_its_bounds(series: list[float]) -> None:
    found = find_warmup(series)
    if found.steps is None:
        assert found.shape in ("too_few_steps", "no_steady_state")
    else:
        assert 0 <= found.steps <= len(series) // 2
        assert found.duration_s == pytest.approx(sum(series[: found.steps]))
