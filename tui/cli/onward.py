"""What a user leaves one screen for: a recording, or a job; shown one after another until nothing more is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from distmon.tui.app import DistmonApp


class Left(NamedTuple):
    """How a screen was left: its exit code, and at most one of what is wanted next."""

    code: int
    recording: Path | None = None
    beside: Path | None = None
    """The recording that is to stand beside that one."""
    run: list[str] | None = None
    """The words of a `distmon run`."""


def left(app: DistmonApp, code: int) -> Left:
    """How this app was left."""
    return Left(code, app.wanted, app.wanted_beside, app.wanted_run)


def go_on(now: Left) -> int:
    """Shows what was wanted, and what is wanted then; gives the last exit code."""
    while True:
        if now.recording is not None:
            from distmon.tui.cli.replay import opened

            now = opened(now.recording, now.beside)
        elif now.run is not None:
            from distmon.tui.cli.run import launched

            now = launched(now.run)
        else:
            return now.code
