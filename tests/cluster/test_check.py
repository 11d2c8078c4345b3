"""The check of the hosts before a launch, on hosts that are really wrong: clocks, ways, ssh that hangs or is cut meanwhile."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from distmon.core.events import ClockOffsetEstimated, JobEnded, NoticeGiven, WorkerStarted
from tests.cluster.cluster import Cluster
from tests.cluster.jobs import ClusterJob, RankJob, eventually
from tests.launcher.driving import within

pytestmark = pytest.mark.long

TABLE_LIMIT_S = 25.0
AHEAD_S = 30


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three hosts, three more that something is done to, and one whose clocks are its own."""
    with Cluster() as made:
        made.up("node1", "node2", "node3", "silent", "stopped", "severed")
        made.up("ahead", ahead_s=AHEAD_S)
        yield made


def reasons(job: ClusterJob) -> dict[str, str]:
    """Host -> what the table says of it: check, severity, text and mend."""
    told = [notice.text.split(maxsplit=1) for notice in job.of(NoticeGiven) if notice.source == "check"]
    return {host: text for host, text in told if host in job.cluster.hosts}


def test_every_host_with_what_is_wrong_within_the_time_whatever_hangs(cluster: Cluster) -> None:
    cluster.part("node2", "node3")
    (listener,) = [pid for pid, words in _everything(cluster, "silent").items() if "[listener]" in " ".join(words)]
    cluster.signal("silent", [listener], signal.SIGSTOP)
    severing = threading.Thread(target=_cut_in_the_middle, args=(cluster, "severed"))
    stopping = threading.Thread(target=_stop_in_the_middle, args=(cluster, "stopped"))
    for thread in (severing, stopping):
        thread.start()
    began = time.time()
    names = ["node1", "node2", "node3", "ahead", "silent", "stopped", "severed"]
    folder = cluster.shared / "check"
    folder.mkdir()
    hosts = ",".join(f"{name}:1" for name in names)
    job = ClusterJob(cluster, folder, sys.executable, "-c", "pass", hosts=hosts)
    try:
        assert job.end(60) == 1
        took = job.said[-1].at - began
    finally:
        job.close()
        for thread in (severing, stopping):
            thread.join()
        cluster.heal("severed")
        cluster.signal("silent", [listener], signal.SIGCONT)
    assert took < TABLE_LIMIT_S, job.text()
    assert job.of(WorkerStarted) == []
    said = reasons(job)
    assert f"its clock is {AHEAD_S}.0 s ahead" in said["ahead"] and "set-ntp" in said["ahead"]
    assert "does not reach node3 at 10.77.0.3 (eth0): no answer" in said["node2"]
    assert "does not reach node2 at 10.77.0.2 (eth0): no answer" in said["node3"]
    for host in ("silent", "stopped", "severed"):
        assert said[host].startswith("ssh"), said
        assert host in job.of(JobEnded)[0].detail
    assert not eventually(5, lambda: {name: left for name, left in job.left_over().items() if name not in ("severed", "stopped")})


def _everything(cluster: Cluster, name: str) -> dict[int, list[str]]:
    """Its sshd too."""
    mine = Path(f"/proc/{cluster.hosts[name].namespaces.pid}/ns/pid").readlink()
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "ns/pid").readlink() == mine:
                found[int(entry.name)] = (entry / "cmdline").read_text().split("\0")
        except OSError:
            continue
    return found


def _cut_in_the_middle(cluster: Cluster, name: str) -> None:
    """Once something of the check runs there."""
    if within(30, lambda: bool(cluster.hosts[name].processes())):
        cluster.cut(name)


def _stop_in_the_middle(cluster: Cluster, name: str) -> None:
    if within(30, lambda: bool(cluster.hosts[name].processes())):
        cluster.signal(name, cluster.hosts[name].processes(), signal.SIGSTOP)


def test_a_job_on_a_host_whose_clocks_are_others_is_told_in_the_launchers_time(cluster: Cluster) -> None:
    began = time.time()
    job = RankJob(cluster, cluster.shared / "skewed", hosts="node1:1,ahead:1")
    try:
        raised = job.order(1, "raise")
        assert job.end() == 1
    finally:
        job.close()
    offsets = [event.offset_s for event in job.of(ClockOffsetEstimated) if event.node.startswith("ahead")]
    assert offsets and offsets[-1] == pytest.approx(-AHEAD_S, abs=0.1)
    (ended,) = job.of(JobEnded)
    assert raised <= ended.at <= time.time()
    assert all(began <= event.at <= time.time() for event in job.of(WorkerStarted))
    assert job.report()["failure"]["host"] == "ahead"
