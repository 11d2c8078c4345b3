"""Everything that one frame shows, asked of the core once."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from distmon.core.measures import (
    Progress,
    RankRow,
    Split,
    Throughput,
    current_generation,
    forming_round,
    phase_shares,
    progress,
    rank_rows,
    rolling_throughput,
    samples,
    session_mean_throughput,
    step_split,
    throughput_history,
)
from distmon.core.printable import clean
from distmon.core.state import SessionState
from distmon.core.verdicts import Verdict, verdicts
from distmon.core.waited import steady_throughput
from distmon.tui.view.hosts import common_parts


@dataclass(frozen=True, eq=False)
class Facts:
    """The state and its measures at one moment. No two are equal: the state in them goes on."""

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
    cut_off: bool = False
    """Whether a recording ends here without the session's end: what comes after is not known."""

    @property
    def origin(self) -> float:
        """The moment from which screens count elapsed time."""
        started = self.state.job.started
        return started.at if started else self.state.started if self.state.started is not None else self.state.now

    @cached_property
    def _common_of_hosts(self) -> tuple[str, str]:
        known = {node.host for node in self.state.nodes.values()} | {row.host for row in self.ranks.values()}
        return common_parts(known - {""})

    def host_label(self, name: str) -> str:
        """A host's name where room is scarce: without what the names of all hosts have in common."""
        prefix, suffix = self._common_of_hosts
        return clean(name.removeprefix(prefix).removesuffix(suffix))

    @cached_property
    def slow_ranks(self) -> dict[int, Verdict]:
        return {v.rank: v for v in self.verdicts if v.kind == "straggler" and v.rank is not None}


COSTLY = ("ranks", "verdicts", "steps")
"""The measures that walk over all ranks, in groups that can be asked for apart."""


def facts(state: SessionState, before: Facts | None = None, costly: Collection[str] = COSTLY, *, cut_off: bool = False) -> Facts:
    """The measures of this moment. With `before`, the costly groups that are not asked for are taken over from it."""
    generation, forming = current_generation(state), forming_round(state)
    shown = generation if forming is None else state.generations[forming]
    ranks = {row.rank: row for row in rank_rows(state)} if before is None or "ranks" in costly else before.ranks
    if before is None or "steps" in costly:
        split, shares, steady = step_split(generation), phase_shares(state), steady_throughput(state)
    else:
        split, shares, steady = before.split, before.shares, before.steady
    return Facts(
        state=state,
        progress=progress(state),
        world_size=shown.world_size or len(shown.ranks) if shown else len(state.ranks) or None,
        generation=shown.number if shown else None,
        rolling=rolling_throughput(state),
        mean=session_mean_throughput(state),
        steady=steady,
        samples=samples(state),
        history=throughput_history(state),
        split=split,
        shares=shares,
        ranks=ranks,
        verdicts=verdicts(state) if before is None or "verdicts" in costly else before.verdicts,
        cut_off=cut_off,
    )
