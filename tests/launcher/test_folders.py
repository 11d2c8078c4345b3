"""The job's folder and its agent."""

import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from distmon.core.errors import DistmonError
from distmon.launcher.agents import LocalAgent
from distmon.launcher.driver import guest
from distmon.launcher.remote_agents import probe_files
from distmon.launcher.rundir import job_directory
from tests.launcher.driving import alive, environment, within


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


def test_the_folder_is_private_and_goes_with_the_job(runtime: Path) -> None:
    with job_directory() as folder:
        assert folder.parent == runtime / "distmon"
        assert stat.S_IMODE(folder.stat().st_mode) == stat.S_IMODE((folder / "rings").stat().st_mode) == 0o700
        with job_directory() as other:
            assert other != folder
    assert list((runtime / "distmon").iterdir()) == []


def test_a_folder_open_to_others_is_refused(runtime: Path) -> None:
    (runtime / "distmon").mkdir(mode=0o755)
    with pytest.raises(DistmonError, match="is open to other users"), job_directory():
        pass


def test_what_a_killed_distmon_left_is_removed(runtime: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    left = runtime / "distmon" / f"job-{dead.pid}-abc"
    left.mkdir(parents=True, mode=0o700)
    (runtime / "distmon").chmod(0o700)
    with job_directory():
        assert not left.exists()


def test_the_agent_listens_and_ends_with_the_job() -> None:
    with job_directory() as folder:
        agent = LocalAgent(folder)
        agent.start()
        assert agent.running and Path(agent.address.removeprefix("ipc://")).is_socket()
        agent.stop()
        assert not agent.running


def test_an_agent_that_cannot_start_says_why() -> None:
    with job_directory() as folder:
        first = LocalAgent(folder)
        first.start()
        try:
            with pytest.raises(DistmonError, match=r"the agent did not start: .* in use by another agent"):
                LocalAgent(folder).start()
        finally:
            first.stop()


def test_the_agent_ends_with_a_killed_distmon(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from distmon.launcher.agents import LocalAgent\n"
        f"agent = LocalAgent(Path({str(tmp_path)!r})); agent.start()\n"
        "print(agent._process.pid, flush=True); time.sleep(60)"
    )
    tmp_path.chmod(0o700)
    (tmp_path / "rings").mkdir()
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment())
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    assert alive(pid)
    os.kill(owner.pid, signal.SIGKILL)
    owner.communicate()
    assert within(10, lambda: not alive(pid))


def test_a_worker_on_a_host_that_joins_waits_for_its_probe(tmp_path: Path) -> None:
    """The file that is awaited is the last one that a keeper writes."""
    assert sorted(probe_files())[-1] == guest.LAST_FILE
    assert not guest.await_probe(str(tmp_path), 0.0)
    (tmp_path / "probe").mkdir()
    threading.Timer(0.2, (tmp_path / "probe" / guest.LAST_FILE).touch).start()
    assert guest.await_probe(str(tmp_path), 20.0)
