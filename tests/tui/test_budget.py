"""Costly measures come at once on a usual job and in turn on a very large one, and the last moment is never left out."""

from __future__ import annotations

from distmon.tui.budget import APART_S, LONGEST_PAUSE_S, SHARE, Budget
from distmon.tui.view.facts import COSTLY


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_nothing_new_is_nothing_due() -> None:
    budget = Budget(Clock())
    assert budget.due(1) == COSTLY
    budget.spent(COSTLY, 0.001)
    assert budget.due(1) is None


def test_between_costly_frames_come_cheap_ones_and_what_is_owed_comes_when_all_is_quiet() -> None:
    clock = Clock()
    budget = Budget(clock)
    assert budget.due(1) == COSTLY
    budget.spent(COSTLY, 0.04)
    assert budget.due(2) == ()
    budget.spent((), 0.001)
    assert budget.due(2) is None
    clock.now = 0.04 / SHARE
    assert budget.due(2) == COSTLY


def test_on_a_very_large_job_the_groups_take_turns() -> None:
    clock = Clock()
    budget = Budget(clock)
    budget.due(1)
    budget.spent(COSTLY, 3 * APART_S)
    seen = []
    for frame in range(2, 8):
        clock.now += LONGEST_PAUSE_S
        groups = budget.due(frame)
        assert groups is not None and len(groups) == 1
        seen.append(groups[0])
        budget.spent(groups, APART_S)
    assert seen == [*COSTLY, *COSTLY]
