"""Acting on a real job of two ranks from another process, and what of it stands in the recording."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from distmon.core import events as ev
from distmon.replay.session_file import Notes, open_session
from tests.launcher.driving import within

pytest.importorskip("horovod.runner", reason="needs Horovod: make test sets it up")

MAIN = [sys.executable, "-m", "distmon.tui.cli.main"]
SCRIPT = """
import os, signal, sys, time
def told(*_): print("was told", flush=True)
signal.signal(signal.SIGUSR1, told)
open(os.path.join(sys.argv[1], f"{os.getpid()}"), "w").close()
while True: time.sleep(0.05)
"""


class Job:
    """`distmon run --headless` with a script that waits, in a runtime folder of its own."""

    def __init__(self, folder: Path, runtime: str, *flags: str) -> None:
        self.folder = folder
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": runtime, "XDG_STATE_HOME": str(folder)}
        self.output = folder / "output"
        (folder / "wait.py").write_text(SCRIPT)
        (folder / "ready").mkdir()
        words = ["run", "--headless", "--record", "run.jsonl", *flags, "--", sys.executable, "wait.py", "ready"]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen([*MAIN, *words], cwd=folder, env=self.environment, stdout=output, stderr=output)

    def await_ranks(self, count: int) -> None:
        assert within(60, lambda: len(list((self.folder / "ready").iterdir())) >= count), self.output.read_text()

    def do(self, *words: str) -> str:
        done = subprocess.run([*MAIN, *words], env=self.environment, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    def says(self, text: str) -> bool:
        return within(30, lambda: text in self.output.read_text())

    def events(self, name: str) -> list[ev.AnyEvent]:
        return list(open_session(self.folder / name).events(Notes()))

    def actions(self, name: str) -> list[tuple[str, str]]:
        return [(event.action, event.detail) for event in self.events(name) if isinstance(event, ev.ActionTaken)]


@pytest.fixture
def runtime() -> Iterator[str]:
    folder = tempfile.mkdtemp(prefix="dm-")
    yield folder
    shutil.rmtree(folder)


def test_a_rank_is_signalled_the_job_restarted_and_stopped(tmp_path: Path, runtime: str) -> None:
    job = Job(tmp_path, runtime, "-np", "2")
    try:
        job.await_ranks(2)
        assert "SIGUSR1 is on its way to rank 1" in job.do("signal", "1", "usr1")
        assert job.says("[1] was told") and "[0] was told" not in job.output.read_text()
        assert job.do("signal", "7", "usr1") == "distmon: there is no rank 7: those that run are 0, 1\n"
        assert "no elastic job" in job.do("hosts", "add", "b:1")
        assert "starts again then" in job.do("restart")
        job.await_ranks(4)
        assert "SIGTERM to every rank" in job.do("stop")
        assert job.process.wait(30) == 143
    finally:
        job.process.kill()
        job.process.wait()
    assert job.actions("run.jsonl") == [("signal", "SIGUSR1 to rank 1"), ("restart", "")]
    assert job.actions("run-2.jsonl") == [("stop", "politely")]
    for name in ("run.jsonl", "run-2.jsonl"):
        (ended,) = [event for event in job.events(name) if isinstance(event, ev.JobEnded)]
        assert (ended.reason, ended.exit_code) == ("stopped", 143)


def test_a_rank_that_an_operator_kills_is_no_riddle(tmp_path: Path, runtime: str) -> None:
    job = Job(tmp_path, runtime, "-np", "2")
    try:
        job.await_ranks(2)
        job.do("signal", "1", "KILL")
        assert job.process.wait(30) == 137
    finally:
        job.process.kill()
        job.process.wait()
    (ended,) = [event for event in job.events("run.jsonl") if isinstance(event, ev.JobEnded)]
    assert ended.failure is not None
    assert (ended.failure.rank, ended.failure.cause) == (1, "an operator sent it SIGKILL")


def test_hosts_join_and_leave_an_elastic_job(tmp_path: Path, runtime: str) -> None:
    job = Job(tmp_path, runtime, "-np", "1", "--min-np", "1", "--max-np", "2")
    try:
        job.await_ranks(1)
        assert "localhost:2; the ranks follow" in job.do("hosts", "add", "localhost:2")
        assert job.says("host joined localhost slots 1 to 2")
        assert "the job has no host elsewhere" in job.do("hosts", "remove", "elsewhere")
        assert "every rank is killed now" in job.do("stop", "--now")
        assert job.process.wait(30) == 143
    finally:
        job.process.kill()
        job.process.wait()
    assert job.actions("run.jsonl") == [("add host", "localhost:2"), ("stop", "at once")]
