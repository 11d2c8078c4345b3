"""Ranks that an operator stopped through distmon: who holds the others is known then, also where no stack tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distmon.core.state import RankState, SessionState

FROZEN = "under an operator's SIGSTOP"
GOES_ON_S = 2.0
"""A step that ends so long after the signal was made without it: somebody else let the rank go on."""


def frozen_ranks(state: SessionState, at: float | None = None) -> list[RankState]:
    """Those that stand still at that time, or now."""
    return [rank for rank in state.ranks.values() if rank.frozen_at is not None and is_frozen(state, rank, at)]


def named(ranks: list[RankState]) -> str:
    """Rank 1 on localhost; ranks 1, 3."""
    if len(ranks) == 1:
        return f"rank {ranks[0].rank}" + f" on {ranks[0].host}" * bool(ranks[0].host)
    return f"ranks {', '.join(str(rank.rank) for rank in ranks[:8])}"


def is_frozen(state: SessionState, rank: RankState, at: float | None = None) -> bool:
    since, at = rank.frozen_at, state.now if at is None else at
    if since is None or since > at:
        return False
    if (rank.thawed_at is not None and rank.thawed_at <= at) or (rank.exited_at is not None and rank.exited_at < at):
        return False
    return not any(
        steps.last_end is not None and steps.last_end > since + GOES_ON_S
        for generation in state.generations.values()
        if (steps := generation.ranks.get(rank.rank)) is not None
    )
