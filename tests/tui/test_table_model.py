"""Selection and view by identity."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from distmon.tui.widgets.table_model import TableModel


def model(keys: list[str], selected: str | None, visible: int, top: int = 0) -> TableModel[str]:
    made: TableModel[str] = TableModel(visible=visible)
    made.refresh(keys)
    made.top = top
    made.selected = selected
    return made


def test_the_selection_follows_its_row_through_a_new_order() -> None:
    rows = model(list("abcdef"), "d", 3, top=2)
    rows.refresh(list("fedcba"))
    assert rows.selected == "d"
    assert "d" in rows.in_view()


def test_the_view_stays_where_it_is_while_the_selected_row_is_in_it() -> None:
    rows = model(list("abcdef"), "d", 3, top=2)
    rows.refresh(list("abdcef"))
    assert rows.top == 2


def test_when_the_selected_row_leaves_the_one_after_it_is_selected_and_it_is_named_once() -> None:
    rows = model(list("abcd"), "b", 4)
    rows.refresh(list("acd"))
    assert (rows.selected, rows.departed) == ("c", "b")


def test_when_the_last_row_leaves_the_one_before_it_is_selected() -> None:
    rows = model(list("abcd"), "d", 4)
    rows.refresh(list("abc"))
    assert rows.selected == "c"


def test_when_all_leave_nothing_is_selected() -> None:
    rows = model(list("ab"), "a", 2)
    rows.refresh([])
    assert rows.selected is None
    assert rows.in_view() == []


def test_scrolling_leaves_the_selection_and_a_refresh_does_not_pull_it_back() -> None:
    rows = model([str(i) for i in range(50)], "0", 10)
    rows.scroll(30)
    rows.refresh([str(i) for i in range(51)])
    assert (rows.selected, rows.top) == ("0", 30)


@given(st.lists(st.lists(st.integers(0, 30), unique=True), min_size=1, max_size=12), st.integers(1, 12), st.data())
def test_whatever_comes_the_view_is_inside_the_rows(orders: list[list[int]], visible: int, data: st.DataObject) -> None:
    rows: TableModel[int] = TableModel(visible=visible)
    for order in orders:
        rows.refresh(order)
        assert rows.selected is None or rows.selected in order
        assert 0 <= rows.top <= max(0, len(order) - visible)
        if data.draw(st.booleans()):
            rows.move(data.draw(st.integers(-5, 5)))
            assert not order or rows.selected in rows.in_view()
