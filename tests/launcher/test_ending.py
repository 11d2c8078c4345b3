"""Ending a job with everything that it started, however distmon itself ends (case LE-07)."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launcher.driving import CASES, alive, command, environment, within

SCRIPT = str(CASES / "LE-07" / "train_children.py")
HELPERS = 3
DISTMON = [sys.executable, "-m", "distmon.tui.cli.main"]


class Started:
    """The job of LE-07 on two ranks, once all their helpers run."""

    def __init__(self, folder: Path, *flags: str, **changes: str) -> None:
        self.noted = folder / "pids"
        record = str(folder / "session.jsonl")
        self.process = subprocess.Popen(
            [*DISTMON, "run", "--headless", "--record", record, "-np", "2", *flags, "--", sys.executable, SCRIPT],
            env=environment(PIDS=str(self.noted), **changes),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        assert within(40, lambda: len(self.pids()) == 2 * (1 + HELPERS)), self.pids()

    def pids(self) -> list[int]:
        text = self.noted.read_text() if self.noted.exists() else ""
        return [int(line.split()[1]) for line in text.splitlines() if line.count(" ") == 1]

    def all_gone(self) -> bool:
        return not any(alive(pid) for pid in self.pids())

    def driver(self) -> int:
        """The process between distmon and the ranks' supervisors."""
        (pid,) = [pid for pid in children(self.process.pid) if b"driver/main.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        return pid

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def children(parent: int) -> list[int]:
    tasks = Path(f"/proc/{parent}/task")
    return [int(pid) for task in tasks.iterdir() for pid in (task / "children").read_text().split()]


@pytest.fixture
def neighbour(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The same command line, outside the job."""
    env = environment(PIDS=str(tmp_path / "neighbour"))
    process = subprocess.Popen([sys.executable, SCRIPT], env=env, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None and process.stdout.readline() == b"rank 0 ready\n"
    yield process
    for line in (tmp_path / "neighbour").read_text().splitlines():
        os.kill(int(line.split()[1]), signal.SIGKILL)
    process.communicate()


def test_ctrl_c_once(tmp_path: Path, neighbour: subprocess.Popen[bytes]) -> None:
    job = Started(tmp_path)
    job.process.send_signal(signal.SIGINT)
    assert within(10, job.all_gone)
    assert job.process.wait(5) == 130
    assert neighbour.poll() is None and alive(neighbour.pid)
    assert len([line for line in (tmp_path / "neighbour").read_text().splitlines() if alive(int(line.split()[1]))]) == 1 + HELPERS
    job.close()


def test_ctrl_c_twice(tmp_path: Path) -> None:
    job = Started(tmp_path)
    job.process.send_signal(signal.SIGINT)
    assert within(3, lambda: not all(map(alive, job.pids())))
    job.process.send_signal(signal.SIGINT)
    assert within(3, job.all_gone)
    assert job.process.wait(5) == 130
    job.close()


def test_sigterm_with_a_rank_behind_ssh(tmp_path: Path) -> None:
    stub = CASES / "common"
    path = f"{stub}:{os.environ['PATH']}"
    job = Started(tmp_path, "-H", "localhost:1,node-ok:1", "--network-interface", "lo", PATH=path)
    job.process.send_signal(signal.SIGTERM)
    assert within(10, job.all_gone)
    assert job.process.wait(5) == 143
    job.close()


def test_sigkill_of_distmon(tmp_path: Path) -> None:
    job = Started(tmp_path)
    ours = children(job.process.pid)
    job.process.kill()
    assert within(30, lambda: job.all_gone() and not any(map(alive, ours)))
    job.close()


def test_sigkill_of_the_driver(tmp_path: Path) -> None:
    job = Started(tmp_path)
    os.kill(job.driver(), signal.SIGKILL)
    assert within(30, job.all_gone)
    assert job.process.wait(15) == 1
    job.close()


def test_sigkill_of_a_supervisor_fails_its_rank_and_leaves_nothing(tmp_path: Path) -> None:
    job = Started(tmp_path)
    os.kill(children(job.driver())[0], signal.SIGKILL)
    assert within(30, job.all_gone)
    assert job.process.wait(15) == 137
    job.close()


def test_sigterm_where_horovod_starts_the_ranks_itself(tmp_path: Path) -> None:
    """It leaves helpers behind; the driver finds them by the job's mark."""
    (tmp_path / "sitecustomize.py").write_text("import horovod.runner.util.remote as remote\ndel remote.get_ssh_command\n")
    job = Started(tmp_path, PYTHONPATH=str(tmp_path))
    job.process.send_signal(signal.SIGTERM)
    assert within(15, job.all_gone)
    assert job.process.wait(5) == 143
    job.close()


def test_a_rank_that_ignores_sigterm_is_killed_after_its_grace(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(90)"
    process = subprocess.Popen(command("-np", "1", "--", sys.executable, "-c", code), env=environment(), stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert any(b"output_written" in line and b"deaf" in line for line in iter(process.stdout.readline, b""))
    process.send_signal(signal.SIGTERM)
    rest = process.communicate(timeout=10)[0].decode()
    assert process.returncode == 143
    assert '"signal":"SIGKILL","expected":true' in rest


def test_a_stop_during_a_hanging_discovery_script_ends_the_job(tmp_path: Path) -> None:
    """Horovod itself is deaf then, to SIGTERM too."""
    script = tmp_path / "discover"
    hang = f"[ $(wc -l < {tmp_path}/calls) -gt 2 ] && sleep 60"
    script.write_text(f"#!/bin/sh\necho x >> {tmp_path}/calls\n{hang}\necho localhost:1\n")
    script.chmod(0o755)
    code = "import time; print('up', flush=True); time.sleep(90)"
    flags = ("-np", "1", "--min-np", "1", "--host-discovery-script", str(script))
    process = subprocess.Popen(command(*flags, "--", sys.executable, "-c", code), env=environment(), stdout=subprocess.PIPE)
    calls = tmp_path / "calls"
    assert within(20, lambda: calls.exists() and calls.read_text().count("x") > 2)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=15)
    assert process.returncode == 130
