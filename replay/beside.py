"""What goes with a recording lies beside it; where that folder is someone else's, or this package's, in a folder of the user."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

_HOMES = {"cache": ("XDG_CACHE_HOME", ".cache"), "state": ("XDG_STATE_HOME", ".local/state")}


def beside(recording: Path, suffix: str) -> Path:
    return recording.with_name(recording.name + suffix)


def away(recording: Path, suffix: str, kind: Literal["cache", "state"], environment: Mapping[str, str] = os.environ) -> Path:
    """`cache` is for what can be made again, `state` for what cannot. The folder need not exist yet."""
    variable, usual = _HOMES[kind]
    named = environment.get(variable, "")
    base = Path(named) if named.startswith("/") else Path.home() / usual
    number = hashlib.sha256(os.fsencode(recording.resolve())).hexdigest()[:16]
    return base / "distmon" / "beside" / f"{number}-{recording.name}{suffix}"


def is_own_folder(recording: Path) -> bool:
    """Whether files may be made beside a recording. Raises OSError where its folder is not there."""
    folder = recording.resolve().parent
    own = folder.stat().st_uid == os.getuid() and os.access(folder, os.W_OK)
    return own and not folder.is_relative_to(Path(__file__).resolve().parent)
