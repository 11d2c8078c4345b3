"""Trees of files that look like the kernel's."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

REAL_TREES = Path(__file__).parents[3] / "shared/realdata/proc-sys"
"""Trees of real machines; they are not part of the project."""


def write(path: Path, text: object) -> None:
    """In place, as the kernel's files change: under the descriptor that a sensor holds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def real_tree(name: str, into: Path) -> Path:
    """A copy of a real machine's tree, its links made links again; skips where there are no such trees."""
    source = REAL_TREES / name
    if not source.is_dir():
        pytest.skip(f"no real trees of /proc and /sys here: {name}")
    shutil.copytree(source, into)
    for folder in [into, *into.rglob("*")]:
        if folder.is_file() and folder.read_bytes().startswith(b"../"):
            target = folder.read_text()
            folder.chmod(0o644)
            folder.parent.chmod(0o755)
            folder.unlink()
            folder.symlink_to(target)
    return into
