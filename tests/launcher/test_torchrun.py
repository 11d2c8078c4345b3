"""torchrun starts the ranks, and they are watched as under Horovod."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from distmon.core.events import NoticeGiven, RanksAssigned, WorkerStarted
from distmon.replay.session_file import load_state
from distmon.tui.cli.main import main
from tests.launcher.driving import environment, run

pytest.importorskip("torch", reason="needs PyTorch: make test sets it up")

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "torch_ddp.py"
FAILING = """
import os, sys, time
rank = int(os.environ["RANK"])
print("rank", rank, "of", os.environ["WORLD_SIZE"], flush=True)
open(os.path.join(sys.argv[1], str(rank)), "w").close()
if rank == 1:
    while not os.path.exists(os.path.join(sys.argv[1], "0")):
        time.sleep(0.01)
    sys.exit("no data")
time.sleep(300)
"""


def test_a_rank_that_fails_is_named_and_the_others_end(tmp_path: Path) -> None:
    job = run("torchrun", "-np", "2", "--", sys.executable, "-c", FAILING, str(tmp_path), timeout_s=180)
    failure = job.ended.failure
    assert failure is not None and (failure.rank, failure.exit_code, failure.last_lines) == (1, 1, ["no data"])
    assert (job.exit_code, job.ended.reason) == (1, "failed")
    assert (job.lines(0), job.lines(1)) == (["rank 0 of 2"], ["rank 1 of 2"])
    assert [event.world_size for event in job.of(RanksAssigned)] == [2]
    assert {event.rank for event in job.of(WorkerStarted)} == {0, 1}
    assert not any("Traceback" in notice.text for notice in job.of(NoticeGiven))


def test_plain_torch_training_is_timed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    recording = tmp_path / "run.jsonl"
    words = ["run", "--headless", "--backend", "torchrun", "-np", "2", "--record", str(recording)]
    assert main([*words, "--", sys.executable, str(EXAMPLE), "--epochs", "2"]) == 0
    assert "[0] epoch 2/2: " in capfd.readouterr().out
    state, _ = load_state(recording)
    (generation,) = state.generations.values()
    assert {rank: steps.totals.steps for rank, steps in generation.ranks.items()} == {0: 48, 1: 48}
    unseen = state.ranks[0].unseen
    assert list(unseen) == ["exposed_communication"] and "inside backward" in unseen["exposed_communication"]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("-np", "2", "-H", "a:1,b:1"), "starts the ranks on this machine"),
        (("-np", "2", "--min-np", "1"), "starts the ranks on this machine"),
        (("-np", "2", "--cycle-time-ms", "5"), "--cycle-time-ms is a flag of horovodrun"),
    ],
)
def test_what_only_horovod_does_is_refused(flags: tuple[str, ...], says: str) -> None:
    job = run("torchrun", *flags, "--", sys.executable, "-c", "pass")
    assert (job.exit_code, says in job.stderr) == (2, True)


def test_an_environment_without_torch_is_named(tmp_path: Path) -> None:
    job = run("torchrun", "-np", "1", "--", sys.executable, "-c", "pass", env=environment(PYTHONPATH=str(_no_torch(tmp_path))))
    assert job.exit_code == 1 and "there is no torch in" in job.ended.detail


def _no_torch(folder: Path) -> Path:
    lines = ["import importlib.util as u", "f = u.find_spec", "u.find_spec = lambda n, *a: None if n == 'torch' else f(n, *a)"]
    (folder / "sitecustomize.py").write_text("\n".join(lines))
    return folder
