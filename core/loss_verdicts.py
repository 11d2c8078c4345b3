"""Ranks and hosts that are gone: the death that ends a job, and what an elastic job goes on without."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from distmon.core.death import death
from distmon.core.elastic_state import Round
from distmon.core.finding import Verdict, since_start
from distmon.core.frozen import FROZEN, frozen_ranks, named
from distmon.core.hangs import describe, stands_at
from distmon.core.state import RankState, SessionState

_GOES_ON_S = 2.0
"""Steps that end so long after a death, or later, were made without the rank."""
_LEAVES = {"host_left": "left", "host_failed": "failed", "host_blacklisted": "is barred"}


_LOOK_AT = "look at the stack and output of who hung: the others waited for it in vain, and died of that"
_SOONER = "send SIGCONT sooner: the others wait as long as Gloo's time-out lets them, 30 s unless told otherwise"
_BACK = "the host back, or another one"
_GIVEN_UP_S = 10.0
"""A rank that stood still for less is not what others died of."""


def loss(state: SessionState) -> Verdict | None:
    """What was lost and is missing now."""
    return _below_capacity(state) if state.elastic.rounds else _death(state)


def _death(state: SessionState) -> Verdict | None:
    """The first rank that died, until the launcher has ended the job; where it died of a hang, who hung, from then on."""
    first = _first_dead(state)
    if first is None:
        return None
    how = death(first.signal, first.exit_code, first.cause)
    hang = hang_behind(state)
    if hang is not None:
        return _died_of(state, hang, f"{hang.then(first.rank, first.host)} died: {how}")
    if state.job.status == "ended":
        return None
    last_line = _last_error(state, first.rank)
    if last_line and not first.cause:
        how += f": {last_line}"
    goes_on = state.stepped_until > (first.exited_at or state.now) + _GOES_ON_S
    return Verdict(
        kind="rank_died",
        text=f"{named([first])} died: {how}",
        evidence=f"the first of the ranks that died; {'the others train on without it' if goes_on else 'the job ends with it'}",
        try_first="look at its last lines (Logs) and, where it was killed, at the memory of its node",
        check="the job runs again past the step at which it died, and its memory stays below the node's",
        rank=first.rank,
        host=first.host,
        no_gain="what it would add depends on how the job scales" if goes_on else "",
        from_s=since_start(state, first.exited_at or state.now),
        to_s=since_start(state, state.now),
    )


def _died_of(state: SessionState, hang: HangBehind, died: str) -> Verdict:
    return Verdict(
        kind="stall",
        text=f"{hang.who} {hang.text}; then {died}",
        evidence=hang.evidence,
        try_first=_SOONER if hang.signal else _LOOK_AT,
        check="the job runs again past the step at which it hung",
        rank=hang.rank,
        host=state.ranks[hang.rank].host if hang.rank in state.ranks else "",
        from_s=since_start(state, hang.since),
        to_s=since_start(state, hang.since + hang.lasted_s),
    )


def _first_dead(state: SessionState) -> RankState | None:
    dead = [rank for rank in state.ranks.values() if rank.exited_at is not None and rank.exit_code and not rank.stopped]
    return min(dead, key=lambda rank: rank.exited_at or 0.0, default=None)


class HangBehind(NamedTuple):
    """A hang that lasted until ranks died: what a death came of, as Gloo gives up a peer that does not come."""

    ranks: list[int]
    """Those that held the others."""
    who: str
    since: float
    lasted_s: float
    text: str
    """What they did, after their names."""
    evidence: str
    signal: str = ""
    """By which an operator had stopped them."""

    @property
    def how_long(self) -> str:
        """Hung for 33 s under an operator's SIGSTOP."""
        return f"hung for {self.lasted_s:.0f} s" + f" {FROZEN}" * bool(self.signal)

    @property
    def rank(self) -> int | None:
        """The one that held the others; None for several."""
        return self.ranks[0] if len(self.ranks) == 1 else None

    def then(self, rank: int | None, host: str) -> str:
        """Who died in the end, in words, beside those who hung."""
        if rank is not None and rank == self.rank:
            return "it"
        return (f"rank {rank}" if rank is not None else "a process") + f" on {host}" * bool(host)


def hang_behind(state: SessionState) -> HangBehind | None:
    """The hang that the first death ended; None where no rank has died, or training went on until then."""
    hang, first = state.hang_watch.current, _first_dead(state)
    died = first.exited_at if first is not None else state.job.ended_at if state.job.failure is not None else None
    if died is None:
        return None
    if hang is None or died < hang.found:
        return _frozen_behind(state, first, died)
    one = state.ranks.get(hang.missing[0]) if len(hang.missing) == 1 else None
    who = named([one]) if one is not None else f"rank{'s' * (len(hang.missing) > 1)} {', '.join(map(str, hang.missing[:8]))}"
    lasted_s = died - hang.since
    text = f"hung for {lasted_s:.0f} s{'' if hang.frozen else ','} {stands_at(hang)}"
    return HangBehind(hang.missing, who, hang.since, lasted_s, text, describe(hang), "SIGSTOP" if hang.frozen else "")


def _frozen_behind(state: SessionState, first: RankState | None, died: float) -> HangBehind | None:
    """Ranks that an operator had stopped, of which no hang was found: as before the first step, when no stacks are taken."""
    ranks = frozen_ranks(state, died)
    if not ranks or (first is not None and first.cause):
        return None
    since = min(rank.frozen_at or died for rank in ranks)
    if died - since < _GIVEN_UP_S:
        return None
    found = HangBehind(
        [rank.rank for rank in ranks], named(ranks), since, died - since, "", "no SIGCONT was sent until then", "SIGSTOP"
    )
    return found._replace(text=found.how_long)


def _last_error(state: SessionState, rank: int) -> str:
    """The last line that a rank wrote to stderr."""
    lines = (line.text.strip() for line in reversed(state.output) if line.rank == rank and line.output == "stderr")
    return next((line for line in lines if line), "")


def _below_capacity(state: SessionState) -> Verdict | None:
    """An elastic job has fewer ranks than it had, or is about to."""
    last, most = state.elastic.rounds[-1], max(r.world_size for r in state.elastic.rounds)
    full = next(r for r in reversed(state.elastic.rounds) if r.world_size == most)
    lost = sorted((loss for loss in _losses(state, full.at) if loss.is_of(full) or loss.is_of(last)), key=lambda loss: loss[:2])
    pending = [loss for loss in lost if loss.at > last.at and loss.is_of(last)]
    if state.job.status == "ended" or not lost or not (pending or last.world_size < most):
        return None
    first = pending[0] if pending else lost[0]
    barred = first.host in state.elastic.hosts and state.elastic.hosts[first.host].barred_for_good
    tail = "the others form a new round" if pending else f"{last.world_size} of {most} ranks train on"
    return Verdict(
        kind="below_capacity",
        text=f"{first.text}{_others(first, pending or lost)}: {tail}",
        evidence=f"round {last.generation} has {last.world_size} of the {most} ranks that there were; "
        + ", ".join(dict.fromkeys(loss.text for loss in lost[-4:])),
        try_first="the timeline tells what the change cost; bring " + ("another host: this one is barred" if barred else _BACK),
        check="a new round has as many ranks as before",
        rank=first.rank,
        host=first.host,
        from_s=since_start(state, first.at),
        to_s=since_start(state, state.now),
    )


def _others(first: _Loss, lost: Sequence[_Loss]) -> str:
    """What was lost besides, on other hosts."""
    others = list({loss.host: loss.text for loss in lost if loss.host != first.host}.values())
    return "" if not others else f", {others[0]}" if len(others) == 1 else f" and {len(others)} more hosts lost ranks"


class _Loss(NamedTuple):
    at: float
    text: str
    host: str
    rank: int | None
    local_rank: int | None
    """Of a rank; None of a host."""
    slots: int
    """Left to the host."""

    def is_of(self, given: Round) -> bool:
        """Whether a round had given it ranks: a host without any leaves nothing behind, and a dead worker dies once."""
        of_host = [local_rank for _, host, local_rank in given.places if host == self.host]
        return len(of_host) > self.slots if self.local_rank is None else self.local_rank in of_host


def _losses(state: SessionState, since: float) -> Iterator[_Loss]:
    """Hosts that left or failed and ranks that died after `since`, as the launcher told."""
    for change in reversed(state.membership):
        if change.at > since and change.change in _LEAVES:
            slots = (change.slots or 0) if change.change == "host_left" else 0
            how = f"has {slots} slot{'s' * (slots > 1)} left" if slots else _LEAVES[change.change]
            yield _Loss(change.at, f"{change.host} {how}", change.host, None, None, slots)
    for life in reversed(state.elastic.lives):
        if life.exited is not None and life.exited > since and life.exit_code and not life.expected:
            how = death(life.signal, life.exit_code, life.cause)
            yield _Loss(life.exited, f"rank {life.rank} on {life.host} died: {how}", life.host, life.rank, life.local_rank, 0)
