"""Which ranks the others wait for, since when, in which phase and at what price; and whether a link is slow instead."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from distmon.core.arrivals import BLOCK, SKIPPED_BLOCKS, Episode
from distmon.core.finding import REMEDIES, Pattern, Verdict, phase_words, since_start
from distmon.core.joined import Joined, gain_of_cure, gain_without_transfer, is_bursty, joined, mean_band
from distmon.core.leaps import end_known
from distmon.core.measures import ALL_PHASES, RECENT, Split, split_of
from distmon.core.once import once
from distmon.core.places import place_of, places_of
from distmon.core.quantiles import median
from distmon.core.readings import network_total
from distmon.core.sequential import Shift, shares
from distmon.core.state import SessionState
from distmon.core.steps import RECENT_STEPS, Generation

LEAST_LATENESS = 0.01
"""A rank that is late by less of the step is not worth a word."""
PERSISTENT_STEPS = 200
SEEMING = 0.03
"""A rank that was late by so much of the step in half of the first steps may be a late one, though it is too early to name it."""
BUSIER = 3.0
"""In an allreduce all hosts carry about the same: a host that carries so many times that has other traffic."""
COMPARED_RANKS = 128
"""So many ranks tell well enough what a phase usually takes."""
_CLEAR = 0.5
"""A phase that explains less of the lateness than this is named along with the next."""


def straggler_verdicts(state: SessionState, generation: Generation, *, in_full: bool) -> list[Verdict]:
    """The late ranks of now, the latest first, and those that were late for a while.

    What is late now has no words and figures unless it is wanted in full: they rest on each step of all ranks.
    """
    late = {rank: shift for rank, shift in generation.arrivals.late_ranks().items() if shift.mean >= LEAST_LATENESS}
    found = joined(generation, min(shift.since for shift in late.values())) if late and in_full else None
    seen = {rank: _seen(found, rank, shift, late) for rank, shift in late.items()} if found is not None else {}
    late = {rank: shift for rank, shift in late.items() if rank not in seen or not seen[rank].is_over}
    seen = {rank: made for rank, made in seen.items() if rank in late}
    parts = dict(zip(seen, shares([made.mean_ms for made in seen.values()]), strict=True)) if len(seen) > 1 else {}
    if seen:
        verdicts = [_straggler(state, generation, rank, late[rank], made, parts.get(rank)) for rank, made in seen.items()]
    else:
        verdicts = [_named(state, generation, rank, shift) for rank, shift in late.items()]
    return _slow_nodes(state, generation, verdicts, found, late) + verdicts + _past(state, generation, set(late))


def seems_late(generation: Generation) -> tuple[int, float] | None:
    """While it is too early to name anyone: the rank that may be late, and its median lateness so far as a share of the step."""
    if not generation.arrivals.tells_little or len(generation.ranks) < 2:
        return None
    found = joined(generation, SKIPPED_BLOCKS * BLOCK)
    usual = [median(step.waits) or 0.0 if len(step.waits) > 2 else max(step.waits) for step in found.steps]
    late = (
        (median((middle - step.waits[i]) / step.duration for middle, step in zip(usual, found.steps, strict=True)) or 0.0, rank)
        for i, rank in enumerate(found.ranks)
    )
    share, rank = max(late)
    return (rank, share) if share >= SEEMING else None


class _Seen(NamedTuple):
    """The lateness of a rank in the recent steps of all ranks."""

    steps: Joined
    """From the one on in which it began, as far as that is among them."""
    since: int
    late_ms: list[float]
    """By step, against the usual wait of the ranks that are on time."""

    @property
    def mean_ms(self) -> float:
        return sum(self.late_ms) / len(self.late_ms) if self.late_ms else 0.0

    @property
    def is_over(self) -> bool:
        """Whether the recent steps show less lateness than is worth a word, though the evidence is not used up yet."""
        return bool(self.late_ms) and 1e6 * sum(self.late_ms) < LEAST_LATENESS * sum(step.duration for step in self.steps.steps)


def _seen(found: Joined, rank: int, shift: Shift, late: Collection[int]) -> _Seen:
    own = found.ranks.index(rank)
    on_time = [i for i, number in enumerate(found.ranks) if number not in late] or [
        i for i in range(len(found.ranks)) if i != own
    ]
    steps = [step for step in found.steps if step.step >= shift.since]
    late_ms = [((median(step.waits[i] for i in on_time) or 0.0) - step.waits[own]) / 1e6 for step in steps]
    begun = _begin(late_ms) if steps and steps[0].step == shift.since else 0
    since = steps[begun].step if steps and begun else shift.since
    return _Seen(Joined(found.ranks, steps[begun:]), since, late_ms[begun:])


def _begin(late_ms: Sequence[float]) -> int:
    """The step of a series that its lateness begins with: evidence may have been gathering before, by chance."""
    begun = 0
    while len(late_ms) - begun > 2 * BLOCK:
        first, rest = late_ms[begun : begun + BLOCK], late_ms[begun + BLOCK :]
        if is_bursty(rest) or sum(first) / BLOCK >= _CLEAR * sum(rest) / len(rest):
            break
        begun += BLOCK
    return begun


def _slow_nodes(
    state: SessionState, generation: Generation, late: list[Verdict], joined_steps: Joined | None, shifts: dict[int, Shift]
) -> list[Verdict]:
    """Hosts of several ranks all of which are late, while others are not: it is the host.

    Its gain rests on the steps since which the last of its ranks is late.
    """
    found = []
    for host in dict.fromkeys(v.host for v in late if v.host):
        own = [v for v in late if v.host == host]
        there = [number for number in generation.ranks if number in state.ranks and state.ranks[number].host == host]
        if len(there) < 2 or len(own) < len(there) or len(there) == len(generation.ranks):
            continue
        first = own[0]
        last = max((shifts[v.rank] for v in own if v.rank is not None), key=lambda shift: shift.since)
        recent = [step for step in joined_steps.steps if step.step >= last.since] if joined_steps else []
        found.append(
            Verdict(
                kind="slow_node",
                text=f"{host} is slow: its {len(own)} ranks are late in {phase_words(first.phase or 'rest')}; the others wait",
                evidence="; ".join(v.text.partition(";")[0] for v in own[:4]),
                try_first=REMEDIES[first.phase or "rest"],
                check="none of its ranks is late any more",
                pattern=first.pattern,
                host=host,
                phase=first.phase,
                gain_percent=gain_of_cure(Joined(joined_steps.ranks, recent), set(there), last.growth)
                if joined_steps
                else None,
                from_s=min((v.from_s for v in own if v.from_s is not None), default=None),
                to_s=first.to_s,
            )
        )
    return found


def _named(state: SessionState, generation: Generation, rank: int, shift: Shift) -> Verdict:
    """Without words and figures."""
    host = state.ranks[rank].host if rank in state.ranks else ""
    phase, _ = _phases(generation, rank, shift)
    return Verdict(kind="straggler", text="", evidence="", try_first="", rank=rank, host=host, phase=phase)


def _straggler(
    state: SessionState, generation: Generation, rank: int, shift: Shift, seen: _Seen, part: float | None
) -> Verdict:
    phase, text = _phases(generation, rank, shift)
    steps = seen.steps.steps
    usual = sum(step.duration for step in steps) / len(steps) / 1e6 if steps else 0.0
    ms = seen.mean_ms if steps else shift.mean * usual
    band = mean_band(seen.late_ms)
    interval = f", 95 % interval {band[0]:.2f} to {band[1]:.2f} ms" if band else ""
    share = f"; {part:.0%} of the lateness of all late ranks" if part is not None else ""
    lasting = generation.arrivals.next_step - seen.since
    share_of_step = ms / usual if usual else shift.mean
    bursty = bool(seen.late_ms) and is_bursty(seen.late_ms)
    pattern: Pattern = "bursty" if bursty else "steady" if lasting >= PERSISTENT_STEPS else ""
    return Verdict(
        kind="straggler",
        text=f"rank {rank} is late by {ms:.1f} ms a step in {text}; the others wait for it",
        evidence=(
            f"it waits that much less for allreduce than the others{interval}, {share_of_step:.1%} of the step, "
            f"in step {seen.since:,} to {generation.arrivals.next_step - 1:,}{share}{_earlier(generation, rank)}"
        ),
        try_first=REMEDIES[phase or "rest"],
        check=f"its lateness on the Ranks screen and in the report falls to 0, and the step from {usual:.1f} ms by the gain",
        pattern=pattern,
        rank=rank,
        host=state.ranks[rank].host if rank in state.ranks else "",
        phase=phase,
        gain_percent=gain_of_cure(seen.steps, {rank}, shift.growth),
        from_s=_at(state, generation, rank, seen.since),
        to_s=_at(state, generation, rank, None),
    )


def _phases(generation: Generation, rank: int, shift: Shift) -> tuple[str | None, str]:
    """The phase that exceeds that of the others most, and in words the phases that explain the lateness."""
    count = min(max(generation.arrivals.next_step - shift.since, RECENT), RECENT_STEPS)
    own = split_of(generation.ranks[rank].last_sums(count))
    if own is None:
        return None, "a phase that was not seen"
    late_s = shift.mean * own.step_s
    others = [made for number, made in once(generation, _compared, count).items() if number != rank]
    excess = sorted(_excesses(own, others), reverse=True)
    if not excess or excess[0][0] <= 0.25 * late_s:
        return None, "no phase that stands out"
    words = [phase_words(name) for value, name in excess[:2] if value > 0.25 * late_s]
    return excess[0][1], words[0] if excess[0][0] >= _CLEAR * late_s else " and ".join(words)


def _compared(generation: Generation, count: int) -> dict[int, Split]:
    """The mean recent step of each rank; of very many ranks, of evenly chosen ones."""
    chosen = list(generation.ranks.items())[:: max(len(generation.ranks) // COMPARED_RANKS, 1)]
    return {number: made for number, r in chosen if (made := split_of(r.last_sums(count)))}


def _excesses(own: Split, others: Sequence[Split]) -> Iterable[tuple[float, str]]:
    """(seconds, phase) by which a rank exceeds the median of the others, communication left out."""
    for name in ALL_PHASES:
        value, usual = own.phase(name), [v for other in others if (v := other.phase(name)) is not None]
        if name != "exposed_communication" and value is not None and usual:
            yield value - (median(usual) or 0.0), name


def _earlier(generation: Generation, rank: int) -> str:
    past = [e for e in generation.arrivals.episodes if e.rank == rank]
    return f"; late before in step {', '.join(f'{e.first_step:,} to {e.last_step:,}' for e in past[-3:])}" if past else ""


def _past(state: SessionState, generation: Generation, late: set[int]) -> list[Verdict]:
    """Ranks that were late for a noticeable part of the run and are not now."""
    done = generation.arrivals.next_step
    by_rank: dict[int, list[Episode]] = {}
    for episode in generation.arrivals.episodes:
        if episode.rank is not None and episode.rank not in late and episode.share >= LEAST_LATENESS:
            by_rank.setdefault(episode.rank, []).append(episode)
    found = []
    for rank, episodes in by_rank.items():
        steps = sum(e.last_step - e.first_step + 1 for e in episodes)
        weight = sum(e.share * (e.last_step - e.first_step + 1) for e in episodes)
        if weight < LEAST_LATENESS * done / 2:
            continue
        told = ", ".join(f"{e.first_step:,} to {e.last_step:,}" for e in episodes[-3:])
        found.append(
            Verdict(
                kind="straggler",
                text=f"rank {rank} was late by {weight / steps:.1%} of the step in {steps:,} of {done:,} steps; it is not now",
                evidence=f"in step {told}",
                try_first="look at what else ran on its node then: backups, other jobs, heat",
                check="no new times are added to these",
                pattern="transient",
                no_gain="it is over, and taking it away gains nothing now",
                rank=rank,
                host=state.ranks[rank].host if rank in state.ranks else "",
                from_s=_at(state, generation, rank, episodes[0].first_step),
                to_s=_at(state, generation, rank, episodes[-1].last_step),
            )
        )
    return found


def slow_network(state: SessionState, generation: Generation, *, in_full: bool) -> Verdict | None:
    """The transfer takes longer than it did, and no rank is late: the network. On one host it is what else runs there."""
    shift = generation.arrivals.slow
    hosts = {rank.host for rank in state.ranks.values() if rank.host}
    if not shift.named or shift.mean < LEAST_LATENESS or len(hosts) == 1:
        return None
    found = joined(generation, shift.since)
    lead = min(generation.ranks)
    duration = sum(s.duration for s in found.steps) / len(found.steps) / 1e6 if found.steps else 0.0
    before, usual_step = generation.arrivals.usual_transfer, generation.arrivals.usual_step_ns / 1e6
    longer = shift.mean * usual_step
    now = (before * usual_step + longer) / (duration or usual_step)
    gain = _beyond(gain_without_transfer(found), before) if in_full else None
    busier = busier_host(state)
    host, told = (busier.host, f"; {busier.host} moves {busier.times:.1f} times what the other hosts do") if busier else ("", "")
    return Verdict(
        kind="slow_network",
        text=f"the network is slow: allreduce takes {longer:.1f} ms a step longer on all ranks, and none is late"
        + told,
        evidence=(
            f"since step {shift.since:,} even the last rank waits {now:.1%} of the step, {before:.1%} before; "
            "the ranks' own phases are as they were"
            + (f"; {busier.host}'s {busier.interfaces} carries {busier.bytes_per_s / 1e6:,.0f} MB/s" if busier else "")
        ),
        try_first=f"see what else uses {host}'s link: other jobs, copies, backups"
        if busier
        else "look at the links between the nodes: errors, a lower rate, other traffic; `distmon doctor` names it",
        check="the least exposed communication of any rank returns to what it was",
        host=host,
        phase="exposed_communication",
        gain_percent=gain,
        from_s=_at(state, generation, lead, shift.since),
        to_s=_at(state, generation, lead, None),
    )


class BusierHost(NamedTuple):
    """A host whose network carries far more than the job's part, which is the same on all."""

    host: str
    interfaces: str
    bytes_per_s: float
    """Received and sent."""
    times: float
    """What the median of the other hosts carries."""


def busier_host(state: SessionState) -> BusierHost | None:
    """The host of ranks that carries BUSIER times the others' traffic or more; None where none does, or rates are not known."""
    of_ranks = {place_of(rank) for rank in state.ranks.values() if rank.exited_at is None}
    nodes = [node for node in state.nodes.values() if not of_ranks.isdisjoint(places_of(node))]
    totals = {node.host: network_total(node.sample) for node in nodes if node.sample is not None}
    rates = {
        host: total.received_bytes_per_s + total.sent_bytes_per_s
        for host, total in totals.items()
        if total.received_bytes_per_s is not None and total.sent_bytes_per_s is not None
    }
    if len(rates) < 2:
        return None
    host = max(rates, key=rates.__getitem__)
    others = median(rate for name, rate in rates.items() if name != host) or 0.0
    if others <= 0 or rates[host] < BUSIER * others:
        return None
    return BusierHost(host, ", ".join(totals[host].names), rates[host], rates[host] / others)


def _beyond(percent: tuple[float, float] | None, before: float) -> tuple[float, float] | None:
    """What a part of the step has grown by, in percent of the step now, where it was the share `before` of the shorter step."""
    if percent is None or before >= 1:
        return None
    low, high = (max(p - 100 * before, 0.0) / (1 - before) for p in percent)
    return low, high


def _at(state: SessionState, generation: Generation, rank: int, step: int | None) -> float | None:
    """When a step of a rank began, in seconds since the job's start; its last end for None; None for what is not kept, and where
    its clock was set.
    """
    made = generation.ranks[rank]
    if not end_known(state, made):
        return None
    if step is None:
        return None if made.last_end is None else since_start(state, made.last_end)
    for batch in made.batches:
        if batch.first_step <= step <= batch.last_step:
            return since_start(state, batch.starts()[step - batch.first_step])
    if made.first_start is None or made.last_end is None or made.last_step < 1:
        return None
    return since_start(state, made.first_start + (made.last_end - made.first_start) * step / made.last_step)
