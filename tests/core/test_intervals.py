"""Intervals that cover, and laws of scaling that know what they cannot say; the whole tables are in docs/statistics.md."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distmon.core.intervals import Interval, median_interval, over_runs, rate_interval, ratio, student, student_tail
from distmon.core.scaling import Fit, Kind, Point, fit, karp_flatt, nearest_kind, scaling

MEAN_S, MEDIAN_S = 0.1 * math.exp(0.05**2 / 2) * 1.06, 0.1 * math.exp(0.05 * 0.0388)


def noisy(n: int, rho: float, source: random.Random) -> list[float]:
    """AR(1) noise of 5 %, 3 % of steps stalled to three times."""
    wander, values = source.gauss(0, 1), []
    for _ in range(n):
        wander = rho * wander + math.sqrt(1 - rho * rho) * source.gauss(0, 1)
        values.append(0.1 * math.exp(0.05 * wander) * (3 if source.random() < 0.03 else 1))
    return values


@pytest.mark.parametrize("rho", [0.0, 0.8])
def test_intervals_within_a_run_cover(rho: float) -> None:
    source, hits = random.Random(1), [0, 0, 0]
    for _ in range(200):
        one, two = noisy(200, rho, source), noisy(200, rho, source)
        rates = rate_interval([32.0] * 200, one), rate_interval([64.0] * 200, two)
        middle = median_interval(one)
        assert middle and rates[0] and rates[1]
        hits[0] += not middle.excludes(MEDIAN_S)
        hits[1] += not rates[0].excludes(32 / MEAN_S)
        hits[2] += not ratio(rates[0], rates[1]).excludes(2.0)
        assert ratio(rates[0], rates[1]).basis == "within this run"
    # 93 to 97 % over many; 200 pairs scatter by three points.
    assert all(180 <= hit <= 199 for hit in hits), hits


def test_runs_are_the_top_level() -> None:
    assert over_runs([10.0, 11.0]).basis == "within this run"
    three = over_runs([10.0, 11.0, 12.0])
    assert (three.basis, three.runs, three.degrees) == ("between runs", 3, 2)
    assert three.low < 10 < 12 < three.high


def test_a_side_without_an_interval_leaves_the_ratio_without_one() -> None:
    """The speed of 20 or 45 steps is not known exactly because it has no interval."""
    source = random.Random(4)
    base = over_runs([rate_interval([32.0] * 400, noisy(400, 0.5, source)) or 0.0])
    short = over_runs([320.0])
    mixed = over_runs([base, 320.0])
    assert base.known and not short.known and not mixed.known
    assert mixed.runs == 2 and mixed.estimate == pytest.approx(math.sqrt(320 * base.estimate))
    for found in (ratio(base, short), ratio(short, base), ratio(base, mixed), ratio(over_runs([1.0, 2.0, 3.0]), short)):
        assert not found.known and not found.excludes(1e9)
    assert ratio(base, short).estimate == pytest.approx(320 / base.estimate)
    assert over_runs([base, base]).known and over_runs([1.0, 2.0, 3.0]).known


def test_equal_runs_are_seldom_called_different() -> None:
    source, different = random.Random(2), 0
    for _ in range(400):
        a, b = ([math.exp(source.gauss(0, 0.01)) for _ in range(5)] for _ in range(2))
        different += ratio(over_runs(a), over_runs(b)).excludes(1.0)
    assert different <= 0.06 * 400


def test_student_is_that_of_the_tables() -> None:
    for degrees, point in ((1, 12.706), (2, 4.303), (9, 2.262), (10, 2.228), (30, 2.042), (math.inf, 1.960)):
        assert student(degrees) == pytest.approx(point, abs=0.003)


@pytest.mark.parametrize("degrees", [1, 2, 5, 9, 30, 300, 1e5, math.inf])
def test_the_tail_of_student_is_that_of_its_points(degrees: float) -> None:
    assert student_tail(student(degrees), degrees) == pytest.approx(0.05, rel=2e-3)
    assert student_tail(0.0, degrees) == 1.0
    for t, chance in ((1.0, 0.5), (12.7062, 0.05), (63.6567, 0.01)):
        assert student_tail(-t, 1) == pytest.approx(chance, rel=1e-4)


@given(st.floats(1.0, 60.0), st.floats(1.0, 60.0))
def test_student_falls_with_degrees(a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert student(low) >= student(high) - 1e-3


def points(sigma: float, kappa: float, noise: float, sizes: tuple[int, ...], runs: int = 3, seed: int = 3) -> list[Point]:
    source = random.Random(seed)
    found = []
    for n in sizes:
        rate = 100 * n / (1 + sigma * (n - 1) + kappa * n * (n - 1))
        found.append(Point(ranks=n, throughput=over_runs([rate * math.exp(source.gauss(0, noise)) for _ in range(runs)])))
    return found


def test_a_law_is_found_again() -> None:
    found = fit("usl", points(0.05, 0.002, 0.002, (1, 2, 4, 8, 16)))
    assert not found.refused
    assert found.parameters["contention"].estimate == pytest.approx(0.05, rel=0.15)
    assert found.parameters["coherence"].estimate == pytest.approx(0.002, rel=0.2)
    assert found.peak_ranks == pytest.approx(math.sqrt(0.95 / 0.002), rel=0.1)
    assert found.next_throughput is not None
    assert found.next_throughput.low <= 3200 / (1 + 0.05 * 31 + 0.002 * 32 * 31) <= found.next_throughput.high


def laws(found: list[Point], kind: Kind | None) -> dict[str, Fit]:
    return {law.law: law for law in scaling(found, kind).fits}


def test_what_the_points_cannot_carry_is_refused() -> None:
    assert "takes 5 numbers of ranks" in fit("usl", points(0.05, 0.0, 0.01, (1, 2, 4))).refused
    lone = [*points(0.05, 0.0, 0.01, (1, 2)), Point(ranks=4, throughput=over_runs([350.0]))]
    assert "too few steady steps at 4 ranks" in fit("amdahl", lone).refused
    serial = scaling(lone).speedups[2].karp_flatt
    assert serial is not None and (serial[0], serial[2]) == (-math.inf, math.inf) and 0 < serial[1] < 0.2
    exact = [Point(ranks=n, throughput=over_runs([float(n)] * 3)) for n in (1, 2, 4)]
    assert "no errors" in fit("amdahl", exact).refused
    growing = laws(points(0.01, 0.01, 0.005, (1, 2, 4, 8, 16)), "weak")
    assert growing["amdahl"].refused and growing["gustafson"].refused
    assert "κ of the USL is above 0" in laws(points(0.05, 0.001, 0.01, (1, 2, 4, 8, 16)), "weak")["amdahl"].refused


def test_laws_without_a_term_for_growing_overhead_need_points_that_show_none() -> None:
    """Three sizes fit both laws, and leave open what either has no term for: they are bounds then, and say so."""
    three = laws(points(0.05, 0.0, 0.003, (1, 2, 4)), "weak")
    assert all("overhead does not grow" in three[law].assumes and not three[law].refused for law in ("amdahl", "gustafson"))
    five = laws(points(0.05, 0.0, 0.02, (1, 2, 4, 8, 16), seed=0), "strong")
    assert not five["usl"].refused and not five["amdahl"].assumes
    ahead = five["amdahl"].next_throughput
    assert ahead is not None and ahead.low <= 3200 / (1 + 0.05 * 31) <= ahead.high
    grows = laws(points(0.01, 0.0005, 0.01, (1, 2, 4, 8, 16)), "strong")
    assert "foresees another throughput" in grows["amdahl"].refused or "κ of the USL is above 0" in grows["amdahl"].refused


def test_with_few_sizes_a_law_without_growing_overhead_is_a_bound() -> None:
    """Overhead that grows brings less than what Amdahl's law draws on through 1, 2 and 4 ranks, never more."""
    for kappa, beyond in ((0.0, 0.9), (0.001, 0.9), (0.003, 1.0), (0.01, 1.1)):
        ahead = laws(points(0.05, kappa, 0.01, (1, 2, 4)), "strong")["amdahl"].next_throughput
        truth = 800 / (1 + 0.05 * 7 + kappa * 8 * 7)
        assert ahead is not None and truth <= ahead.high and ahead.estimate > beyond * truth


def test_gustafsons_law_is_of_weak_scaling() -> None:
    source = random.Random(6)
    weak = [
        Point(ranks=n, throughput=over_runs([100 * (n - 0.06 * (n - 1)) * math.exp(source.gauss(0, 0.01)) for _ in range(3)]))
        for n in (1, 2, 4, 8, 16)
    ]
    found = laws(weak, "weak")["gustafson"].next_throughput
    assert found is not None and found.low <= 100 * (32 - 0.06 * 31) <= found.high
    assert laws(weak, "strong")["gustafson"].refused.endswith("the work grows with the ranks")
    assert laws(weak, None)["gustafson"].refused.endswith("not known to be")


def test_speedups_and_the_serial_share() -> None:
    found = scaling(points(0.1, 0.0, 0.001, (1, 2, 4)))
    assert [s.ranks for s in found.speedups] == [1, 2, 4]
    assert found.speedups[0].karp_flatt is None
    last = found.speedups[-1].karp_flatt
    assert last is not None and last[0] < 0.1 < last[2]
    assert karp_flatt(2.0, 2) == 0
    assert found.basis == "between runs"


def test_strong_and_weak_are_told_by_the_samples_of_an_epoch() -> None:
    assert nearest_kind([(1, 1000), (2, 1000), (4, 1008)]) == "strong"
    assert nearest_kind([(1, 1000), (2, 2000)]) == "weak"
    assert nearest_kind([(1, 1000), (2, 1500)]) is None
    assert nearest_kind([(1, 1000)]) is None


@given(st.lists(st.floats(0.001, 10.0), min_size=50, max_size=200))
def test_any_series_has_an_interval_around_its_estimate(values: list[float]) -> None:
    for found in (median_interval(values), rate_interval([1.0] * len(values), values)):
        assert found is None or (found.low <= found.estimate * (1 + 1e-9) and found.high >= found.estimate * (1 - 1e-9))


def test_a_ratio_needs_no_order() -> None:
    a = Interval(estimate=10.0, low=9.0, high=11.5, basis="within this run", degrees=20)
    b = Interval(estimate=20.0, low=19.0, high=22.0, basis="within this run", degrees=30)
    assert ratio(a, b).low == pytest.approx(1 / ratio(b, a).high)
