"""What may be done from a view besides looking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

READ_ONLY = "DISTMON_READ_ONLY"
"""Variable of a view that acts on nothing."""
SERVED = "DISTMON_SERVED"
"""Variable of a view that somebody sees in a browser."""
_NO = ("", "0")


@dataclass(frozen=True)
class Rights:
    """Of one view. A refusal is the reason in words, empty where there is none."""

    read_only: bool = False
    served: bool = False

    @property
    def refusal(self) -> str:
        """Why it acts on no job and changes no file."""
        return "this view is read-only: it acts on nothing" if self.read_only else ""

    @property
    def starting_refused(self) -> str:
        """Why no command can be started from it."""
        return "commands are not started from a browser" if self.served else self.refusal

    def screen_refused(self, screen: str) -> str:
        """Why it does not go to a screen: the launch form runs discovery scripts and reads the names of files."""
        if screen == "launch":
            return self.starting_refused
        return "in a browser only this session is shown" if self.served and screen == "sessions" else ""


def rights_of(environment: Mapping[str, str]) -> Rights:
    return Rights(environment.get(READ_ONLY, "") not in _NO, environment.get(SERVED, "") not in _NO)
