"""Ranks that never report are named, once, with the reason."""

from __future__ import annotations

from distmon.core.events import LaunchProgressed, NoticeGiven, PhaseUnseen, RankPlace, RanksAssigned, WorkerIdentified
from distmon.core.fold import apply
from distmon.core.measures import rank_status
from distmon.core.state import SessionState
from distmon.launcher.unmeasured import GRACE_S, NOT_LOADED, RankWatch

PLACES = [RankPlace(rank=rank, host=f"n{rank}", local_rank=0) for rank in range(3)]


def assigned(at: float) -> RanksAssigned:
    return RanksAssigned(at=at, generation=0, world_size=3, places=PLACES)


def identified(rank: int) -> WorkerIdentified:
    return WorkerIdentified(at=3.0, worker=f"w{rank}", node="n", host=f"n{rank}", pid=1, rank=rank, size=3, local_rank=0)


def met(at: float) -> LaunchProgressed:
    return LaunchProgressed(at=at, stage="first_step")


def watch() -> RankWatch:
    reasons = {"n1": "its host has no agent: refused"}
    watch = RankWatch(lambda host: reasons.get(host, ""))
    for event in (assigned(1.0), met(2.0), identified(0)):
        watch.observe(event)
    return watch


def test_they_are_told_after_a_grace_and_once() -> None:
    ranks = watch()
    assert ranks.unmeasured(2.0 + GRACE_S - 0.1) == []
    told = ranks.unmeasured(2.0 + GRACE_S)
    assert [event.text for event in told if isinstance(event, NoticeGiven)] == [
        "rank 1 on n1 is not measured: its host has no agent: refused",
        f"rank 2 on n2 is not measured: {NOT_LOADED}",
    ]
    assert ranks.unmeasured(99.0) == []


def test_at_the_end_there_is_no_grace_but_ranks_that_never_met_are_not_told() -> None:
    assert len(watch().unmeasured(2.1, at_end=True)) == 4
    early = RankWatch(lambda host: "")
    early.observe(assigned(1.0))
    assert early.unmeasured(9.0, at_end=True) == []


def test_a_new_round_counts_anew() -> None:
    ranks = watch()
    ranks.unmeasured(99.0)
    ranks.observe(assigned(100.0))
    assert ranks.unmeasured(200.0) == []
    ranks.observe(met(101.0))
    for rank in range(3):
        ranks.observe(identified(rank))
    assert ranks.unmeasured(200.0) == []


def test_the_state_shows_them_until_they_report() -> None:
    state = SessionState()
    apply(state, assigned(1.0))
    apply(state, PhaseUnseen(at=2.0, worker="", rank=1, field="steps", reason="why"))
    assert state.ranks[1].unseen == {"steps": "why"} and rank_status(state, 1) == "unmeasured"
    apply(state, identified(1))
    assert state.ranks[1].unseen == {} and rank_status(state, 1) == "starting"
