"""Every error of the command line: one line on standard error, the right exit code, no traceback."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from distmon.core.codec import encode_json
from distmon.core.events import SessionStarted
from distmon.tui.cli.main import VERBS, main

USAGE, FAILURE = 2, 1


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with files that are no sessions."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "foreign.jsonl").write_text('{"epoch": 1, "loss": 0.3}\n')
    (tmp_path / "train.py").write_text("print(1)\n")
    (tmp_path / "secret.jsonl").write_bytes(
        encode_json(SessionStarted(at=1.0, session_id="s", distmon_version="0")) + b"\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["fly"], USAGE, "there is no command 'fly'"),
        (["--fly"], USAGE, "--fly"),
        (["run"], USAGE, "no command to run"),
        (["run", "-np", "2"], USAGE, "no command to run"),
        (["run", "--", "python", "train.py"], USAGE, "how many ranks"),
        (["run", "-np", "two", "--", "python", "train.py"], USAGE, "-np takes a number of ranks"),
        (["run", "-np", "2", "--headles", "--", "python", "train.py"], USAGE, "did you mean --headless"),
        (["run", "-np", "2", "--", "python", "absent.py"], USAGE, "no script absent.py"),
        (["run", "-np", "2", "--", "absent-command"], USAGE, "no command 'absent-command'"),
        (["run", "-np", "2", "--hostfile", "absent", "--", "python", "train.py"], USAGE, "absent"),
        (["run", "-np", "2", "--backend", "carrier-pigeon", "--", "python", "train.py"], USAGE, "carrier-pigeon"),
        (["run", "-np", "2", "--samples-per-step", "0", "--", "python", "train.py"], USAGE, "--samples-per-step"),
        (
            ["run", "-np", "2", "--record", "run.txt", "--headless", "--", sys.executable, "train.py"],
            FAILURE,
            "run.txt",
        ),
        (["run", "-np", "2", "--record", "empty.jsonl", "--", sys.executable, "train.py"], FAILURE, "there already"),
        (["replay"], USAGE, "SESSION"),
        (["replay", "absent.jsonl"], FAILURE, "absent.jsonl"),
        (["replay", "secret.jsonl", "--at", "0:10"], USAGE, "terminal"),
        (["replay", "secret.jsonl", "--speed", "0"], USAGE, "--speed"),
        (["report"], USAGE, "SESSION"),
        (["report", "empty.jsonl"], FAILURE, "empty.jsonl"),
        (["report", "foreign.jsonl"], FAILURE, "foreign.jsonl is not a distmon session"),
        (["report", "last"], FAILURE, "no recording"),
        (["overhead", "--pairs", "0", "-np", "2", "--", "python", "train.py"], USAGE, "--pairs"),
        (["horovod"], USAGE, "ACTION"),
        (["horovod", "build", "--python", "/absent/python"], FAILURE, "/absent/python cannot be run"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_one_line_and_the_code(
    files: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, says: str
) -> None:
    assert main(words) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert says in said.err
    assert said.err.startswith("distmon: ")
    assert said.err.count("\n") == 1


def test_without_a_terminal_this_machine_is_watched_in_lines_until_it_is_interrupted(tmp_path: Path) -> None:
    # A shell's background job ignores an interrupt, and so would what it starts.
    command = ["env", "--default-signal=INT", sys.executable, "-m", "distmon.tui.cli.main"]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            assert process.stdout.readline().endswith("joined\n")
            assert "cpu" in process.stdout.readline()
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 130
            assert process.stderr.read() == ""
        finally:
            process.kill()


def test_an_unreadable_session_is_named(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "folder.jsonl").mkdir()
    assert main(["report", "folder.jsonl"]) == FAILURE
    assert "folder.jsonl holds no recording" in capsys.readouterr().err


@pytest.mark.parametrize("verb", list(VERBS))
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([verb, "--help"])
    assert ended.value.code == 0
    assert f"distmon {verb}" in capsys.readouterr().out


def test_debug_shows_the_traceback(files: Path) -> None:
    command = [sys.executable, "-m", "distmon.tui.cli.main", "report", "--debug", "empty.jsonl"]
    done = subprocess.run(command, cwd=files, capture_output=True, text=True, check=False)
    assert done.returncode == FAILURE
    assert "Traceback" in done.stderr


def test_a_reader_that_has_seen_enough_is_no_error(files: Path) -> None:
    command = f"{sys.executable} -m distmon.tui.cli.main report secret.jsonl --json | head -c 1"
    done = subprocess.run(["sh", "-c", command], cwd=files, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("{", "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", ["report secret.jsonl --json", "report secret.jsonl", "export secret.jsonl --to csv -o -"])
def test_a_full_output_is_one_line(files: Path, monkeypatch: pytest.MonkeyPatch, words: str, unbuffered: str) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    command = f"{sys.executable} -m distmon.tui.cli.main {words} >/dev/full"
    done = subprocess.run(["sh", "-c", command], cwd=files, capture_output=True, text=True, check=False)
    assert done.returncode == FAILURE
    assert done.stderr == "distmon: standard output cannot be written: No space left on device\n"


def test_any_other_failure_of_the_system_is_one_line(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "some/where")

    monkeypatch.setattr("distmon.tui.cli.report.load_reported", refuse)
    assert main(["report", "secret.jsonl"]) == FAILURE
    assert capsys.readouterr().err == "distmon: some/where: Permission denied\n"
    with pytest.raises(PermissionError):
        main(["report", "secret.jsonl", "--debug"])


def test_version_needs_no_textual() -> None:
    code = "import sys; from distmon.tui.cli.main import main; main(['--version'])"
    probe = f"import atexit, sys; atexit.register(lambda: print('textual' in sys.modules)); {code}"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("distmon 0.")
    assert done.stdout.splitlines()[-1] == "False"
