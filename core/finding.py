"""What a verdict is, and the words that verdicts share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from distmon.core.state import SessionState

CALM = ("compute_bound", "pause")
"""Kinds that say that all is well."""
Pattern = Literal["", "steady", "bursty", "transient"]


Key = tuple[str, int | None, str, str | None]
"""Kind, rank, host and phase of a finding: one at a time of each."""


class Verdict(Struct, frozen=True, kw_only=True):
    """One finding. Shares have one denominator: the ranks' step time of the window from `from_s` to `to_s`."""

    kind: str
    text: str
    evidence: str
    try_first: str
    check: str = ""
    """How to see whether what was tried has helped."""
    pattern: Pattern = ""
    """`steady`: in most steps alike; `bursty`: few steps hold most of it; `transient`: it has come and gone."""
    rank: int | None = None
    host: str = ""
    phase: str | None = None
    from_s: float | None = None
    to_s: float | None = None
    gain_percent: tuple[float, float] | None = None
    """95 % interval of the time that would be saved without the cause, as equal looks before and after would show it."""
    gain_of: Literal["step", "job"] = "step"
    """What the gain is a part of: the mean step, or the job's whole time."""
    no_gain: str = ""
    """Why there is no gain, where that is no matter of its kind: `why_no_gain`."""


def key_of(verdict: Verdict) -> Key:
    """What makes two looks see the same finding."""
    return verdict.kind, verdict.rank, verdict.host, verdict.phase


def by_key(found: Iterable[Verdict]) -> dict[Key, Verdict]:
    """The gravest first, as they were found."""
    return {key_of(verdict): verdict for verdict in found}


def why_no_gain(verdict: Verdict) -> str:
    """Why no gain is given; empty where one is."""
    if verdict.gain_percent is not None:
        return ""
    return verdict.no_gain or _NO_GAIN.get(verdict.kind, "too few steps in which waiting for allreduce was seen on all ranks")


_NO_GAIN = {
    "stall": "training stands still: all of the time from then on",
    "pause": "it is a part of the job",
    "compute_bound": "nothing is in its way that could be taken away",
    "agent_silent": "it costs no time: only what the node would tell is missing",
    "clock_skew": "it costs no time: nothing that is measured depends on it",
    "rank_died": "the job ends with it",
    "below_capacity": "what the ranks that are away would add depends on how the job scales: `distmon sweep` tells",
    "warmup_dominated": "its steps took no longer than steady ones",
}


def since_start(state: SessionState, at: float) -> float | None:
    """Seconds since the job started."""
    begun = state.job.started.at if state.job.started else state.started
    return None if begun is None else at - begun


def phase_words(phase: str) -> str:
    return _WORDS.get(phase, phase.replace("_", " "))


_WORDS = {
    "input_wait": "its input",
    "compute": "forward and backward",
    "rest": "code outside the known phases",
    "warmup": "warm-up",
}
REMEDIES = {
    "input_wait": "more loader workers, prefetching, or data nearer to the rank",
    "compute": "look at that node's clocks, temperature and other processes; check that its batches are no larger",
    "optimizer": "look at that node's memory bandwidth and other processes",
    "rest": "look for logging, metrics or callbacks that only this rank runs",
}
