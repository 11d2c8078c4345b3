"""Whether training hangs, and who holds it: from the moment that steps stop, and the stacks that the agents then take.

A pause is no hang: where every rank computes, nobody is waited for; a rank that evaluates, saves or compiles is waited for
patiently, and so is a place in the script that was once left again by itself. A rank that was stopped there is neither.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from distmon.core.batches import USUAL_STEPS
from distmon.core.events import StackTaken
from distmon.core.frozen import FROZEN, frozen_ranks
from distmon.core.quantiles import median
from distmon.core.reach import ranks_out_of_reach

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distmon.core.state import SessionState

SILENT_STEPS = 3.0
MARGIN_S = 1.0
LAST_STACKS_S = 5.0
"""After this time the ranks of which no stack has come are taken for missing."""
KNOWN_PAUSE_S = 90.0
"""How long a place is waited for at which training has paused before; longer where it took longer."""
MOST_PAUSES = 1_000
MOST_HANGS = 100
_COLLECTIVES = re.compile(r"allreduce|allgather|alltoall|reducescatter|broadcast|barrier|join|synchronize|allreduce_grads")
_PAUSES = re.compile(
    r"/torch/(?:_dynamo|_inductor|serialization|distributed/checkpoint)|"
    r" (?:\w*_)?(?:save|checkpoint|snapshot|evaluat|validat|predict|compil|export)\w*$"
)
"""Frames of what takes its time between steps."""
_LIBRARIES = re.compile(r"/(?:site|dist)-packages/|/lib/python\d|/probe/[a-z_]+\.py|<frozen|<string>")


@dataclass(slots=True, frozen=True)
class StackGroup:
    """Ranks that are at the same place."""

    ranks: list[int]
    waits_in: str
    """The collective that they wait in; empty where they do something else."""
    place: str
    """`file function` in which they differ from the ranks that wait."""
    frames: list[str]
    deaf: bool = False
    """They do not answer, and were read from outside."""


@dataclass(slots=True)
class Hang:
    """Training has stopped, or had."""

    since: float
    """End of the last step."""
    found: float
    usual_s: float
    missing: list[int]
    """Ranks that the others wait for."""
    waiting: list[int]
    collective: str
    groups: list[StackGroup]
    ended: float | None = None
    """When steps came again; None while it lasts."""
    frozen: bool = False
    """An operator had stopped those that are missing."""


@dataclass(slots=True)
class HangWatch:
    stacks: dict[int, StackTaken] = field(default_factory=dict)
    """Rank -> the last one."""
    hangs: list[Hang] = field(default_factory=list)
    pauses: dict[str, float] = field(default_factory=dict)
    """Place -> the longest time after which training went on from it."""
    deaf: set[int] = field(default_factory=set)
    """Ranks that did not answer at some time since the last step."""

    @property
    def current(self) -> Hang | None:
        """The one that lasts."""
        return self.hangs[-1] if self.hangs and self.hangs[-1].ended is None else None


def take_stack(watch: HangWatch, event: StackTaken) -> None:
    watch.stacks[event.rank] = event
    if event.read_by:
        watch.deaf.add(event.rank)


def steps_go_on(watch: HangWatch, ended: float) -> Hang | None:
    """A step ended at `ended`: what was a pause is remembered, and a hang is over, which is then given."""
    paused = {rank: stack for rank, stack in watch.stacks.items() if stack.at < ended}
    stopped = _were_stopped(watch, paused)
    for rank in paused:
        del watch.stacks[rank]
        watch.deaf.discard(rank)
    for group in group_stacks(paused):
        own = [rank for rank in group.ranks if rank not in stopped or _pausing_frame(group)]
        if own and not group.waits_in and len(watch.pauses) < MOST_PAUSES:
            lasted = max(ended - (paused[rank].at - paused[rank].silent_s) for rank in own)
            watch.pauses[group.place] = max(watch.pauses.get(group.place, 0.0), lasted)
    hang = watch.current
    if hang is None or ended <= hang.found:
        return None
    hang.ended = ended
    return hang


def _were_stopped(watch: HangWatch, paused: dict[int, StackTaken]) -> set[int]:
    """Ranks that did not answer while others did, though they may have since: no place in the script is why they stood still."""
    hang = watch.current
    unheard = set(hang.missing).difference(*(group.ranks for group in hang.groups)) if hang is not None else set()
    found = (watch.deaf | unheard) & paused.keys()
    return found if len(found) < len(paused) else set()


def find_hang(state: SessionState) -> Hang | None:
    """A hang that is new at `state.now`."""
    watch = state.hang_watch
    if not watch.stacks or watch.current is not None or state.job.status != "running":
        return None
    generation = state.generations[max(number for number, g in state.generations.items() if g.ranks)]
    last = max((rank.last_end for rank in generation.ranks.values() if rank.last_end is not None), default=state.now)
    usual = median(rank.usual_step_s() for rank in generation.ranks.values()) or 0.0
    silent = state.now - last
    fresh = {rank: stack for rank, stack in watch.stacks.items() if stack.at > last}
    if silent < SILENT_STEPS * usual + MARGIN_S or not fresh or resetting(state, last):
        return None
    asked = {rank for rank, steps in generation.ranks.items() if steps.totals.steps >= USUAL_STEPS}
    unheard = {rank for rank in asked if rank not in fresh and not _exited(state, rank)}
    if unheard and silent < SILENT_STEPS * usual + MARGIN_S + LAST_STACKS_S:
        return None
    # They cannot be asked: their host is the story, and not a place in the script.
    unheard -= ranks_out_of_reach(state, unheard)
    return _judge(watch, last, state.now, usual, fresh, unheard, {rank.rank for rank in frozen_ranks(state)})


def resetting(state: SessionState, last: float) -> bool:
    """Ranks have left the training since to form a new generation."""
    return any(probe.interruptions and probe.interruptions[-1].at > last for probe in state.elastic.probes.values())


def _exited(state: SessionState, rank: int) -> bool:
    known = state.ranks.get(rank)
    return known is not None and known.exited_at is not None


def _judge(
    watch: HangWatch, last: float, now: float, usual: float, fresh: dict[int, StackTaken], unheard: set[int], frozen: set[int]
) -> Hang | None:
    groups = group_stacks(fresh)
    waits = [group for group in groups if group.waits_in]
    if not waits:
        return None  # all compute
    main = max(waits, key=lambda group: len(group.ranks))
    stopped = _stopped(groups)
    away = stopped or _away(groups) or [g for g in waits if g.waits_in != main.waits_in]
    missing = sorted([rank for group in away for rank in group.ranks] + list(unheard))
    if not missing:
        return None  # all wait in one collective: it is slow, or under way
    if not stopped and now - last < patience_s(watch, away):
        return None
    waiting = sorted(rank for group in waits if group not in away for rank in group.ranks)
    hang = Hang(last, now, usual, missing, waiting, main.waits_in, groups, frozen=frozen.issuperset(missing))
    watch.hangs.append(hang)
    del watch.hangs[:-MOST_HANGS]
    return hang


def _stopped(groups: list[StackGroup]) -> list[StackGroup]:
    """Those that do not answer, where others do: stopped, or held by a debugger. Who saves may be deaf until it is written."""
    found = [group for group in groups if group.deaf]
    return [group for group in found if not _pausing_frame(group)] if len(found) < len(groups) else []


def _away(groups: list[StackGroup]) -> list[StackGroup]:
    """Those that wait in no collective."""
    return [group for group in groups if not group.waits_in]


def patience_s(watch: HangWatch, away: list[StackGroup]) -> float:
    """How long ranks at these places are waited for before it is a hang."""
    known = [1.5 * watch.pauses[group.place] for group in away if group.place in watch.pauses]
    if known or any(_pausing_frame(group) for group in away):
        return max([KNOWN_PAUSE_S, *known])
    return 0.0


def _pausing_frame(group: StackGroup) -> str:
    """The outermost frame that evaluates, saves or compiles; empty where none does."""
    return next((frame for frame in reversed(group.frames) if _PAUSES.search(frame)), "")


@dataclass(slots=True, frozen=True)
class Pause:
    """Ranks that are at places where training stands still by itself; the others, if any, wait for them."""

    groups: list[StackGroup]
    text: str


def pause_of(watch: HangWatch, last: float) -> Pause | None:
    """What the stacks that were taken after the last step ended, at `last`, say of a pause; None where they do not."""
    groups = group_stacks({rank: stack for rank, stack in watch.stacks.items() if stack.at > last})
    away = _away(groups)
    if not away or _stopped(groups) or not all(_pausing_frame(group) or group.place in watch.pauses for group in away):
        return None
    ranks = sorted(rank for group in away for rank in group.ranks)
    who = f"rank {ranks[0]} is" if len(ranks) == 1 else f"{len(ranks)} ranks are"
    return Pause(away, f"{who} in {_line(_pausing_frame(away[0]) or _own_line(away[0]))}")


def group_stacks(stacks: dict[int, StackTaken]) -> list[StackGroup]:
    """Ranks with the same stack together, the largest group first."""
    found: dict[tuple[tuple[str, ...], bool], list[int]] = {}
    for rank in sorted(stacks):
        threads, deaf = stacks[rank].threads, bool(stacks[rank].read_by)
        found.setdefault((tuple(threads[0].frames) if threads else (), deaf), []).append(rank)
    trunk = {_function(frame) for frames, _ in found if waits_in(frames) for frame in frames}
    groups = [
        StackGroup(ranks, waits_in(frames), place_of(frames, trunk), list(frames), deaf)
        for (frames, deaf), ranks in found.items()
    ]
    return sorted(groups, key=lambda group: (-len(group.ranks), group.ranks))


def waits_in(frames: tuple[str, ...]) -> str:
    """The call of Horovod that a stack is in, as the script made it; empty where it is in none that waits for others."""
    inside = [frame for frame in frames if "/horovod/" in frame]
    functions = [frame.rpartition(" ")[2] for frame in inside]
    if not any(_COLLECTIVES.search(name) for name in functions):
        return _graph(frames)
    called = functions[-1]
    if any("/optimizer.py:" in frame for frame in inside):
        return "allreduce of the gradients"
    if called in ("commit", "check_host_updates", "sync", "wrapper"):
        return f"{next(name for name in reversed(functions) if _COLLECTIVES.search(name))} of the elastic state"
    return called


def _graph(frames: tuple[str, ...]) -> str:
    """Inside a TensorFlow graph nothing is seen; a step of training has its collectives there."""
    functions = {frame.rpartition(" ")[2] for frame in frames}
    training = "quick_execute" in functions and "fit" in functions and not functions & {"evaluate", "predict"}
    return "a training step's graph" if training else ""


def place_of(frames: tuple[str, ...], trunk: set[str]) -> str:
    """`file function`: where the stack leaves the functions of the ranks that wait, else its innermost one outside libraries."""
    own = [_function(frame) for frame in frames if not _LIBRARIES.search(frame)]
    branch = next((function for function in reversed(own) if function not in trunk), None)
    return branch or (own[0] if own else _function(frames[0]) if frames else "an unknown place")


def _function(frame: str) -> str:
    """A frame without its line."""
    place, _, name = frame.rpartition(" ")
    return f"{place.rpartition(':')[0]} {name}"


def describe(hang: Hang) -> str:
    """One line."""
    silent = hang.found - hang.since
    who = f"rank {hang.missing[0]}" if len(hang.missing) == 1 else f"ranks {', '.join(map(str, hang.missing[:8]))}"
    waiting = f"{len(hang.waiting)} rank{'s wait' if len(hang.waiting) != 1 else ' waits'} in {hang.collective}"
    found = sorted({_where(group, frozen=hang.frozen) for group in hang.groups if set(group.ranks) & set(hang.missing)})
    where = ", or ".join(found) if found else f"which is {FROZEN}" if hang.frozen else "of which no stack came"
    return f"training hangs: no step for {silent:.0f} s (usual {hang.usual_s:.2g} s); {waiting} for {who}, {where}"


def describe_end(hang: Hang, pauses: Mapping[str, float]) -> str:
    """One line, once steps have come again."""
    places = [group.place for group in hang.groups if set(group.ranks) & set(hang.missing) and not (group.deaf or group.waits_in)]
    known = any(place in pauses for place in places)
    lasted = (hang.ended or hang.found) - hang.since
    return f"training goes on after {lasted:.0f} s" + "; from now on a pause at that place is no hang" * known


def stands_at(hang: Hang) -> str:
    """Where the missing ranks are, in a few words."""
    group = next((group for group in hang.groups if set(group.ranks) & set(hang.missing)), None)
    if hang.frozen:
        return FROZEN + (f", at {_line(_own_line(group))}" if group is not None else "")
    if group is None:
        return "silent: no stack came"
    if group.deaf:
        return f"stopped or deaf to signals, at {_line(_own_line(group))}"
    return f"in {group.waits_in}, at {_line(_own_line(group))}" if group.waits_in else f"in {_line(_own_line(group))}"


def _where(group: StackGroup, *, frozen: bool) -> str:
    place = _line(_own_line(group))
    if frozen:
        return f"which is {FROZEN}, at {place}"
    if group.deaf:
        return f"which is stopped or deaf to signals, at {place}"
    return f"which waits in {group.waits_in} at {place}" if group.waits_in else f"in {place}"


def _own_line(group: StackGroup) -> str:
    """The innermost frame of the script: what to look at."""
    return next((frame for frame in group.frames if not _LIBRARIES.search(frame)), group.frames[0] if group.frames else "")


def _line(frame: str) -> str:
    """`file:line function` without the folders."""
    return frame.rpartition("/")[2] or "an unknown place"
