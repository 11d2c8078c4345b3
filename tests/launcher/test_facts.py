"""What is looked up before a job is planned."""

import sys
from pathlib import Path

import pytest

from distmon.core.errors import DistmonError, UsageError
from distmon.launcher.facts import gather, training_python
from distmon.launcher.hosts import Host
from distmon.launcher.spec import JobSpec


def spec(tmp_path: Path, *command: str, path: str = "", **changes: object) -> JobSpec:
    base: dict[str, object] = {"command": list(command), "np": 2, "cwd": str(tmp_path), "environment": {"PATH": path}}
    return JobSpec(**{**base, **changes})  # type: ignore[arg-type]


def executable(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def env(tmp_path: Path) -> Path:
    """A folder of programs, as an environment's bin is."""
    executable(tmp_path / "bin" / "python")
    return tmp_path / "bin"


def test_the_command_names_its_python(tmp_path: Path, env: Path) -> None:
    assert training_python(spec(tmp_path, "python", "-m", "train", path=str(env))) == str(env / "python")
    assert training_python(spec(tmp_path, "bin/python", "x.py", path="/bin")) == str(env / "python")
    executable(env / "python3.9")
    assert training_python(spec(tmp_path, "python3.9", "x.py", path=str(env))) == str(env / "python3.9")


def test_a_scripts_first_line_names_its_python(tmp_path: Path, env: Path) -> None:
    other = executable(tmp_path / "other" / "python3")
    executable(tmp_path / "train", f"#!{other}\n")
    assert training_python(spec(tmp_path, "./train", path=str(env))) == str(other)
    executable(tmp_path / "train", "#!/usr/bin/env python\n")
    assert training_python(spec(tmp_path, "./train", path=str(env))) == str(env / "python")


def test_any_other_command_uses_the_python_of_horovodrun(tmp_path: Path, env: Path) -> None:
    other = executable(tmp_path / "other" / "python3")
    executable(env / "horovodrun", f"#!{other}\n")
    executable(env / "train.sh", "#!/bin/sh\n")
    assert training_python(spec(tmp_path, "train.sh", path=str(env))) == str(other)
    (env / "horovodrun").unlink()
    assert training_python(spec(tmp_path, "train.sh", path=str(env))) == str(env / "python")
    (env / "python").unlink()
    with pytest.raises(UsageError, match="no Python on PATH"):
        training_python(spec(tmp_path, "train.sh", path=str(env)))


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("./train.py", "'./train.py' is there, but cannot be run; run: chmod +x ./train.py, or name the program"),
        ("./bin", "'./bin' is a folder, which cannot be run"),
        ("/dev/null", "'/dev/null' is there, but it is no program"),
        ("./absent", "there is no command './absent'"),
        ("bin", "there is no command 'bin'"),
    ],
)
def test_a_command_that_is_there_but_cannot_be_run_is_told_from_a_missing_one(
    tmp_path: Path, env: Path, word: str, says: str
) -> None:
    (tmp_path / "train.py").touch(mode=0o644)
    with pytest.raises(UsageError) as caught:
        training_python(spec(tmp_path, word, path=str(env)))
    assert str(caught.value).startswith(says)


def test_a_missing_script_is_found_out(tmp_path: Path, env: Path) -> None:
    assert gather(spec(tmp_path, "python", "train.py", path=str(env))).missing_script == "train.py"
    (tmp_path / "train.py").touch()
    assert gather(spec(tmp_path, "python", "train.py", path=str(env))).missing_script == ""
    assert gather(spec(tmp_path, "python", "-c", "pass", path=str(env))).missing_script == ""


def test_hosts_come_from_where_the_user_says(tmp_path: Path, env: Path) -> None:
    facts = gather(spec(tmp_path, "python", path=str(env)))
    assert (facts.hosts, facts.local_hosts, facts.loopback) == ([Host("localhost", 2)], frozenset({"localhost"}), "lo")
    (tmp_path / "hosts").write_text("127.0.0.1 slots=1\nno-such-host.invalid slots=2\n")
    facts = gather(spec(tmp_path, "python", path=str(env), hostfile="hosts"))
    assert facts.hosts == [Host("127.0.0.1", 1), Host("no-such-host.invalid", 2)]
    assert facts.local_hosts == {"127.0.0.1"}
    facts = gather(spec(tmp_path, "python", path=f"{env}:/bin", discovery_script="echo localhost:3"))
    assert facts.hosts == [Host("localhost", 3)]


def test_a_discovery_script_that_fails_or_hangs_is_named(tmp_path: Path, env: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"{env}:/bin"
    with pytest.raises(DistmonError, match="failed with 3: no quota"):
        gather(spec(tmp_path, "python", path=path, discovery_script="echo no quota >&2; exit 3"))
    monkeypatch.setattr("distmon.launcher.facts.DISCOVERY_LIMIT_S", 0.2)
    with pytest.raises(DistmonError, match=r"gave no answer in 0\.2 s"):
        gather(spec(tmp_path, "python", path=path, discovery_script="exec sleep 60"))


def test_the_tests_own_python_is_found() -> None:
    assert training_python(spec(Path.cwd(), sys.executable, "-c", "pass")) == sys.executable
