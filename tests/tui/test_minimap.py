"""The recording in one row: nothing that stands out is lost, however many moments share a cell."""

from __future__ import annotations

from distmon.core.moments import Moment, MomentKind
from distmon.core.pace import PacePoint
from distmon.tui.glyphs import SPARKS, to_ascii
from distmon.tui.view.minimap import EMPTY, HIGHEST_LEVEL, TICKS, pace_cells, tick_cells


def test_a_spike_of_one_bin_in_a_long_session_stands_out() -> None:
    points = [PacePoint(float(i), 0.1, 0.11 if i != 777 else 0.9) for i in range(1000)]
    cells = pace_cells(points, 1.0, 0.0, 1000.0, 60)
    assert [x for x, cell in enumerate(cells) if cell == (SPARKS[HIGHEST_LEVEL], "warn")] == [777 * 60 // 1000]


def test_cells_without_steps_are_empty_and_a_short_session_has_no_holes() -> None:
    points = [PacePoint(float(i), 0.1, 0.1) for i in range(2, 8)]
    cells = pace_cells(points, 1.0, 0.0, 10.0, 50)
    assert [cell is not None for cell in cells] == [10 <= x < 40 for x in range(50)]


def test_the_gravest_moment_of_a_cell_is_drawn() -> None:
    kinds: list[MomentKind] = ["checkpoint", "join", "failure", "mark"]
    for order in (kinds, kinds[::-1]):
        assert tick_cells([Moment(5.0, kind) for kind in order], 0.0, 10.0, 10)[5][0] == TICKS["failure"]


def test_checkpoints_do_not_cover_the_step_times() -> None:
    many = [Moment(i / 2, "checkpoint") for i in range(20)]
    assert not tick_cells(many, 0.0, 10.0, 40)
    assert len(tick_cells(many, 0.0, 10.0, 200)) == 20


def test_ticks_differ_from_one_another_and_from_the_step_times_in_ascii_too() -> None:
    drawn = [*TICKS.values(), *SPARKS[1 : HIGHEST_LEVEL + 1], "●"]
    assert len({to_ascii(glyph) for glyph in drawn} - {to_ascii(EMPTY)}) >= len(drawn) - 1
