"""What fails on several hosts, and the story of it: who was first, when it was shown, and that nothing runs on."""

from __future__ import annotations

import os
import pty
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from distmon.core.events import HostReachChanged, JobEnded, WorkerExited
from tests.cluster import memory
from tests.cluster.cluster import Cluster
from tests.cluster.jobs import ENDED_S, SHOWN_S, SILENT_SHOWN_S, ClusterJob, RankJob, eventually
from tests.launcher.driving import within

Start = Callable[..., RankJob]


@pytest.fixture
def start(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Start]:
    """Starts a job with a rank on each host; it is gone at the end of the test."""
    jobs: list[ClusterJob] = []

    def started(flags: str = "", **options: str) -> RankJob:
        job = RankJob(cluster, cluster.shared / request.node.name.replace("/", "-"), flags, **options)
        jobs.append(job)
        return job

    yield started
    for job in jobs:
        job.close()
    for name, host in cluster.hosts.items():
        if not host.alive:
            cluster.up(name)
        for pid in host.processes():
            os.kill(pid, signal.SIGKILL)


def assert_ended_clean(job: ClusterJob, died_at: float) -> None:
    """The whole job ended in time, and no host runs anything of it."""
    (ended,) = job.of(JobEnded)
    assert ended.at - died_at < ENDED_S
    assert not eventually(3, job.left_over)


@pytest.mark.long
def test_a_rank_that_raises_an_exception(start: Start) -> None:
    job = start()
    raised = job.order(2, "raise")
    shown = job.wait_for("rank 2 died: exit code 1")
    assert job.end() == 1
    assert shown.at - raised < SHOWN_S
    assert_ended_clean(job, raised)
    failure = job.report()["failure"]
    assert (failure["rank"], failure["host"], failure["signal"], failure["exit_code"]) == (2, "node3", "", 1)
    assert failure["last_lines"][-1] == "ValueError: the labels do not fit the images"


def test_a_rank_for_which_there_is_no_memory(cluster: Cluster, start: Start) -> None:
    if reason := memory.why_not():
        pytest.skip(reason)
    cluster.up("small", memory_bytes=160 << 20)
    job = start(hosts="node1:1,small:1")
    eaten = job.order(1, "eat")
    job.wait_for("rank 1 died: SIGKILL, out of memory")
    assert job.end() == 137
    failure = job.report()["failure"]
    assert (failure["rank"], failure["host"], failure["signal"]) == (1, "small", "SIGKILL")
    assert failure["cause"].startswith("out of memory")
    assert not eventually(3, job.left_over)
    assert eaten < job.of(JobEnded)[0].at
    cluster.kill("small")


def test_a_host_is_cut_off_and_comes_back_and_then_a_rank_is_killed(cluster: Cluster, start: Start) -> None:
    job = start()
    cluster.cut("node3")
    shown = job.wait_for("node3 .rank 2. has not answered for", SILENT_SHOWN_S + 5)
    cluster.heal("node3")
    job.wait_for("node3 answers again", 20)
    assert shown.at - cluster.truth.last("cut", "node3").began < SILENT_SHOWN_S
    assert job.process.poll() is None

    cluster.signal("node2", job.rank_pids("node2"), signal.SIGKILL)
    killed = cluster.truth.last("signal", "node2")
    shown = job.wait_for("rank 1 died: SIGKILL")
    assert job.end() == 137
    assert shown.at - killed.began < SHOWN_S
    assert "first failure: rank 1 on node2: SIGKILL" in job.text()
    assert_ended_clean(job, killed.began)
    assert {exited.rank: exited.expected for exited in job.of(WorkerExited)} == {0: True, 1: False, 2: True}
    assert [(told.host, told.ranks, told.answers) for told in job.of(HostReachChanged)] == [
        ("node3", [2], False),
        ("node3", [2], True),
    ]
    assert job.of(HostReachChanged)[0].at - cluster.truth.last("cut", "node3").began < SILENT_SHOWN_S
    failure = job.report()["failure"]
    assert (failure["rank"], failure["host"], failure["signal"], failure["exit_code"]) == (1, "node2", "SIGKILL", 137)


@pytest.mark.long
def test_a_host_all_of_whose_processes_end(cluster: Cluster, start: Start) -> None:
    job = start()
    cluster.kill("node3")
    killed = cluster.truth.last("kill", "node3")
    shown = job.wait_for("rank 2 died: the connection to node3 ended")
    assert job.end() == 255
    assert shown.at - killed.began < SHOWN_S
    assert "first failure: rank 2 on node3: the connection to node3 ended" in job.text()
    assert_ended_clean(job, killed.began)


@pytest.mark.long
def test_an_ssh_that_is_killed_does_not_leave_its_rank_behind(cluster: Cluster, start: Start) -> None:
    job = start()
    carriers = [pid for pid in cluster.hosts["node1"].pids("ssh", "node2", "BatchMode=yes") if _started_by_driver(pid)]
    assert len(carriers) == 1
    cluster.signal("node1", carriers, signal.SIGKILL)
    assert job.end() != 0
    assert_ended_clean(job, cluster.truth.last("signal", "node1").began)
    failure = job.report()["failure"]
    assert (failure["rank"], failure["host"]) == (1, "node2")


def _started_by_driver(pid: int) -> bool:
    """It carries a rank, not an agent."""
    parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
    return "driver/main.py" in Path(f"/proc/{parent}/cmdline").read_text()


def test_a_launcher_that_is_killed_leaves_no_process_on_any_host(cluster: Cluster, start: Start) -> None:
    job = start()
    cluster.signal("node1", cluster.hosts["node1"].pids("bin/distmon", "run", "--headless"), signal.SIGKILL)
    job.end()
    assert not eventually(ENDED_S, job.left_over)


def test_a_terminal_that_is_closed_ends_the_job_everywhere(cluster: Cluster, tmp_path: Path) -> None:
    folder = cluster.shared / "terminal"
    folder.mkdir()
    ours, theirs = pty.openpty()
    program = str(Path(__file__).with_name("rank_program.py"))
    command = ["distmon", "run", "-np", "2", "-H", "node1:1,node2:1", "--record", str(folder / "run.jsonl"), "--"]
    python = cluster.hosts["node1"].run("sh", "-c", "command -v python").stdout.strip()
    process = cluster.hosts["node1"].popen(
        *("setsid", "--ctty", "--wait", *command, python, program, str(folder)),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={"TERM": "xterm-256color"},
    )
    os.close(theirs)
    try:
        assert within(90, lambda: _drained(ours) and (folder / "pids-0").exists() and (folder / "pids-1").exists())
        os.close(ours)
        assert not eventually(ENDED_S, lambda: [host.processes() for host in cluster.hosts.values() if host.processes()])
    finally:
        process.kill()
        process.wait()


def _drained(terminal: int) -> bool:
    """Takes what a program has drawn: one that cannot draw stands still."""
    os.set_blocking(terminal, False)
    try:
        while os.read(terminal, 65536):
            pass
    except BlockingIOError:
        pass
    return True


@pytest.mark.long
def test_a_host_that_is_gone_for_good(cluster: Cluster, start: Start) -> None:
    job = start("--lost-after 12")
    cluster.lose("node3")
    lost = cluster.truth.last("lose", "node3")
    shown = job.wait_for("node3 .rank 2. has not answered for", SILENT_SHOWN_S + 5)
    assert job.end() == 255
    assert shown.at - lost.began < SILENT_SHOWN_S
    assert "first failure: rank 2 on node3: node3 did not answer for" in job.text()
    assert_ended_clean(job, lost.began + 12)
    assert job.report()["failure"]["cause"].startswith("node3 did not answer for")


@pytest.mark.long
def test_ranks_end_when_the_launchers_host_is_gone(cluster: Cluster, start: Start) -> None:
    job = start("--lost-after 10")
    cluster.lose("node1")
    assert job.left_over().keys() >= {"node2", "node3"}
    assert not eventually(10 + 10 + ENDED_S, job.left_over)
