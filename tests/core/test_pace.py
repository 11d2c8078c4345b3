"""Step times over a whole session stay bounded, close to the exact ones, and lose no step when bins merge."""

from __future__ import annotations

from distmon.core.pace import BINS, Pace


def ns(durations_s: list[float]) -> list[int]:
    return [round(duration * 1e9) for duration in durations_s]


def test_quantiles_are_within_a_hundredth() -> None:
    pace = Pace()
    pace.add(100.0, ns([i / 1000 for i in range(1, 101)]))
    (point,) = pace.points()
    assert abs(point.p50_s / 0.050 - 1) < 0.025 and abs(point.p95_s / 0.095 - 1) < 0.025


def test_a_long_session_keeps_its_spike_and_all_steps() -> None:
    pace = Pace()
    for second in range(5000):
        pace.add(1_700_000_000.0 + second, ns([0.1, 0.1 if second != 3000 else 2.0]))
    points = pace.points()
    assert BINS / 4 < len(points) <= BINS
    assert sum(found.total() for found in pace.bins.values()) == 10_000
    assert all(0.09 < point.p50_s < 0.11 for point in points)
    assert points[0].at + pace.width_s >= 1_700_000_000 and points[-1].at <= 1_700_005_000
