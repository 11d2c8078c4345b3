"""An operator acts on a job of several hosts from one of them: the signal reaches the rank, wherever it runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from distmon.core.events import ActionTaken, JobEnded
from tests.cluster.cluster import Cluster
from tests.cluster.jobs import ENDED_S, RankJob, eventually


@pytest.fixture
def job(cluster: Cluster) -> Iterator[RankJob]:
    started = RankJob(cluster, cluster.shared / "actions", hosts="node1:1,node2:1")
    yield started
    started.close()


def test_a_rank_on_another_host_is_signalled(cluster: Cluster, job: RankJob) -> None:
    node1 = cluster.hosts["node1"]
    (rank,) = job.rank_pids("node2")
    assert "SIGSTOP is on its way to rank 1" in node1.run("distmon", "signal", "1", "STOP").stdout

    def runs() -> bool:
        return Path(f"/proc/{rank}/stat").read_text().rpartition(")")[2].split()[0] != "T"

    assert not eventually(10, runs)
    node1.run("distmon", "signal", "1", "KILL")
    assert job.end(ENDED_S + 15) == 137
    (ended,) = job.of(JobEnded)
    assert ended.failure is not None
    assert (ended.failure.rank, ended.failure.host, ended.failure.cause) == (1, "node2", "an operator sent it SIGKILL")
    assert [event.detail for event in job.of(ActionTaken)] == ["SIGSTOP to rank 1", "SIGKILL to rank 1"]
    assert not eventually(5, job.left_over)
