"""What the loss of a rank and its host's return cost an elastic job on three hosts, by the clocks of harness and script."""

from __future__ import annotations

import json
import signal
import sys
import time

import pytest

from distmon.core import elastic
from distmon.core.events import MembershipChanged
from distmon.replay.session_file import load_state
from tests.cluster.cluster import ROOT, Cluster
from tests.cluster.jobs import ClusterJob, eventually
from tests.elastic import truth
from tests.launcher.driving import within

pytest.importorskip("horovod.torch", reason="needs Horovod and PyTorch: make test sets them up")
pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

SCRIPT = ROOT / "tests/elastic/truth_script.py"
STEPS_FIRST = 8
"""Steps before the loss, and after the return."""
FLAGS = "--min-np 1 --max-np 3 --network-interface eth0 --blacklist-cooldown-range 2 4 --gloo-timeout-seconds 25"


def steps(job: ClusterJob, host: str) -> list[int]:
    """Steps of each process that a host has had, the youngest last."""
    logs = [log.read_text() for log in (job.folder / "logs" / host).glob("*.log")]
    begun = [(json.loads(log.partition("\n")[0])["at"], log) for log in logs if "\n" in log]
    return [log.count('"step"') for _, log in sorted(begun)]


def test_each_part_of_the_time_lost_agrees_with_the_clock_of_the_harness(cluster: Cluster) -> None:
    monotonic_at = time.time() - time.monotonic()
    for name in cluster.hosts:
        cluster.join(name)
    folder = cluster.shared / "lost"
    logs = folder / "logs"
    logs.mkdir(parents=True)
    # A folder for each host: their processes may have the same numbers.
    own = f"{logs}/$(hostname)"
    command = f"mkdir -p {own} && exec {sys.executable} {SCRIPT} {own} 100000 0.05"
    job = ClusterJob(cluster, folder, "sh", "-c", command, discovery=f"cat {cluster.listed}", flags=FLAGS)
    try:
        assert within(150, lambda: all(sum(steps(job, name)) > STEPS_FIRST for name in cluster.hosts)), job.text()
        training = [
            pid
            for pid, words in cluster.hosts["node3"].processes().items()
            if words[0] == sys.executable and str(SCRIPT) in words and "-c" not in words
        ]
        cluster.signal("node3", training, signal.SIGKILL)
        assert within(150, lambda: len(steps(job, "node3")) == 2 and steps(job, "node3")[-1] > STEPS_FIRST), job.text()
        cluster.signal("node1", cluster.hosts["node1"].pids("bin/distmon", "run", "--headless")[:1], signal.SIGINT)
        assert job.end() == 130
    finally:
        job.close()
    assert not eventually(3, job.left_over)

    killed = cluster.truth.last("signal", "node3").at - monotonic_at
    processes = sorted((p for name in cluster.hosts for p in truth.read(logs / name)), key=lambda p: p.notes[0].at)
    for process in processes:
        if process.slot.startswith("node3") and process.notes[0].at < killed:
            process.killed = killed
    state, _ = load_state(job.recording)
    books = elastic.accounts(state)
    assert books is not None
    back = [e.at for e in job.of(MembershipChanged) if e.change == "host_joined" and e.host == "node3"][-1] - monotonic_at
    right, found = truth.lost(processes, 3, [("node3", back)]), books.lost.parts()
    told = json.dumps({part: [found[part], right[part]] for part in found}, indent=1)
    for part, seconds in right.items():
        # News of a death on another host takes its time, and each of the ranks counts it.
        assert found[part] == pytest.approx(seconds, abs=max(0.1 * len(cluster.hosts), 0.05 * seconds)), f"{part}: {told}"
    assert books.redone_steps > 0
