"""Who comes late to the collective: step times are equal in synchronous training, so the late rank is the one that waits least.

Steps are joined over ranks in blocks. In each block a rank's lateness is the usual wait of the others less its own, as a share
of the step. Two one-sided CUSUM tests per rank (Page 1954), for shifts of 2 % and of 8 % of the step, add up evidence for
lateness against none; the alarm level keeps false alarms below one in ALARM_BLOCKS blocks for all ranks together, and a rank
stays named until the evidence is gone. The same test watches the transfer, what even the last rank waits: it grows when a link
gets slow and nobody is late.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import sub
from typing import TYPE_CHECKING

from distmon.core.batches import UNKNOWN, USUAL, Batch, Int64s
from distmon.core.quantiles import median

if TYPE_CHECKING:
    Lateness = array[float]
else:
    Lateness = array  # Python 3.11 cannot subscript it, and the states' codec resolves annotations

BLOCK = 5
MANY_RANKS, VERY_MANY_RANKS = 64, 1024
"""With more ranks, blocks are twice and four times as long: the work per rank halves, and the usual wait is known better."""
SKIPPED_BLOCKS = 2
"""The first steps compile and fill caches, on every rank as it likes."""
ALARM_BLOCKS = 50_000
SHIFTS = (0.02, 0.08)
_CALIBRATION = 4
"""Blocks from which the noise is known well enough to start."""
_MEMORY = 100
"""Blocks that the noise and the usual transfer are averaged over."""
_FAR = 8
"""Blocks so far apart differ by more than neighbours do where lateness wanders slowly, as on a machine that others use too."""
_CHANCE = 0.25
_LEAST_NOISE = 0.002
_CAUTION = 1.12
"""Noise is taken to be so much larger than neighbouring blocks show, as it wanders."""
_MAX_PENDING = 1_024
BOUND_ON, BOUND_OFF = 0.20, 0.16
"""Shares of the step from which the transfer counts as what bounds the job, and under which no longer."""
_SHARE_BLOCKS = 20
MAX_EPISODES = 64


@dataclass(slots=True, frozen=True)
class Episode:
    """A past lateness of a rank (None: slow transfer of all), in steps; `share` of the step, mean over it."""

    rank: int | None
    first_step: int
    last_step: int
    share: float


@dataclass(slots=True)
class Shift:
    """A sequential test for a series having moved up, in shares of the step."""

    evidence: list[float] = field(default_factory=lambda: [0.0] * len(SHIFTS))
    named: bool = False
    since: int = 0
    """The step from which the evidence speaks."""
    blocks: int = 0
    total: float = 0.0
    squares: float = 0.0
    """Of the blocks since then."""

    @property
    def mean(self) -> float:
        """Mean share of the step since `since`."""
        return self.total / self.blocks if self.blocks else 0.0

    def add(self, value: float, noise: float, alarm: float, step: int) -> bool:
        """Takes in the next block; whether a named shift has ended with it."""
        resting = not any(self.evidence)
        for i, shift in enumerate(SHIFTS):
            score = shift / (noise * noise) * (value - shift / 2)
            # One block alone, however bad, is a stall: it takes four for an alarm.
            score = min(max(score, -alarm / 3), alarm / 4)
            self.evidence[i] = min(max(self.evidence[i] + score, 0.0), 1.5 * alarm)
        most = max(self.evidence)
        if most == 0.0:
            ended, self.named = self.named, False
            return ended
        if resting:
            self.since, self.blocks, self.total, self.squares = step, 0, 0.0, 0.0
        self.blocks += 1
        self.total += value
        self.squares += value * value
        self.named = self.named or most >= alarm
        return False


@dataclass(slots=True)
class Arrival:
    """One rank's waits that are not joined yet, from `first_step` on, and its test."""

    first_step: int
    waits: Int64s = field(default_factory=lambda: array("I"))
    """Unsigned while all are known; signed, with UNKNOWN, else."""
    late: Shift = field(default_factory=Shift)

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
    block: int = BLOCK
    blocks: int = 0
    before: list[Lateness] = field(default_factory=list)
    """Of the ranks in the last _FAR blocks, in the order of `ranks`; those that came later are missing at the end."""
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
    noise: float = 0.0
    """Mean absolute difference of a rank's lateness between neighbouring blocks, typical rank."""
    far_noise: float = 0.0
    """The same of blocks that are _FAR apart."""
    slow: Shift = field(default_factory=Shift)
    usual_transfer: float = 0.0
    last_transfer: float = 0.0
    transfer_noise: float = 0.0
    transfer_share: float = 0.0
    """Of the step, mean of the last _SHARE_BLOCKS blocks, forgetting slowly."""
    transfer_bound: bool = False
    episodes: list[Episode] = field(default_factory=list)

    def add(self, told: Sequence[tuple[int, str, Batch]], expected: int) -> None:
        """Takes in batches by rank; blocks that all `expected` ranks have told are joined at once."""
        self.expected = expected
        if not self.blocks:
            self.block = BLOCK * (1 if expected <= MANY_RANKS else 2 if expected <= VERY_MANY_RANKS else 4)
        lead = next(iter(self.ranks), None)
        for rank, _, batch in told:
            first_step, count, _, _, columns, numbers, _ = batch
            arrival = self.ranks.get(rank)
            # Nearly all are such, and there are thousands a second.
            if arrival is not None and rank != lead and columns is USUAL and numbers.typecode == arrival.waits.typecode:
                waits = arrival.waits
                before = arrival.first_step + len(waits)
                if first_step == before and len(waits) + count <= _MAX_PENDING:
                    waits.extend(numbers[3 * count : 4 * count])
                    if before < self.next_step + self.block <= before + count:
                        self.ready += 1
                    continue
            self._add(rank, batch)
        while self.ready >= max(self.expected, len(self.ranks)):
            self._join()

    def _add(self, rank: int, batch: Batch) -> None:
        arrival = self.ranks.get(rank)
        if arrival is None:
            arrival = self.ranks[rank] = Arrival(first_step=self.next_step)
        before = arrival.first_step + len(arrival.waits)
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
        self.ready += before < self.next_step + self.block <= before + skipped + count
        if len(arrival.waits) > _MAX_PENDING and self.ready < max(self.expected, len(self.ranks)):
            self._restart(arrival.first_step + len(arrival.waits))

    def _restart(self, step: int) -> None:
        """Gives up what could not be joined, and the evidence with it."""
        self.next_step, self.ready, self.durations, self.before, self.suspects = step, 0, [], [], set()
        self.ranks = {rank: Arrival(first_step=step) for rank in self.ranks}

    def _join(self) -> None:
        block = self.block
        rows = []
        self.ready = 0
        for arrival in self.ranks.values():
            waits = arrival.waits
            rows.append(waits[:block])
            del waits[:block]
            arrival.first_step += block
            if len(waits) >= block:
                self.ready += 1
        duration = sum(self.durations[:block])
        del self.durations[:block]
        self.next_step += block
        self.blocks += 1
        if len(rows) < 2 or duration <= 0:
            return
        least = [*map(min, zip(*rows, strict=True))]
        if min(least) > UNKNOWN:
            self._weigh(list(map(sum, rows)), sum(least), duration)

    def _weigh(self, sums: list[int], transfer: int, duration: int) -> None:
        """A block of which all ranks' waits are known: their sums, and what even the last rank waited."""
        self.joined_steps += self.block
        self.joined_ns += duration
        self.transfer_ns += transfer
        self.waiting_ns += sum(sums) - len(sums) * transfer
        if self.blocks <= SKIPPED_BLOCKS:
            return
        settled = self.blocks - SKIPPED_BLOCKS
        self._weigh_ranks(_lateness(sums, duration), settled)
        self._weigh_transfer(transfer / duration, settled)

    def _weigh_ranks(self, lateness: Lateness, settled: int) -> None:
        """By columns: there are thousands of ranks, and most are on time most of the time."""
        before = self.before
        if before:
            self.noise = _averaged(self.noise, _typical_change(lateness, before[-1]), settled - 1)
        if len(before) == _FAR and before[0]:
            self.far_noise = _averaged(self.far_noise, _typical_change(lateness, before[0]), settled - _FAR)
        before.append(lateness)
        del before[:-_FAR]
        if settled <= _CALIBRATION:
            return
        alarm = math.log(ALARM_BLOCKS * len(lateness))
        noise = _deviation(self.noise, self.far_noise)
        least, suspects = SHIFTS[0] / 2, self.suspects
        for rank, value in [(r, v) for r, v in zip(self.ranks, lateness, strict=True) if v > least or r in suspects]:
            shift = self.ranks[rank].late
            self._tested(shift, rank, value, noise, alarm)
            if any(shift.evidence):
                suspects.add(rank)
            else:
                suspects.discard(rank)

    def _weigh_transfer(self, share: float, settled: int) -> None:
        if settled > 1:
            self.transfer_noise = _averaged(self.transfer_noise, abs(share - self.last_transfer), settled - 1)
        self.last_transfer = share
        self.transfer_share += (share - self.transfer_share) / min(settled, _SHARE_BLOCKS)
        self.transfer_bound = self.transfer_share >= (BOUND_OFF if self.transfer_bound else BOUND_ON)
        if settled > _CALIBRATION:
            noise = _deviation(self.transfer_noise, 0.0)
            self._tested(self.slow, None, share - self.usual_transfer, noise, math.log(ALARM_BLOCKS))
        if not any(self.slow.evidence):
            self.usual_transfer = _averaged(self.usual_transfer, share, settled)

    def _tested(self, shift: Shift, rank: int | None, value: float, noise: float, alarm: float) -> None:
        first = self.next_step - self.block
        if shift.add(value, noise, alarm, first) and len(self.episodes) < MAX_EPISODES:
            self.episodes.append(Episode(rank, shift.since, first - 1, shift.mean))

    def late_ranks(self) -> dict[int, Shift]:
        """The ranks that are late now, the latest first."""
        named = [(rank, arrival.late) for rank, arrival in self.ranks.items() if arrival.late.named]
        return dict(sorted(named, key=lambda item: -item[1].mean))


def _lateness(sums: list[int], duration: int) -> Lateness:
    """The usual wait of the others less a rank's own, as a share of the step."""
    if len(sums) == 2:
        a, b = sums
        return array("d", ((b - a) / duration, (a - b) / duration))
    usual = median(sums) or 0.0
    return array("d", [(usual - own) / duration for own in sums])


def _averaged(mean: float, value: float, count: int) -> float:
    """A mean of `count` values, this one included, that forgets after _MEMORY blocks; stalls count for no more than 5 means."""
    if count > 2 * _CALIBRATION and mean > 0:
        value = min(value, 5 * mean)
    return mean + (value - mean) / min(count, _MEMORY)


def _typical_change(now: Lateness, before: Lateness) -> float:
    """Of the ranks that took part in both."""
    changes: list[float] = sorted(map(abs, map(sub, now, before)))
    return changes[len(changes) // 2]


def _deviation(near: float, far: float) -> float:
    """The standard deviation that counts for a sum over blocks, from mean absolute differences, which are 2 sigma / sqrt(pi).

    Where blocks far apart differ clearly more than neighbours, lateness wanders with a correlation rho of 1 - near^2 / far^2, and
    the variance counts (1 + rho) / (1 - rho) times. Chance alone, or the begin of a lateness, makes for some of that.
    """
    rho = 1 - (near / far) ** 2 if far > near else 0.0
    rho = min(max((rho - _CHANCE) / (1 - _CHANCE), 0.0), 0.9)
    return max(_CAUTION * near / (1 - rho) * math.sqrt(math.pi * (1 + rho)) / 2, _LEAST_NOISE)


def shares(found: Iterable[Shift]) -> list[float]:
    """What part of the lateness of all each has."""
    means: Sequence[float] = [shift.mean for shift in found]
    total = math.fsum(means)
    return [mean / total if total > 0 else 0.0 for mean in means]
