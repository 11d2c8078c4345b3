"""The agent of a job dies, or stops, while ranks train: training goes on, and every step is in the recording, once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from distmon.core import measures
from distmon.core.events import AnyEvent, NodeStepsRecorded, StepsRecorded
from distmon.core.fold import apply
from distmon.core.state import SessionState
from distmon.launcher.flags import job_spec, split_arguments
from distmon.launcher.horovod import plan_job
from distmon.launcher.rundir import job_directory
from distmon.replay.session_file import load_state
from distmon.tui.job import LaunchedJob

pytest.importorskip("horovod.torch", reason="needs Horovod and PyTorch: make test sets them up")

STEPS = 150
SCRIPT = f"""
import time, torch, horovod.torch as hvd
hvd.init(); torch.manual_seed(0); torch.set_num_threads(1)
model = torch.nn.Linear(8, 2)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.01), model.named_parameters())
for step in range({STEPS}):
    time.sleep(0.02)
    optimizer.zero_grad(); model(torch.randn(4, 8)).sum().backward(); optimizer.step()
"""


def agent_of(folder: Path) -> int:
    """The process id of the agent that listens in a job's folder."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"distmon.agent.main" in words and f"ipc://{folder / 'agent.sock'}".encode() in words:
                return int(entry.name)
    raise AssertionError("the job has no agent")


def run_and_hurt(folder: Path, hurt: Callable[[int], None]) -> SessionState:
    """Runs the job; `hurt` gets the agent's process id once the first steps are there."""
    (folder / "train.py").write_text(SCRIPT)
    words = split_arguments(["-np", "2", "--", sys.executable, "train.py"], {})
    spec = job_spec(words, backend="horovod", cwd=str(folder), environment=os.environ)
    state, hurt_once = SessionState(), False
    with job_directory() as job_folder:
        job = LaunchedJob(plan_job(spec, job_folder), job_folder, folder / "run.jsonl", "lost-agent")
        job.start()
        while job.running:
            hurt_once = _take(job.poll, state, None if hurt_once else lambda: hurt(agent_of(job_folder)))  or hurt_once
        assert job.wait() == 0
        _take(job.poll, state, None)
    assert hurt_once
    return state


def _take(poll: Callable[[], object], state: SessionState, hurt: Callable[[], None] | None) -> bool:
    done = False
    events: list[AnyEvent] = list(poll())  # type: ignore[call-overload]
    for event in events:
        apply(state, event)
        if hurt is not None and not done and isinstance(event, StepsRecorded | NodeStepsRecorded):
            hurt()
            done = True
    return done


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_no_step_is_lost_or_counted_twice(tmp_path: Path, number: int) -> None:
    state = run_and_hurt(tmp_path, lambda pid: os.kill(pid, number))
    generation = measures.current_generation(state)
    assert generation is not None
    assert {rank: steps.totals.steps for rank, steps in generation.ranks.items()} == {0: STEPS, 1: STEPS}
    assert any("started again" in entry.text for entry in state.log)
    replayed, _ = load_state(tmp_path / "run.jsonl")
    assert measures.steps(replayed) == STEPS
