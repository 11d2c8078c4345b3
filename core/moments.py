"""The moments of a session that a viewer wants to go to: who came and left, failures, checkpoints, verdicts, marks."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from distmon.core import events as ev

MomentKind = Literal["join", "leave", "failure", "checkpoint", "verdict", "mark", "other"]
Severity = Literal["info", "warning", "error"]


class Moment(Struct, frozen=True, tag=True, array_like=True):
    """`at` is in seconds since the epoch; `text` says in a few words what happened, and may hold what users wrote."""

    at: float
    kind: MomentKind
    severity: Severity = "info"
    text: str = ""


def moment_of(event: ev.AnyEvent) -> Moment | None:
    """The moment that an event is; None for most."""
    match event:
        case ev.MembershipChanged():
            return _membership(event)
        case ev.WorkerExited(exit_code=code, expected=expected) if code and not expected:
            return Moment(event.at, "failure", "error", f"rank {event.rank} on {event.host} failed: {event.signal or code}")
        case ev.JobEnded(reason="stopped", failure=None, exit_code=code):
            return Moment(event.at, "other", "info", f"the job was stopped, exit code {code}")
        case ev.JobEnded(exit_code=code):
            words = f"the job ended with exit code {code}"
            return Moment(event.at, "failure" if code else "other", "error" if code else "info", words)
        case ev.SpanRecorded(span="checkpoint"):
            # Each rank tells of its own part of it.
            return Moment(event.at, "checkpoint", "info", f"checkpoint, {event.duration_s:.1f} s") if event.rank == 0 else None
        case ev.NoticeGiven(severity=severity) if severity != "info":
            return Moment(event.at, "other", severity, event.text)
        case ev.HostReachChanged(answers=answers):
            text = f"{event.host} answers again" if answers else f"{event.host} does not answer"
            return Moment(event.at, "other", "info" if answers else "warning", text)
        case ev.GapFound():
            return Moment(event.at, "other", "warning", f"{event.lost_records} records of {event.node} are lost")
        case ev.ClockStepped():
            return Moment(event.at, "other", "warning", f"the clock of {event.node} was set by {event.by_s:+.3f} s")
        case ev.MarkSet():
            return Moment(event.at, "mark", "info", event.text)
        case ev.ActionTaken():
            return Moment(event.at, "other", "info", f"{event.action} {event.detail}".strip())
    return None


def _membership(event: ev.MembershipChanged) -> Moment | None:
    who = event.host or "a host"
    match event.change:
        case "host_joined":
            return Moment(event.at, "join", "info", f"{who} joined")
        case "resumed":
            return Moment(event.at, "other", "info", "training went on")
        case "host_left":
            return Moment(event.at, "leave", "warning", f"{who} left")
        case "host_failed" | "host_blacklisted":
            return Moment(event.at, "failure", "warning", f"{who} {event.change.removeprefix('host_')}")
    return None
