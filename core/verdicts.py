"""What holds the job back, in words: pure rules over the state, each with its evidence and the first thing to try.

All shares have one denominator: the ranks' step time of the window. Where a phase was not seen, rules that need it are silent.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from distmon.core.measures import ALL_PHASES, RECENT, Split, current_generation, elapsed, recent_split, step_split, warmup
from distmon.core.quantiles import median, quantile
from distmon.core.state import SessionState
from distmon.core.steps import Generation, RankSteps
from distmon.core.wall import wall_split

STRAGGLER_SHARE = 0.05
INPUT_SHARE = 0.10
COMMUNICATION_SHARE = 0.20
COMPUTE_SHARE = 0.70
WALL_SHARE = 0.20
STALL_S = 10.0
BUSY_PERCENT = 95.0


class Verdict(Struct, frozen=True, kw_only=True):
    """One finding. `gain_percent` is the interquartile range, over the window's steps, of the step time that would be saved."""

    kind: str
    text: str
    evidence: str
    try_first: str
    rank: int | None = None
    host: str = ""
    phase: str | None = None
    from_s: float | None = None
    to_s: float | None = None
    gain_percent: tuple[float, float] | None = None


_Splits = dict[int, Split]
"""The mean recent step of each rank."""


def verdicts(state: SessionState) -> list[Verdict]:
    """The findings, the gravest first; empty where there is not enough to tell."""
    generation = current_generation(state)
    if generation is None or all(r.totals.steps < RECENT for r in generation.ranks.values()):
        return [v for v in (_stall(state, generation),) if v]
    splits = {number: s for number, r in generation.ranks.items() if (s := recent_split(r))}
    found = [
        _stall(state, generation),
        *_stragglers(state, generation, splits),
        _input_bound(state, generation, splits),
        _communication_bound(state, generation, splits),
        _cpu_oversubscribed(state),
        _wall_dominated(state, generation),
    ]
    kept = [v for v in found if v]
    return kept or [v for v in (_compute_bound(state, generation),) if v]


def _stall(state: SessionState, generation: Generation | None) -> Verdict | None:
    if generation is None or state.job.status != "running":
        return None
    last = max((r.last_end or 0.0) for r in generation.ranks.values())
    usual = max(r.usual_step_s() for r in generation.ranks.values())
    silence = state.now - last
    if silence <= max(STALL_S, 5 * usual):
        return None
    lost = sorted({rank.host for rank in state.ranks.values()} & _lost_hosts(state))
    text = f"no rank has finished a step for {silence:.0f} s"
    try_first = "look at the ranks' output; an evaluation or checkpoint that distmon does not know looks the same"
    if lost:
        text = f"{text}: nothing is heard from {', '.join(lost)}"
        try_first = "see whether it is up and its network works; the others wait for it as long as Gloo's time-out lets them"
    return Verdict(
        kind="stall",
        text=text,
        evidence=f"usual step {usual:.3f} s",
        try_first=try_first,
        host=lost[0] if lost else "",
        from_s=_since(state, last),
        to_s=_since(state, state.now),
    )


def _stragglers(state: SessionState, generation: Generation, splits: _Splits) -> list[Verdict]:
    """Ranks that the others wait for: they wait least in the collective, and their own work is longer."""
    waits = {number: s.exposed_communication for number, s in splits.items() if s.exposed_communication is not None}
    if len(waits) < 2 or len(waits) < len(generation.ranks):
        return []
    usual = _Usual(splits)
    found = []
    for rank, wait in sorted(waits.items(), key=lambda item: item[1]):
        split = splits[rank]
        others = usual.of("exposed_communication", wait)
        late = others - wait
        if late < STRAGGLER_SHARE * split.step_s:
            break
        phase, excess = _excess_phase(split, usual)
        if phase is None or excess < 0.5 * late:
            continue
        low, high = _lateness_range(generation, rank)
        if low <= 0:
            continue
        host = state.ranks[rank].host if rank in state.ranks else ""
        found.append(
            Verdict(
                kind="straggler",
                text=f"rank {rank} is late by {late * 1e3:.1f} ms a step in {_words(phase)}; the others wait for it",
                evidence=f"waits {wait * 1e3:.1f} ms for allreduce where the others wait {others * 1e3:.1f} ms",
                try_first=_REMEDIES[phase],
                rank=rank,
                host=host,
                phase=phase,
                gain_percent=(low, high),
                from_s=_window(state, generation)[0],
                to_s=_window(state, generation)[1],
            )
        )
    return found


class _Usual:
    """Medians over ranks, less one rank's own value: of two ranks, what is usual is the other."""

    def __init__(self, splits: dict[int, Split]) -> None:
        self.ordered = {name: sorted(v for s in splits.values() if (v := s.phase(name)) is not None) for name in ALL_PHASES}

    def of(self, phase: str, own: float) -> float:
        """The median of the other ranks' values; the own one if there is no other."""
        values = list(self.ordered[phase])
        values.remove(own)
        found = quantile(values, 0.5)
        return own if found is None else found


def _excess_phase(own: Split, usual: _Usual) -> tuple[str | None, float]:
    """The phase, other than communication, in which a rank exceeds the others' median most, and by how many seconds."""
    best: tuple[str | None, float] = (None, 0.0)
    for name in ALL_PHASES:
        value = own.phase(name)
        if name == "exposed_communication" or value is None:
            continue
        excess = value - usual.of(name, value)
        if excess > best[1]:
            best = (name, excess)
    return best


def _lateness_range(generation: Generation, rank: int) -> tuple[float, float]:
    """Interquartile range over steps, in percent of the step, of the others' median wait less this rank's."""
    waits: dict[int, list[int]] = {}
    for r in generation.ranks.values():
        if r.rank != rank:
            for step, wait, _ in _recent_waits(r):
                waits.setdefault(step, []).append(wait)
    others = len(generation.ranks) - 1
    shares = sorted(
        100 * ((median(waits[step]) or 0.0) - wait) / duration
        for step, wait, duration in _recent_waits(generation.ranks[rank])
        if len(waits.get(step, ())) == others
    )
    return quantile(shares, 0.25) or 0.0, quantile(shares, 0.75) or 0.0


def _recent_waits(rank: RankSteps) -> Iterator[tuple[int, int, int]]:
    """(step, exposed communication, duration) in ns, of recent steps in which communication was seen."""
    for batch in rank.last_batches(RECENT):
        exposed = batch.exposed_communication_ns or []
        for step, (wait, duration) in enumerate(zip(exposed, batch.duration_ns, strict=False), batch.first_step):
            if wait is not None and duration > 0:
                yield step, wait, duration


def _lost_hosts(state: SessionState) -> set[str]:
    """Hosts whose node counts as lost and has not said goodbye."""
    return {node.host for node in state.nodes.values() if node.lost_since is not None and node.left_at is None}


def _input_bound(state: SessionState, generation: Generation, splits: _Splits) -> Verdict | None:
    shares = sorted((v, rank) for rank, s in splits.items() if (v := s.share("input_wait")) is not None)
    if not shares:
        return None
    share, usual = shares[(len(shares) - 1) // 2]
    if share < INPUT_SHARE:
        return None
    return Verdict(
        kind="input_bound",
        text=f"training waits for its input {share:.0%} of each step",
        evidence=f"median rank over the last {RECENT} steps; least {shares[0][0]:.0%}, most {shares[-1][0]:.0%}",
        try_first=_REMEDIES["input_wait"],
        phase="input_wait",
        gain_percent=_phase_range(generation, "input_wait", usual),
        from_s=_window(state, generation)[0],
        to_s=_window(state, generation)[1],
    )


def _communication_bound(state: SessionState, generation: Generation, splits: _Splits) -> Verdict | None:
    """The least exposed communication of any rank: that much is transfer, waiting for nobody."""
    by_rank = {rank: v for rank, s in splits.items() if (v := s.share("exposed_communication")) is not None}
    if len(by_rank) < max(len(generation.ranks), 2):
        return None
    least, shares = min(by_rank, key=lambda rank: by_rank[rank]), list(by_rank.values())
    if by_rank[least] < COMMUNICATION_SHARE:
        return None
    return Verdict(
        kind="communication_bound",
        text=f"at least {min(shares):.0%} of each step is spent waiting for allreduce on every rank",
        evidence=f"exposed communication between {min(shares):.0%} and {max(shares):.0%} over ranks, last {RECENT} steps",
        try_first="a larger batch per rank, gradient accumulation, or fp16 compression of the gradients",
        phase="exposed_communication",
        gain_percent=_phase_range(generation, "exposed_communication", least),
        from_s=_window(state, generation)[0],
        to_s=_window(state, generation)[1],
    )


def _compute_bound(state: SessionState, generation: Generation) -> Verdict | None:
    split = step_split(generation)
    share = split.share("compute") if split else None
    if share is None or share < COMPUTE_SHARE:
        return None
    return Verdict(
        kind="compute_bound",
        text=f"forward and backward take {share:.0%} of each step: the job runs at the speed of its devices",
        evidence="mean of the steady steps over ranks",
        try_first="nothing is in its way but compute: mixed precision, a compiled model, or more ranks",
        phase="compute",
        from_s=_window(state, generation)[0],
        to_s=_window(state, generation)[1],
    )


def _cpu_oversubscribed(state: SessionState) -> Verdict | None:
    for node in state.nodes.values():
        sample, joined = node.sample, node.joined
        if sample is None or joined is None or not joined.cores or sample.cpu_percent is None or sample.load_1m is None:
            continue
        if sample.cpu_percent >= BUSY_PERCENT and sample.load_1m > 1.5 * joined.cores:
            return Verdict(
                kind="cpu_oversubscribed",
                text=f"{node.host} has more to run than cores: load {sample.load_1m:.1f} on {joined.cores} cores",
                evidence=f"CPU {sample.cpu_percent:.0f} %",
                try_first="fewer ranks or threads per rank (OMP_NUM_THREADS), or move what else runs there",
                host=node.host,
            )
    return None


def _wall_dominated(state: SessionState, generation: Generation) -> Verdict | None:
    wall, duration = wall_split(state), elapsed(state)
    if wall is None or not duration or state.job.status != "ended":
        return None
    parts = {"warmup_dominated": wall.warmup, "restart_dominated": wall.restart, "evaluation_dominated": wall.evaluation}
    kind, seconds = max(parts.items(), key=lambda item: item[1] or 0.0)
    if not seconds or seconds < WALL_SHARE * duration:
        return None
    name = kind.removesuffix("_dominated")
    return Verdict(
        kind=kind,
        text=f"{_words(name)} took {seconds:.1f} s, {seconds / duration:.0%} of the job's {duration:.1f} s",
        evidence=f"{warmup(generation).steps} warm-up steps" if name == "warmup" else "spans of the lowest rank",
        try_first={
            "warmup": "a longer run, a cache for compiled code, or fewer shapes",
            "restart": "commit less often only if restarts are rare; look at the elastic time line",
            "evaluation": "evaluate less often, on fewer samples, or on all ranks",
        }[name],
        from_s=0.0,
        to_s=duration,
    )


def _phase_range(generation: Generation, phase: str, rank: int) -> tuple[float, float]:
    """Interquartile range of a phase in percent of the step, over a rank's recent steps."""
    shares = sorted(
        100 * value / duration
        for batch in generation.ranks[rank].last_batches(RECENT)
        for value, duration in zip(getattr(batch, f"{phase}_ns") or (), batch.duration_ns, strict=False)
        if value is not None and duration > 0
    )
    return quantile(shares, 0.25) or 0.0, quantile(shares, 0.75) or 0.0


def _window(state: SessionState, generation: Generation) -> tuple[float | None, float | None]:
    """From and to, in seconds since the job started, of the recent steps."""
    starts = [r.last_batches(RECENT)[-1].origin for r in generation.ranks.values()]
    ends = [r.last_end for r in generation.ranks.values() if r.last_end is not None]
    return _since(state, min(starts)), _since(state, max(ends))


def _since(state: SessionState, at: float) -> float | None:
    """Seconds since the job started."""
    begun = state.job.started.at if state.job.started else state.started
    return None if begun is None else at - begun


def _words(phase: str) -> str:
    return _WORDS.get(phase, phase.replace("_", " "))


_WORDS = {
    "input_wait": "its input",
    "compute": "forward and backward",
    "rest": "code outside the known phases",
    "warmup": "warm-up",
}
_REMEDIES = {
    "input_wait": "more loader workers, prefetching, or data nearer to the rank",
    "compute": "look at that node's clocks, temperature and other processes; check that its batches are no larger",
    "optimizer": "look at that node's memory bandwidth and other processes",
    "rest": "look for logging, metrics or callbacks that only this rank runs",
}
