"""What holds the job back, in words: pure rules over the state, each with evidence, gain, and the first thing to try.

All shares have one denominator: the ranks' step time of the window. Where a phase was not seen, rules that need it are silent,
and `cannot_tell` says so. A finding comes at one threshold and goes at a lower one, so that it does not flicker.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from distmon.core.arrivals import BOUND_ON, FIRST_STEPS
from distmon.core.finding import REMEDIES, Pattern, Verdict, phase_words, since_start
from distmon.core.hysteresis import Thresholds, share_holds
from distmon.core.joined import gain_without_input, gain_without_transfer, is_bursty, joined
from distmon.core.leaps import all_steady, end_known
from distmon.core.loss_verdicts import loss
from distmon.core.measures import RECENT, current_generation, elapsed, recent_splits, step_split, steps_set_aside, warmup
from distmon.core.node_verdicts import HELD, clock_skew, node_verdicts
from distmon.core.once import once
from distmon.core.standstill import silent_agents, standstill
from distmon.core.state import SessionState
from distmon.core.steps import Generation, History
from distmon.core.stragglers import seems_late, slow_network, straggler_verdicts
from distmon.core.waited import mean_waited_s
from distmon.core.wall import wall_split

__all__ = ["Verdict", "cannot_tell", "troubles", "undecided", "verdicts"]

INPUT_BOUND = Thresholds(on=0.10, off=0.08)
COMPUTE_SHARE = 0.70
WALL_SHARE = 0.20
SMOOTHING_S = 10
"""Shares are taken over so many seconds before they are held against a threshold."""
_LOOKED_BACK = 120


def verdicts(state: SessionState) -> list[Verdict]:
    """The findings, the gravest first; empty where there is not enough to tell."""
    generation = current_generation(state)
    found = troubles(state, in_full=True)
    if found or generation is None or _too_few(generation) or undecided(state):
        return found
    return [v for v in (_compute_bound(state, generation),) if v]


def troubles(state: SessionState, *, in_full: bool) -> list[Verdict]:
    """The findings but the one that all is well.

    Not `in_full`, only what tells them apart is sure to be there: gains and intervals take most of the time.
    """
    generation = current_generation(state)
    of_nodes = node_verdicts(state, in_full=in_full)
    held = [v for v in of_nodes if v.kind in HELD]
    lost = loss(state)
    # Where a rank's death ends the job, that no step comes is only what follows.
    stands = standstill(state, generation) if lost is None or lost.kind == "below_capacity" else None
    grave = [lost, stands, *held, silent_agents(state)]
    others = [*(v for v in of_nodes if v not in held), clock_skew(state)]
    if generation is None or _too_few(generation):
        return [v for v in (*grave, *others) if v]
    slow = slow_network(state, generation, in_full=in_full)
    bound_before = generation.arrivals.usual_transfer >= BOUND_ON
    found = [
        *grave,
        *straggler_verdicts(state, generation, in_full=in_full),
        slow,
        _input_bound(state, generation, in_full=in_full),
        None if slow and not bound_before else _communication_bound(state, generation, in_full=in_full),
        *others,
        _wall_dominated(state, generation),
    ]
    return [v for v in found if v]


def _too_few(generation: Generation) -> bool:
    return all(r.totals.steps < RECENT for r in generation.ranks.values())


def cannot_tell(state: SessionState) -> list[str]:
    """What the verdicts could not be about, and why: too few steps, ranks that report none, phases that were not seen."""
    generation = current_generation(state)
    if generation is None:
        return ["no rank has reported a step"]
    said = []
    most = max(r.totals.steps for r in generation.ranks.values())
    if most < RECENT:
        are = "step is" if most == 1 else "steps are"
        said.append(f"{most} {are} too few to say what holds the job back: it takes {RECENT}")
    elif seeming := undecided(state):
        said.append(seeming)
    silent = sorted(set(range(generation.world_size or 0)) - set(generation.ranks))
    if silent:
        who = ", ".join(map(str, silent[:8])) + (" and more" if len(silent) > 8 else "")
        said.append(f"rank {who} reports no steps: whether it is late cannot be told")
    for phase, lost in _UNSEEN.items():
        blind = sorted(n for n, r in generation.ranks.items() if r.totals.steps and not r.totals.seen[_INDEX[phase]])
        if blind and (phase != "exposed_communication" or len(generation.ranks) > 1):
            who = "any rank" if len(blind) == len(generation.ranks) else f"rank {', '.join(map(str, blind[:8]))}"
            said.append(f"{phase_words(phase)} was not seen on {who}: {lost}")
    return said


def undecided(state: SessionState) -> str:
    """Why it is too early to say that nothing holds the job back, where a rank seems to; empty where it is not."""
    generation = current_generation(state)
    found = seems_late(generation) if generation is not None and not _too_few(generation) else None
    if found is None:
        return ""
    rank, share = found
    return f"rank {rank} has come late by {share:.0%} of the step so far: to say that it is takes {FIRST_STEPS} steps"


_INDEX = {"input_wait": 0, "compute": 1, "exposed_communication": 2}
_UNSEEN = {
    "input_wait": "input cannot be told from other work",
    "compute": "compute cannot be told from other work",
    "exposed_communication": "late ranks and slow links cannot be told",
}


def _input_bound(state: SessionState, generation: Generation, *, in_full: bool) -> Verdict | None:
    """The median rank waits for its input; where few ranks do, it is they who are late."""
    splits = recent_splits(generation)
    shares = sorted((v, rank) for rank, s in splits.items() if (v := s.share("input_wait")) is not None)
    if not shares or state.history is None:
        return None
    share, middle = shares[(len(shares) - 1) // 2]
    if share < INPUT_BOUND.off or not _wait_holds(state.history):
        return None
    return Verdict(
        kind="input_bound",
        text=f"the ranks wait for their input {share:.0%} of each step",
        evidence=f"median rank over the last {RECENT} steps; least {shares[0][0]:.0%}, most {shares[-1][0]:.0%}",
        try_first=REMEDIES["input_wait"],
        check="the share of input wait in the step falls and samples/s rise by the gain: `distmon compare BEFORE AFTER`",
        pattern=_pattern([step.phases_s[0] or 0.0 for step in generation.ranks[middle].recent()]) if in_full else "",
        phase="input_wait",
        gain_percent=_input_gain(generation, share) if in_full else None,
        from_s=_window(state, generation)[0],
        to_s=_window(state, generation)[1],
    )


def _input_gain(generation: Generation, share: float) -> tuple[float, float] | None:
    if len(generation.ranks) == 1:
        return 100 * share, 100 * share
    return gain_without_input(joined(generation, steps_set_aside(generation)))


def _wait_holds(history: History) -> bool:
    part, whole = history.column("input_wait")[-_LOOKED_BACK:], history.column("step")[-_LOOKED_BACK:]
    return share_holds(part, whole, max(SMOOTHING_S // history.width_s, 1), INPUT_BOUND)


def _communication_bound(state: SessionState, generation: Generation, *, in_full: bool) -> Verdict | None:
    """What even the last rank waits for allreduce: that much is transfer, waiting for nobody."""
    arrivals = generation.arrivals
    if not arrivals.transfer_bound:
        return None
    share = arrivals.transfer_share
    found = joined(generation, steps_set_aside(generation)) if in_full else None
    return Verdict(
        kind="communication_bound",
        text=f"at least {share:.0%} of each step is spent waiting for allreduce on every rank",
        evidence=(
            f"least wait of any rank, step by step, over the last steps; what the ranks wait for one another, "
            f"{_waiting(state, generation):.0%} of the step over the run, comes on top"
        ),
        try_first="a larger batch per rank, gradient accumulation, or fp16 compression of the gradients",
        check="the share of exposed communication falls and samples/s rise: `distmon compare BEFORE AFTER`",
        pattern=_pattern([min(step.waits) for step in found.steps]) if found else "",
        phase="exposed_communication",
        gain_percent=gain_without_transfer(found) if found else None,
        from_s=_window(state, generation)[0],
        to_s=_window(state, generation)[1],
    )


def _pattern(waits: Sequence[float]) -> Pattern:
    """Of what is waited step by step."""
    return "" if not waits else "bursty" if is_bursty(waits) else "steady"


def _waiting(state: SessionState, generation: Generation) -> float:
    """For the last rank, as a share of the step; not for one that evaluates or saves meanwhile."""
    arrivals = generation.arrivals
    rank_ns = arrivals.joined_ns * len(arrivals.ranks)
    others_ns = 1e9 * mean_waited_s(state, generation) * len(generation.ranks)
    return max(arrivals.waiting_ns - others_ns, 0.0) / rank_ns if rank_ns else 0.0


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
        check="samples/s rise: `distmon compare BEFORE AFTER`; with more ranks, `distmon sweep` says how far that goes",
        phase="compute",
        from_s=_window(state, generation)[0],
        to_s=_window(state, generation)[1],
    )


def _wall_dominated(state: SessionState, generation: Generation) -> Verdict | None:
    if state.job.status != "ended":
        return None
    wall, duration = wall_split(state), elapsed(state)
    if wall is None or not duration:
        return None
    warm = wall.warmup if warmup(generation).steps is not None else None
    parts = {"warmup_dominated": warm, "restart_dominated": wall.restart, "evaluation_dominated": wall.evaluation}
    kind, seconds = max(parts.items(), key=lambda item: item[1] or 0.0)
    if not seconds or seconds < WALL_SHARE * duration:
        return None
    name = kind.removesuffix("_dominated")
    saved = 100 * (_beyond_steady_s(state) if name == "warmup" else seconds) / duration
    return Verdict(
        kind=kind,
        text=f"{phase_words(name)} took {seconds:.1f} s, {seconds / duration:.0%} of the job's {duration:.1f} s",
        evidence=f"{warmup(generation).steps} warm-up steps" if name == "warmup" else "spans of the lowest rank",
        try_first={
            "warmup": "a longer run, a cache for compiled code, or fewer shapes",
            "restart": "commit less often only if restarts are rare; look at the elastic time line",
            "evaluation": "evaluate less often, on fewer samples, or on all ranks",
        }[name],
        check="the wall-time split of `distmon report` before and after",
        gain_percent=(saved, saved) if saved > 0 else None,
        gain_of="job",
        from_s=0.0,
        to_s=duration,
    )


def _beyond_steady_s(state: SessionState) -> float:
    """What the warm-ups took beyond as many steady steps: the steps themselves have to be made."""
    return math.fsum(warmup(generation).excess_s or 0.0 for generation in state.generations.values() if generation.ranks)


def _window(state: SessionState, generation: Generation) -> tuple[float | None, float | None]:
    """From and to, in seconds since the job started, of the recent steps; None where a clock was set before."""
    begin, end = (since_start(state, at) for at in once(generation, _recent_times, RECENT))
    told = all_steady(state) or all(end_known(state, made) for made in generation.ranks.values())
    return (begin, end) if told and begin is not None and begin >= 0 else (None, None)


def _recent_times(generation: Generation, count: int) -> tuple[float, float]:
    starts = [r.last_batches(count)[-1].begin for r in generation.ranks.values()]
    return min(starts), max(r.last_end for r in generation.ranks.values() if r.last_end is not None)
