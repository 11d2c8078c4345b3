"""Faults while ranks train: what the ranks logged is what the recording holds, record by record. `make faults` tries all."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.faults.matrix import FAULTS, Fault
from tests.faults.scene import TRAINING, Scene, node_and_desk
from tests.faults.strangers import flood


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    yield from node_and_desk()


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault.short], ids=lambda fault: fault.name)
def test_nothing_is_lost_and_nothing_comes_twice(cluster: Cluster, fault: Fault) -> None:
    if fault.program == TRAINING:
        pytest.importorskip("torch", reason="needs PyTorch: make test sets it up")
    scene = Scene(cluster, "node", "desk", fault.name.replace(" ", "-"), fault.disk_bytes, fault.journal_mb, fault.program)
    scene.begin(recorder=fault.recorder_from_start)
    fault.inject(scene, random.Random(1))
    outcome = scene.finish()
    assert outcome.whole, outcome


def test_strangers_at_the_door_are_refused_and_counted_and_delay_nobody(tmp_path: Path) -> None:
    """`python -m tests.faults.strangers` tries ten thousand."""
    found = flood(tmp_path, count=400, rate=200.0, before_s=2.0, stay_s=5.0)
    assert sum(found.refused.values()) >= 400
    assert found.refused["protocol"] > 0
    assert found.refused["key"] > 0
    assert found.during.p50 - found.before.p50 < 100.0
