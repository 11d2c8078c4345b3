"""An elastic job that loses a rank and gets it back, on one machine: what it cost, against the clock of the script itself."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from distmon.core import elastic
from distmon.core.codec import decode_json
from distmon.core.events import AnyEvent, MembershipChanged, RanksAssigned, TrainingInterrupted, WorkerExited
from distmon.core.fold import apply
from distmon.core.state import SessionState
from tests.elastic import truth
from tests.launcher.driving import within

SCRIPT = Path(__file__).with_name("truth_script.py")
SECONDS, STEP_S = 22, 0.05
FLAGS = ["-np", "2", "--min-np", "1", "--max-np", "2", "--blacklist-cooldown-range", "2", "8"]
pytestmark = pytest.mark.timeout(300)


class Ran:
    """The job's recording, the script's own logs, and when its second rank was killed and was seen to be back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "hosts").write_text("localhost:1\n127.0.0.1:1\n")
        (folder / "logs").mkdir()
        words = [sys.executable, "-m", "distmon.tui.cli.main", "run", "--headless", "--record", str(folder / "run.jsonl")]
        words += [*FLAGS, "--host-discovery-script", f"cat {folder / 'hosts'}", "--"]
        words += [sys.executable, str(SCRIPT), str(folder / "logs"), str(SECONDS), str(STEP_S)]
        log = (folder / "said").open("wb")
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.job = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment)
        log.close()
        try:
            self._lose_a_rank()
            self.exit_code = self.job.wait(180)
        finally:
            if self.job.poll() is None:
                self.job.terminate()
                self.job.wait(30)
        self.processes = truth.read(folder / "logs")
        self.events: list[AnyEvent] = [decode_json(line) for line in (folder / "run.jsonl").read_bytes().splitlines()]
        self.state = SessionState()
        for event in self.events:
            apply(self.state, event)

    def _lose_a_rank(self) -> None:
        """Kill it in the middle of a step, seven or so steps into its training."""
        assert within(120, lambda: min(self._steps(), default=0) > 6 and len(self._steps()) == 2), self.said
        pid = next(int(path.stem) for path in (self.folder / "logs").glob("*.log") if "127.0.0.1" in path.read_text())
        watch = os.pidfd_open(pid)
        os.kill(pid, signal.SIGKILL)
        # It takes the kernel a while to take a large process apart; only then its connections close.
        select.select([watch], [], [], 30)
        self.killed = time.monotonic()
        os.close(watch)

    def _steps(self) -> list[int]:
        return [path.read_text().count('"step"') for path in (self.folder / "logs").glob("*.log")]

    @property
    def said(self) -> str:
        return (self.folder / "said").read_text(errors="replace")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return Ran(tmp_path_factory.mktemp("elastic"))


def test_the_job_outlives_the_loss_and_grows_again(ran: Ran) -> None:
    assert ran.exit_code == 0, ran.said
    assert [event.world_size for event in ran.events if isinstance(event, RanksAssigned)] == [2, 1, 2]
    changes = [(e.change, e.host) for e in ran.events if isinstance(e, MembershipChanged)]
    assert changes == [
        ("host_joined", "localhost"),
        ("host_joined", "127.0.0.1"),
        ("host_failed", "127.0.0.1"),
        ("host_blacklisted", "127.0.0.1"),
        ("host_joined", "127.0.0.1"),
    ]
    died = [event for event in ran.events if isinstance(event, WorkerExited) and event.exit_code]
    assert [(event.rank, event.signal, event.removed) for event in died] == [(1, "SIGKILL", False)]
    kinds = [change.change for change in ran.state.membership]
    assert kinds.count("resumed") == 2 and kinds.count("rendezvous") == 3


def test_each_part_of_the_time_lost_agrees_with_the_scripts_own_clock(ran: Ran) -> None:
    books = elastic.accounts(ran.state)
    assert books is not None
    for process in ran.processes:
        if process.slot.startswith("127.0.0.1") and process.notes[0].at < ran.killed:
            process.killed = ran.killed
    back = [e.at for e in ran.state.membership if e.change == "host_joined" and e.host == "127.0.0.1"][-1]
    right = truth.lost(ran.processes, 2, [("127.0.0.1", back - _monotonic_offset(ran))])
    found = books.lost.parts()
    told = json.dumps({part: [found[part], right[part]] for part in found}, indent=1)
    for part, seconds in right.items():
        assert found[part] == pytest.approx(seconds, abs=max(0.1, 0.05 * seconds)), f"{part}: {told}"
    assert abs(books.unexplained_s) < max(0.1, 0.005 * books.capacity_s), books


def _monotonic_offset(ran: Ran) -> float:
    """Between the events' clock and CLOCK_MONOTONIC: both are steady, so a moment that both know gives it."""
    survivor = next(p for p in ran.processes if p.slot == "localhost:0")
    left = survivor.first(truth.FAILURE)
    assert left is not None
    return next(e.at for e in ran.events if isinstance(e, TrainingInterrupted) and e.cause == "failure") - left


def test_steps_done_again_are_counted_to_the_step(ran: Ran) -> None:
    """A commit every five steps: the survivor's own log says how many it had made since."""
    (survivor,) = [p for p in ran.processes if p.slot == "localhost:0"]
    failed = survivor.first(truth.FAILURE)
    assert failed is not None
    made = [note.what for note in survivor.notes if note.at < failed and note.what in ("step", "commit")]
    undone = made[::-1].index("commit") if "commit" in made else len(made)
    books = elastic.accounts(ran.state)
    assert books is not None and books.redone_steps == undone
    spans = elastic.generation_spans(ran.state)
    assert [span.undone_steps for span in spans] == [undone, 0, 0]
    assert "127.0.0.1 failed" in spans[1].cause and "cooldown" in spans[2].cause
