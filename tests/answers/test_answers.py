"""The short form of `make answers`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.answers.streams import FAULTS, Fault
from tests.answers.watch import healthy_alarms, watch

HEALTHY_S = 660
"""Two evaluations, a checkpoint and a compilation; `make answers` plays an hour."""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
async def test_the_landing_screen_names_the_fault(fault: Fault, tmp_path: Path) -> None:
    answer = await watch(fault, tmp_path / "session.jsonl")
    assert answer.right, answer


def test_a_healthy_job_raises_no_alarm() -> None:
    assert list(healthy_alarms(HEALTHY_S)) == []
