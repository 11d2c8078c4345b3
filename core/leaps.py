"""Times that cannot be: steps of a rank that begin before its last ones ended, or end after the job did.

The clocks of distmon's own recordings are steady, but others may be told by clocks that were set. Nothing is moved: durations
hold whatever the clock, and what spans such a leap is not told. What is found does not depend on how sources interleave.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from distmon.core.state import SessionState
    from distmon.core.steps import RankSteps

BACK_S, PAUSE_S = 0.5, 5.0
"""Estimates of a clock's offset differ by less from one to the next; of pauses between steps that are longer it is to be seen
whether the clock leapt.
"""
_APART_S = 1.0
"""Ranks whose clocks were set by amounts that differ by less are still in step, and the job's end is no surer."""
_NAMED = 8
MOST_LEAPS = 64
"""Of a rank that are kept, and as many pauses, the longest."""
REASON = "clocks were set, as the times of steps tell: see notes"


class Leap(NamedTuple):
    """A rank's steps ended at `before`, and went on at `after`."""

    step: int
    before: float
    after: float

    @property
    def by_s(self) -> float:
        """How far the clock went on at once, or back where that is negative."""
        return self.after - self.before

    def lies_in(self, since: float, until: float) -> bool:
        """Whether a part of a time was told twice, or not at all."""
        return min(self.before, self.after) < until and since < max(self.before, self.after)


def note_leap(made: RankSteps, begins: float, step: int) -> bool:
    """The next steps of a rank begin then; whether its clock was set back before."""
    ended = made.last_end
    if ended is None or ended - BACK_S <= begins <= ended + PAUSE_S:
        return False
    leap = Leap(step, ended, begins)
    if leap.by_s < 0:
        if len(made.set_back) < MOST_LEAPS:
            made.set_back.append(leap)
        return True
    made.pauses.append(leap)
    if len(made.pauses) > MOST_LEAPS:
        made.pauses.remove(min(made.pauses, key=lambda pause: pause.by_s))
    return False


def leaps_of(state: SessionState, made: RankSteps) -> list[Leap]:
    """Where a rank's clock was set. A pause is that where it was set back by as much later, or is ahead as the job ends."""
    ended = state.job.ended_at
    if all_steady(state) or made.first_start is None or made.last_end is None:
        return []
    pauses, leaps = sorted(made.pauses), list[Leap]()
    for back in made.set_back:
        same = [pause for pause in pauses if pause.step <= back.step and abs(pause.by_s + back.by_s) < _APART_S]
        if same:
            pauses.remove(same[-1])
            leaps.append(same[-1])
        leaps.append(back)
    ahead_s = made.last_end - ended - max(_by_s(leaps), 0.0) if ended is not None else 0.0
    if ahead_s > _APART_S:
        forward = [pause for pause in pauses if pause.by_s > ahead_s - _APART_S]
        leaps.append(forward[-1] if forward else Leap(0, made.first_start - ahead_s, made.first_start))
    return leaps


def _by_s(leaps: list[Leap]) -> float:
    return math.fsum(leap.by_s for leap in leaps)


def all_steady(state: SessionState) -> bool:
    """Whether no clock was seen to be set in the midst of steps."""
    ended = state.job.ended_at
    return not state.set_back and (ended is None or state.stepped_until <= ended + _APART_S)


def all_leaps(state: SessionState) -> list[list[Leap]]:
    """Of each rank in each generation; of none where there is no leap at all."""
    if all_steady(state):
        return []
    return [leaps_of(state, made) for generation in state.generations.values() for made in generation.ranks.values()]


def before_the_job(state: SessionState, made: RankSteps) -> float:
    """Seconds by which a rank's first step began before the job did."""
    started = state.job.started
    early = started.at - made.first_start if started is not None and made.first_start is not None else 0.0
    return early if early > BACK_S else 0.0


def start_known(state: SessionState, made: RankSteps) -> bool:
    """Whether the time of a rank's first step is one of the viewer's clock."""
    begun = made.first_start
    if begun is None or before_the_job(state, made):
        return False
    return not any(leap.by_s > 0 and leap.before < begun <= leap.after for leap in leaps_of(state, made))


def end_known(state: SessionState, made: RankSteps) -> bool:
    """Whether that of its last step is."""
    return not before_the_job(state, made) and abs(_by_s(leaps_of(state, made))) < _APART_S


class Clocks(NamedTuple):
    """Those of the ranks of a generation, rank by rank."""

    behind_s: list[float]
    """From the start on, of which only more than the job had lasted by then is seen."""
    leaps: list[list[Leap]]


Place = tuple[int, float]
"""A generation and its step."""


def clocks(state: SessionState) -> dict[int, Clocks]:
    """Generation -> its ranks' clocks, of those in which any is seen to be wrong."""
    found = {}
    for number, generation in state.generations.items():
        ranks = generation.ranks.values()
        own = Clocks([before_the_job(state, made) for made in ranks], [leaps_of(state, made) for made in ranks])
        if any(own.behind_s) or any(own.leaps):
            found[number] = own
    return found


def in_step(found: dict[int, Clocks], begun: Place, ended: Place) -> bool:
    """Whether the clocks of all ranks were set alike before a step, and none between it and the end of those before another.

    By steps, not by times: a clock that was set back tells the times before once more.
    """
    for number, (behind_s, leaps) in found.items():
        if any(begun < (number, leap.step) < ended for of_rank in leaps for leap in of_rank):
            return False
        before = [[leap for leap in of_rank if (number, leap.step) <= begun] for of_rank in leaps]
        by_s = [_by_s(of_rank) - behind for behind, of_rank in zip(behind_s, before, strict=True)]
        if max(by_s) - min(by_s) >= _APART_S and (number, 0) < ended:
            return False
    return True


def told_once(leaps: list[list[Leap]], since: float, until: float) -> bool:
    """Whether no rank's times leap within a time."""
    return not any(leap.lies_in(since, until) for of_rank in leaps for leap in of_rank)


def leap_words(state: SessionState) -> list[str]:
    """A sentence for all hosts of ranks whose times first leapt at the same moment by as much."""
    started = state.job.started.at if state.job.started is not None else state.started or 0.0
    by_host, all_hosts = dict[str, list[Leap]](), set[str]()
    for made in (made for generation in state.generations.values() for made in generation.ranks.values()):
        known, leaps = state.ranks.get(made.rank), leaps_of(state, made)
        host = known.host if known is not None and known.host else f"rank {made.rank}"
        all_hosts.add(host)
        if len(leaps) > len(by_host.get(host, ())):
            by_host[host] = leaps
    alike: dict[tuple[int, int, int], list[str]] = {}
    for host, leaps in sorted(by_host.items()):
        alike.setdefault((round(leaps[0].before), round(leaps[0].by_s), len(leaps)), []).append(host)
    said = []
    for hosts in alike.values():
        first, *others = by_host[hosts[0]]
        who = ", ".join(hosts[:_NAMED]) + (f" and {len(hosts) - _NAMED} more" if len(hosts) > _NAMED else "")
        by_s, at_s = f"{abs(first.by_s):,.1f} s", f"{max(first.before - started, 0.0):,.1f} s"
        how = f"{'go back' if first.by_s < 0 else 'leap ahead'} by {by_s} at {at_s}"
        if len(hosts) < len(all_hosts):
            # Theirs were set, or what they are told by.
            how = f"and of the others differ by {by_s} from {at_s} on"
        again = f", and leap again {len(others)} times" if len(others) > 1 else ", and leap again" if others else ""
        said.append(f"the times of {who} {how}{again}: a clock was set; figures that span that are not given")
    return said
