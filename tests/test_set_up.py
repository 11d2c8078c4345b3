"""Set-up: what it finds missing, when it runs again, and that the locks fit every index."""

import importlib.util
import json
import re
import shutil
import sys
from importlib.metadata import distribution
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
LOCKS = sorted((ROOT / "packaging" / "locks").glob("*.txt"))


@pytest.fixture
def set_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, with its stamp and Horovod's cache in folders of the test."""
    spec = importlib.util.spec_from_file_location("set_up", ROOT / "packaging" / "set_up.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(module, "VENV_PYTHON", Path(sys.executable))
    monkeypatch.setattr(module, "STAMP", tmp_path / "set-up.json")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return module


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: str(lock.name))
def test_a_lock_holds_names_and_versions_only(lock: Path) -> None:
    lines = lock.read_text().splitlines()
    assert lines[0].startswith("#")
    assert [line for line in lines[1:] if not re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", line)] == []


def test_what_both_locks_name_has_one_version() -> None:
    first, second = ({line for line in lock.read_text().splitlines() if "==" in line} for lock in LOCKS)
    names = {line.partition("==")[0] for line in first} & {line.partition("==")[0] for line in second}
    assert {line for line in first ^ second if line.partition("==")[0] in names} == set()


def test_this_environment_is_the_locked_one() -> None:
    locked = [line for lock in LOCKS for line in lock.read_text().splitlines() if "==" in line]
    for name, _, version in (line.partition("==") for line in locked):
        assert distribution(name).version.partition("+")[0] == version


def test_it_runs_again_when_a_lock_changes(set_up: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locks = {name: Path(shutil.copy(lock, tmp_path)) for name, lock in set_up.LOCKS.items()}
    monkeypatch.setattr(set_up, "LOCKS", locks)
    assert not set_up.is_done(training=True)
    set_up.STAMP.write_text(json.dumps({"digest": set_up.digest(), "training": True}))
    assert set_up.is_done(training=True)
    with locks["training"].open("a") as lock:
        lock.write("pillow==12.0.0\n")
    assert not set_up.is_done(training=True)


def test_a_set_up_without_training_serves_only_those_who_ask_for_none(set_up: ModuleType) -> None:
    set_up.STAMP.write_text(json.dumps({"digest": set_up.digest(), "training": False}))
    assert set_up.is_done(training=False)
    assert not set_up.is_done(training=True)


def test_a_missing_compiler_is_named_with_its_apt_line_unless_horovod_is_cached(
    set_up: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (problem,) = set_up.missing(training=True)
    assert "sudo apt-get install g++ make" in problem
    assert set_up.missing(training=False) == []
    soabi = set_up.sysconfig.get_config_var("SOABI")
    wheel = set_up.cache_folder() / f"0.28.1-{soabi}-torch2" / "horovod-0.28.1-cp311.whl"
    wheel.parent.mkdir(parents=True)
    wheel.touch()
    assert set_up.missing(training=True) == []


def test_another_python_is_refused_in_one_line(set_up: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_up, "NEEDED_PYTHON", (3, 99))
    with pytest.raises(set_up.SetUpError, match=r"sudo apt-get install python3\.11 "):
        set_up.refuse_other_python()


def test_a_second_run_is_silent(
    set_up: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    set_up.STAMP.write_text(json.dumps({"digest": set_up.digest(), "training": True}))
    monkeypatch.setattr(sys, "argv", ["set_up.py"])
    assert set_up.main() == 0
    assert "".join(capfd.readouterr()) == ""
