"""Builds Horovod for a training environment, as a wheel in a cache; installs it from there.

Horovod's last release (0.28.1) does not compile against today's PyTorch, CMake and setuptools. The build raises its
C++ standard and keeps the build tools in a folder of its own, so that nothing but Horovod enters the environment.
"""

import fcntl
import hashlib
import os
import re
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from distmon.core.errors import DistmonError
from distmon.launcher.horovod_target import Target, find_tools, inspect_target, missing
from distmon.launcher.long_command import Command, Progress, ReportProgress, run_long

HOROVOD_VERSION = "0.28.1"
# Part of the cache's key: raise it whenever the same inputs would give another wheel.
_RECIPE = 2
_BUILD_REQUIREMENTS = ["setuptools<82", "wheel", "packaging", "cloudpickle", "psutil", "pyyaml", "cffi>=1.4.0"]
_CMAKE_REQUIREMENT = "cmake<4"
_FLAGS = {"HOROVOD_WITH_GLOO": "1", "HOROVOD_WITHOUT_MPI": "1", "HOROVOD_WITHOUT_MXNET": "1"}
# What Horovod's build reads from the environment: its run-time variables have the same prefix and stay out of the key.
_USER_FLAG = re.compile(r"HOROVOD_(WITH|WITHOUT|GPU|CPU_OPERATIONS|NCCL|CUDA|ROCM|BUILD|ALLOW_MIXED|MPICXX)\w*$")
_BYTES_PER_COMPILER = 3 * 10**9
_TORCH_NEEDS_CXX17 = (2, 1)
_CXX14 = "set(CMAKE_CXX_STANDARD 14)"
_CXX17 = "set(CMAKE_CXX_STANDARD 17)"
_FOLDER_BY_REGEX = 'string(REGEX REPLACE "${PROJECT_SOURCE_DIR}(/)?" "" SUB_FOLDER "${CMAKE_CURRENT_SOURCE_DIR}")'
_FOLDER_BY_PATH = 'file(RELATIVE_PATH SUB_FOLDER "${PROJECT_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}")'


def default_cache() -> Path:
    """The folder that keeps built wheels, outside any checkout."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "distmon" / "horovod"


def build(python: Path, report: ReportProgress, cache: Path | None = None) -> Path:
    """The Horovod wheel for this Python's PyTorch and TensorFlow: from the cache, or built (minutes on 2 cores).

    Raises DistmonError naming all that is missing, or the compiler's first error.
    """
    target = inspect_target(python)
    flags = build_flags(target, os.environ)
    folder = (cache or default_cache()) / cache_key(target, flags)
    cached = cached_wheel(folder)
    if cached is not None:
        return cached
    _refuse_if_missing(target, folder)
    folder.mkdir(parents=True, exist_ok=True)
    with _only_builder(folder, report):
        return cached_wheel(folder) or _build_in(folder, target, flags, report)


def install(python: Path, wheel: Path, report: ReportProgress) -> None:
    """Install the wheel into the environment, in place of any other Horovod there, and import it.

    Raises DistmonError if pip fails or the installed Horovod does not load.
    """
    target = inspect_target(python)
    if not target.pip:
        raise DistmonError(f"{python} has no pip: {python} -m ensurepip")
    log = wheel.parent / "install.log"
    log.write_bytes(b"")
    pip: Command = [python, "-m", "pip", "install", "--disable-pip-version-check"]
    modules = [f"horovod.{framework}" for framework in target.frameworks]
    checks = "; ".join(f"import {module}" for module in modules)
    run_long([*pip, "--force-reinstall", "--no-deps", wheel], "Installing Horovod", log, report)
    run_long([*pip, wheel], "Installing what Horovod needs", log, report)
    run_long([python, "-c", checks], f"Loading {' and '.join(modules)}", log, report)


def build_flags(target: Target, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that Horovod's build reads: Gloo, the frameworks that are there, and the user's own."""
    flags = dict(_FLAGS)
    for name, version in (("PYTORCH", target.torch), ("TENSORFLOW", target.tensorflow)):
        flags[f"HOROVOD_{'WITH' if version else 'WITHOUT'}_{name}"] = "1"
    for name, value in environment.items():
        if _USER_FLAG.match(name):
            flags.pop(_opposite(name), None)
            flags[name] = value
    return flags


def gpu_note(python: Path) -> str | None:
    """What to do to reduce on GPUs, where PyTorch can use them and the build would leave them out."""
    target = inspect_target(python)
    if target.torch_cuda is None or "HOROVOD_GPU_OPERATIONS" in os.environ:
        return None
    return (
        f"PyTorch here is built for CUDA {target.torch_cuda}, and Horovod is built for the CPU: for GPUs, install the CUDA "
        "toolkit and NCCL's headers and set HOROVOD_GPU_OPERATIONS=NCCL"
    )


def _opposite(flag: str) -> str:
    if flag.startswith("HOROVOD_WITHOUT_"):
        return flag.replace("_WITHOUT_", "_WITH_", 1)
    return flag.replace("_WITH_", "_WITHOUT_", 1)


def cache_key(target: Target, flags: Mapping[str, str]) -> str:
    """Name of the cache's folder: all that the wheel depends on, readable but for the digest of flags and recipe."""
    described = "\n".join([str(_RECIPE), *(f"{name}={value}" for name, value in sorted(flags.items()))])
    digest = hashlib.sha256(described.encode()).hexdigest()[:8]
    frameworks = [f"torch{target.torch}"] * bool(target.torch) + [f"tf{target.tensorflow}"] * bool(target.tensorflow)
    return "-".join([HOROVOD_VERSION, target.abi, target.libc, *frameworks, digest])


def cached_wheel(folder: Path) -> Path | None:
    """The wheel that this folder of the cache holds, if its build was finished."""
    return next(folder.glob("horovod-*.whl"), None)


def _refuse_if_missing(target: Target, folder: Path) -> None:
    problems = missing(target, find_tools(folder))
    if problems:
        raise DistmonError("Horovod cannot be built: " + "; ".join(problems))


@contextmanager
def _only_builder(folder: Path, report: ReportProgress) -> Iterator[None]:
    """Two set-ups at once build one wheel: the second waits, then finds it in the cache."""
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(Progress("Waiting for another build of the same wheel", 0.0, str(folder)))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build_in(folder: Path, target: Target, flags: Mapping[str, str], report: ReportProgress) -> Path:
    log = folder / "build.log"
    log.write_bytes(b"")
    with tempfile.TemporaryDirectory(prefix="build-", dir=folder) as scratch:
        work = Path(scratch)
        environment = _bring_tools(work, target, flags, log, report)
        source = _fetch_source(work, target, environment, log, report)
        mend_source(source, target.torch)
        command: Command = [target.python, "setup.py", "--quiet", "bdist_wheel", "--dist-dir", work / "dist"]
        run_long(command, "Compiling Horovod", log, report, environment, source)
        built = cached_wheel(work / "dist")
        if built is None:
            raise DistmonError(f"Horovod's build left no wheel; its output is in {log}")
        _refuse_if_incomplete(built, target, log)
        # The rename is atomic: a cut build never leaves a wheel that looks finished.
        return built.replace(folder / built.name)


def _bring_tools(
    work: Path, target: Target, flags: Mapping[str, str], log: Path, report: ReportProgress
) -> dict[str, str]:
    """Install the build tools into a folder of their own; the environment in which they come before the target's."""
    folder = work / "tools"
    cmake = find_tools(work).cmake
    needed = [*_BUILD_REQUIREMENTS, *([] if cmake else [_CMAKE_REQUIREMENT])]
    pip: Command = [target.python, "-m", "pip", "install", "--disable-pip-version-check", "--target", folder, *needed]
    run_long(pip, "Fetching build tools", log, report)
    search_path = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        **flags,
        "PYTHONPATH": os.pathsep.join(search_path),
        "HOROVOD_CMAKE": cmake or str(folder / "bin" / "cmake"),
        "MAKEFLAGS": os.environ.get("MAKEFLAGS") or f"-j{compiler_jobs()}",
    }


def compiler_jobs() -> int:
    """Compilers to run at once: a core each, and 3 GB of memory each, which PyTorch's headers take."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(len(os.sched_getaffinity(0)), memory // _BYTES_PER_COMPILER))


def _fetch_source(
    work: Path, target: Target, environment: Mapping[str, str], log: Path, report: ReportProgress
) -> Path:
    """Download and unpack Horovod's source package with the target's own pip, so that its indexes and proxies apply."""
    download: Command = [target.python, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps", "--no-binary"]
    wanted: Command = ["horovod", "--no-build-isolation", "--dest", work, f"horovod=={HOROVOD_VERSION}"]
    run_long([*download, *wanted], "Downloading Horovod's source", log, report, environment)
    archive = next(work.glob("horovod-*.tar.gz"))
    with tarfile.open(archive) as package:
        # Debian 12's Python 3.11.2 has no filters.
        package.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        package.extractall(work)
    return work / f"horovod-{HOROVOD_VERSION}"


def mend_source(source: Path, torch: str | None) -> None:
    """Edit Horovod's build files in place, so that they work here. Raises DistmonError if they are not as expected.

    C++17 is what PyTorch's headers demand from 2.1 on. The folder of the libraries is worked out with the source's path as a
    regular expression: with a + in the path they would end up at a place where nothing finds them.
    """
    edits = [("cmake/Utilities.cmake", _FOLDER_BY_REGEX, _FOLDER_BY_PATH)]
    if torch is not None and _version(torch) >= _TORCH_NEEDS_CXX17:
        edits += [(name, _CXX14, _CXX17) for name in ("CMakeLists.txt", "horovod/torch/CMakeLists.txt")]
    for name, old, new in edits:
        path = source / name
        text = path.read_text()
        if old not in text:
            raise DistmonError(f"{path} is not as in Horovod {HOROVOD_VERSION}: it has no {old}")
        path.write_text(text.replace(old, new))


def _refuse_if_incomplete(wheel: Path, target: Target, log: Path) -> None:
    """Horovod's build can succeed without the libraries that it was made for."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    for framework in target.frameworks:
        if not any(re.match(rf"horovod/{framework}/mpi_lib\w*\..*so$", name) for name in names):
            raise DistmonError(f"Horovod was built without its library for {framework}; the build's output is in {log}")


def _version(text: str) -> tuple[int, int]:
    numbers = re.findall(r"\d+", text)
    return int(numbers[0]), int(numbers[1])
