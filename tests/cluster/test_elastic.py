"""Elastic Horovod across hosts: one that dies and is made up for, and too few that are left."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from distmon.core.events import JobEnded, MembershipChanged, RanksAssigned
from tests.cluster.cluster import ROOT, Cluster
from tests.cluster.jobs import ClusterJob, eventually

pytest.importorskip("horovod.torch", reason="needs Horovod and PyTorch: make test sets them up")
pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

TRAIN_LIMIT_S = 180.0
SLOTS_LIMIT_S = 10


@pytest.fixture
def job(cluster: Cluster) -> Iterator[ClusterJob]:
    """Three ranks, at least two, on the hosts of the cluster's list."""
    for name in cluster.hosts:
        cluster.join(name)
    folder = cluster.shared / "elastic"
    folder.mkdir()
    script = [str(ROOT / "examples/torch_elastic.py"), "--seconds", "600", "--batches-per-commit", "2"]
    command = [sys.executable, *script, "--batch-size", "64", "--width", "8"]
    flags = f"--min-np 2 --max-np 3 --network-interface eth0 --elastic-timeout {SLOTS_LIMIT_S} --lost-after 15"
    started = ClusterJob(cluster, folder, *command, discovery=f"cat {cluster.listed}", flags=flags)
    yield started
    started.close()


def changes(job: ClusterJob, change: str) -> list[str]:
    """Hosts with one kind of change, in order."""
    return [event.host for event in job.of(MembershipChanged) if event.change == change]


def test_a_host_dies_and_is_made_up_for_until_too_few_are_left(cluster: Cluster, job: ClusterJob) -> None:
    job.wait_for("samples/s", TRAIN_LIMIT_S)
    cluster.kill("node2")
    killed = cluster.truth.last("kill", "node2")
    shown = job.wait_for("rank 1 died: the connection to node2 ended")
    assert shown.at - killed.began < 2
    job.wait_for("rendezvous 1: 2 ranks", 60)
    job.wait_for("epoch 1: 2 ranks", TRAIN_LIMIT_S)

    cluster.kill("node3")
    assert job.end(SLOTS_LIMIT_S + 60) == 255
    ended = job.of(JobEnded)[0]
    assert SLOTS_LIMIT_S <= ended.at - cluster.truth.last("kill", "node3").began < SLOTS_LIMIT_S + 25
    assert ended.detail.startswith(f"for {SLOTS_LIMIT_S} s there were only 1 of the 2 slots that the job needs")
    assert "Traceback" not in job.text()
    assert ended.failure is not None and ended.failure.host == "node3"
    assert [(round_.generation, round_.world_size) for round_ in job.of(RanksAssigned)] == [(0, 3), (1, 2)]
    assert changes(job, "host_failed") == ["node2", "node3"]
    assert changes(job, "host_blacklisted") == ["node2", "node3"]
    assert not eventually(3, job.left_over)
