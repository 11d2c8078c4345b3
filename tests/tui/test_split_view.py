"""The panel of a step's phases: time and share are of the same steps."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from distmon.core.measures import ALL_PHASES
from distmon.core.synthetic import Script, session
from distmon.tui.theme import DARK
from distmon.tui.view.facts import facts
from distmon.tui.view.split import figures, split_lines
from distmon.tui.view.words import PHASE_NAMES
from tests.tui.conftest import folded


@pytest.mark.parametrize(("width", "height"), [(36, 6), (38, 12), (70, 12)])
def test_the_share_of_a_phase_is_of_the_time_beside_it_whatever_came_last(width: int, height: int) -> None:
    """It was of the last 30 s beside a mean of all steady steps: 17.8 ms, 52 %, over 17.7 ms, 42 %."""
    moment = facts(folded(session(Script(ranks=2, nodes=1, seconds=60))))
    assert moment.split is not None
    step_s = moment.split.step_s
    moment = replace(moment, shares=dict.fromkeys(ALL_PHASES, 0.2))
    rows = [line.strip(width, DARK.style("text")).text for line in split_lines(moment, DARK, width, height)]
    assert any("last 30 s" in row for row in rows) is (width == 70), "what is of another time has a name, or is not shown"
    for name in ALL_PHASES:
        row = next(row for row in rows if PHASE_NAMES[name] in row)
        ms, percents = re.search(r"([\d.]+) ", row.split(PHASE_NAMES[name])[1]), re.findall(r"(\d+)%", row)
        assert ms is not None and percents[1:] == ["20"] * (width == 70)
        assert int(percents[0]) == pytest.approx(float(ms[1]) / step_s / 10, abs=1), name
    assert sum(float(str(row["mean_share_percent"])) for row in figures(moment)) == pytest.approx(100)
    assert {row["recent_share_percent"] for row in figures(moment)} == {20.0}
