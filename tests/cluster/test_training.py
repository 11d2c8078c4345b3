"""Real Horovod and PyTorch across three hosts: plain, measured, cut off, and with what dies in it."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from distmon.core import measures
from distmon.core.events import HostReachChanged, JobEnded, WorkerExited
from distmon.launcher.driver.supervisor import BEAT_S
from distmon.replay.session_file import load_state
from tests.cluster.cluster import ROOT, Cluster
from tests.cluster.jobs import ENDED_S, SHOWN_S, SILENT_SHOWN_S, SLACK_S, ClusterJob, eventually
from tests.launcher.driving import within

pytest.importorskip("horovod.torch", reason="needs Horovod and PyTorch: make test sets them up")
pytestmark = pytest.mark.timeout(240)

DIGITS = "examples/torch_digits.py"
TRAIN_LIMIT_S = 180.0
CUT_S = 20.0
"""Longer than distmon's patience, shorter than Gloo's."""
SLOW_STEPS = """
import os, sys, time, torch, horovod.torch as hvd
hvd.init(); torch.manual_seed(0); torch.set_num_threads(1)
model = torch.nn.Linear(8, 2)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.01), model.named_parameters())
note = os.open(f"{sys.argv[1]}/steps-{hvd.rank()}", os.O_WRONLY | os.O_CREAT)
for step in range(100_000):
    time.sleep(0.05)
    optimizer.zero_grad(); model(torch.randn(4, 8)).sum().backward(); optimizer.step()
    os.write(note, b".")
    if step == 5 and hvd.rank() == 0: print("training goes on", flush=True)
"""

PLAIN = ("-np", "2", "-H", "node1:1,node3:1", "--disable-cache", "--network-interface", "eth0")
"""Horovod's own look for a common interface takes as long as the rest."""
Train = Callable[..., ClusterJob]


@pytest.fixture
def train(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Train]:
    """Starts a training of slow steps without an end on three hosts, and waits until its first steps are there."""
    jobs: list[ClusterJob] = []

    def started(flags: str = "") -> ClusterJob:
        folder = cluster.shared / request.node.name
        folder.mkdir()
        (folder / "train.py").write_text(SLOW_STEPS)
        job = ClusterJob(cluster, folder, sys.executable, str(folder / "train.py"), str(folder), flags=flags)
        jobs.append(job)
        job.wait_for("training goes on", TRAIN_LIMIT_S)
        return job

    yield started
    for job in jobs:
        job.close()


def steps_by_rank(recording: Path) -> dict[int, int]:
    """Steps of each rank in the only generation."""
    state, _ = load_state(recording)
    generation = measures.current_generation(state)
    assert generation is not None
    return {rank: steps.totals.steps for rank, steps in generation.ranks.items()}


def steps_made(job: ClusterJob) -> dict[int, int]:
    """Steps of each rank, as it noted them itself."""
    return {rank: (job.folder / f"steps-{rank}").stat().st_size for rank in (0, 1, 2)}


def ranks_of(cluster: Cluster, job: ClusterJob, host: str) -> list[int]:
    """Its training processes."""
    found = cluster.hosts[host].processes()
    return [pid for pid, words in found.items() if len(words) > 1 and words[1] == str(job.folder / "train.py")]


@pytest.mark.long
def test_plain_horovodrun_trains_across_the_hosts(cluster: Cluster) -> None:
    command = ["horovodrun", *PLAIN, sys.executable, DIGITS, "--epochs", "1", "--batch-size", "128"]
    done = cluster.hosts["node1"].run(*command, cwd=ROOT, timeout_s=TRAIN_LIMIT_S)
    assert done.returncode == 0, done.stderr
    assert "epoch 1/1" in done.stdout


@pytest.mark.long
def test_an_agent_dies_a_host_is_cut_off_and_a_rank_is_killed_and_every_step_is_there(cluster: Cluster, train: Train) -> None:
    job = train()
    agents = cluster.hosts["node2"].pids("distmon-agent", "--listen")
    assert agents
    cluster.signal("node2", agents, signal.SIGKILL)
    job.wait_for("node2.* agent died", 20)

    cluster.cut("node2")
    cut = cluster.truth.last("cut", "node2")
    shown = job.wait_for("node2 .rank 1. has not answered for", 20)
    assert shown.at - cut.began < SILENT_SHOWN_S
    job.wait_for("node2 does not answer since .*: down or cut off; no step for", 20)
    time.sleep(max(0.0, cut.at + CUT_S - time.time()))
    made = steps_made(job)
    cluster.heal("node2")
    job.wait_for("node2 answers again after [12][0-9] s", 20)
    job.wait_for("node node2 is back", 30)
    # The recorder writes now and then.
    assert within(10, lambda: len(job.of(HostReachChanged)) == 2)
    gone, back = job.of(HostReachChanged)
    assert (gone.host, gone.ranks, gone.answers, back.answers) == ("node2", [1], False, True)
    assert cut.began - BEAT_S - SLACK_S < gone.since < cut.at + SLACK_S and gone.at - cut.began < SILENT_SHOWN_S
    assert within(30, lambda: min(steps_made(job).values()) > max(made.values()) + 10), "training did not go on"

    cluster.signal("node3", ranks_of(cluster, job, "node3"), signal.SIGKILL)
    killed = cluster.truth.last("signal", "node3")
    shown = job.wait_for("rank 2 died: SIGKILL")
    assert job.end() == 137
    assert shown.at - killed.began < SHOWN_S
    (ended,) = job.of(JobEnded)
    assert ended.at - killed.began < ENDED_S
    failure = job.report()["failure"]
    assert (failure["rank"], failure["host"], failure["signal"]) == (2, "node3", "SIGKILL")
    assert "HorovodInternalError" in job.text()
    assert {exited.rank for exited in job.of(WorkerExited) if exited.exit_code} == {0, 1, 2}
    assert not eventually(3, job.left_over)
    (died,) = [exited for exited in job.of(WorkerExited) if exited.signal == "SIGKILL"]
    assert -SLACK_S < died.at - killed.at < SHOWN_S

    assert "training hangs" not in job.text()
    report = job.report()
    assert report["hangs"] == [] and [past["host"] for past in report["host_silences"]] == ["node2"]
    assert [(rank["rank"], rank["host"]) for rank in report["ranks"]] == [(0, "node1"), (1, "node2"), (2, "node3")]
    assert {node["node"].partition("-")[0] for node in report["nodes"]} == {"node1", "node2", "node3"}
    assert report["gaps"] == []
    made, recorded = steps_made(job), steps_by_rank(job.recording)
    # A rank may be killed between the end of a step and its note of it.
    assert all(0 <= recorded[rank] - made[rank] <= 1 for rank in (0, 1, 2)), (made, recorded)


@pytest.mark.long
def test_a_host_that_is_gone_is_named_though_the_others_die_first(cluster: Cluster, train: Train) -> None:
    job = train("--gloo-timeout-seconds 10")
    cluster.lose("node3")
    job.wait_for("node3 .rank 2. has not answered for", 20)
    assert job.end(TRAIN_LIMIT_S) != 0
    failure = job.report()["failure"]
    assert (failure["rank"], failure["host"]) == (2, "node3"), job.text()
    assert failure["cause"].startswith("node3 did not answer for")
    assert not eventually(15, job.left_over)
