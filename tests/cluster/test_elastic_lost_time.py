"""Three hosts: one whose clocks are its own joins, one is cut off and returns. What it cost, against the harness's clock and the
script's own."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from distmon.core import elastic
from distmon.core.elastic_lanes import lanes
from distmon.core.events import RanksAssigned, TrainingInterrupted
from distmon.core.fold import apply
from distmon.core.state import SessionState
from tests.cluster import skew
from tests.cluster.cluster import ROOT, Cluster
from tests.cluster.jobs import ClusterJob, eventually
from tests.elastic import truth

pytest.importorskip("horovod.torch", reason="needs Horovod and PyTorch: make test sets them up")
pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

SECONDS, STEP_S = 300, 0.02
"""Of the job where nothing ends it; of a step."""
STEPS = 60
AHEAD_S = 30
"""The wall clock of the host that joins; its monotonic clock began at another moment, too."""
LIMIT_S = 120.0
FLAGS = "--min-np 1 --max-np 3 --network-interface eth0 --gloo-timeout-seconds 30 --blacklist-cooldown-range 2 4 --lost-after 10"


@pytest.fixture
def job(cluster: Cluster) -> Iterator[ClusterJob]:
    cluster.join("node1")
    cluster.join("node2")
    folder = cluster.shared / "lost_time"
    (folder / "logs").mkdir(parents=True)
    script = [str(ROOT / "tests/elastic/truth_script.py"), str(folder / "logs"), str(SECONDS), str(STEP_S)]
    started = ClusterJob(
        cluster, folder, sys.executable, *script, hosts="node1:1,node2:1", discovery=f"cat {cluster.listed}", flags=FLAGS
    )
    yield started
    started.close()


def test_a_join_a_cut_and_a_return(cluster: Cluster, job: ClusterJob) -> None:
    cluster.up("ahead", ahead_s=AHEAD_S)
    job.wait_for("samples/s", LIMIT_S)
    cluster.join("ahead")
    job.wait_for("rendezvous 1: 3 ranks", LIMIT_S)
    _train(job, processes=3)
    cluster.cut("node2")
    cut = cluster.truth.last("cut", "node2").began
    job.wait_for("rendezvous 2: 2 ranks", LIMIT_S)
    cluster.leave("node2")
    cluster.heal("node2")
    job.wait_for("rank . on node2|host left node2", LIMIT_S)
    cluster.join("node2")
    job.wait_for("rendezvous [34]: 3 ranks", LIMIT_S)
    _train(job, processes=4)
    (job.folder / "logs" / "over").touch()
    assert job.end(LIMIT_S) == 0, job.text()
    state = SessionState()
    for event in job.events():
        apply(state, event)
    assert [event.world_size for event in job.of(RanksAssigned)] == [2, 3, 2, 3], job.text()
    books = elastic.accounts(state)
    assert books is not None
    found, right = books.lost.parts(), _right(job, state, cut)
    rows = [f"{part:15}{found[part]:9.3f} s, by the harness {right[part]:9.3f} s" for part in found]
    table = "\n".join(rows)
    sys.stdout.write(f"{table}\n")
    for part, seconds in right.items():
        assert found[part] == pytest.approx(seconds, abs=max(0.1, 0.05 * seconds)), f"{part}:\n{table}\n{_shown(job, state)}"
    unseen = sum(
        s.ended - s.started for lane in lanes(state) for s in lane.segments if s.kind == "unseen" and s.ended > books.started
    )
    assert books.unexplained_s <= unseen + 0.005 * books.capacity_s


def _train(job: ClusterJob, processes: int) -> None:
    """Wait until so many processes have trained in all, and the youngest of them for STEPS steps."""

    def missing() -> bool:
        made = [path.read_text().count('"step"') for path in (job.folder / "logs").glob("*.log")]
        return len(made) < processes or min(made) < STEPS

    assert not eventually(LIMIT_S, missing), job.text()


def _shown(job: ClusterJob, state: SessionState) -> str:
    """Both stories, to see where they part."""
    told = [f"{lane.host} {lane.end}: {lane.segments}" for lane in lanes(state)]
    said = [f"{process.slot}: {process.notes[:3]}" for process in _processes(job)]
    for process in _processes(job):
        said += [f"{process.slot} {note}" for note in process.notes if note.what not in ("step", "commit")]
    return "\n".join([*told, *said, job.text()])


def _processes(job: ClusterJob) -> list[truth.Process]:
    """All by one clock."""
    return truth.read(job.folder / "logs", {"ahead": skew.UPTIME_S})


def _right(job: ClusterJob, state: SessionState, cut: float) -> dict[str, float]:
    """By the logs; the cut is the harness's, the arrivals are when the discovery first told of them."""
    processes = _processes(job)
    first = next(event for event in job.of(TrainingInterrupted) if event.rank == 0)
    own = next(p for p in processes if p.slot == "node1:0").first(truth.CHANGE)
    assert own is not None
    offset = first.at - own
    lost = next(p for p in processes if p.slot == "node2:0")
    lost.killed, lost.silent = cut - offset, True
    joins = [e for e in state.membership if e.change == "host_joined" and (e.host == "ahead" or e.at > cut)]
    latest = {e.host: e.at - offset for e in joins}
    return truth.lost(processes, 3, list(latest.items()))
