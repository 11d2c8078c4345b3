"""From the driver's JSON lines to events."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any, cast, get_args

from distmon.core.events import (
    AnyEvent,
    DiscoveryReported,
    Failure,
    HostReachChanged,
    JobEnded,
    LaunchProgressed,
    LaunchStage,
    MembershipChanged,
    NoticeGiven,
    OutputWritten,
    RankPlace,
    RanksAssigned,
    WorkerExited,
    WorkerStarted,
)

SOURCE = "launcher"
_STAGES = frozenset(get_args(LaunchStage))


class Translator:
    """One job's lines, in order. `at` gives the time of an event from CLOCK_MONOTONIC in ns, which the driver stamps."""

    def __init__(self, at: Callable[[int], float]) -> None:
        self._at = at
        self._open: set[tuple[int, str, int, str]] = set()

    def translate(self, record: dict[str, Any]) -> AnyEvent | None:
        """The event that a line tells of; None where it has nothing to show."""
        at = self._at(record["t"])
        match record["event"]:
            case "progress" if record["stage"] in _STAGES:
                limit = record["limit_s"]
                deadline = None if limit is None else at + limit
                stage = cast(LaunchStage, record["stage"])
                return LaunchProgressed(at=at, stage=stage, detail=record["detail"], deadline=deadline)
            case "ranks_assigned":
                places = [RankPlace(**place) for place in record["places"]]
                told = {name: record[name] for name in ("generation", "world_size", "resets")}
                return RanksAssigned(at=at, places=places, **told)
            case "membership":
                return self._membership(at, record)
            case "discovery":
                told = {name: record[name] for name in ("status", "failures", "detail")}
                return DiscoveryReported(at=at, **told)
            case "worker_started":
                return WorkerStarted(at=at, generation=record["generation"], pid=record["pid"], **_worker(record))
            case "worker_exited":
                name = signal_name(record["signal"])
                how = {"exit_code": record["exit_code"], "expected": record["stopped"], "removed": record["removed"]}
                how["cause"] = record["cause"]
                return WorkerExited(at=at, signal=name, **how, **_worker(record))
            case "output":
                return self._output(at, record)
            case "leftovers":
                return NoticeGiven(at=at, severity="warning", text=_leftovers(record), source=SOURCE)
            case "notice":
                return NoticeGiven(at=at, severity=record["severity"], text=record["text"], source=SOURCE)
            case "host_reach":
                told = {name: record[name] for name in ("host", "answers", "ranks", "given_up_after_s")}
                return HostReachChanged(at=at, since=self._at(record["since"]), **told)
            case "ended":
                return _ended(at, record)
        return None

    def _membership(self, at: float, record: dict[str, Any]) -> MembershipChanged:
        until = record.get("until")
        known = {name: record[name] for name in ("change", "host", "rank", "slots", "detail") if name in record}
        return MembershipChanged(at=at, until=None if until is None else self._at(until), **known)

    def _output(self, at: float, record: dict[str, Any]) -> OutputWritten | None:
        """Lines without their ends. What only moves the cursor, or ends a line that was told in part, adds none."""
        key = (record["rank"], record["host"], record["local_rank"], record["stream"])
        lines = []
        for text, end in record["pieces"]:
            if text or (end == "\n" and key not in self._open):
                lines.append(text)
            self._open.discard(key)
            if end != "\n" and text:
                self._open.add(key)
        if not lines and not record["dropped"]:
            return None
        return OutputWritten(at=at, output=record["stream"], lines=lines, dropped=record["dropped"], **_worker(record))


def signal_name(signum: int | None) -> str:
    """SIGKILL for 9; empty for none."""
    if signum is None:
        return ""
    try:
        return signal.Signals(signum).name
    except ValueError:
        return f"signal {signum}"


def shown(text: str) -> str:
    """A path or word of the command line as text: bytes that are no UTF-8 become U+FFFD."""
    return os.fsencode(text).decode("utf-8", "replace")


def _worker(record: dict[str, Any]) -> dict[str, Any]:
    return {name: record[name] for name in ("rank", "host", "local_rank")}


def _leftovers(record: dict[str, Any]) -> str:
    names = record["names"]
    count = f"{len(names)} process{'es' if len(names) > 1 else ''}"
    return f"rank {record['rank']} on {record['host']} left {count} behind, ended now: {', '.join(names)}"


def _ended(at: float, record: dict[str, Any]) -> JobEnded:
    failure = Failure(**record["failure"]) if record["failure"] else None
    return JobEnded(at=at, exit_code=record["exit_code"], reason=record["reason"], failure=failure, detail=record["error"])
