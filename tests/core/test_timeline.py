"""Series for plots: means by time, bounded, broken where nothing was measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distmon.core import events as ev
from distmon.core.timeline import NODES, POINTS, Binned, Timeline


def test_a_series_keeps_the_mean_by_time_however_long_it_gets() -> None:
    binned = Binned()
    for second in range(10_000):
        binned.add(1e9 + second, 10.0 if second < 5_000 else 30.0, 1.0)
    points = binned.points()
    assert len(points) <= POINTS
    assert all(value is not None and 10 <= value <= 30 for _, value in points)
    total = sum(value_s for value_s, _ in binned.bins.values())
    assert total == pytest.approx(200_000) and sum(s for _, s in binned.bins.values()) == pytest.approx(10_000)
    assert [at for at, _ in points] == sorted(at for at, _ in points)


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(-1e6, 1e6)), max_size=1_000))
def test_whatever_the_times_the_series_is_bounded(samples: list[tuple[float, float]]) -> None:
    binned = Binned()
    for at, value in samples:
        binned.add(at, value, 0.5)
    assert len(binned.bins) <= POINTS
    assert sum(seconds for _, seconds in binned.bins.values()) == pytest.approx(0.5 * len(samples))


def test_a_gap_breaks_the_line_and_nothing_measured_is_no_point() -> None:
    binned = Binned()
    for second in [*range(20), *range(60, 80)]:
        binned.add(1000.0 + second, 5.0, 1.0)
    binned.add(1100.0, None, 1.0)
    breaks = [at for at, value in binned.points() if value is None]
    assert len(breaks) == 1 and 1018 < breaks[0] < 1060


def test_nodes_past_the_limit_are_counted() -> None:
    timeline = Timeline()
    for number in range(NODES + 5):
        whole = ev.PowerRail(name="VDD_IN", watts=4.0, source="x")
        part = ev.PowerRail(name="GPU", watts=1.0, source="x", within="VDD_IN")
        timeline.add(ev.NodeSampled(at=10.0, node=f"n{number}", interval_s=1.0, cpu_percent=50.0, power=[whole, part]))
    assert len(timeline.nodes) == NODES and len(timeline.left_out) == 5
    node = timeline.nodes["n0"]
    assert [value for _, value in node.power_w.points()] == [4.0]
    assert set(node.rails) == {"VDD_IN", "GPU"}
