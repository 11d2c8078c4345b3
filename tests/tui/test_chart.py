"""Down-sampling keeps peaks, gaps stay gaps, and the axes hold still."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distmon.tui.theme import DARK
from distmon.tui.widgets.chart import ChartData, EventLine, Plot, Series, cross_words, nearest, time_axis
from distmon.tui.widgets.raster import bins, bridged, dots, nice_ceiling, nice_time_step


def test_one_high_sample_in_a_day_survives() -> None:
    times = [float(t) for t in range(86_400)]
    values = [1.0] * 86_400
    values[54_321] = 99.0
    columns = bins(times, values, 0.0, 864.0, 100)
    assert [c[1] for c in columns if c] == [99.0 if i == 62 else 1.0 for i in range(100)]


def test_missing_and_nan_values_are_gaps() -> None:
    assert bins([0.0, 1.0, 2.0, 3.0], [1.0, None, math.nan, 2.0], 0.0, 1.0, 4) == [(1.0, 1.0), None, None, (2.0, 2.0)]


def test_a_short_hole_is_bridged_and_a_long_one_is_not() -> None:
    columns = [(0.0, 0.0), None, (2.0, 2.0), None, None, None, (0.0, 0.0)]
    assert bridged(columns, 1) == [(0.0, 0.0), (1.0, 1.0), (2.0, 2.0), None, None, None, (0.0, 0.0)]


def test_a_steep_line_has_no_holes() -> None:
    masks = dots([(0.0, 0.0), (7.0, 7.0)], 2, 0.0, 7.0)
    filled = [mask for row in masks for mask in row]
    assert sum(mask.bit_count() for mask in filled) == 8


def test_dots_outside_the_axis_are_drawn_at_its_edge() -> None:
    assert dots([(50.0, 50.0)], 1, 0.0, 10.0) == [[0x01]]


@given(st.floats(1e-6, 1e9))
def test_the_value_axis_covers_and_is_used(value: float) -> None:
    top = nice_ceiling(value)
    assert top >= value
    assert value >= 0.39 * top


@given(st.floats(0.01, 1e6))
def test_time_steps_are_long_enough(seconds: float) -> None:
    assert nice_time_step(seconds) >= seconds * (1 - 1e-9)


def data(seconds: int, window_s: float | None = None) -> ChartData:
    times = [0.5 + t for t in range(seconds)]
    return ChartData((Series("s", times, [100.0] * seconds, "series0"),), now=float(seconds), window_s=window_s)


@given(st.integers(3, 20_000))
def test_the_whole_session_fills_two_thirds_of_its_axis_and_never_leaves_it(seconds: int) -> None:
    axis = time_axis(data(seconds), 100)
    span = axis.step * axis.count
    assert seconds <= span * (1 + 1e-9)
    assert seconds >= 0.66 * span or axis.step == 0.25


@pytest.mark.parametrize("window_s", [None, 60.0])
def test_a_second_more_moves_a_window_by_whole_columns_and_a_session_not_at_all(window_s: float | None) -> None:
    a, b = time_axis(data(500, window_s), 100), time_axis(data(501, window_s), 100)
    assert a.step == b.step
    assert ((b.start - a.start) / a.step).is_integer()
    assert window_s is not None or a.start == b.start


def rows(plot: Plot) -> list[str]:
    return ["".join(text for text, _ in line.pieces) for line in plot.lines()]


def test_axes_have_labels_and_events_have_lines() -> None:
    chart = ChartData(data(60).series, (EventLine(30.0, "bad"),), now=60.0)
    drawn = rows(Plot(chart, DARK, 40, 7))
    assert [line[:6] for line in drawn] == [
        "  120┤",
        "     │",
        "     │",
        " 60.0┤",
        "     │",
        "     │",
        "    0┤",
        "     └",
    ]
    assert drawn[-1].split() == ["└0:00", "0:30"]
    assert sum("┊" in line for line in drawn) == 6


def test_an_empty_chart_says_why() -> None:
    assert any("no steps yet" in line for line in rows(Plot(ChartData(now=5.0), DARK, 40, 5)))


def drawn(shown: ChartData) -> list[str]:
    """The chart's lines at 60 cells by 9."""
    return ["".join(text for text, _ in line.pieces) for line in Plot(shown, DARK, 60, 9).lines()]


def test_a_band_fills_what_lies_between_its_edges_behind_the_line() -> None:
    times = [float(t) for t in range(60)]
    band = ([2.0] * 60, [8.0] * 60)
    plot = Plot(ChartData(series=(Series("median", times, [5.0] * 60, "series0", band=band),), now=60.0), DARK, 60, 9)
    styles = {style for line in plot.lines() for _, style in line.pieces}
    assert {DARK.style("series0"), DARK.style("series0_area")} <= styles
    faint = [sum(len(text) for text, style in line.pieces if style == DARK.style("series0_area")) for line in plot.lines()]
    assert faint[0] == 0 and max(faint) > 20
    assert plot.high >= 8.0


def test_a_logarithmic_axis_gives_each_decade_the_same_room() -> None:
    times = [float(t) for t in range(60)]
    values = [10.0 ** (t // 20) for t in range(60)]
    shown = ChartData(series=(Series("s", times, values, "series0"),), now=60.0, log=True)
    plot = Plot(shown, DARK, 60, 9)
    assert plot.low == 1.0
    lines = drawn(shown)
    heights = [max(y for y, line in enumerate(lines[:9]) if line[6 + x].strip("┄ │")) for x in (5, 25, 45)]
    assert heights[0] - heights[1] == pytest.approx(heights[1] - heights[2], abs=1)
    assert heights[1] - heights[2] >= 2


def test_zero_on_a_logarithmic_axis_is_drawn_at_its_foot() -> None:
    shown = ChartData(series=(Series("s", [0.0, 1.0, 2.0], [0.0, 10.0, 100.0], "series0"),), now=3.0, log=True)
    assert len(drawn(shown)) == 10


def test_the_crosshair_is_a_line_and_says_the_nearest_values() -> None:
    band = ([1.0, 2.0, 3.0], [2.0, 4.0, 6.0])
    series = Series("median", [0.0, 10.0, 20.0], [1.5, 3.0, 4.5], "series0", band=band)
    shown = ChartData(series=(series,), now=20.0, cross=12.0, interval_s=10.0)
    assert all("│" in line[7:] for line in drawn(shown)[:9])
    assert "".join(text for text, _ in cross_words(shown)) == "at 0:12  median 3.00 (2.00 to 4.00)"
    gap = [None] * len(series.times)
    unknown = replace(shown, series=(replace(series, values=gap, band=(gap, gap)),))
    assert "".join(text for text, _ in cross_words(unknown)) == "at 0:12  median –"


@pytest.mark.parametrize(("at", "index"), [(-5.0, 0), (4.0, 0), (6.0, 1), (10.0, 1), (99.0, 2)])
def test_the_nearest_sample(at: float, index: int) -> None:
    assert nearest([0.0, 10.0, 20.0], at) == index
    assert nearest([], at) is None


def test_a_window_can_end_earlier() -> None:
    shown = ChartData(now=1000.0, window_s=60.0, end=500.0)
    axis = time_axis(shown, 120)
    assert axis.start + axis.step * axis.count == pytest.approx(500.0, abs=axis.step)


def test_a_window_longer_than_the_session_has_no_labels_before_its_begin() -> None:
    series = Series("x", [0.0, 5.0, 10.0], [1.0, 2.0, 3.0], "series0")
    plot = Plot(ChartData((series,), now=200.0, window_s=300.0), DARK, 80, 6)
    assert "".join(text for text, _ in plot.lines()[-1].pieces).count("0:00") == 1


def test_a_session_of_two_seconds_has_each_label_once() -> None:
    series = Series("x", [0.0, 1.0, 2.0], [1.0, 2.0, 3.0], "series0")
    plot = Plot(ChartData((series,), now=2.0), DARK, 80, 6)
    labels = "".join(text for text, _ in plot.lines()[-1].pieces).replace("└", "").split()
    assert len(labels) == len(set(labels)) >= 2


def test_an_axis_whose_end_is_known_ends_there() -> None:
    def high(value: float) -> float:
        return Plot(ChartData((Series("cpu", [0.0], [value], "series0"),), highest=100.0), DARK, 40, 6).high

    assert [high(100.0), high(3.0)] == [100.0, 100.0]
    assert high(250.0) > 250.0
