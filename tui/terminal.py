"""Whether there is a terminal that can show the app, and running the app so that the terminal is always given back."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import TYPE_CHECKING

from distmon.core.errors import DistmonError
from distmon.tui import splash
from distmon.tui.rights import rights_of

if TYPE_CHECKING:
    from textual.driver import Driver

    from distmon.tui.app import DistmonApp

LAST_RESORT_S = 3.0
"""After a hang-up the app has this long to end by itself; then the process ends at once."""


def can_show_app(environment: Mapping[str, str] | None = None) -> bool:
    """True when both ends are a terminal that obeys more than line feeds. The app draws on standard error."""
    environment = os.environ if environment is None else environment
    if rights_of(environment).served and environment.get("TEXTUAL_DRIVER"):
        return True  # a browser is at the other end
    if environment.get("TERM", "") in ("", "dumb", "unknown"):
        return False
    return all(
        stream is not None and not stream.closed and stream.isatty()
        for stream in (sys.__stdin__, sys.__stdout__, sys.__stderr__)
    )


def is_monochrome(term: str) -> bool:
    """Whether a terminal has no colours, by its description, or by its name where there is none; of one terminal in a process."""
    if not term or term.endswith(("-m", "-mono")):
        return bool(term)
    try:
        import curses
    except ImportError:  # of a Python that was built without it
        return False
    try:
        curses.setupterm(term, 2)
    except curses.error:
        return False
    return curses.tigetnum("colors") < 0


def run_app(app: DistmonApp, debug: bool = False) -> int:
    """Run to the end and give the exit code: the app's own, or 128+n after signal n.

    An error inside is raised once the terminal is given back: as one line, or with `debug` as it is.
    """
    splash.hand_over()
    app.run()
    _last_resort_off()
    _stay_out_of_the_terminal()
    error = app._exception
    if error is not None:
        if debug:
            raise error
        raise DistmonError(
            f"the screen failed: {type(error).__name__}: {error}; run it with --debug for the traceback"
        ) from error
    code = app.return_code or 0
    return app.return_value if code == 0 and isinstance(app.return_value, int) else code


def hung_up() -> bool:
    """True once the terminal behind standard input is gone; reading it would spin for ever."""
    stdin = sys.__stdin__
    if stdin is None or stdin.closed:
        return False
    poller = select.poll()
    poller.register(stdin.fileno(), 0)
    return any(happened & (select.POLLHUP | select.POLLNVAL | select.POLLERR) for _, happened in poller.poll(0))


def on_hangup(leave: Callable[[], object]) -> None:
    """On SIGHUP, leave; if the terminal is gone, first put /dev/null in its place.

    The kernel sends SIGCONT with it, on which the framework would take the terminal again, also one that it has just left, and
    wait for what nobody types for ever.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        if hung_up():
            nowhere = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(nowhere, descriptor)
            os.close(nowhere)
            _stay_out_of_the_terminal()
            signal.setitimer(signal.ITIMER_REAL, LAST_RESORT_S)
        leave()

    signal.signal(signal.SIGALRM, lambda number, frame: os._exit(128 + signal.SIGHUP))
    signal.signal(signal.SIGHUP, handle)


def on_continue(driver: Driver | None) -> None:
    """Gives the terminal back before it is taken anew, also where the process was stopped without being asked (SIGSTOP).

    The framework would take it a second time, with a second reader of the keys that swallows half of them, and draw nothing.
    """
    from textual.drivers.linux_driver import LinuxDriver

    if not isinstance(driver, LinuxDriver):
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if not driver._must_signal_resume:
            driver.suspend_application_mode()
            driver._must_signal_resume = True
        driver._sigcont_application()

    signal.signal(signal.SIGCONT, handle)


def _stay_out_of_the_terminal() -> None:
    """Lets the framework's handlers go: what is stopped and goes on from here on draws no screen."""
    for number in (signal.SIGTSTP, signal.SIGCONT):
        signal.signal(number, signal.SIG_DFL)


def _last_resort_off() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)
