"""Faults while ranks train: what the ranks logged is what the recording holds, record by record. `make faults` tries all."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.requirements import why_not
from tests.faults.matrix import FAULTS, Fault
from tests.faults.scene import Scene


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if reason := why_not():
        pytest.skip(reason)
    with Cluster() as made:
        made.up("node", "desk")
        yield made


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault.short], ids=lambda fault: fault.name)
def test_nothing_is_lost_and_nothing_comes_twice(cluster: Cluster, fault: Fault) -> None:
    scene = Scene(cluster, "node", "desk", fault.name.replace(" ", "-"), fault.disk_bytes, fault.journal_mb)
    scene.begin(recorder=fault.recorder_from_start)
    fault.inject(scene, random.Random(1))
    outcome = scene.finish()
    assert outcome.whole, outcome
