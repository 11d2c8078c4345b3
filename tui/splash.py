"""What stands on the terminal while the app is still being loaded, which takes several times as long as this."""

from __future__ import annotations

import os
import signal
import sys
import termios
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import Any

NO_SCREEN = {"--help", "-h", "--version", "--headless", "--check", "--save-preset", "--delete-preset"}
"""With any of these no screen is shown."""
SAYS = {"": "looking at this machine", "run": "starting {}", "launch": "opening the launch form", "replay": "opening {}"}
"""By verb, with what it is given."""
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l\x1b[2J", "\x1b[?25h\x1b[?1049l"
_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_shown = False
_echoing: list[Any] | None = None
"""The terminal's settings as they were, while it does not echo what is typed."""


def said(words: Sequence[str]) -> str | None:
    """What a screen that these words of a command open begins with; None where they open none."""
    flags = words[: words.index("--")] if "--" in words else words
    verb = words[0] if words and not words[0].startswith("-") else ""
    if verb not in SAYS or NO_SCREEN & {flag.partition("=")[0] for flag in flags}:
        return None
    subject = words[len(flags) + 1 :] if verb == "run" else [word for word in flags[1:2] if not word.startswith("-")]
    return _printable(SAYS[verb].format(" ".join(subject) or "the recording"))


def show(text: str) -> None:
    """Takes the terminal for this, until an app draws on it or `take_down` gives it back.

    What is typed meanwhile waits for the app, unseen.
    """
    global _shown
    _shown = True
    for number in _SIGNALS:
        signal.signal(number, _end)
    _echo_off()
    columns, rows = os.get_terminal_size(2)
    text = text[: max(0, columns - 4)]
    name, middle = "\x1b[1;2H\x1b[1mdistmon\x1b[0m", f"\x1b[{rows // 2};{max(1, (columns - len(text)) // 2)}H"
    _write(f"{ENTER}{name}{middle}{text}\x1b[{rows};1H")


def hand_over() -> None:
    """The app draws from now on, and gives the terminal back."""
    global _shown
    if _shown:
        _shown = False
        _echo_on()
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)


def take_down() -> None:
    """Gives the terminal back, if no app came that does."""
    if _shown:
        hand_over()
        _write(LEAVE)


def _echo_off() -> None:
    global _echoing
    with suppress(termios.error):
        _echoing = termios.tcgetattr(2)
        quiet = [*_echoing]
        quiet[3] &= ~termios.ECHO
        termios.tcsetattr(2, termios.TCSANOW, quiet)


def _echo_on() -> None:
    if _echoing is not None:
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(2, termios.TCSANOW, _echoing)


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)


def _write(text: str) -> None:
    """Where the app draws too. That a terminal is gone is for the app to say."""
    with suppress(OSError, UnicodeError):
        sys.stderr.write(text)
        sys.stderr.flush()


def _end(number: int, frame: FrameType | None) -> None:
    take_down()
    os.kill(os.getpid(), number)
