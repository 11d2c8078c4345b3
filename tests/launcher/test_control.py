"""The socket through which another process of the user acts on a job."""

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from distmon.core.errors import DistmonError, UsageError
from distmon.launcher.actions import AddHost, AnyAction, DrainHost, RestartJob, SignalRank, StopJob, signal_named
from distmon.launcher.control import ControlSocket, ask, find_job
from distmon.launcher.rundir import CONTROL_SOCKET, RunningJob, running_jobs


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tempfile.mkdtemp(prefix="dm-")
    monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
    yield Path(folder, "distmon")
    shutil.rmtree(folder)


@pytest.fixture
def job(runtime: Path) -> RunningJob:
    folder = runtime / f"job-{os.getpid()}-0001"
    folder.mkdir(parents=True, mode=0o700)
    return RunningJob(folder.name, folder)


ACTIONS: list[AnyAction] = [StopJob(firm=True), RestartJob(), SignalRank(3, "SIGUSR1"), AddHost("a:2"), DrainHost("a")]


def test_every_action_arrives_as_it_was_asked(job: RunningJob) -> None:
    came: list[AnyAction] = []

    def act(action: AnyAction) -> str:
        came.append(action)
        return f"{action.NAME} {action.detail}".strip()

    listening = ControlSocket(job.folder, act)
    said = [ask(find_job(""), action) for action in ACTIONS]
    listening.close()
    assert came == ACTIONS
    assert said == ["stop at once", "restart", "signal SIGUSR1 to rank 3", "add host a:2", "drain host a"]


@pytest.mark.parametrize("error", [DistmonError("the job has ended"), UsageError("the job has no host b")])
def test_a_refusal_comes_back_as_the_error_that_it_is(job: RunningJob, error: DistmonError) -> None:
    def refuse(action: AnyAction) -> str:
        raise error

    listening = ControlSocket(job.folder, refuse)
    with pytest.raises(DistmonError, match=str(error)) as told:
        ask(job, RestartJob())
    listening.close()
    assert told.value.exit_code == error.exit_code


@pytest.mark.parametrize("line", [b"", b"\xff\n", b"[]\n", b'{"action":"shell","command":"id"}\n', b"x" * (1 << 17)])
def test_what_is_no_action_does_nothing_and_the_next_one_is_heard(job: RunningJob, line: bytes) -> None:
    came: list[AnyAction] = []

    def act(action: AnyAction) -> str:
        came.append(action)
        return "done"

    listening = ControlSocket(job.folder, act)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(job.folder / CONTROL_SOCKET))
        try:
            connection.sendall(line)
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(4096)
        except (BrokenPipeError, ConnectionResetError):
            answer = b"does not know"  # it had read enough
    assert b"does not know" in answer and not came
    assert ask(job, RestartJob()) == "done"
    listening.close()


def test_a_job_that_has_gone_is_said_to_have_ended(job: RunningJob) -> None:
    listening = ControlSocket(job.folder, lambda action: "")
    listening.close()
    with pytest.raises(DistmonError, match="has ended"):
        ask(job, RestartJob())
    with pytest.raises(DistmonError, match="no job that distmon started runs here"):
        find_job("")


def test_a_job_that_has_ended_while_its_screen_is_open_is_not_the_one_that_is_meant(job: RunningJob) -> None:
    """Its folder is there, with its hosts, and its process lives."""
    (job.folder / "hosts").write_text("a:1\n")
    ended = ControlSocket(job.folder, lambda action: "")
    other = job.folder.with_name(f"job-{os.getpid()}-0002")
    other.mkdir(mode=0o700)
    running = ControlSocket(other, lambda action: "done")
    with pytest.raises(UsageError, match="several jobs run here"):
        find_job("")
    ended.close()
    assert find_job("").name == other.name and ask(find_job(""), RestartJob()) == "done"
    assert [found.name for found in running_jobs()] == [other.name] and running_jobs("hosts") == []
    running.close()


@pytest.mark.parametrize("text", ["SIGUSR1", "usr1", "sigusr1", "10"])
def test_a_signal_by_any_of_its_names(text: str) -> None:
    assert signal_named(text) == "SIGUSR1"


@pytest.mark.parametrize("text", ["", "0", "99", "SIGCHLD", "usr3"])
def test_what_is_no_signal_for_a_rank(text: str) -> None:
    with pytest.raises(UsageError, match="no signal for a rank"):
        signal_named(text)
