"""What the scaling report claims of runs, and what it does not."""

from __future__ import annotations

import pytest

from distmon.core.intervals import Interval
from distmon.core.reconcile import RunFigures
from distmon.replay.report.render import to_text
from distmon.replay.report.scaling import scaling_report, scaling_sections, wall_speedups


def runs(ranks: int, *speeds: Interval | float) -> list[RunFigures]:
    parts = {"steady": 60.0}
    return [RunFigures(ranks=ranks, wall_s=60.0, samples=9_000, steady_samples_per_s=v, parts_s=parts) for v in speeds]


def within(speed: float) -> Interval:
    """As one run of many steady steps knows its speed."""
    return Interval(estimate=speed, low=0.99 * speed, high=1.01 * speed, basis="within this run", degrees=50)


@pytest.mark.parametrize(
    ("two", "four", "said"),
    [
        ([5_000.0, 5_100.0], [5_392.0, 2_486.0], "whether it falls beyond cannot be told"),
        ([5_000.0, 5_050.0, 5_100.0], [4_900.0, 5_300.0, 4_700.0], "whether it falls beyond cannot be told"),
        ([within(5_000.0)], [within(4_000.0)], "falls beyond in these runs; whether it does in others is not known"),
        ([5_000.0, 5_050.0, 5_100.0], [4_000.0, 4_020.0, 3_990.0], "falls beyond: more ranks make it slower"),
    ],
)
def test_more_ranks_are_called_slower_only_where_intervals_show_it(
    two: list[Interval | float], four: list[Interval | float], said: str
) -> None:
    found = scaling_report([*runs(1, 3_000.0, 3_010.0, 2_990.0), *runs(2, *two), *runs(4, *four)], [], None)
    assert found is not None
    notes = [note for note in found.notes if "throughput is highest with 2 ranks" in note]
    assert len(notes) == 1 and said in notes[0]
    assert any("more ranks make it slower" in note for note in found.notes) is ("make it slower" in said)


def test_the_wall_time_of_the_split_is_that_of_the_speedups() -> None:
    walls = [RunFigures(ranks=1, wall_s=w, samples=9, steady_samples_per_s=1.0, parts_s={"steady": w}) for w in (40.0, 90.0)]
    found = scaling_report([*walls, *runs(2, 9_000.0)], [], "strong")
    assert found is not None
    job = next(line for line in to_text(scaling_sections(found)).splitlines() if line.startswith("  job "))
    assert job.split()[1:] == ["60.00", "s", "60.00", "s"]


@pytest.mark.parametrize(("repeats", "sure"), [(1, "(90 % within this run: 0."), (3, "(90 %: 0.")])
def test_a_law_says_what_its_own_bands_rest_on_and_the_table_has_the_serial_shares_with_theirs(repeats: int, sure: str) -> None:
    speeds = {1: 1_000.0, 2: 1_800.0, 4: 3_000.0}
    found = scaling_report(
        [run for n, v in speeds.items() for i in range(repeats) for run in runs(n, within(v * (1 + 0.01 * i)))], [], "strong"
    )
    assert found is not None
    said = to_text(scaling_sections(found))
    amdahl = " ".join(said[said.index("Amdahl") : said.index("Gustafson")].split())
    assert amdahl.count(sure.split(":")[0]) == 2 and sure in amdahl
    for karp in found.karp_flatt:
        row = next(line for line in said.splitlines() if line.startswith(f"  {karp.ranks} "))
        assert row.endswith(f"{karp.estimate:.3f} ({karp.low:.3f} to {karp.high:.3f})")


def test_a_serial_share_without_an_interval_stands_alone() -> None:
    found = scaling_report([*runs(1, 1_000.0), *runs(2, 1_600.0)], [], "strong")
    assert found is not None and found.karp_flatt[0].estimate == pytest.approx(0.25)
    row = next(line for line in to_text(scaling_sections(found)).splitlines() if line.startswith("  2 "))
    assert row.endswith(" 0.250")


def test_wall_times_give_speedups_only_of_several_sizes() -> None:
    assert wall_speedups([(2, 10.0), (2, 11.0)]) == ""
    assert wall_speedups([(1, 10.0), (2, 8.0)]) == (
        "By wall time alone: 10.00 s with 1 rank, 8.00 s with 2 ranks; speedup, if all trained the same work: 1.250 with 2"
    )
    assert "(95 %, between runs), if all trained the same work: 1.2" in wall_speedups(
        [(n, v) for n, w in ((1, 10.0), (2, 8.0)) for v in (w, 1.01 * w, 0.99 * w)]
    )
