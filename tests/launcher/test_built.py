"""What Horovod was built with is asked once."""

import types
from pathlib import Path

import horovod.common.util as util
import pytest

from distmon.launcher.driver.built import remember_answers


def launch_with_cache(
    monkeypatch: pytest.MonkeyPatch, cache: Path, answers: list[object]
) -> tuple[types.SimpleNamespace, list[str]]:
    """A `horovod.runner.launch` whose slow look gives `answers` in turn."""
    asked: list[str] = []

    def look(framework: str, ask: object, what: str, verbose: bool) -> object:
        asked.append(framework)
        return answers.pop(0)

    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setattr(util, "_check_extension_lambda", look)
    launch = types.SimpleNamespace(mpi_built=None, gloo_built=None)
    remember_answers(launch, lambda: asked.append("told"))
    return launch, asked


def test_one_look_answers_both_questions_for_all_launches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    launch, asked = launch_with_cache(monkeypatch, tmp_path, [{"mpi_built": False, "gloo_built": True}])
    assert (launch.mpi_built(verbose=False), launch.gloo_built()) == (False, True)
    assert asked == ["told", "torch"]
    again, asked = launch_with_cache(monkeypatch, tmp_path, [])
    assert (again.mpi_built(), again.gloo_built(verbose=True), asked) == (False, True, [])


def test_a_framework_that_does_not_load_is_passed_over_and_nothing_is_kept_without_an_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    launch, asked = launch_with_cache(monkeypatch, tmp_path, [None, None, None, {"mpi_built": True, "gloo_built": False}])
    assert launch.mpi_built() is None
    assert launch.mpi_built() is True
    assert asked == ["told", "torch", "tensorflow", "told", "torch", "tensorflow"]


def test_a_cut_cache_is_asked_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "distmon").mkdir()
    (tmp_path / "distmon" / "horovod-built.json").write_text('{"[[')
    launch, _ = launch_with_cache(monkeypatch, tmp_path, [{"mpi_built": False, "gloo_built": True}])
    assert launch.gloo_built() is True
