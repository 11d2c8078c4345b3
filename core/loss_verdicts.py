"""Ranks and hosts that are gone: the death that ends a job, and what an elastic job goes on without."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from distmon.core.death import death
from distmon.core.finding import Verdict, since_start
from distmon.core.state import RankState, SessionState

_LEAVES = {"host_left": "left", "host_failed": "failed", "host_blacklisted": "is barred"}


def loss(state: SessionState) -> Verdict | None:
    """What was lost and is missing now."""
    return _below_capacity(state) if state.elastic.rounds else _death(state)


def _death(state: SessionState) -> Verdict | None:
    """The first rank that died, until the launcher has ended the job."""
    if state.job.status == "ended":
        return None
    dead = [rank for rank in state.ranks.values() if rank.exited_at is not None and rank.exit_code and not rank.stopped]
    if not dead:
        return None
    first = min(dead, key=lambda rank: rank.exited_at or 0.0)
    last_line = _last_error(state, first.rank)
    how = death(first.signal, first.exit_code, first.cause)
    if last_line and not first.cause:
        how += f": {last_line}"
    return Verdict(
        kind="rank_died",
        text=f"{_named(first)} died: {how}",
        evidence="the first of the ranks that died; the job ends with it",
        try_first="look at its last lines (Logs) and, where it was killed, at the memory of its node",
        check="the job runs again past the step at which it died, and its memory stays below the node's",
        rank=first.rank,
        host=first.host,
        from_s=since_start(state, first.exited_at or state.now),
        to_s=since_start(state, state.now),
    )


def _named(rank: RankState) -> str:
    return f"rank {rank.rank}" + f" on {rank.host}" * bool(rank.host)


def _last_error(state: SessionState, rank: int) -> str:
    """The last line that a rank wrote to stderr."""
    lines = (line.text.strip() for line in reversed(state.output) if line.rank == rank and line.output == "stderr")
    return next((line for line in lines if line), "")


def _below_capacity(state: SessionState) -> Verdict | None:
    """An elastic job has fewer ranks than it had, or is about to."""
    last, most = state.elastic.rounds[-1], max(r.world_size for r in state.elastic.rounds)
    full_at = max(r.at for r in state.elastic.rounds if r.world_size == most)
    lost = sorted(_losses(state, full_at))
    pending = bool(lost) and lost[-1].at > last.at
    if state.job.status == "ended" or not lost or not (pending or last.world_size < most):
        return None
    first = next(loss for loss in lost if loss.at > last.at) if pending else lost[0]
    tail = "the others form a new round" if pending else f"{last.world_size} of {most} ranks train on"
    return Verdict(
        kind="below_capacity",
        text=f"{first.text}: {tail}",
        evidence=f"round {last.generation} has {last.world_size} of the {most} ranks that there were; "
        + ", ".join(dict.fromkeys(loss.text for loss in lost[-4:])),
        try_first="the timeline tells what the change cost; bring the host back, or another one",
        check="a new round has as many ranks as before",
        rank=first.rank,
        host=first.host,
        from_s=since_start(state, first.at),
        to_s=since_start(state, state.now),
    )


class _Loss(NamedTuple):
    at: float
    text: str
    host: str
    rank: int | None


def _losses(state: SessionState, since: float) -> Iterator[_Loss]:
    """Hosts that left or failed and ranks that died after `since`, as the launcher told."""
    for change in reversed(state.membership):
        if change.at > since and change.change in _LEAVES:
            yield _Loss(change.at, f"{change.host} {_LEAVES[change.change]}", change.host, None)
    for life in reversed(state.elastic.lives):
        if life.exited is not None and life.exited > since and life.exit_code and not life.expected:
            how = death(life.signal, life.exit_code, life.cause)
            yield _Loss(life.exited, f"rank {life.rank} on {life.host} died: {how}", life.host, life.rank)
