"""Sums in machine code are those in Python, and what cannot be added up is refused."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distmon.core import columns
from distmon.core.batches import NOTHING, add_up

NUMBERS = st.integers(0, (1 << 32) - 1)


def test_it_is_built() -> None:
    assert columns.column_sums is not columns.column_sums_python, "core/_native.c is not built: make clean test"


@given(
    st.integers(1, 5).flatmap(lambda count: st.lists(st.lists(NUMBERS, min_size=count, max_size=count), min_size=1, max_size=6))
)
def test_the_sums_are_the_same(rows: list[list[int]]) -> None:
    count = len(rows[0])
    numbers = array("I", [number for row in rows for number in row])
    expected = tuple(sum(row) for row in rows[:-1])
    assert columns.column_sums(numbers, count) == columns.column_sums_python(numbers, count) == expected
    arrays = [array("I", row) for row in rows]
    for begin in range(count):
        by_place = [sum(column) for column in zip(*rows, strict=True)][begin:]
        assert columns.row_sums(arrays, begin, count - begin) == by_place
        assert columns.row_sums_python(arrays, begin, count - begin) == by_place
    tuples = [tuple(row) for row in rows]
    assert columns.tuple_sums(tuples) == columns.tuple_sums_python(tuples) == tuple(map(sum, zip(*rows, strict=True)))


def test_sums_beyond_machine_words_are_exact() -> None:
    large = (1 << 70, *NOTHING[1:])
    assert add_up([large, large])[0] == 1 << 71
    for edge in (1 << 63, (1 << 63) - 1, -(1 << 63)):
        assert add_up([(edge, *NOTHING[1:])] * 3)[0] == 3 * edge


@pytest.mark.skipif(columns.column_sums is columns.column_sums_python, reason="machine code is not built")
def test_what_is_no_column_is_refused() -> None:
    good = array("I", range(6))
    for numbers, count in ((array("q", range(6)), 2), (good, 4), (good, 0), (good, -2), (array("I"), 2)):
        with pytest.raises((TypeError, ValueError)):
            columns.column_sums(numbers, count)
    for rows, begin, length in (([good, array("I", [1])], 0, 6), ([good], 4, 3), ([good], -1, 2), ([good], 0, -1), ([1], 0, 1)):
        with pytest.raises((TypeError, ValueError)):
            columns.row_sums(rows, begin, length)  # type: ignore[arg-type]
    for tuples in ([], [(1, 2), (1,)], [1], [("a",), (1,)]):
        with pytest.raises((TypeError, IndexError)):
            columns.tuple_sums(tuples)  # type: ignore[arg-type]
