"""A link that cannot carry each step: with sums the recorder stays with what happens now, and every step is counted."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from distmon.core.events import NodeStepsSummed
from tests.cluster.cluster import Cluster
from tests.faults.scene import Scene, node_and_desk

RATE = "64kbit"
"""Two ranks of 200 steps a second take 90 kbit/s in full and 30 as sums."""
WATCHED_S, LATE_S = 25.0, 5.0


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    yield from node_and_desk()


def test_sums_keep_up_where_steps_would_not(cluster: Cluster) -> None:
    scene = Scene(cluster, "node", "desk", "slow", flags=["--summaries"])
    scene.begin()
    limit = ("tbf", "rate", RATE, "burst", "4kb", "latency", "3s")
    shaped = cluster.hosts["node"].run("tc", "qdisc", "add", "dev", "eth0", "root", *limit)
    if shaped.returncode:
        pytest.skip(f"this kernel shapes no traffic: {shaped.stderr.strip()}")
    scene.run_for(2 * WATCHED_S)
    events = scene.events()
    assert time.time() - max(event.at for event in events if isinstance(event, NodeStepsSummed)) < LATE_S
    outcome = scene.finish()
    assert (outcome.lost, outcome.duplicated, outcome.out_of_order, outcome.samples_lost) == (0, 0, 0, 0), outcome
