"""Writes packaging/locks/*.txt: the versions that .venv holds of all that distmon, its tools and its examples need.

Names and versions only, so that a lock fits any index and any machine's build of a package.
"""

import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

FOLDER = Path(__file__).resolve().parent / "locks"
# What the examples train with, and what a Horovod wheel asks for; Horovod itself is built, not locked.
TRAINING = ["torch", "tensorflow-cpu", "numpy", "scikit-learn", "cloudpickle", "psutil", "pyyaml", "packaging", "cffi"]
# setuptools stays before 82: TensorFlow's and Horovod's tools still import pkg_resources.
TOOLS = ["distmon[dev]", "setuptools", "wheel"]


def closure(roots: Iterable[str]) -> dict[str, str]:
    """Name to version of the roots and of all that they need here; distmon itself is left out."""
    versions: dict[str, str] = {}
    pending = [Requirement(root) for root in roots]
    seen: set[tuple[str, frozenset[str]]] = set()
    while pending:
        requirement = pending.pop()
        name = canonicalize_name(requirement.name)
        if (name, frozenset(requirement.extras)) in seen:
            continue
        seen.add((name, frozenset(requirement.extras)))
        found = distribution(name)
        if name != "distmon":
            versions[name] = found.version.partition("+")[0]
        pending += [need for need in map(Requirement, found.requires or []) if applies(need, requirement.extras)]
    return versions


def applies(need: Requirement, extras: set[str]) -> bool:
    """Whether this machine and these extras ask for it."""
    return need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in (*extras, ""))


def write(name: str, versions: dict[str, str]) -> None:
    """Write one lock, in the order of names."""
    lines = [f"{package}=={number}\n" for package, number in sorted(versions.items())]
    (FOLDER / f"{name}.txt").write_text("# Written by `make lock` from what .venv holds.\n" + "".join(lines))


def main() -> int:
    """Write both locks."""
    try:
        distmon, training = closure(TOOLS), closure(TRAINING)
    except PackageNotFoundError as error:
        sys.stderr.write(f"lock: {error.name} is not in .venv: install it there first\n")
        return 1
    FOLDER.mkdir(exist_ok=True)
    write("distmon", distmon)
    write("training", training)
    return 0


if __name__ == "__main__":
    sys.exit(main())
