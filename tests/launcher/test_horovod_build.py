"""Building Horovod: what is missing, what the cache is keyed by, and the whole way from a source package to a cached wheel.

The real Horovod takes minutes to compile, and set-up does that; here a source package of the same shape takes its place.
"""

import io
import sys
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from distmon.core.errors import DistmonError
from distmon.launcher import horovod_build
from distmon.launcher.horovod_build import build, build_flags, cache_key, cached_wheel, gpu_note, mend_source
from distmon.launcher.horovod_target import Target, Tools, find_tools, inspect_target, missing

TARGET = Target(
    python=Path("/opt/training/bin/python"),
    python_version="3.11",
    abi="cpython-311-x86_64-linux-gnu",
    libc="glibc2.36",
    headers=True,
    pip=True,
    torch="2.13.0",
    torch_cuda=None,
    tensorflow=None,
    horovod=None,
)
TOOLS = Tools(make="/usr/bin/make", cxx="/usr/bin/g++", cmake="/usr/bin/cmake", free_bytes=10**11)
CMAKE_LISTS = "set(CMAKE_CXX_STANDARD 14)\n"
UTILITIES = """    string(REGEX REPLACE "${PROJECT_SOURCE_DIR}(/)?" "" SUB_FOLDER "${CMAKE_CURRENT_SOURCE_DIR}")\n"""
SETUP = """
import pathlib, sys
from setuptools import setup
if "bdist_wheel" in sys.argv:
    for part in ("CMakeLists.txt", "horovod/torch/CMakeLists.txt"):
        if "STANDARD 17" not in pathlib.Path(part).read_text():
            sys.exit(part + ": error: C++ 17 is needed")
    for framework in ("torch", "tensorflow"):
        pathlib.Path("horovod", framework, "mpi_lib.cpython.so").touch()
setup(
    name="horovod",
    version="0.28.1",
    packages=["horovod", "horovod.torch", "horovod.tensorflow"],
    package_data={"": [LIBRARIES]},
)
"""


def test_this_environment_describes_itself() -> None:
    target = inspect_target(Path(sys.executable))
    assert target.python_version == f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert target.pip
    assert target.torch is not None
    assert target.horovod == horovod_build.HOROVOD_VERSION


def test_a_python_that_is_none_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(DistmonError, match="cannot be run"):
        inspect_target(tmp_path / "python")
    with pytest.raises(DistmonError, match="does not answer like a Python"):
        inspect_target(Path("/bin/true"))


def test_nothing_is_missing_where_all_is_there() -> None:
    assert missing(TARGET, TOOLS) == []


def test_a_missing_cmake_is_brought_by_pip_and_not_asked_for() -> None:
    assert missing(TARGET, replace(TOOLS, cmake=None)) == []


def test_missing_packages_come_with_one_apt_line() -> None:
    problems = missing(replace(TARGET, headers=False), replace(TOOLS, make=None, cxx=None))
    assert len(problems) == 1
    assert "sudo apt-get install g++ make python3.11-dev" in problems[0]


@pytest.mark.parametrize(
    ("target", "tools", "text"),
    [
        (replace(TARGET, pip=False), TOOLS, "-m ensurepip"),
        (replace(TARGET, torch=None), TOOLS, "neither PyTorch nor TensorFlow"),
        (TARGET, replace(TOOLS, free_bytes=10**9), "1.0 GB of disk are free and the build needs 3"),
    ],
)
def test_each_other_want_is_named(target: Target, tools: Tools, text: str) -> None:
    (problem,) = missing(target, tools)
    assert text in problem


def test_a_cmake_of_version_4_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version, used in (("4.0.1", False), ("3.31.2", True), ("3.10.0", False)):
        cmake = tmp_path / "cmake"
        cmake.write_text(f"#!/bin/sh\necho cmake version {version}\n")
        cmake.chmod(0o755)
        monkeypatch.setenv("HOROVOD_CMAKE", str(cmake))
        assert find_tools(tmp_path).cmake == (str(cmake) if used else None)


def test_frameworks_are_demanded_or_left_out_and_the_users_flags_win() -> None:
    flags = build_flags(TARGET, {"HOROVOD_WITH_MPI": "1", "HOROVOD_FUSION_THRESHOLD": "0", "PATH": "/bin"})
    assert flags == {
        "HOROVOD_WITH_GLOO": "1",
        "HOROVOD_WITH_MPI": "1",
        "HOROVOD_WITHOUT_MXNET": "1",
        "HOROVOD_WITH_PYTORCH": "1",
        "HOROVOD_WITHOUT_TENSORFLOW": "1",
    }


def test_a_cuda_build_of_torch_is_told_how_to_get_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(horovod_build, "inspect_target", lambda _: replace(TARGET, torch_cuda="12.8"))
    monkeypatch.delenv("HOROVOD_GPU_OPERATIONS", raising=False)
    assert "set HOROVOD_GPU_OPERATIONS=NCCL" in (gpu_note(TARGET.python) or "")
    monkeypatch.setenv("HOROVOD_GPU_OPERATIONS", "NCCL")
    assert gpu_note(TARGET.python) is None
    monkeypatch.delenv("HOROVOD_GPU_OPERATIONS")
    monkeypatch.setattr(horovod_build, "inspect_target", lambda _: TARGET)
    assert gpu_note(TARGET.python) is None


@pytest.mark.parametrize(
    "other",
    [
        replace(TARGET, torch="2.12.0"),
        replace(TARGET, tensorflow="2.15.1"),
        replace(TARGET, abi="cpython-310-x86_64-linux-gnu"),
        replace(TARGET, libc="glibc2.31"),
    ],
)
def test_the_cache_tells_environments_apart(other: Target) -> None:
    assert cache_key(other, build_flags(other, {})) != cache_key(TARGET, build_flags(TARGET, {}))


def test_the_cache_tells_flags_apart_but_not_paths() -> None:
    plain = cache_key(TARGET, build_flags(TARGET, {}))
    assert cache_key(TARGET, build_flags(TARGET, {"HOROVOD_GPU_OPERATIONS": "NCCL"})) != plain
    assert cache_key(replace(TARGET, python=Path("/elsewhere/python")), build_flags(TARGET, {})) == plain


def horovod_source(folder: Path, libraries: str = "*.so") -> None:
    """Write a source package that builds only where the C++ standard has been raised."""
    files = {
        "setup.py": SETUP.replace("LIBRARIES", repr(libraries)),
        "CMakeLists.txt": CMAKE_LISTS,
        "cmake/Utilities.cmake": UTILITIES,
        "horovod/__init__.py": "",
        "horovod/torch/__init__.py": "",
        "horovod/torch/CMakeLists.txt": CMAKE_LISTS,
        "horovod/tensorflow/__init__.py": "",
    }
    with tarfile.open(folder / "horovod-0.28.1.tar.gz", "w:gz") as package:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"horovod-0.28.1/{name}")
            entry.size = len(text)
            package.addfile(entry, io.BytesIO(text.encode()))


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is pip's only index, with one package in place of the build tools; this environment has the real ones."""
    folder = tmp_path / "index"
    folder.mkdir()
    with zipfile.ZipFile(folder / "buildtools-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("buildtools.py", "")
        wheel.writestr("buildtools-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: buildtools\nVersion: 1\n")
        wheel.writestr("buildtools-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("buildtools-1.dist-info/RECORD", "")
    monkeypatch.setattr(horovod_build, "_BUILD_REQUIREMENTS", ["buildtools"])
    monkeypatch.setattr(horovod_build, "_CMAKE_REQUIREMENT", "buildtools")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_a_build_is_cached_and_the_second_one_only_found(tmp_path: Path, index: Path) -> None:
    horovod_source(index)
    stages: list[str] = []
    wheel = build(Path(sys.executable), lambda progress: stages.append(progress.stage), tmp_path / "cache")
    assert zipfile.is_zipfile(wheel)
    assert list(dict.fromkeys(stages)) == ["Fetching build tools", "Downloading Horovod's source", "Compiling Horovod"]
    assert sorted(path.name for path in wheel.parent.iterdir()) == ["build.log", wheel.name, "lock"]
    stages.clear()
    assert build(Path(sys.executable), lambda progress: stages.append(progress.stage), tmp_path / "cache") == wheel
    assert stages == []


def test_a_failed_build_says_the_compilers_error_and_leaves_no_wheel(
    tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    horovod_source(index)
    monkeypatch.setattr(horovod_build, "_TORCH_NEEDS_CXX17", (99, 0))
    with pytest.raises(DistmonError, match=r"Compiling Horovod failed .*: CMakeLists.txt: error: C\+\+ 17 is needed\."):
        build(Path(sys.executable), lambda _: None, tmp_path / "cache")
    (folder,) = (tmp_path / "cache").iterdir()
    assert cached_wheel(folder) is None
    assert (folder / "build.log").stat().st_size > 0


def test_a_wheel_without_a_library_is_refused(tmp_path: Path, index: Path) -> None:
    horovod_source(index, libraries="none")
    with pytest.raises(DistmonError, match="built without its library for torch"):
        build(Path(sys.executable), lambda _: None, tmp_path / "cache")
    (folder,) = (tmp_path / "cache").iterdir()
    assert cached_wheel(folder) is None


def unpacked(folder: Path, cmake_lists: str) -> Path:
    """The files that are edited, as in Horovod's source package."""
    for name, text in (
        ("CMakeLists.txt", cmake_lists),
        ("horovod/torch/CMakeLists.txt", cmake_lists),
        ("cmake/Utilities.cmake", UTILITIES),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_an_unknown_source_is_refused_rather_than_built_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(DistmonError, match="is not as in Horovod"):
        mend_source(unpacked(tmp_path, "set(CMAKE_CXX_STANDARD 11)"), "2.1.0")


@pytest.mark.parametrize("torch", ["1.13.1", None])
def test_an_old_torch_keeps_the_old_standard(tmp_path: Path, torch: str | None) -> None:
    mend_source(unpacked(tmp_path, CMAKE_LISTS), torch)
    assert (tmp_path / "CMakeLists.txt").read_text() == CMAKE_LISTS
    assert "REGEX" not in (tmp_path / "cmake" / "Utilities.cmake").read_text()
