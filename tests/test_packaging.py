"""The wheel: that it holds every file of every room, runs outside the checkout, and asks only for what its licence allows."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("core", "probe", "wire", "agent", "launcher", "replay", "tui")
NOT_SHIPPED = shutil.ignore_patterns("__pycache__", "*.pyc", "*.idx", "*.so", "ruff.toml", ".*_cache")
COMPILED = {f"distmon/{room}/_native.abi3.so" for room in ("agent", "core", "probe")} | {
    "distmon/core/_fold.abi3.so",
    "distmon/probe/_graph_clocks.abi3.so",
}
PERMISSIVE = re.compile(r"MIT|BSD|Apache|PSF|ISC|Python Software Foundation")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a clean clone would build from: left-overs of earlier builds in the checkout must not hide a forgotten file."""
    folder = tmp_path_factory.mktemp("sources")
    for room in ROOMS:
        shutil.copytree(ROOT / room, folder / room, ignore=NOT_SHIPPED)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture(scope="module")
def wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built with the setuptools that is installed here."""
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--no-index", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    build = [sys.executable, "-m", "pip", "wheel", *options, str(sources)]
    subprocess.run(build, check=True, capture_output=True, text=True)
    return next(folder.glob("distmon-*.whl"))


def test_every_file_of_every_room_is_in_the_wheel(sources: Path, wheel: Path) -> None:
    expected = {
        f"distmon/{path.relative_to(sources)}" for room in ROOMS for path in (sources / room).rglob("*") if path.is_file()
    }
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == expected | COMPILED


def test_the_wheel_is_for_every_python_from_the_oldest_on(wheel: Path) -> None:
    assert "-cp311-abi3-" in wheel.name


def test_distmon_stays_a_namespace(wheel: Path) -> None:
    assert "distmon/__init__.py" not in zipfile.ZipFile(wheel).namelist()


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a new environment with the wheel in it; its dependencies are those of this environment."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(install, check=True, capture_output=True, text=True)
    site = next(folder.glob("lib/python*/site-packages"))
    # Folders named in a .pth come last and their own .pth files are not read: this environment's distmon stays out.
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder / "bin"


def run(command: list[str | Path], cwd: Path) -> str:
    """Standard output of a command that runs outside the checkout and outside this environment."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    answer = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_the_installed_command_runs_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    where = "import distmon.core, distmon.tui.cli.main as main; print(distmon.core.__file__); print(main.__file__)"
    for line in run([installed / "python", "-c", where], tmp_path).splitlines():
        assert Path(line).is_relative_to(installed.parent)
    assert run([installed / "distmon", "--version"], tmp_path).split()[-1] == distribution("distmon").version


def test_the_installed_agent_samples_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    sample = json.loads(run([installed / "distmon-agent", "--once", "--json"], tmp_path))
    assert isinstance(sample, dict)


def runtime_requirements() -> set[str]:
    """Names of all that `pip install distmon[all]` brings."""
    pending = [Requirement("distmon[all]")]
    seen: set[str] = set()
    names: set[str] = set()
    while pending:
        requirement = pending.pop()
        if str(requirement) in seen:
            continue
        seen.add(str(requirement))
        names.add(requirement.name)
        for need in map(Requirement, distribution(requirement.name).requires or []):
            extras = (*requirement.extras, "")
            if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in extras):
                pending.append(need)
    return names - {"distmon"}


def licence(name: str) -> str:
    """What a package says of its licence: the expression, the old field or the classifiers."""
    metadata = distribution(name).metadata
    stated = [text for field in ("License-Expression", "License") for text in metadata.get_all(field) or []]
    classifiers = [text for text in metadata.get_all("Classifier") or [] if text.startswith("License ::")]
    return "; ".join(stated or classifiers)


def test_all_that_distmon_needs_is_under_a_permissive_licence() -> None:
    names = runtime_requirements()
    assert {"msgspec", "pyzmq", "textual", "rich"} <= names
    assert {name: licence(name) for name in names if not PERMISSIVE.search(licence(name))} == {}
