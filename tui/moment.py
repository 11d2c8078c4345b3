"""A moment of a recording as people write it: on the command line, and where the screen asks where to go."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import datetime
from functools import partial

from distmon.core.errors import DistmonError, UsageError
from distmon.tui.ports import Player

MOMENTS = "a time as 90, 1:30 or 1:00:00, step:1234, mark:NAME, a date and time, or end"
"""For the help: all that can be written."""
_TIME = re.compile(r"(?:(?:(\d+):)?(\d+):)?(\d+(?:\.\d+)?)s?")
SIXTY = 60


def moment_named(text: str) -> Callable[[Player], float]:
    """How to find a moment in a recording, in seconds since its start; `end` is infinite. Raises UsageError for what names none.

    The finder raises DistmonError when this recording does not have it.
    """
    text = text.strip()
    kind, colon, name = (part.strip() for part in text.partition(":"))
    if colon and kind.lower() == "mark":
        return lambda player: player.position_of_mark(name)
    if colon and kind.lower() == "step":
        if not (name.isascii() and name.isdigit()):
            raise UsageError(f"{text}: give the step's number, as in step:1234")
        return lambda player: player.position_of_step(int(name))
    if is_end(text):
        return lambda player: math.inf
    if re.match(r"\d+-", text):
        return partial(_position_of_date, _date_of(text))
    try:
        seconds = seconds_of(text)
    except UsageError:
        raise UsageError(f"{text}: give {MOMENTS}") from None
    return lambda player: seconds


def is_end(text: str) -> bool:
    return text.strip().lower() == "end"


def seconds_of(text: str) -> float:
    """Seconds of `90`, `1:30` or `1:00:00`. Raises UsageError."""
    match = _TIME.fullmatch(text.strip())
    hours, minutes, seconds = match.groups(default="0") if match is not None else ("", "", "")
    whole = match is not None and (":" not in text or float(seconds) < SIXTY) and (not match[1] or int(minutes) < SIXTY)
    if not whole:
        raise UsageError(f"{text}: give seconds, or [H:]M:S")
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)


def _date_of(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise UsageError(f"{text}: give a date and time as 2026-11-28T14:05:00") from None


def _position_of_date(date: datetime, player: Player) -> float:
    position = date.timestamp() - player.started_at
    if not 0 <= position <= player.duration_s:
        first, last = (datetime.fromtimestamp(player.started_at + s).astimezone() for s in (0.0, player.duration_s))
        raise DistmonError(f"the recording goes from {first:%Y-%m-%dT%H:%M:%S} to {last:%Y-%m-%dT%H:%M:%S}")
    return position
