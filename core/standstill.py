"""Why no step comes: a rank that the others wait for, a host that is gone, or a pause that the script makes itself."""

from __future__ import annotations

from distmon.core.finding import Verdict, since_start
from distmon.core.frozen import FROZEN, frozen_ranks, named
from distmon.core.hangs import Hang, describe, patience_s, pause_of, resetting, stands_at
from distmon.core.leaps import end_known
from distmon.core.measures import forming_round
from distmon.core.reach import hosts_out_of_reach, silent_nodes, unheard
from distmon.core.state import SessionState
from distmon.core.steps import Generation

STALL_S = 10.0
HOST_GONE_S = 4.0
"""Of silence of all ranks, where a host is silent too."""


def standstill(state: SessionState, generation: Generation | None) -> Verdict | None:
    """Why training stands still now; None while steps come."""
    if state.job.status not in ("launching", "running"):
        return None
    frozen = _frozen(state)
    if generation is None:
        return frozen
    latest = max(generation.ranks.values(), key=lambda made: made.last_end or 0.0)
    last, hang = latest.last_end or 0.0, state.hang_watch.current
    # Of a clock that was set, the last step's end does not tell how long ago it was.
    silence = state.now - last if end_known(state, latest) else 0.0
    if hang is None and silence <= HOST_GONE_S:
        return frozen
    usual = max(r.usual_step_s() for r in generation.ranks.values())
    gone = _gone_hosts(state, generation)
    if gone and silence > max(HOST_GONE_S, 5 * usual):
        return _host_gone(state, last, gone)
    if frozen is not None:
        return frozen
    if hang is not None:
        return _hang(state, hang)
    if silence > max(HOST_GONE_S, 5 * usual) and (paused := _pause(state, last)) is not None:
        return paused
    if silence <= max(STALL_S, 5 * usual) or unheard(state, generation.ranks) or forming_round(state) is not None:
        return None
    if _training_is_over(state, generation, last):
        return None
    ended = sorted(n for n in generation.ranks if n in state.ranks and state.ranks[n].exit_code == 0)
    some = f"rank{'s' * (len(ended) > 1)} {', '.join(map(str, ended[:8]))} ended; " if ended else ""
    return Verdict(
        kind="stall",
        text=f"{some}no rank has finished a step for {silence:.0f} s",
        evidence=f"usual step {usual:.3f} s",
        try_first="look at the ranks' output; an evaluation or checkpoint that distmon does not know looks the same",
        check="steps come again, and no rank waits for the others",
        from_s=since_start(state, last),
        to_s=since_start(state, state.now),
    )


def _training_is_over(state: SessionState, generation: Generation, last: float) -> bool:
    """Every rank has ended, or has shut Horovod down after its last step, and not to begin a new round."""
    if resetting(state, last):
        return False
    known = ((state.ranks.get(number), steps.last_end or 0.0) for number, steps in generation.ranks.items())
    return all(r is not None and (r.exit_code is not None or r.told_until.get("teardown", 0.0) > end) for r, end in known)


def silent_agents(state: SessionState) -> Verdict | None:
    """Training goes on, as others tell, and one node is not heard: its agent, or the way to it, is gone."""
    silent = silent_nodes(state)
    if not silent or state.job.status != "running":
        return None
    first, more = silent[0], len(silent) - 1
    seconds = state.now - first.last_heard
    who = f"the agent of {first.host or first.node}" + f" and {more} more" * bool(more)
    return Verdict(
        kind="agent_silent",
        text=f"nothing is heard from {who} for {seconds:.0f} s; what is shown of it is old",
        evidence="other nodes are heard" if more + 1 < len(state.nodes) else "no node is heard",
        try_first="see whether distmon-agent runs there and whether the network to it works; training does not depend on it",
        check="the node is live again, and the records that it kept meanwhile arrive",
        host=first.host,
        from_s=since_start(state, first.last_heard),
        to_s=since_start(state, state.now),
    )


def _gone_hosts(state: SessionState, generation: Generation) -> dict[str, float]:
    """Hosts of its ranks that are out of reach -> their last word."""
    world = generation.world_size or len(generation.ranks)
    return hosts_out_of_reach(state, [rank for rank in state.ranks.values() if rank.rank < world])


def _host_gone(state: SessionState, last: float, gone: dict[str, float]) -> Verdict:
    silence, hosts = state.now - last, list(gone)
    of_ranks = {rank.host for rank in state.ranks.values()}
    everywhere = len(of_ranks) > 1 and of_ranks <= gone.keys()
    who = "no host answers" if everywhere else f"{hosts[0]} does not answer"
    if len(hosts) > 1 and not everywhere:
        who = f"{hosts[0]} and {len(hosts) - 1} more do not answer"
    cut = "the way from here to them is cut, or all are down" if everywhere else "down or cut off"
    since = min(gone.values())
    return Verdict(
        kind="stall",
        text=f"{who} since {state.now - since:.0f} s: {cut}; no step for {silence:.0f} s",
        evidence=f"no rank has finished a step, and nothing is heard from {', '.join(hosts)}",
        try_first="see whether it is up and its network works; the others wait for it as long as Gloo's time-out lets them",
        check="it answers again, or the job goes on without it",
        host=hosts[0] if not everywhere else "",
        from_s=since_start(state, since),
        to_s=since_start(state, state.now),
    )


def _frozen(state: SessionState) -> Verdict | None:
    """Ranks that an operator stopped and has not let go on, before the first step too; not where training hung before that."""
    ranks, hang = frozen_ranks(state), state.hang_watch.current
    if not ranks or (hang is not None and not hang.frozen):
        return None
    since = min(rank.frozen_at or state.now for rank in ranks)
    alone = ranks[0] if len(ranks) == 1 else None
    are = "is" if alone is not None else "are"
    return Verdict(
        kind="stall",
        text=f"{named(ranks)} {are} {FROZEN} since {state.now - since:.0f} s: the others wait",
        evidence=describe(hang) if hang is not None else "no SIGCONT was sent since",
        try_first=f"let it go on: I, or distmon signal {ranks[0].rank} CONT; Gloo gives a rank up after about 30 s",
        check="steps come",
        rank=alone.rank if alone is not None else None,
        host=alone.host if alone is not None else "",
        from_s=since_start(state, since),
        to_s=since_start(state, state.now),
    )


def _hang(state: SessionState, hang: Hang) -> Verdict:
    alone = hang.missing[0] if len(hang.missing) == 1 else None
    hosts = {state.ranks[rank].host for rank in hang.missing if rank in state.ranks}
    host = hosts.pop() if len(hosts) == 1 else ""
    who = f"rank {alone}" if alone is not None else f"ranks {', '.join(map(str, hang.missing[:8]))}"
    # A hang that lasts though nobody is frozen any more was ended by SIGCONT, and its next step is on its way.
    are = ("was" if hang.frozen else "is") if alone is not None else "were" if hang.frozen else "are"
    held = f"{who}{f' on {host}' * bool(host)} {are} {stands_at(hang)}"
    waiting = f"{len(hang.waiting)} wait{'s' * (len(hang.waiting) == 1)} in {hang.collective}"
    return Verdict(
        kind="stall",
        text=f"training hangs: {held}; {waiting} for {state.now - hang.since:.0f} s",
        evidence=describe(hang),
        try_first="look at that rank's stack and output: it is not where the others are, and they wait for it",
        check="steps come again",
        rank=alone,
        host=host,
        from_s=since_start(state, hang.since),
        to_s=since_start(state, state.now),
    )


def _pause(state: SessionState, last: float) -> Verdict | None:
    """An evaluation, a checkpoint or a compilation, as the stacks say, for as long as such a one may take."""
    found = pause_of(state.hang_watch, last)
    silence = state.now - last
    if found is None or silence > patience_s(state.hang_watch, found.groups):
        return None
    return Verdict(
        kind="pause",
        text=f"{found.text} since {silence:.0f} s",
        evidence="the stacks of the ranks, taken when their steps stopped coming",
        try_first="nothing is wrong as far as is seen: steps come again when it is done",
        check="steps come again",
        from_s=since_start(state, last),
        to_s=since_start(state, state.now),
    )
