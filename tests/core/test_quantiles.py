"""Quantiles against sorting."""

import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distmon.core.quantiles import EXACT_LIMIT, Quantiles, quantile

values = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=200)


@given(values)
def test_exact_while_few(numbers: list[float]) -> None:
    q = Quantiles()
    q.extend(numbers)
    assert q.quantile(0.5) == pytest.approx(statistics.median(numbers))
    assert (q.quantile(0), q.quantile(1)) == (min(numbers), max(numbers))
    assert q.relative_error == 0


@given(values, st.floats(0, 1))
@settings(max_examples=30, deadline=None)
def test_stated_error_holds_when_many(numbers: list[float], share: float) -> None:
    """Of the quantile as it is between two values that lie far apart, too."""
    many = numbers * (EXACT_LIMIT // len(numbers) + 1)
    q = Quantiles()
    q.extend(many)
    assert q.quantile(share) == pytest.approx(quantile(sorted(many), share), rel=q.relative_error * (1 + 1e-9), abs=0)


def test_nothing_has_no_quantile() -> None:
    assert Quantiles().quantile(0.5) is None


@given(values, values)
def test_order_of_arrival_does_not_matter(a: list[float], b: list[float]) -> None:
    first, second = Quantiles(), Quantiles()
    first.extend(a * 50)
    first.extend(b * 50)
    second.extend(b * 50)
    second.extend(a * 50)
    assert [first.quantile(x / 10) for x in range(11)] == [second.quantile(x / 10) for x in range(11)]
