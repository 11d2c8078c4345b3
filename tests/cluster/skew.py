"""A host whose clocks are its own: a time namespace for the monotonic one, which no two machines share, and a wall clock that is
wrong. Time namespaces leave the wall clock alone, so that one is a library which every program of the host has preloaded."""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("shifted_clock.c")
UPTIME_S = 1_000_000
UNSHARE = ("--time", "--monotonic", str(UPTIME_S), "--boottime", str(UPTIME_S))


def environment(folder: Path, ahead_s: int) -> dict[str, str]:
    """What makes a program's wall clock go ahead by so many seconds. Raises CalledProcessError without a C compiler."""
    library = folder / "shifted_clock.so"
    if not library.exists():
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE)], check=True)
    return {"LD_PRELOAD": str(library), "DISTMON_CLOCK_AHEAD_S": str(ahead_s)}


def sshd_options(environment: dict[str, str]) -> list[str]:
    """Give it to all that is started over ssh."""
    return ["-o", "SetEnv=" + " ".join(f"{name}={value}" for name, value in environment.items())] if environment else []
