"""A node's GPUs in its details: which ranks, how sure that is, and why a value is missing."""

from __future__ import annotations

import re

from distmon.core.events import GpuReading, NodeSampled
from distmon.core.fold import apply
from distmon.core.state import SessionState
from distmon.tui.theme import palette_named
from distmon.tui.view.facts import facts
from distmon.tui.view.nodes import detail


def lines_of(*gpus: GpuReading) -> list[str]:
    state = SessionState()
    apply(state, NodeSampled(at=1.0, node="n", interval_s=1.0, gpus=list(gpus)))
    lines = detail(facts(state), "n", palette_named("distmon-dark"), 200)
    return [text for text in ("".join(text for text, _ in line.pieces) for line in lines) if re.match(r"gpu \d", text)]


def test_ranks_are_shown_with_their_doubt() -> None:
    doubt = "uncertain: 2 GPU models"
    (line,) = lines_of(GpuReading(index=1, name="A6000", utilization_percent=40.0, ranks=[0, 3], notes={"ranks": doubt}))
    assert "rank 0,3" in line
    assert "ranks: uncertain: 2 GPU models" in line


def test_reasons_are_given_for_what_the_line_shows_alone() -> None:
    absent = {"power_w": "this GPU does not report it", "nvlink_sent_bytes_per_s": "no such link"}
    (line,) = lines_of(GpuReading(index=0, unavailable=absent))
    assert "power_w – this GPU does not report it" in line
    assert "nvlink" not in line


def test_a_lost_gpu_and_a_mig_instance() -> None:
    lost = GpuReading(index=2, name="A10", state="lost", unavailable={"all": "it has fallen off the bus"})
    first, second = lines_of(lost, GpuReading(index=0, instance=7, name="MIG 1g.10gb"))
    assert "lost" in first
    assert "it has fallen off the bus" in first
    assert second.startswith("gpu 0.7")
