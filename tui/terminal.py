"""Whether there is a terminal that can show the app, and running the app so that the terminal is always given back."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distmon.tui.app import DistmonApp

LAST_RESORT_S = 3.0
"""A closed terminal can block the writes that leaving does; after this long the process ends without them."""


def can_show_app(environment: Mapping[str, str] | None = None) -> bool:
    """True when both ends are a terminal that obeys more than line feeds. The app draws on standard error."""
    environment = os.environ if environment is None else environment
    if environment.get("TERM", "") in ("", "dumb", "unknown"):
        return False
    return all(stream is not None and not stream.closed and stream.isatty() for stream in (sys.__stdin__, sys.__stdout__, sys.__stderr__))


def run_app(app: DistmonApp) -> int:
    """Run to the end and give the exit code: the app's own, 128+n after signal n, 1 after an error, which is told in one line."""
    app.run()
    code = app.return_code if app.return_code is not None else 0
    if code == 128 + signal.SIGHUP:
        _end_without_terminal(code)
    return app.return_value if code == 0 and isinstance(app.return_value, int) else code


def _end_without_terminal(code: int) -> None:
    """Threads that wait for a terminal that is gone must not hold the process."""
    timer = threading.Timer(LAST_RESORT_S, os._exit, (code,))
    timer.daemon = True
    timer.start()
