"""Times: the sampling grid, and a wall clock that is set."""

from __future__ import annotations

import pytest

from distmon.agent.grid import next_on_grid
from distmon.wire.clock import SteadyClock

SECOND = 10**9


@pytest.mark.parametrize(
    ("now", "expected"),
    [(10.0, 11.0), (10.4, 11.0), (10.999, 11.0), (11.0, 12.0), (13.5, 14.0), (9.0, 11.0)],
)
def test_samples_stay_on_their_grid_however_late_one_is(now: float, expected: float) -> None:
    assert next_on_grid(10.0, 1.0, now) == expected


class Clocks:
    """A machine's two clocks, moved by hand."""

    def __init__(self) -> None:
        self.monotonic = 5 * SECOND
        self.wall = 1005 * SECOND

    def steady(self) -> SteadyClock:
        return SteadyClock(lambda: self.monotonic, lambda: self.wall)

    def pass_time(self, seconds: int) -> None:
        self.monotonic += seconds * SECOND
        self.wall += seconds * SECOND


def test_times_go_on_as_before_when_the_wall_clock_is_set_back() -> None:
    clocks = Clocks()
    clock = clocks.steady()
    clocks.pass_time(10)
    clocks.wall -= 3600 * SECOND
    assert clock.now() == 1015.0
    stepped = clock.step("n")
    assert stepped is not None
    assert (stepped.at, stepped.by_s) == (1015.0, -3600.0)
    assert clock.step("n") is None
    assert clock.at(2 * SECOND) == 1002.0


def test_a_small_correction_is_no_step() -> None:
    clocks = Clocks()
    clock = clocks.steady()
    clocks.wall += SECOND // 25
    assert clock.step("n") is None
    clocks.wall += SECOND // 25
    stepped = clock.step("n")
    assert stepped is not None
    assert stepped.by_s == 0.08


def test_an_interruption_between_the_two_clocks_is_no_step() -> None:
    clocks = Clocks()
    interruptions = [0, 0, 0, SECOND]

    def wall() -> int:
        read = clocks.wall
        if interruptions:
            clocks.monotonic += interruptions[0]
            clocks.wall += interruptions.pop(0)
        return read

    clock = SteadyClock(lambda: clocks.monotonic, wall)
    assert clock.step("n") is None
    assert interruptions == []
