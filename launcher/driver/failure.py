"""Which worker failed first, as opposed to those that died of it."""

import signal
from typing import Dict, List, NamedTuple, Optional

KNOCK_ON_TEXT = ("HorovodInternalError", "Connection reset by peer", "Connection closed by peer")
LAST_LINES = 20


class Exit(NamedTuple):
    """How a worker ended. `at_ns` is CLOCK_MONOTONIC of the driver's host."""

    rank: int
    local_rank: int
    host: str
    generation: int
    """Rounds of rendezvous before it ended."""
    exit_code: int
    signal: Optional[int]
    at_ns: int
    stopped: bool
    """The launcher had asked it to end, or had taken its slot away."""
    last_lines: List[str]
    cause: str = ""
    """In words, where signal and exit code do not say it."""


def first_failure(exits: List[Exit], generation: int) -> Optional[Exit]:
    """The root cause among the deaths of the job's last generation: the earliest that does not look like a peer's loss.

    A peer's loss shows as HorovodInternalError or an abort inside Gloo; a culprit that takes its time to exit can be noticed
    after those. Workers that the launcher stopped are no failures, and an elastic job has outlived those of earlier rounds.
    Where all died of a peer's loss and a peer had left with exit code 0, the cause of the first names that one.
    """
    own = [end for end in exits if not end.stopped and end.generation == generation]
    failed = [end for end in own if end.exit_code != 0]
    if not failed:
        return None
    first = min(failed, key=lambda end: (_is_knock_on(end), end.at_ns))
    left = [end for end in own if end.exit_code == 0 and end.at_ns < first.at_ns]
    if _is_knock_on(first) and left:
        leaver = min(left, key=lambda end: end.at_ns)
        ago = (first.at_ns - leaver.at_ns) / 1e9
        first = first._replace(cause=f"rank {leaver.rank} on {leaver.host} had left {ago:.1f} s before, with exit code 0")
    return first


def _is_knock_on(end: Exit) -> bool:
    if end.cause:
        return False
    if end.exit_code == 128 + signal.SIGABRT:
        return True
    return end.signal is None and any(text in line for line in end.last_lines for text in KNOCK_ON_TEXT)


def as_record(end: Exit) -> Dict[str, object]:
    """For the report to distmon."""
    return {
        "rank": end.rank,
        "host": end.host,
        "exit_code": end.exit_code,
        "signal": signal.Signals(end.signal).name if end.signal in list(signal.Signals) else "",
        "cause": end.cause,
        "last_lines": end.last_lines,
    }
