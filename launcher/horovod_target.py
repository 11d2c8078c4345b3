"""The Python environment that Horovod is built for: what is in it, and what a build there would miss."""

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from distmon.core.errors import DistmonError

BUILD_SPACE_BYTES = 3 * 10**9
_CMAKE_OLDEST = (3, 13)
_CMAKE_TOO_NEW = (4, 0)

# Runs under the target Python, which may be as old as 3.6. Frameworks are looked up, not imported: that takes seconds.
_INSPECT = """
import importlib.util, json, os, platform, sys, sysconfig
def version_of(names):
    try:
        from importlib.metadata import version, PackageNotFoundError as missing
    except ImportError:
        import pkg_resources
        missing = pkg_resources.DistributionNotFound
        version = lambda name: pkg_resources.get_distribution(name).version
    for name in names:
        try:
            return version(name)
        except missing:
            pass
    return None
def cuda_of_torch():
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        return None
    values = {}
    with open(os.path.join(os.path.dirname(spec.origin), "version.py")) as source:
        exec(source.read(), values)
    return values.get("cuda")
def libc():
    try:
        return os.confstr("CS_GNU_LIBC_VERSION").replace(" ", "")
    except (AttributeError, OSError, ValueError):
        return "".join(platform.libc_ver()) or sysconfig.get_platform()
torch = version_of(["torch"])
print(json.dumps({
    "python_version": "%d.%d" % sys.version_info[:2],
    "abi": sysconfig.get_config_var("SOABI") or sys.implementation.cache_tag,
    "libc": libc(),
    "headers": os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")),
    "pip": importlib.util.find_spec("pip") is not None,
    "torch": torch,
    "torch_cuda": cuda_of_torch() if torch else None,
    "tensorflow": version_of(["tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tensorflow-intel", "tf-nightly"]),
    "horovod": version_of(["horovod"]),
}))
"""


@dataclass(frozen=True)
class Target:
    """A Python environment, as far as a Horovod build depends on it."""

    python: Path
    python_version: str
    """Major and minor, as in 3.11."""
    abi: str
    libc: str
    """C library and its version: a wheel built with a newer one does not load with an older."""
    headers: bool
    """Whether Python.h is there."""
    pip: bool
    torch: str | None
    torch_cuda: str | None
    """CUDA version that torch was built with; None for a CPU build."""
    tensorflow: str | None
    horovod: str | None

    @property
    def frameworks(self) -> list[str]:
        """The frameworks that Horovod has a library for and that are there, by their folder's name in Horovod."""
        return [name for name in ("torch", "tensorflow") if getattr(self, name) is not None]


@dataclass(frozen=True)
class Tools:
    """Build tools of this machine; None where missing."""

    make: str | None
    cxx: str | None
    cmake: str | None
    """A cmake that Horovod can be configured with (3.13 or later, before 4); None means pip has to bring one."""
    free_bytes: int


def inspect_target(python: Path) -> Target:
    """Ask the environment's Python about itself. Raises DistmonError if it does not run."""
    try:
        answer = subprocess.run([str(python), "-c", _INSPECT], capture_output=True, text=True, check=True, timeout=60)
        return Target(python=python, **json.loads(answer.stdout.splitlines()[-1]))
    except OSError as error:
        raise DistmonError(f"{python} cannot be run ({error.strerror}): name a Python with --python") from error
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no output"])[-1]
        raise DistmonError(f"{python} cannot describe its environment: {last}") from error
    except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
        raise DistmonError(f"{python} does not answer like a Python: name another with --python") from error


def find_tools(work_dir: Path) -> Tools:
    """Look for the build tools on PATH (CXX and HOROVOD_CMAKE are honoured), and for space where the build will run."""
    existing = next(folder for folder in (work_dir, *work_dir.parents) if folder.exists())
    return Tools(
        make=shutil.which("make"),
        cxx=shutil.which(os.environ.get("CXX", "g++").split()[0]),
        cmake=_usable_cmake(os.environ.get("HOROVOD_CMAKE") or shutil.which("cmake")),
        free_bytes=shutil.disk_usage(existing).free,
    )


def _usable_cmake(cmake: str | None) -> str | None:
    if cmake is None:
        return None
    try:
        answer = subprocess.run([cmake, "--version"], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r"version (\d+)\.(\d+)", answer.stdout)
    usable = found is not None and _CMAKE_OLDEST <= (int(found[1]), int(found[2])) < _CMAKE_TOO_NEW
    return cmake if usable else None


def missing(target: Target, tools: Tools) -> list[str]:
    """What keeps a build from starting, a sentence each, with the command that mends it; empty if nothing does."""
    problems = []
    packages = []
    if tools.cxx is None:
        packages.append("g++")
    if tools.make is None:
        packages.append("make")
    if not target.headers:
        packages.append(f"python{target.python_version}-dev")
    if packages:
        problems.append(
            f"{', '.join(packages)} {'is' if len(packages) == 1 else 'are'} missing: {apt_line(packages)}"
            + ("" if target.headers else f" (or the headers of {target.python} from where it came)")
        )
    if not target.pip:
        problems.append(f"{target.python} has no pip: {target.python} -m ensurepip")
    if target.torch is None and target.tensorflow is None:
        problems.append(f"{target.python} has neither PyTorch nor TensorFlow: install one there, or name another with --python")
    if tools.free_bytes < BUILD_SPACE_BYTES:
        problems.append(
            f"{tools.free_bytes / 1e9:.1f} GB of disk are free and the build needs {BUILD_SPACE_BYTES / 1e9:.0f}: "
            "free some, or point XDG_CACHE_HOME to a larger disk"
        )
    return problems


def apt_line(packages: list[str]) -> str:
    """The command that installs these Debian packages."""
    return "sudo apt-get install " + " ".join(packages)
