"""The whole way: a real Horovod job of two ranks, timed, sampled, recorded, and the same when it is read back."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from distmon.core import measures
from distmon.core.fold import apply
from distmon.core.state import SessionState
from distmon.core.wall import wall_split
from distmon.launcher.flags import job_spec, split_arguments
from distmon.launcher.horovod import plan_job
from distmon.launcher.rundir import job_directory
from distmon.replay.report.summarise import summarise
from distmon.replay.session_file import load_state
from distmon.tui.job import LaunchedJob
from distmon.tui.plain import summary_lines

pytest.importorskip("horovod.torch", reason="needs Horovod and PyTorch: make test sets them up")

ROOT = Path(__file__).parents[1]
SCRIPT = """
import torch, horovod.torch as hvd
from torch.utils.data import DataLoader, TensorDataset
hvd.init(); torch.manual_seed(0); torch.set_num_threads(1)
model = torch.nn.Linear(8, 2)
loader = DataLoader(TensorDataset(torch.randn(640, 8), torch.randint(0, 2, (640,))), batch_size=16)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.01), model.named_parameters())
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad(); torch.nn.functional.cross_entropy(model(x), y).backward(); optimizer.step()
    print("epoch", epoch, "done", flush=True)
"""
STEPS, BATCH = 80, 16


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, SessionState, Path]:
    """(exit code, the state folded while it ran, the recording)."""
    folder = tmp_path_factory.mktemp("job")
    (folder / "train.py").write_text(SCRIPT)
    words = split_arguments(["-np", "2", "--", sys.executable, "train.py"], {})
    spec = job_spec(words, backend="horovod", cwd=str(folder), environment=os.environ)
    state = SessionState()
    with job_directory() as job_folder:
        job = LaunchedJob(plan_job(spec, job_folder), job_folder, folder / "run.jsonl", "test-session")
        job.start()
        code = job.wait()
        for event in job.poll():
            apply(state, event)
    return code, state, folder / "run.jsonl"


def test_every_step_of_every_rank_is_there(finished: tuple[int, SessionState, Path]) -> None:
    code, state, _ = finished
    assert code == 0
    assert state.complete
    generation = measures.current_generation(state)
    assert generation is not None
    assert {rank: steps.totals.steps for rank, steps in generation.ranks.items()} == {0: STEPS, 1: STEPS}
    assert measures.samples(state) == 2 * STEPS * BATCH
    assert not state.gaps
    assert not state.unknown_kinds


def test_all_phases_are_seen_and_add_up(finished: tuple[int, SessionState, Path]) -> None:
    split = measures.step_split(measures.current_generation(finished[1]))
    assert split is not None
    parts = [split.phase(name) for name in measures.ALL_PHASES]
    assert None not in parts
    assert sum(part or 0.0 for part in parts) == pytest.approx(split.step_s)
    assert split.rest >= 0


def test_the_wall_time_closes(finished: tuple[int, SessionState, Path]) -> None:
    state = finished[1]
    wall, duration = wall_split(state), measures.elapsed(state)
    assert wall is not None
    assert duration is not None
    assert sum(value for value in wall.parts().values() if value is not None) == pytest.approx(duration)
    assert abs(wall.unexplained) <= 0.02 * duration


def test_output_and_node_are_there(finished: tuple[int, SessionState, Path]) -> None:
    state = finished[1]
    assert {(line.rank, line.text) for line in state.output if line.output == "stdout"} == {
        (rank, f"epoch {epoch} done") for rank in (0, 1) for epoch in (0, 1)
    }
    (node,) = state.nodes.values()
    assert measures.node_status(state, node) == "left"
    assert measures.node_means(node).cpu_percent is not None


def test_the_recording_folds_to_the_state_that_was_live(finished: tuple[int, SessionState, Path]) -> None:
    _, live, recording = finished
    replayed, notes = load_state(recording)
    assert not notes.sentences()
    for field in fields(SessionState):
        assert getattr(replayed, field.name) == getattr(live, field.name), field.name
    assert summarise(replayed) == summarise(live)
    assert summary_lines(replayed) == summary_lines(live)


def test_headless_in_a_pipe_gives_output_summary_and_the_jobs_code(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os, sys; print('hello from', os.environ['HOROVOD_RANK']); sys.exit(7)")
    command = [sys.executable, "-m", "distmon.tui.cli.main", "run", "-np", "2", "--headless", "--record", "r.jsonl"]
    done = subprocess.run([*command, "--", sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 7
    assert "hello from 0" in done.stdout
    assert "first failure: rank" in done.stdout
    assert "exit code 7" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
