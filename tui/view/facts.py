"""Everything that one frame shows, asked of the core once."""

from __future__ import annotations

from dataclasses import dataclass

from distmon.core.measures import (
    Progress,
    RankRow,
    Split,
    Throughput,
    current_generation,
    phase_shares,
    progress,
    rank_rows,
    rolling_throughput,
    samples,
    session_mean_throughput,
    step_split,
    throughput,
    throughput_history,
)
from distmon.core.state import SessionState
from distmon.core.verdicts import Verdict, verdicts


@dataclass(frozen=True)
class Facts:
    """The state and its measures at one moment."""

    state: SessionState
    progress: Progress
    world_size: int | None
    generation: int | None
    rolling: float | None
    mean: float | None
    steady: Throughput
    samples: int | None
    history: list[tuple[float, float | None]]
    split: Split | None
    shares: dict[str, float] | None
    ranks: dict[int, RankRow]
    verdicts: list[Verdict]

    @property
    def origin(self) -> float:
        """The moment from which screens count elapsed time."""
        started = self.state.job.started
        return started.at if started else self.state.started if self.state.started is not None else self.state.now

    @property
    def slow_ranks(self) -> dict[int, Verdict]:
        return {v.rank: v for v in self.verdicts if v.kind == "straggler" and v.rank is not None}


def facts(state: SessionState, before: Facts | None = None) -> Facts:
    """The measures of this moment. With `before`, those that walk over all ranks are taken over from it, for a cheap frame."""
    generation = current_generation(state)
    if before is None:
        split, rows, found = step_split(generation), {row.rank: row for row in rank_rows(state)}, verdicts(state)
        shares, steady = phase_shares(state), throughput(generation)
    else:
        split, rows, found, shares, steady = before.split, before.ranks, before.verdicts, before.shares, before.steady
    return Facts(
        state=state,
        progress=progress(state),
        world_size=generation.world_size or len(generation.ranks) if generation else len(state.ranks) or None,
        generation=generation.number if generation else None,
        rolling=rolling_throughput(state),
        mean=session_mean_throughput(state),
        steady=steady,
        samples=samples(state),
        history=throughput_history(state),
        split=split,
        shares=shares,
        ranks=rows,
        verdicts=found,
    )
