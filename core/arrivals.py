"""Who comes late to the collective: step times are equal in synchronous training, so the late rank is the one that waits least.

Steps are joined over ranks in blocks. In each block a rank's lateness is the usual wait of the others less its own, as a share
of the step. A sequential test per rank (core/sequential.py) adds up evidence for lateness against none, by the trimmed mean over
the block's steps, which a single stall does not move, and by the plain mean; with very many ranks by the plain mean alone.
Lateness in bursts that are blocks apart looks like noise to both: a third test counts who alone held up the steps that took
clearly longer for it, which in a healthy job are all ranks alike. The alarm level keeps false alarms rare for all ranks together,
and a rank stays named until the evidence is gone, or there is as much of its end. The same test watches the transfer, what even
the last rank waits: it grows when a link gets slow and nobody is late.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from operator import sub

from distmon.core.batches import UNKNOWN, USUAL, Batch, Int64s
from distmon.core.columns import Floats, compiled_fold
from distmon.core.quantiles import median
from distmon.core.sequential import (
    CALIBRATION,
    SHIFTS,
    Noise,
    Shares,
    Shift,
    alarm_level,
    averaged,
    deviation,
    scores,
    step_growth,
)

BLOCK = 5
MANY_RANKS = 64
"""With more ranks the single steps of a block are not looked at."""
SKIPPED_BLOCKS = 2
"""The first steps compile and fill caches, on every rank as it likes."""
_LEAST_BLOCKS, _LEAST_BLOCKS_OF_MEANS = 3, 4
"""An alarm takes so many blocks: one alone, however bad, is a stall, which a trimmed mean does not see anyway."""
FIRST_STEPS = (SKIPPED_BLOCKS + CALIBRATION + _LEAST_BLOCKS_OF_MEANS) * BLOCK
"""So many steps it takes until a lateness from the first one on that is not gross is named."""
_FIRST_LOOK, _GROSS, _EARLY_DOUBT = 3, 0.1, 3.0
"""From so many settled blocks on, before the noise is known well, a lateness by so much of the step, beyond so much more noise,
is named."""
_MAX_PENDING = 1_024
_BURST, _LEAST_BURST = 4.0, 0.05
"""A step is held up by a rank alone that comes later than the next one by so many usual margins, and by so much of the step."""
_OF_ONE = 0.8
"""A rank that is late in bursts holds up so much of all steps that are held up."""
_FIRST_GAP, _GAPS = 40.0, 8
_PATIENCE, _LEAST_PATIENCE = 5.0, 20
"""Bursts have ended after so many usual gaps, and so many blocks, without one."""
_LEAST_BURSTS = 8
"""An alarm takes so many blocks with one."""
BOUND_ON, BOUND_OFF = 0.20, 0.16
"""Shares of the step from which the transfer counts as what bounds the job, and under which no longer."""
_SHARE_BLOCKS = 20
MAX_EPISODES = 64
_GROWN_BLOCKS, _BEFORE_BLOCKS = 40, 30
"""What the step grew by when a lateness began is told by so many blocks since and before; later ones tell of other things too."""


@dataclass(slots=True, frozen=True)
class Episode:
    """A past lateness of a rank (None: slow transfer of all), in steps; `share` of the step, mean over it."""

    rank: int | None
    first_step: int
    last_step: int
    share: float


@dataclass(slots=True)
class Arrival:
    """One rank's waits that are not joined yet, and its test."""

    waits: Int64s = field(default_factory=lambda: array("I"))
    """Unsigned while all are known; signed, with UNKNOWN, else."""
    late: Shift = field(default_factory=Shift)
    bursts: Shift = field(default_factory=Shift)
    """The test of whether it is late in bursts."""
    last_burst: int = -1
    """The last block with a step that this rank alone held up."""
    burst_gap: float = _FIRST_GAP
    """Blocks from one such to the next, averaged."""

    def burst_score(self, own: bool, steady: bool, others: int, ranks: int, block: int, alarm: float) -> float:
        """Log-likelihood ratio of a block in which this rank alone held up a step, or not, and so many others one each.

        For this rank being whom most such steps wait for, against all ranks alike. None for several usual gaps ends it. What
        is held up by a rank that is known to be late all the time, as it is in this block (`steady`), tells of no bursts.
        """
        if own and steady:
            self.last_burst, own = block, False
        elif own:
            if self.last_burst >= 0:
                self.burst_gap += (block - self.last_burst - self.burst_gap) / _GAPS
            self.last_burst = block
        elif self.last_burst >= 0 and block - self.last_burst > max(_PATIENCE * self.burst_gap, _LEAST_PATIENCE):
            self.last_burst, self.burst_gap = -1, _FIRST_GAP
            return -2 * alarm
        gain = min(math.log(_OF_ONE * ranks), alarm / _LEAST_BURSTS) if own else 0.0
        return gain + others * math.log((1 - _OF_ONE) * ranks / (ranks - 1))

    def take(self, batch: Batch, told: int, skipped: int) -> None:
        """Takes in what was waited after the first `told` steps, with `skipped` unknown ones before it."""
        waits = (batch.column("exposed_communication_ns") or [None] * batch.steps)[told:]
        if skipped or not isinstance(waits, array) or waits.typecode != self.waits.typecode:
            self.waits = array("q", self.waits.tolist())
            self.waits.extend([UNKNOWN] * skipped)
            self.waits.extend([UNKNOWN if wait is None else wait for wait in waits])
        else:
            self.waits.extend(waits)


@dataclass(slots=True)
class Arrivals:
    """The ranks of one generation, joined step by step."""

    ranks: dict[int, Arrival] = field(default_factory=dict)
    expected: int = 0
    next_step: int = 0
    """The first step that is not joined yet."""
    ready: int = 0
    """Ranks that have told all of the next block."""
    blocks: int = 0
    weighed: int = 0
    """Blocks in which all ranks' waits were known: without one there is nothing usual to hold others against."""
    suspects: set[int] = field(default_factory=set)
    """Ranks against which there is some evidence."""
    durations: list[int] = field(default_factory=list)
    """Of the pending steps, as the first rank told them."""
    joined_steps: int = 0
    joined_ns: int = 0
    """Duration of the joined steps, by the first rank."""
    transfer_ns: int = 0
    """Sum over joined steps of the least wait of any rank."""
    waiting_ns: int = 0
    """Sum over joined steps and ranks of what was waited beyond that, which is for the last rank."""
    trimmed_noise: Noise = field(default_factory=Noise)
    """Of the ranks' lateness by trimmed means, in the order of `ranks`; unused with many ranks."""
    mean_noise: Noise = field(default_factory=Noise)
    """Of their lateness by plain means."""
    usual_margin_ns: float = 0.0
    """By which the last rank comes later than the next, in the middle step of a block."""
    last_steps_ns: Floats = field(default_factory=lambda: array("d"))
    """Mean step of each of the last blocks."""
    slow: Shift = field(default_factory=Shift)
    usual_step_ns: float = 0.0
    """Of the blocks in which the transfer was as it is usually, as the next."""
    usual_transfer_ns: float = 0.0
    last_transfer_ns: float = 0.0
    transfer_noise_ns: float = 0.0
    transfer_share: float = 0.0
    """Of the step, mean of the last _SHARE_BLOCKS blocks, forgetting slowly."""
    transfer_bound: bool = False
    episodes: list[Episode] = field(default_factory=list)

    @property
    def tells_little(self) -> bool:
        """Whether waits are seen, but it is too early to name a late rank, or to say that there is none."""
        return 0 < self.weighed * BLOCK <= FIRST_STEPS

    @property
    def usual_transfer(self) -> float:
        """As a share of the step."""
        return self.usual_transfer_ns / self.usual_step_ns if self.usual_step_ns else 0.0

    def add(self, told: list[tuple[int, str, Batch]], expected: int) -> None:
        """Takes in batches by rank; blocks that all `expected` ranks have told are joined at once."""
        self.expected = expected
        place = 0
        while place < len(told):
            if compiled_fold is not None:
                # Nearly all follow what is there, and there are thousands a second.
                lead, begun = next(iter(self.ranks), None), (self.next_step, BLOCK)
                place, ready = compiled_fold.arrive(self.ranks, told, place, lead, USUAL, *begun, _MAX_PENDING)
                self.ready += ready
            if place < len(told):
                self._add(told[place][0], told[place][2])
                place += 1
        while self.ready >= max(self.expected, len(self.ranks)):
            self._join()

    def _add(self, rank: int, batch: Batch) -> None:
        arrival = self.ranks.get(rank)
        if arrival is None:
            arrival = self.ranks[rank] = Arrival()
        before = self.next_step + len(arrival.waits)
        if batch.first_step - before > _MAX_PENDING:
            self._restart(batch.first_step)
            arrival, before = self.ranks[rank], batch.first_step
        told = max(before - batch.first_step, 0)
        skipped = max(batch.first_step - before, 0)
        count = batch.steps - told
        if count <= 0:
            return
        arrival.take(batch, told, skipped)
        if next(iter(self.ranks)) == rank:
            self.durations.extend([0] * skipped)
            self.durations.extend(batch.durations_ns[told:])
        self.ready += before < self.next_step + BLOCK <= before + skipped + count
        if len(arrival.waits) > _MAX_PENDING and self.ready < max(self.expected, len(self.ranks)):
            self._restart(self.next_step + len(arrival.waits))

    def _restart(self, step: int) -> None:
        """Gives up what could not be joined, and the evidence with it."""
        self.next_step, self.ready, self.durations, self.suspects = step, 0, [], set()
        self.last_steps_ns = array("d")
        self.trimmed_noise.before, self.mean_noise.before = [], []
        self.ranks = {rank: Arrival() for rank in self.ranks}

    def _join(self) -> None:
        # Up to MANY_RANKS the single steps are looked at too.
        many = len(self.ranks) > MANY_RANKS
        joined = compiled_fold.join_block(self.ranks, BLOCK) if many and compiled_fold is not None else None
        if joined is not None:
            rows: list[Int64s] = []
            sums, transfer, self.ready = joined
        else:
            rows = self._take_block()
            sums = [sum(row) for row in rows]
            least = [*map(min, zip(*rows, strict=True))]
            transfer = sum(least) if min(least) > UNKNOWN else -1
        duration = sum(self.durations[:BLOCK])
        del self.durations[:BLOCK]
        self.next_step += BLOCK
        self.blocks += 1
        if len(sums) >= 2 and duration > 0 and transfer >= 0:
            self._weigh(None if many else rows, sums, transfer, duration)

    def _take_block(self) -> list[Int64s]:
        """What each rank waited in the next block, which is taken off."""
        rows = []
        self.ready = 0
        for arrival in self.ranks.values():
            waits = arrival.waits
            rows.append(waits[:BLOCK])
            del waits[:BLOCK]
            self.ready += len(waits) >= BLOCK
        return rows

    def _weigh(self, rows: list[Int64s] | None, sums: list[int], transfer: int, duration: int) -> None:
        """A block of which all ranks' waits are known: by step where ranks are few, their sums, and what even the last waited."""
        self.joined_steps += BLOCK
        self.joined_ns += duration
        self.transfer_ns += transfer
        self.waiting_ns += sum(sums) - len(sums) * transfer
        self.weighed += 1
        if self.weighed <= SKIPPED_BLOCKS:
            return
        self.last_steps_ns.append(duration / BLOCK)
        del self.last_steps_ns[: -_GROWN_BLOCKS - _BEFORE_BLOCKS]
        settled = self.weighed - SKIPPED_BLOCKS
        trimmed = _trimmed_lateness(rows, duration) if rows is not None else None
        held_up = self._held_up(rows, duration, settled) if rows is not None else set[int]()
        self._weigh_ranks(trimmed, _mean_lateness(sums, duration), held_up, settled)
        self._weigh_transfer(transfer / BLOCK, duration / BLOCK, settled)

    def _held_up(self, rows: list[Int64s], duration: int, settled: int) -> set[int]:
        """The places of the ranks that alone held up a step of the block, by far more than is usual."""
        margins = [_last_and_margin(step) for step in zip(*rows, strict=True)]
        least = max(_BURST * self.usual_margin_ns, _LEAST_BURST * duration / BLOCK)
        middle = median(margin for _, margin in margins) or 0.0
        self.usual_margin_ns = averaged(self.usual_margin_ns, middle, settled)
        return {place for place, margin in margins if margin >= least and settled > CALIBRATION}

    def _weigh_ranks(self, trimmed: Shares | None, means: Shares, held_up: Set[int], settled: int) -> None:
        """By columns: there are thousands of ranks, and most are on time most of the time."""
        self.mean_noise.add(means)
        if trimmed is not None:
            self.trimmed_noise.add(trimmed)
        if settled < _FIRST_LOOK:
            return
        # Few blocks tell little of the noise: what is named then has to be far beyond it.
        least, doubt = (SHIFTS[0] / 2, 1.0) if settled > CALIBRATION else (_GROSS, _EARLY_DOUBT)
        alarm, noise, held = alarm_level(len(means)), doubt * self.mean_noise.deviation, len(held_up)
        suspects = self.suspects
        for place, (rank, mean) in enumerate(zip(self.ranks, means, strict=True)):
            if mean <= least and rank not in suspects and (trimmed is None or (trimmed[place] <= least and place not in held_up)):
                continue
            found, arrival = scores(mean, noise, alarm, _LEAST_BLOCKS_OF_MEANS), self.ranks[rank]
            if trimmed is not None:
                found += scores(trimmed[place], doubt * self.trimmed_noise.deviation, alarm, _LEAST_BLOCKS)
                own = place in held_up
                steady = arrival.late.named and trimmed[place] >= arrival.late.held_mean / 2
                score = arrival.burst_score(own, steady, held - own, len(means), self.blocks, alarm)
                self._tested(arrival.bursts, rank, mean, [score], alarm)
                if score <= -alarm and mean <= least:
                    found = [score] * len(found)  # bursts are noise as well, beside which their end shows in no other way
            self._tested(arrival.late, rank, mean, found, alarm)
            self._test_end(arrival, rank, mean, alarm)
            if any(arrival.late.evidence) or any(arrival.bursts.evidence):
                suspects.add(rank)
            else:
                suspects.discard(rank)

    def _weigh_transfer(self, transfer: float, step: float, settled: int) -> None:
        """Nanoseconds of a mean step of the block. As a share of that step it would seem longer where compute gets faster."""
        if settled > 1:
            self.transfer_noise_ns = averaged(self.transfer_noise_ns, abs(transfer - self.last_transfer_ns), settled - 1)
        self.last_transfer_ns = transfer
        self.transfer_share += (transfer / step - self.transfer_share) / min(settled, _SHARE_BLOCKS)
        self.transfer_bound = self.transfer_share >= (BOUND_OFF if self.transfer_bound else BOUND_ON)
        if settled > CALIBRATION:
            alarm, value = alarm_level(1), (transfer - self.usual_transfer_ns) / self.usual_step_ns
            noise = deviation(self.transfer_noise_ns / self.usual_step_ns, 0.0, settled)
            self._tested(self.slow, None, value, scores(value, noise, alarm, _LEAST_BLOCKS_OF_MEANS), alarm)
        if not any(self.slow.evidence):
            self.usual_transfer_ns = averaged(self.usual_transfer_ns, transfer, settled)
            self.usual_step_ns = averaged(self.usual_step_ns, step, settled)

    def _tested(self, shift: Shift, rank: int | None, value: float, found: list[float], alarm: float) -> None:
        named = shift.named
        if shift.add(value, found, alarm, (self.next_step - BLOCK, self.next_step - 1)):
            self._ended(shift, rank)
        if rank is not None and shift.named and not named:
            shift.date(self.mean_noise.deviation, BLOCK)
            self._leave_out(shift.blocks, shift.mean)
        if shift.named and shift.blocks <= _GROWN_BLOCKS:
            # The begin may lie anywhere in the first block, or late in the one before it.
            before, since = self.last_steps_ns[: -shift.blocks - 1], self.last_steps_ns[1 - shift.blocks :]
            shift.growth = step_growth(before[-_BEFORE_BLOCKS:], since)

    def _test_end(self, arrival: Arrival, rank: int, mean: float, alarm: float) -> None:
        """Whether a rank that was late all the time is so no more, which the evidence of before takes long to be used up by."""
        late = arrival.late
        if late.named and late.add_to_end(mean, self.mean_noise.deviation_before, alarm):
            self._ended(late, rank)

    def _ended(self, shift: Shift, rank: int | None) -> None:
        """Keeps a shift that has ended as an episode, as far as no other test of the rank has told or tells of the same steps."""
        told = [episode.last_step + 1 for episode in self.episodes if episode.rank == rank]
        first, last = max(shift.since, *told, 0), shift.last_step
        if rank is not None:
            tests = (self.ranks[rank].late, self.ranks[rank].bursts)
            last = min([last, *(test.since - 1 for test in tests if test.named)])
            self._leave_out(shift.blocks_after + 1, shift.held_mean)
        if first < last and len(self.episodes) < MAX_EPISODES:
            self.episodes.append(Episode(rank, first, last, shift.held_mean))

    def _leave_out(self, blocks: int, shift: float) -> None:
        """What the last blocks differed by was the begin or the end of a lateness, and is no noise.

        Of more than two ranks the noise is that of the middle one, whoever is late; where it grows, it has grown for all.
        """
        if len(self.ranks) > 2:
            return
        self.mean_noise.leave_out(blocks, shift)
        if self.trimmed_noise.known:
            self.trimmed_noise.leave_out(blocks, shift)

    def late_ranks(self) -> dict[int, Shift]:
        """The ranks that are late now, all the time or in bursts, the latest first."""
        tests = [(rank, arrival.late if arrival.late.named else arrival.bursts) for rank, arrival in self.ranks.items()]
        named = [(rank, shift) for rank, shift in tests if shift.named]
        return dict(sorted(named, key=lambda item: -item[1].mean))


def _last_and_margin(waits: Sequence[int]) -> tuple[int, int]:
    """The place of the rank that came last, and how much later than the next one."""
    least = min(waits)
    place = waits.index(least)
    return place, min((*waits[:place], *waits[place + 1 :])) - least


def _mean_lateness(sums: list[int], duration: int) -> Shares:
    """The usual wait of the others less a rank's own, as a share of the step."""
    if len(sums) == 2:
        a, b = sums
        return array("d", ((b - a) / duration, (a - b) / duration))
    usual = median(sums) or 0.0
    return array("d", [(usual - own) / duration for own in sums])


def _trimmed_lateness(rows: list[Int64s], duration: int) -> Shares:
    """The same step by step, the largest and the least of the block left out."""
    scale = len(rows[0]) / duration
    if len(rows) == 2:
        value = _trimmed_mean(sorted(map(sub, rows[1], rows[0]))) * scale
        return array("d", (value, -value))
    usual = [median(step) or 0.0 for step in zip(*rows, strict=True)]
    return array("d", [_trimmed_mean(sorted(map(sub, usual, row))) * scale for row in rows])


def _trimmed_mean(ordered: Sequence[float]) -> float:
    return sum(ordered[1:-1]) / (len(ordered) - 2)
