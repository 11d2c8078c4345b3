"""Makes this checkout ready to run: .venv with the locked packages, Horovod and distmon. Takes seconds when nothing changed.

Run by the Makefile with the machine's Python 3.11, before anything is installed; goes on under .venv's Python as soon
as distmon can be imported there.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
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
    parser.add_argument("--without-training", action="store_true", help="leave out PyTorch, TensorFlow and Horovod")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    training = not options.without_training
    try:
        refuse_other_python()
        if options.inside:
            complete(training)
        elif not is_done(training):
            prepare(training)
            chosen = [] if training else ["--without-training"]
            return subprocess.run([VENV_PYTHON, __file__, "--inside", *chosen], check=False).returncode
    except SetUpError as error:
        say(f"set-up: {error}")
        return 1
    except KeyboardInterrupt:
        say("set-up: stopped; the next one goes on from here")
        return 130
    return 0


def refuse_other_python() -> None:
    """The locks are for one version of Python: TensorFlow 2.15, the last with Keras 2, has no wheels after 3.11."""
    if sys.version_info[:2] != NEEDED_PYTHON:
        found = ".".join(map(str, sys.version_info[:2]))
        raise SetUpError(
            f"Python 3.11 is needed and {sys.executable} is {found}: "
            "sudo apt-get install python3.11 python3.11-venv python3.11-dev"
        )


def say(text: str) -> None:
    """Progress goes to standard error, so that what follows has standard output to itself."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def digest() -> str:
    """Of all that the environment is made from: changes when set-up has to run again."""
    # Not at the top: an older Python, which lacks it, gets as far as being told that it is too old.
    import tomllib

    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)
    packaging = json.dumps([project["project"], project["tool"]["setuptools"], sys.version_info[:2]])
    compiled = [*ROOT.glob("*/_*.c")]
    read = [*LOCKS.values(), *sorted(compiled), Path(__file__)]
    sources = [packaging.encode(), *(path.read_bytes() for path in read)]
    return hashlib.sha256(b"\0".join(sources)).hexdigest()


def is_done(training: bool) -> bool:
    """Whether a set-up from the same sources has finished, and brought what is asked for."""
    try:
        stamp = json.loads(STAMP.read_text())
        return VENV_PYTHON.exists() and stamp["digest"] == digest() and stamp["training"] >= training
    except (OSError, ValueError, KeyError):
        return False


def prepare(training: bool) -> None:
    """Check that nothing is missing, make .venv, and install distmon there without its dependencies."""
    problems = missing(training)
    if problems:
        raise SetUpError("; ".join(problems))
    announce(training)
    if not VENV_PYTHON.exists():
        run([sys.executable, "-m", "venv", "--clear", VENV], "making .venv")
    pip: list[str | Path] = [VENV_PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "-qq"]
    setuptools = next(line for line in LOCKS["distmon"].read_text().splitlines() if line.startswith("setuptools=="))
    run([*pip, setuptools], "installing setuptools")
    run([*pip, "--no-deps", "--no-build-isolation", "--editable", ROOT], "installing distmon")


def missing(training: bool) -> list[str]:
    """What keeps set-up from starting, a sentence each, with the command that mends it."""
    packages = []
    if importlib.util.find_spec("ensurepip") is None:
        packages.append("python3.11-venv")
    if training and not horovod_is_cached():
        if shutil.which("g++") is None:
            packages.append("g++")
        if shutil.which("make") is None:
            packages.append("make")
        if not Path(sysconfig.get_paths()["include"], "Python.h").exists():
            packages.append("python3.11-dev")
    problems = [f"{', '.join(packages)} missing: sudo apt-get install {' '.join(packages)}"] if packages else []
    free = shutil.disk_usage(ROOT).free
    if not VENV.exists() and training and free < NEEDED_SPACE_BYTES:
        problems.append(f"{free / 1e9:.1f} GB of disk are free and {NEEDED_SPACE_BYTES / 1e9:.0f} are needed: free some")
    return problems


def cache_folder() -> Path:
    """Where Horovod's wheels are kept; launcher/horovod_build.py decides it, and cannot be imported yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "distmon" / "horovod"


def horovod_is_cached() -> bool:
    """Whether some Horovod wheel for this Python is there, so that probably no compiler is needed."""
    return any(cache_folder().glob(f"*-{sysconfig.get_config_var('SOABI')}-*/horovod-*.whl"))


def announce(training: bool) -> None:
    """Say once what is about to happen, how long it takes and what it may bring."""
    say(f"Setting up {VENV.name} (its log is {LOG.relative_to(ROOT)}).")
    if not training:
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


def complete(training: bool) -> None:
    """The long part, under .venv's Python: the locked packages, then Horovod; then the stamp."""
    from distmon.core.errors import DistmonError
    from distmon.launcher.horovod_build import build, install
    from distmon.launcher.long_command import run_long, show_progress

    locks = [LOCKS["distmon"], *([LOCKS["training"]] if training else [])]
    chosen = [word for lock in locks for word in ("-r", str(lock))]
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", *chosen]
    try:
        with show_progress(sys.stderr, in_pipe=True) as report:
            run_long(pip, "Installing packages", LOG, report)
            if training:
                install(VENV_PYTHON, build(VENV_PYTHON, report), report)
    except DistmonError as error:
        raise SetUpError(str(error)) from error
    STAMP.write_text(json.dumps({"digest": digest(), "training": training}))
    say("Set-up is done.")


if __name__ == "__main__":
    sys.exit(main())
