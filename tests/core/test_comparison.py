"""Comparing runs: equals are seldom called different, a true 2 % is found, and single runs claim nothing.

The streams have the noise of real runs: neighbouring steps correlate by 0.5, 3 % of steps stall, and each run as a whole differs
from the next by 0.8 %, which is what a machine of one's own shows between runs of minutes.
"""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from distmon.core import steps
from distmon.core.comparison import UNITS, RunValues, compare_runs, run_values, shown_difference
from distmon.core.fold import apply
from distmon.core.intervals import Interval, median_interval, rate_interval
from distmon.core.state import SessionState
from distmon.core.synthetic import Script, session

RUN_SPREAD = 0.008
STEPS = 400
RUNS = 60
PAIRS = 2_000


def run(seed: int, slower: float = 0.0) -> RunValues:
    """One run of steps of about 100 ms with 32 samples each."""
    source = random.Random(seed)
    level = math.log(0.1 * (1 + slower)) + source.gauss(0, RUN_SPREAD)
    durations, wander = [], 0.0
    for _ in range(STEPS):
        wander = 0.5 * wander + source.gauss(0, 0.03)
        durations.append(math.exp(level + wander) * (source.uniform(2, 5) if source.random() < 0.03 else 1))
    rates = [32 / d for d in durations]
    found = {"throughput median": median_interval(rates), "throughput mean": rate_interval([32.0] * STEPS, durations)}
    return {name: value for name, value in found.items() if value is not None}


@pytest.fixture(scope="module")
def equal() -> list[RunValues]:
    return [run(seed) for seed in range(RUNS)]


@pytest.fixture(scope="module")
def slower() -> list[RunValues]:
    """The very same runs, each step 2 % longer."""
    return [run(seed, 0.02) for seed in range(RUNS)]


def plain(source: random.Random) -> RunValues:
    """A run with one value of each measure, which scatter by 1 % and each for itself."""
    return {name: math.exp(source.gauss(0, 0.01)) for name in UNITS}


def verdicts(base: list[RunValues], other: list[RunValues], runs: int) -> Counter[str]:
    """Of the headline measure, for draws of so many runs of each; no run is on both sides."""
    source, found = random.Random(7), Counter[str]()
    for _ in range(PAIRS):
        chosen = source.sample(range(RUNS), 2 * runs)
        sides = [base[i] for i in chosen[:runs]], [other[i] for i in chosen[runs:]]
        found[compare_runs(*sides)[0].verdict] += 1
    return found


def test_equals_are_called_different_in_at_most_5_percent(equal: list[RunValues]) -> None:
    found = verdicts(equal, equal, 5)
    assert 0.02 < (found["higher"] + found["lower"]) / PAIRS <= 0.05
    assert not found["not told"]


def test_equals_have_any_row_called_different_in_at_most_5_percent() -> None:
    source, rows, any_row, pairs = random.Random(3), 0, 0, 600
    for _ in range(pairs):
        found = compare_runs([plain(source) for _ in range(5)], [plain(source) for _ in range(5)])
        different = [effect.verdict in ("higher", "lower") for effect in found]
        rows, any_row = len(different), any_row + any(different)
    assert rows == len(UNITS)
    assert 0.02 * pairs < any_row <= 0.05 * pairs


def test_a_difference_outside_the_headline_is_found_too() -> None:
    """The same speed at 10 % less energy; and a speed that differs leaves the others all of the limit."""
    a = [{"throughput mean": 100 + i, "energy": 50 + i / 10, "duration": 9.0 + i / 10} for i in (-1, 0, 1)]
    b = [{"throughput mean": 100.2 + i, "energy": 45 + i / 10, "duration": 9.0 + i / 9} for i in (-1, 0, 1)]
    assert [e.verdict for e in compare_runs(a, b)] == ["no difference shown", "no difference shown", "lower"]


def test_a_side_without_an_interval_is_not_told() -> None:
    found = compare_runs([run(1)], [{"throughput median": 300.0, "throughput mean": 200.0}])
    assert [(e.ratio.known, e.verdict) for e in found] == [(False, "not told")] * 2


def test_merged_steps_have_a_mean_with_an_interval_and_no_median(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "MAX_SERIES", 128)
    state = SessionState()
    for event in session(Script(ranks=2, nodes=1, seconds=30)):
        apply(state, event)
    found = run_values(state)
    assert "throughput median" not in found and "steady step, median" not in found
    mean = found["throughput mean"]
    # The first entry is four steps, the compilation among them: all four are set aside.
    assert isinstance(mean, Interval) and mean.estimate == pytest.approx(2 * 32 / 0.1, rel=0.01)


def test_a_true_2_percent_is_found_in_80_percent(equal: list[RunValues], slower: list[RunValues]) -> None:
    found = verdicts(equal, slower, 5)
    assert found["lower"] / PAIRS >= 0.80
    assert not found["higher"]


def test_runs_that_were_not_repeated_claim_nothing(equal: list[RunValues], slower: list[RunValues]) -> None:
    for runs in (1, 2):
        assert set(verdicts(equal, slower, runs)) <= {"not told", "no difference shown"}
    assert compare_runs([run(1)], [run(2, 0.10)])[0].verdict == "not told"


def test_a_session_gives_its_values() -> None:
    state = SessionState()
    for event in session(Script(ranks=2, nodes=1, seconds=30)):
        apply(state, event)
    found = run_values(state)
    assert next(iter(found)) == "throughput median"
    assert {"throughput mean", "steady step", "step, compute", "duration", "warm-up", "energy", "energy per sample"} <= set(found)
    effect = compare_runs([found], [found])[0]
    assert effect.ratio.estimate == 1 and effect.verdict == "no difference shown"


def test_a_measure_that_one_run_lacks_is_left_out() -> None:
    assert [e.name for e in compare_runs([{"duration": 3.0, "energy": 9.0}], [{"duration": 6.0}])] == ["duration"]
    assert compare_runs([{"duration": 3.0}], [{"duration": 6.0}])[0].verdict == "not told"
    assert compare_runs([], []) == []


@pytest.mark.parametrize("runs", [5, 20])
def test_the_difference_that_is_called_shown_in_four_of_five_is(runs: int) -> None:
    """Runs that scatter by 1 %: of pairs that truly differ by what equals say would show, 80 % are called different."""
    source = random.Random(11)

    def side(shift: float) -> list[RunValues]:
        return [{"throughput median": math.exp(source.gauss(shift, 0.01))} for _ in range(runs)]

    told = [shown_difference(compare_runs(side(0.0), side(0.0))[0].ratio) or 0.0 for _ in range(300)]
    apart = math.log1p(sum(told) / len(told))
    found = [compare_runs(side(0.0), side(apart))[0].verdict in ("higher", "lower") for _ in range(600)]
    assert 0.74 < sum(found) / len(found) < 0.86


def test_no_difference_is_promised_where_there_is_no_interval() -> None:
    assert shown_difference(compare_runs([{"duration": 1.0}], [{"duration": 2.0}])[0].ratio) is None
    steps = random.Random(5)
    rates = [median_interval([steps.gauss(100.0, 5.0) for _ in range(300)]) for _ in range(2)]
    runs: list[RunValues] = [{"throughput median": rate} for rate in rates if rate is not None]
    (effect,) = compare_runs(runs[:1], runs[1:])
    assert effect.ratio.known and effect.verdict in ("no difference shown", "not told")
    assert shown_difference(effect.ratio) is None  # one run of each never tells a difference
