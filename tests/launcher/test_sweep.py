"""The plan of a sweep: sizes, order, time left, what ranks share."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distmon.core.errors import UsageError
from distmon.launcher.sweep import Run, Sweep, left_s, parse_sizes, runs, sharing


def sweep(sizes: list[int], repeats: int) -> Sweep:
    return Sweep(sizes=sizes, repeats=repeats, flags=[], command=["train"], cwd="/")


def test_sizes_are_ascending_and_single() -> None:
    assert parse_sizes("4,1,2") == [1, 2, 4]
    with pytest.raises(UsageError, match="names 2 twice; --repeat K"):
        parse_sizes("4,2,1,2")
    for text in ("", "0", "1,", "two", "-1", "1.5"):
        with pytest.raises(UsageError, match="set apart by commas"):
            parse_sizes(text)


@given(st.lists(st.integers(1, 64), min_size=1, max_size=6, unique=True), st.integers(1, 6))
def test_every_size_comes_once_in_each_round(sizes: list[int], repeats: int) -> None:
    order = runs(sweep(sorted(sizes), repeats))
    rounds = [order[i : i + len(sizes)] for i in range(0, len(order), len(sizes))]
    assert [sorted(run.ranks for run in one) for one in rounds] == [sorted(sizes)] * repeats
    assert len(set(order)) == len(sizes) * repeats


def test_a_drift_of_the_machine_cancels_over_two_rounds() -> None:
    """Each size's mean place in the order is the same, so that a linear drift adds the same to all."""
    order = runs(sweep([1, 2, 4, 8], 4))
    places = {size: sum(place for place, run in enumerate(order) if run.ranks == size) for size in (1, 2, 4, 8)}
    assert len(set(places.values())) == 1


def test_the_time_left_goes_by_size_and_else_by_all() -> None:
    assert left_s([Run(1, 1)], {}) is None
    took = {Run(1, 1): 10.0, Run(2, 1): 6.0}
    assert left_s([Run(2, 2), Run(1, 2)], took) == 16.0
    assert left_s([Run(4, 1)], took) == 8.0


def test_what_a_run_has_gone_on_for_is_not_left() -> None:
    took = {Run(1, 1): 600.0, Run(2, 1): 300.0}
    pending = [Run(1, 2), Run(2, 2)]
    assert [left_s(pending, took, gone) for gone in (0.0, 590.0, 700.0)] == [900.0, 310.0, 300.0]
    assert left_s([], took, 5.0) == 0.0


def test_what_ranks_share_is_said_only_where_they_do() -> None:
    assert sharing([1, 2], cores=2, gpus=0) == []
    assert sharing([1, 2, 4], cores=2, gpus=1) == [
        "4 ranks share the 2 cores of this machine: their times show that, not how the job scales",
        "2 and 4 ranks share the 1 GPU of this machine: their times show that, not how the job scales",
    ]
