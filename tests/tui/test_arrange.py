"""Every size gets a layout whose parts lie inside the terminal and do not overlap."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distmon.tui.screens.arrange import MIN_HEIGHT, MIN_WIDTH, Box, Situation, arrange, frame_places, too_small

PANELS = ("throughput", "split", "nodes", "ranks", "events", "output")
situations = st.builds(
    Situation,
    ranks=st.integers(0, 2000),
    nodes=st.integers(0, 300),
    details=st.booleans(),
    zoomed=st.none() | st.sampled_from(PANELS),
    focused=st.sampled_from(PANELS),
)


def page_size(width: int, height: int) -> tuple[int, int]:
    page = frame_places(width, height, bar=False, prompt=False)["page"]
    return page.width, page.height


def overlap(a: Box, b: Box) -> bool:
    return a.x < b.x + b.width and b.x < a.x + a.width and a.y < b.y + b.height and b.y < a.y + a.height


def assert_tiled(places: dict[str, Box], width: int, height: int) -> None:
    assert sum(box.width * box.height for box in places.values()) == width * height
    for box in places.values():
        assert box.width > 0 and box.height > 0 and box.x >= 0 and box.y >= 0
        assert box.x + box.width <= width and box.y + box.height <= height
    assert not any(overlap(a, b) for a, b in itertools.combinations(places.values(), 2))


@given(st.integers(MIN_WIDTH, 400), st.integers(MIN_HEIGHT, 120), situations, st.booleans(), st.booleans())
def test_parts_tile_the_terminal(width: int, height: int, situation: Situation, bar: bool, prompt: bool) -> None:
    places = frame_places(width, height, bar=bar, prompt=prompt)
    assert_tiled(places, width, height)
    page = places["page"]
    assert_tiled(arrange(page.width, page.height, situation).places, page.width, page.height)


@given(st.integers(1, 400), st.integers(1, 120))
def test_too_small_is_all_there_is_or_not_there(width: int, height: int) -> None:
    places = frame_places(width, height, bar=True, prompt=True)
    assert (set(places) == {"too_small"}) is too_small(width, height)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60), (300, 80)])
def test_all_panels_are_on_a_usual_screen(size: tuple[int, int]) -> None:
    places = arrange(*page_size(*size), Situation(ranks=4, nodes=2)).places
    assert set(PANELS) <= set(places)
    assert places["ranks"].width >= 80
    assert all(places[name].height >= 3 for name in PANELS)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
def test_details_leave_the_rows_that_they_are_about_in_view(size: tuple[int, int]) -> None:
    places = arrange(*page_size(*size), Situation(ranks=64, nodes=8, details=True)).places
    assert {"ranks", "nodes", "details"} <= set(places)
    assert places["details"].height >= 8
