"""`distmon run`: how it leaves a job, and which recordings it keeps."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import venv
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from distmon.core import events as ev
from distmon.core.errors import DistmonError
from distmon.core.fold import apply
from distmon.core.state import SessionState
from distmon.launcher.form import form_of
from distmon.launcher.settings import AlertSettings, load_settings
from distmon.replay.session_file import load_state
from distmon.tui.app import DistmonApp
from distmon.tui.cli import run as run_verb
from distmon.tui.cli.main import main
from distmon.tui.cli.run import end, may_have_run, numbered, split_words
from distmon.tui.job import LaunchedJob


@dataclass
class EndingJob:
    """A job that takes its time to end, while the user presses Ctrl-C."""

    presses: int
    stops: list[int] = field(default_factory=list)
    running: bool = True

    @property
    def stopping(self) -> bool:
        return bool(self.stops)

    def stop(self, signum: int = signal.SIGINT) -> None:
        self.stops.append(signum)

    def wait(self) -> int:
        for _ in range(self.presses):
            os.kill(os.getpid(), signal.SIGINT)
        self.running = False
        return 130

    def poll(self) -> Iterator[ev.AnyEvent]:
        yield ev.JobEnded(at=1.0, exit_code=130, reason="stopped")


@dataclass
class TrainingJob:
    """A job that trains on for so many looks, and then ends by itself."""

    looks: int
    stopping: bool = False

    @property
    def running(self) -> bool:
        self.looks -= 1
        return self.looks > 0

    def poll(self) -> Iterator[ev.AnyEvent]:
        if self.looks == 0:
            yield ev.JobEnded(at=1.0, exit_code=0, reason="finished")


class FailingJob(TrainingJob):
    """Fails after so many looks."""

    def poll(self) -> Iterator[ev.AnyEvent]:
        if self.looks == 0:
            yield ev.JobEnded(at=1.0, exit_code=1, reason="failed")


def test_a_screen_that_fails_leaves_the_job_to_train_to_its_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(app: DistmonApp) -> int:
        raise DistmonError("the screen failed: RuntimeError: boom")

    monkeypatch.setattr(run_verb, "run_app", fails)
    monkeypatch.setattr(run_verb, "POLL_S", 0.0)
    job, state = TrainingJob(looks=5), SessionState()
    assert run_verb._shown(cast(DistmonApp, None), cast(LaunchedJob, job), state, AlertSettings()) == 0
    assert state.job.status == "ended" and not job.stopping
    assert "boom\ndistmon: the job goes on without the screen; Ctrl-C ends it\n" in capsys.readouterr().err
    job.stopping, job.looks = True, 5
    with pytest.raises(DistmonError, match="boom"):
        run_verb._shown(cast(DistmonApp, None), cast(LaunchedJob, job), state, AlertSettings())


def test_without_a_screen_the_alerts_of_the_settings_call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[tuple[str, str]] = []

    def run_command(command: str, text: str) -> str:
        ran.append((command, text))
        return ""

    monkeypatch.setattr("distmon.tui.alerts.run_command", run_command)
    monkeypatch.setattr(run_verb, "POLL_S", 0.0)
    job = FailingJob(looks=5)
    run_verb._follow(cast(LaunchedJob, job), SessionState(), AlertSettings(command="call-me"))
    assert ran == [("call-me", "job failed, exit code 1")]
    assert "distmon: alert: job failed, exit code 1\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("told", "presses", "stops"), [(False, 0, 1), (False, 1, 2), (True, 0, 1), (True, 1, 2)], ids=lambda value: str(value)
)
def test_a_job_is_told_to_end_once_and_a_further_control_c_tells_it_again(told: bool, presses: int, stops: int) -> None:
    job, state, before = EndingJob(presses), SessionState(), signal.getsignal(signal.SIGINT)
    if told:
        job.stop()
    assert end(cast(LaunchedJob, job), state) == 130
    assert job.stops == [signal.SIGINT] * stops
    assert state.job.exit_code == 130
    assert signal.getsignal(signal.SIGINT) is before


def test_a_timeline_is_horovods_and_a_job_that_starts_again_has_one_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--backend", "torchrun", "--timeline", "-np", "2", "--", "true"]) == 2
    assert "--timeline is Horovod's" in capsys.readouterr().err
    assert numbered(tmp_path / "t.json") == tmp_path / "t-2.json"


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """The Python of an environment without Horovod."""
    venv.create(tmp_path / "env", symlinks=True)
    return tmp_path / "env" / "bin" / "python"


@pytest.fixture
def broken_python(bare_python: Path) -> Path:
    """The Python of an environment whose Horovod lacks its launcher."""
    (packages,) = bare_python.parents[1].glob("lib/python*/site-packages")
    (packages / "horovod").mkdir()
    (packages / "horovod" / "__init__.py").touch()
    return bare_python


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "distmon.tui.cli.main", "run", "-np", "2", "--headless", *words]
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_without_horovod_one_line_says_what_to_do(tmp_path: Path, bare_python: Path) -> None:
    done = run(tmp_path, "--", str(bare_python), "-c", "pass")
    assert (done.returncode, done.stdout) == (1, "")
    build = f"build it with `distmon horovod build --python {bare_python}`"
    assert done.stderr == f"distmon: there is no Horovod in {bare_python}: {build}\n"


def test_a_job_that_never_started_leaves_no_automatic_recording(tmp_path: Path, broken_python: Path) -> None:
    done = run(tmp_path, "--", str(broken_python), "-c", "pass")
    assert done.returncode == 1
    assert f"reason      the Horovod in {broken_python} cannot be loaded" in done.stdout
    assert "recorded in" not in done.stderr
    assert list((tmp_path / "state" / "distmon" / "sessions").iterdir()) == []


def test_a_recording_that_the_user_names_is_kept_all_the_same(tmp_path: Path, broken_python: Path) -> None:
    done = run(tmp_path, "--record", "mine.jsonl", "--", str(broken_python), "-c", "pass")
    assert done.returncode == 1
    assert "distmon: recorded in mine.jsonl\n" in done.stderr
    assert load_state(tmp_path / "mine.jsonl")[0].job.exit_code == 1


@pytest.mark.parametrize(
    ("event", "ran"),
    [
        (ev.LaunchProgressed(at=1.0, stage="waiting_for_slots"), False),
        (ev.WorkerStarted(at=1.0, host="a", local_rank=0, rank=0, pid=1), True),
        (ev.LaunchProgressed(at=1.0, stage="first_step"), True),
    ],
    ids=["waiting", "worker", "started by MPI"],
)
def test_a_recording_is_kept_once_a_worker_may_have_run(event: ev.AnyEvent, ran: bool) -> None:
    state = SessionState()
    apply(state, event)
    assert may_have_run(state) is ran


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a file that gives flags and hosts to every run."""
    monkeypatch.chdir(tmp_path)
    big = '["-np", "4", "--cycle", "4:4@10m"]'
    (tmp_path / "distmon.toml").write_text(f'hosts = ["a:4"]\nflags = ["--verbose"]\n[presets]\nbig = {big}\n')
    return tmp_path


def test_what_is_to_be_kept_as_a_preset_is_kept_as_the_form_would_and_runs_as_it_was_written(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--min-np", "2", "--lost-after", "30", "--", "python", "train.py", "--epochs", "3"]
    assert main(["run", "--save-preset", "night", "--preset=big", *words]) == 0
    assert capsys.readouterr().out == "kept in distmon.toml: distmon run --preset night\n"
    settings = load_settings(folder)
    kept = ["--cycle", "4:4@10m", "--lost-after", "30", "-np", "4", "--min-np", "2", *words[4:]]
    assert settings.presets["night"] == kept
    assert settings.hosts == ["a:4"] and settings.flags == ["--verbose"]
    assert split_words(["--preset", "night"])[1] == split_words(["--preset", "big", *words])[1]
    assert form_of(kept).command == "python train.py --epochs 3"
    assert main(["run", "--save-preset=flags", "--headless"]) == 0
    assert load_settings(folder).presets["flags"] == ["--headless"]
    assert main(["run", "--delete-preset", "night"]) == 0
    assert set(load_settings(folder).presets) == {"big", "flags"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--save-preset", "x", "-np", "none", "--", "true"], "np: a number from 1 up, not 'none'"),
        (["--save-preset", "two words", "-np", "1", "--", "true"], "it cannot be 'two words'"),
        (["--save-preset", "x", "--lost-after", "never"], "--lost-after"),
        (["--save-preset", "x", "--preset", "none"], "no preset 'none'"),
        (["--delete-preset", "none"], "no preset 'none'"),
        (["--delete-preset", "big", "-np", "1"], "takes a name and nothing else"),
        (["--delete-preset", "big", "--save-preset", "x"], "not allowed with"),
    ],
)
def test_a_preset_that_no_job_could_be_made_of_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    before = (folder / "distmon.toml").read_text()
    assert main(["run", *words]) == 2
    assert says in capsys.readouterr().err
    assert (folder / "distmon.toml").read_text() == before
