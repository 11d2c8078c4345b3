"""Three hosts: one joins, one is cut off and returns. What it cost, against the harness's clock and the script's own."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from distmon.core import elastic
from distmon.core.elastic_lanes import lanes
from distmon.core.events import RanksAssigned, TrainingInterrupted
from distmon.core.fold import apply
from distmon.core.state import SessionState
from tests.cluster.cluster import ROOT, Cluster
from tests.cluster.jobs import ClusterJob, eventually
from tests.elastic import truth

pytest.importorskip("horovod.torch", reason="needs Horovod and PyTorch: make test sets them up")
pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

SECONDS, STEP_S = 130, 0.04
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
    job.wait_for("samples/s", LIMIT_S)
    cluster.join("node3")
    job.wait_for("rendezvous 1: 3 ranks", LIMIT_S)
    assert not eventually(LIMIT_S, lambda: len(_trained(job.folder / "logs")) < 3), job.text()
    time.sleep(3)  # some steps of all three
    cluster.cut("node2")
    cut = cluster.truth.last("cut", "node2").began
    job.wait_for("rendezvous 2: 2 ranks", LIMIT_S)
    cluster.leave("node2")
    cluster.heal("node2")
    job.wait_for("rank . on node2|host left node2", LIMIT_S)
    cluster.join("node2")
    job.wait_for("rendezvous .: 3 ranks(?s:.*)rendezvous .: 3 ranks|rendezvous [34]: 3 ranks", LIMIT_S)
    assert job.end(SECONDS + LIMIT_S) == 0, job.text()
    state = SessionState()
    for event in job.events():
        apply(state, event)
    assert [event.world_size for event in job.of(RanksAssigned)] == [2, 3, 2, 3], job.text()
    books = elastic.accounts(state)
    assert books is not None
    found, right = books.lost.parts(), _right(job, state, cut)
    table = json.dumps({part: [round(found[part], 3), round(right[part], 3)] for part in found}, indent=1)
    for part, seconds in right.items():
        # Nobody sees the moment of a cut, and up to the last second of the lost rank's steps is lost with its host.
        blur = 1.1 if part in ("redone", "below_capacity") else 0.0
        assert found[part] == pytest.approx(seconds, abs=max(0.1, 0.05 * seconds) + blur), (
            f"{part}: {table}\n{_shown(job, state)}"
        )
    unseen = sum(
        s.ended - s.started for lane in lanes(state) for s in lane.segments if s.kind == "unseen" and s.ended > books.started
    )
    assert books.unexplained_s <= unseen + 0.005 * books.capacity_s


def _trained(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*.log") if '"step"' in path.read_text()]


def _shown(job: ClusterJob, state: SessionState) -> str:
    """Both stories, to see where they part."""
    told = [f"{lane.host} {lane.end}: {lane.segments}" for lane in lanes(state)]
    said = [f"{process.slot}: {process.notes[:3]}" for process in truth.read(job.folder / "logs")]
    for process in truth.read(job.folder / "logs"):
        said += [f"{process.slot} {note}" for note in process.notes if note.what not in ("step", "commit")]
    return "\n".join([*told, *said, job.text()])


def _right(job: ClusterJob, state: SessionState, cut: float) -> dict[str, float]:
    """By the logs; the cut is the harness's, the arrivals are when the discovery first told of them."""
    processes = truth.read(job.folder / "logs")
    first = next(event for event in job.of(TrainingInterrupted) if event.rank == 0)
    own = next(p for p in processes if p.slot == "node1:0").first(truth.CHANGE)
    assert own is not None
    offset = first.at - own
    lost = next(p for p in processes if p.slot == "node2:0")
    lost.killed = cut - offset
    joins = [e for e in state.membership if e.change == "host_joined" and (e.host == "node3" or e.at > cut)]
    latest = {e.host: e.at - offset for e in joins}
    return truth.lost(processes, 3, list(latest.items()))
