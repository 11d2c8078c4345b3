"""Makes this checkout ready to run: .venv with the locked packages, Horovod and distmon. Takes seconds when nothing changed.

Run by the Makefile with the machine's Python 3.11, before anything is installed; goes on under .venv's Python as soon
as distmon can be imported there.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
STAMP = VENV / "set-up.json"
LOG = VENV / "set-up.log"
LOCKS = {name: ROOT / "packaging" / "locks" / f"{name}.txt" for name in ("distmon", "training")}
NEEDED_PYTHON = (3, 11)
NEEDED_SPACE_BYTES = 8 * 10**9


class SetUpError(Exception):
    """Set-up cannot go on; the text says what is wrong and what to do."""


def main() -> int:
    """Set up, or find that all is in place."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--training-python", help="a Python that has Horovod already: leave PyTorch and TensorFlow out")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    wanted = digest(options.training_python)
    try:
        if options.inside:
            complete(options.training_python, wanted)
        elif stamped_digest() != wanted:
            prepare(options.training_python)
            own_command = [str(VENV_PYTHON), __file__, "--inside"]
            chosen = ["--training-python", options.training_python] if options.training_python else []
            return subprocess.run([*own_command, *chosen], check=False).returncode
    except SetUpError as error:
        say(f"set-up: {error}")
        return 1
    return 0


def say(text: str) -> None:
    """Progress goes to standard error, so that what follows has standard output to itself."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def digest(training_python: str | None) -> str:
    """Of all that the environment is made from: changes when set-up has to run again."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)
    packaging = json.dumps([project["project"], project["tool"]["setuptools"], training_python, sys.version_info[:2]])
    sources = [packaging.encode(), *(lock.read_bytes() for lock in LOCKS.values()), Path(__file__).read_bytes()]
    return hashlib.sha256(b"\0".join(sources)).hexdigest()


def stamped_digest() -> str | None:
    """The digest that the last finished set-up left; None where it has not finished."""
    try:
        return str(json.loads(STAMP.read_text())["digest"]) if VENV_PYTHON.exists() else None
    except (OSError, ValueError, KeyError):
        return None


def prepare(training_python: str | None) -> None:
    """Check that nothing is missing, make .venv, and install distmon there without its dependencies."""
    problems = missing(training_python is not None)
    if problems:
        raise SetUpError("; ".join(problems))
    announce(training_python)
    if not VENV_PYTHON.exists():
        run([sys.executable, "-m", "venv", "--clear", VENV], "making .venv")
    pip: list[str | Path] = [VENV_PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "-qq"]
    setuptools = next(line for line in LOCKS["distmon"].read_text().splitlines() if line.startswith("setuptools=="))
    run([*pip, setuptools], "installing setuptools")
    run([*pip, "--no-deps", "--no-build-isolation", "--editable", ROOT], "installing distmon")


def missing(has_training: bool) -> list[str]:
    """What keeps set-up from starting, a sentence each, with the command that mends it."""
    if sys.version_info[:2] != NEEDED_PYTHON:
        found = ".".join(map(str, sys.version_info[:2]))
        return [
            f"Python 3.11 is needed (TensorFlow's wheels end there) and {sys.executable} is {found}: "
            "sudo apt-get install python3.11 python3.11-venv python3.11-dev"
        ]
    packages = []
    if importlib.util.find_spec("ensurepip") is None:
        packages.append("python3.11-venv")
    if not has_training and not horovod_is_cached():
        if shutil.which("g++") is None:
            packages.append("g++")
        if shutil.which("make") is None:
            packages.append("make")
        if not Path(sysconfig.get_paths()["include"], "Python.h").exists():
            packages.append("python3.11-dev")
    problems = [f"{', '.join(packages)} missing: sudo apt-get install {' '.join(packages)}"] if packages else []
    free = shutil.disk_usage(ROOT).free
    if not VENV.exists() and not has_training and free < NEEDED_SPACE_BYTES:
        problems.append(f"{free / 1e9:.1f} GB of disk are free and {NEEDED_SPACE_BYTES / 1e9:.0f} are needed: free some")
    return problems


def cache_folder() -> Path:
    """Where Horovod's wheels are kept; launcher/horovod_build.py decides it, and cannot be imported yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "distmon" / "horovod"


def horovod_is_cached() -> bool:
    """Whether some Horovod wheel for this Python is there, so that probably no compiler is needed."""
    return any(cache_folder().glob(f"*-{sysconfig.get_config_var('SOABI')}-*/horovod-*.whl"))


def announce(training_python: str | None) -> None:
    """Say once what is about to happen, how long it takes and what it may bring."""
    say(f"Setting up {VENV.name} (its log is {LOG.relative_to(ROOT)}).")
    if training_python is not None:
        return
    compiled = "Horovod's wheel comes from the cache" if horovod_is_cached() else "Horovod is compiled, 5 to 10 minutes"
    say(f"  2.5 GB of packages are installed; {compiled} ({cache_folder()}).")
    torch = next(line for line in LOCKS["training"].read_text().splitlines() if line.startswith("torch=="))
    say(f"  {torch} is what your package index has under that name: with PyPI that may be the CUDA build, 3 GB more.")
    say("  To train with an environment that you have, leave both out: make run PYTHON=/path/to/its/bin/python")


def run(command: list[str | Path], purpose: str) -> None:
    """Run a short command of set-up's first part; its output is shown only if it fails."""
    answer = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise SetUpError(f"{purpose} failed: {(answer.stderr or answer.stdout).strip()}")


def complete(training_python: str | None, wanted: str) -> None:
    """The long part, under .venv's Python: the locked packages, then Horovod; then the stamp."""
    from distmon.core.errors import DistmonError
    from distmon.launcher.horovod_build import build, install
    from distmon.launcher.horovod_target import inspect_target
    from distmon.launcher.long_command import show_progress

    report = show_progress(sys.stderr)
    try:
        install_locked(training_python is None)
        if training_python is None:
            install(VENV_PYTHON, build(VENV_PYTHON, report), report)
        elif inspect_target(Path(training_python)).horovod is None:
            build_command = f".venv/bin/distmon horovod build --python {training_python}"
            raise SetUpError(f"{training_python} has no Horovod: {build_command}")
    except DistmonError as error:
        raise SetUpError(str(error)) from error
    STAMP.write_text(json.dumps({"digest": wanted}))
    if sys.stderr.isatty():
        sys.stderr.write("\n")
    say("Set-up is done.")


def install_locked(with_training: bool) -> None:
    """Install exactly what the locks name."""
    from distmon.launcher.long_command import run_long, show_progress

    locks = [LOCKS["distmon"], *([LOCKS["training"]] if with_training else [])]
    chosen = [word for lock in locks for word in ("-r", str(lock))]
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", *chosen]
    run_long(pip, "Installing packages", LOG, show_progress(sys.stderr))


if __name__ == "__main__":
    sys.exit(main())
