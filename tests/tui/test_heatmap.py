"""Heat maps show everything at once, whatever the size, and their cells are found again by key and mouse."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from textual.app import App, ComposeResult

from distmon.tui.format import milliseconds
from distmon.tui.widgets.heat import Scale, steady_scale
from distmon.tui.widgets.heatmap import HeatData, HeatMap, layout_for

SCALE = Scale(0.0, 100.0, lambda value: "-" if value is None else f"{value:.0f}", "%")


@given(st.integers(1, 1500), st.integers(1, 16), st.integers(20, 300), st.integers(3, 90))
def test_every_group_has_a_place_in_every_size(groups: int, largest: int, width: int, height: int) -> None:
    layout = layout_for(groups, largest, width, height)
    places = -(-groups // layout.merged)
    assert -(-places // layout.across) <= height
    row = layout.across * layout.span * layout.width + (layout.across - 1) * layout.gap + 14 * layout.labelled
    assert row <= width
    assert layout.merged > 1 or layout.span * layout.share >= largest


def test_a_thousand_nodes_of_eight_gpus_have_a_cell_each_on_a_wall_and_share_cells_on_a_laptop() -> None:
    assert layout_for(1000, 8, 196, 50).share == 1
    assert layout_for(1000, 8, 76, 17).merged == 1


def test_the_scale_holds_still_while_values_move() -> None:
    tops = {steady_scale([value], milliseconds, "ms").high for value in (0.051, 0.06, 0.07, 0.09, 0.0999)}
    assert len(tops) == 1
    assert steady_scale([], milliseconds, "ms").high == 1.0


class HeatApp(App[None]):
    def compose(self) -> ComposeResult:
        yield HeatMap("heat", 1, empty="nothing", id="heat")


def data(values: list[float | None], size: int) -> HeatData[int]:
    groups = [(f"node-{first // size}", min(size, len(values) - first)) for first in range(0, len(values), size)]
    return HeatData(range(len(values)), values, groups, SCALE, frozenset({3}))


async def test_a_shared_cell_shows_the_worst_and_a_trouble_its_own_sign() -> None:
    app = HeatApp()
    async with app.run_test(size=(80, 8)):
        heat: HeatMap[int] = app.query_one(HeatMap)
        values: list[float | None] = [0.0] * 4000
        values[77] = 100.0
        heat.show(data(values, 8), str)
        text = "".join(strip.text for strip in heat.draw_body(*heat.body_size))
        assert text.count("█") == 2  # the cell, and the legend's hottest
        assert text.count("✖") == 1


async def test_arrows_go_through_cells_and_rows_and_the_mouse_finds_the_same() -> None:
    app = HeatApp()
    async with app.run_test(size=(60, 12)) as pilot:
        heat: HeatMap[int] = app.query_one(HeatMap)
        heat.show(data([float(i) for i in range(16)], 4), lambda key: f"value {key}")
        await pilot.pause()
        heat.navigate("first")
        heat.navigate("right")
        heat.navigate("down")
        assert heat.selected == 5
        assert "value 5" in heat.draw_body(*heat.body_size)[-1].text
        heat.navigate("left")
        heat.navigate("up")
        assert heat.selected == 0
        heat.navigate("last")
        assert heat.selected == 15
        row = heat.draw_body(*heat.body_size)[1].text
        await pilot.click("#heat", offset=(heat.body_left + row.index(" 6 ") + 1, heat.body_top + 1))
        assert heat.selected == 6


async def test_the_selection_holds_by_key_and_goes_with_it() -> None:
    app = HeatApp()
    async with app.run_test(size=(60, 12)):
        heat: HeatMap[int] = app.query_one(HeatMap)
        heat.show(data([1.0] * 8, 4), str)
        heat.select(6)
        heat.show(HeatData([6, 1], [1.0, 2.0], [("a", 2)], SCALE), str)
        assert heat.selected == 6
        heat.show(HeatData([1], [2.0], [("a", 1)], SCALE), str, filtered=True)
        assert heat.selected is None


async def test_what_stands_next_is_selected_where_the_selected_left_and_it_is_said() -> None:
    app = HeatApp()
    async with app.run_test(size=(60, 12)):
        heat: HeatMap[int] = app.query_one(HeatMap)
        heat.show(data([1.0] * 8, 4), lambda key: f"value {key}")
        heat.select(6)
        heat.show(HeatData([5, 7], [1.0, 2.0], [("a", 2)], SCALE), lambda key: f"value {key}")
        assert heat.selected == 7 and "value 6 left; value 7" in heat.draw_body(*heat.body_size)[-1].text
        heat.show(HeatData([5], [1.0], [("a", 1)], SCALE), lambda key: f"value {key}")
        assert heat.selected == 5 and "value 7 left; value 5" in heat.draw_body(*heat.body_size)[-1].text
        heat.show(HeatData([5, 7], [1.0, 2.0], [("a", 2)], SCALE), lambda key: f"value {key}")
        assert "left" not in heat.draw_body(*heat.body_size)[-1].text  # the moment is one at which it was there
        heat.select(5)
        assert "left" not in heat.draw_body(*heat.body_size)[-1].text
