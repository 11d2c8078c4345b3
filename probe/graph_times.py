"""Times from inside a TensorFlow graph: which readings of its clocks (`graph_clocks.py`) belong to which step.

The clocks are read about once a second (which costs as much as a tenth of a small step), and the calls of that second split.
Until then the steps are held back here; `unread` sees to it that nobody forgets to read.
"""

import time
from collections import deque
from threading import Lock
from typing import Any, Deque, List, NamedTuple, Optional, Tuple

from .graph_clocks import GraphClocks, Row, Rows
from .hot import HELD
from .ring import UNSEEN, monotonic_ns
from .steps import SPLIT, StepTimer

PERIOD_NS = 1_000_000_000
NOTHING = (0, 0)
"""In place of a batch's row that is not there."""
LOST = "the clock readings in the graph did not come back in order"
UNCOUNTED = "no tensor of a batch has a dimension to count samples by"
SEVERAL = "one call reduced gradients several times, or took several batches: what lies between them cannot be told apart"
NOTHING_REDUCED = "the call reduced no gradients"
NO_ITERATOR = "no tf.data iterator feeds this loop; waiting for its input lies between its calls, in the rest"


class Call(NamedTuple):
    """One call of a training function."""

    wall_s: float
    """Wall clock at its start, the clock that the graph reads."""
    duration_ns: int
    rows: int
    """Batches that it took."""
    traced: bool
    """It traced the graph before it ran it."""


class Held(NamedTuple):
    """A step that waits for its times: the ring's numbers, and its calls (one, or one per micro-batch)."""

    numbers: Tuple[int, ...]
    calls: List[Call]
    reduced: bool
    """The graph notes the reduction."""


class GraphTimes:
    """The clocks in graphs, and the steps that wait for what they read."""

    def __init__(self, tensorflow: Any, timer: StepTimer) -> None:
        self.clocks = GraphClocks(tensorflow)
        self._timer = timer
        self._unread = 0
        self._emptying = Lock()
        self._batches: Deque[Row] = deque()
        self._reductions: Deque[Row] = deque()
        self._held: List[Held] = []
        self.calls: List[Tuple[int, ...]] = []
        """Calls after those that `_held` holds, each a step of its own: the ring's numbers as counted, the wall clock at the
        call's start, its duration (`hot.timed_calls` adds to this very list)."""
        timer.flush_at = monotonic_ns() + PERIOD_NS

    def hold(self, numbers: Tuple[int, ...], calls: List[Call], reduced: bool) -> None:
        """Keep a step until its times are read, which happens here when it is time."""
        self._held += [self._as_held(row) for row in self.calls]
        self.calls.clear()
        self._held.append(Held(numbers, calls, reduced))
        if len(self._held) >= HELD or monotonic_ns() > self._timer.flush_at:
            self.flush()

    def _as_held(self, row: Tuple[int, ...]) -> Held:
        numbers = (*row[:5], *self._timer.seen_of(row[5:9], row[9], 1))
        return Held(numbers, [Call(row[11] / 1e9, row[12], 1, False)], True)

    def flush(self) -> None:
        """Read the times back and write the steps that waited for them; rows of a step that still runs are kept."""
        held, self._held = self._held, []
        plain, self.calls[:] = self.calls[:], []
        self._timer.flush_at = monotonic_ns() + PERIOD_NS
        if not held and not plain:
            return
        self._read()
        for step in held:
            self._finish(step)
        if plain and not self._finish_all(plain):
            for row in plain:
                self._finish(self._as_held(row))

    def _finish_all(self, plain: List[Tuple[int, ...]]) -> bool:
        """Write these calls if there is just one row of each, or of each a reduction and no batch; else False."""
        begun = plain[0][11] / 1e9
        drop_before(begun, self._batches)
        drop_before(begun, self._reductions)
        if len(self._reductions) != len(plain) or len(self._batches) not in (0, len(plain)):
            return False
        batches, reductions = self._batches or [NOTHING] * len(plain), self._reductions
        finished = [finish_plain(*found) for found in zip(plain, batches, reductions)]
        if not all(finished):
            return False
        write = self._timer.ring.step if self._timer.samples_per_step is None else self._record
        for row, batch, numbers in zip(plain, batches, finished):
            write(*(numbers if batch[0] else self._seen_outside(row, numbers)))
        self._batches.clear()
        self._reductions.clear()
        return True

    def _seen_outside(self, row: Tuple[int, ...], numbers: Tuple[int, ...]) -> Tuple[int, ...]:
        """The numbers of a call whose batch came from outside of the graph, where hooks may have seen it."""
        wait, *_, samples, batches = self._timer.seen_of(numbers[5:9], row[9], 1)
        if samples == UNSEEN:
            self._timer.unseen("samples", UNCOUNTED if self._timer.fed else NO_ITERATOR)
        if wait == UNSEEN:
            self._timer.unseen("input_wait", NO_ITERATOR)
        return (*numbers[:5], wait, *numbers[6:9], samples, batches)

    def _finish(self, step: Held) -> None:
        """Write a step with the rows that were written while its calls ran."""
        rows = [rows_within(call, self._batches) for call in step.calls]
        self._write_step(step, rows, rows_within(step.calls[-1], self._reductions))

    def _write_step(self, step: Held, batches: List[Rows], reductions: Rows) -> None:
        steps = finish(step, batches, reductions)
        for numbers in steps:
            self._record(*numbers)
        if UNSEEN in steps[-1]:
            self._explain(step, steps[-1], batches, reductions)

    def _record(self, *numbers: int) -> None:
        """Write a step, with the samples that the user stated, whatever was counted."""
        stated = self._timer.samples_per_step
        self._timer.ring.step(*(numbers if stated is None else (*numbers[:9], stated, *numbers[10:])))

    def _explain(self, step: Held, numbers: Tuple[int, ...], batches: List[Rows], reductions: Rows) -> None:
        """Say why a step was not seen whole. Why none of its function is split was said when that was traced."""
        no_batch = LOST if any(batches) else NO_ITERATOR
        if numbers[9] == UNSEEN and self._timer.samples_per_step is None:
            self._timer.unseen("samples", UNCOUNTED if all(batches) or self._timer.fed else no_batch)
        if not step.reduced or step.calls[-1].rows > 1 or True in [call.traced for call in step.calls]:
            return
        if _several(batches, reductions):
            for field, number in zip(SPLIT, numbers[5:9]):
                if number == UNSEEN:
                    self._timer.unseen(field, SEVERAL)
        elif numbers[6] == UNSEEN and not reductions:
            for field in SPLIT[1:]:
                self._timer.unseen(field, NOTHING_REDUCED)
        elif numbers[6] == UNSEEN:
            self._timer.unsplit(LOST)
        elif numbers[5] == UNSEEN:
            self._timer.unseen("input_wait", no_batch)

    def unread(self) -> None:
        """A call wrote rows that belong to no step of ours."""
        self._unread += 1
        if self._unread >= HELD:
            self._read()
            self._batches.clear()
            self._reductions.clear()

    def _read(self) -> None:
        """Take what was written since the last time: batches (when, samples) and reductions (from, to), oldest first."""
        # Rows that two threads take at once could come to stand in the wrong order.
        if not self._emptying.acquire(blocking=False):
            return
        try:
            self._unread = 0
            batches, reductions = self.clocks.read()
            self._batches += batches
            self._reductions += reductions
        finally:
            self._emptying.release()


def drop_before(wall_s: float, rows: Deque[Row]) -> None:
    """Take off the rows that are older: calls wrote them that failed, or that are no part of a step."""
    while rows and rows[0][0] < wall_s:
        rows.popleft()


def rows_within(call: Call, rows: Deque[Row]) -> Rows:
    """The rows that were written while a call ran. They and older ones are taken off."""
    drop_before(call.wall_s, rows)
    end = call.wall_s + call.duration_ns / 1e9
    found: Rows = []
    while rows and rows[0][0] <= end:
        found.append(rows.popleft())
    return found


def finish_plain(row: Tuple[int, ...], batch: Row, reduction: Row) -> Tuple[int, ...]:
    """The ring's numbers of one of `GraphTimes.calls`, if its times are in order; else empty.

    Without a batch they begin with the call, and the samples are 0.
    """
    wall, duration = row[11] / 1e9, row[12]
    wait = int((batch[0] - wall) * 1e9) if batch[0] else 0
    before, after = int((reduction[0] - wall) * 1e9), int((reduction[1] - wall) * 1e9)
    if not 0 <= wait <= before <= after <= duration or (batch[0] and not batch[1]):
        return ()
    counted = (row[5] + wait, row[6] + before - wait, row[7] + after - before, row[8] + duration - after)
    return (*row[:5], *counted, int(batch[1]), 1)


def finish(step: Held, batches: List[Rows], reductions: Rows) -> List[Tuple[int, ...]]:
    """The ring's numbers of a held step: one step, or the inner steps of a call that took several at once.

    `batches` has the rows of each call, and `reductions` those of the last one.
    """
    inner = step.calls[-1].rows
    if inner > 1:
        return _inner_steps(step.numbers, inner, batches[-1])
    batches_seen = all(batches)
    samples = sum([int(row[1]) for rows in batches for row in rows]) if batches_seen else 0
    if _several(batches, reductions):
        return [_exposed_alone(step, batches, reductions, samples)]
    split = [0, 0, 0, 0]
    last = step.calls[-1]
    for call, rows in zip(step.calls, batches):
        reduction = reductions[0] if reductions and call is last else None
        parts = split_call(call, rows[0][0] if batches_seen else 0, reduction)
        if parts is None:
            return [_unsplit(step.numbers, samples)]
        split = [total + part for total, part in zip(split, parts)]
    seen = [step.numbers[5] != UNSEEN or batches_seen] + [step.reduced and bool(reductions)] * 3
    values = [(max(number, 0) + part if known else UNSEEN) for number, part, known in zip(step.numbers[5:9], split, seen)]
    return [step.numbers[:5] + tuple(values) + (samples or step.numbers[9], step.numbers[10])]


def split_call(call: Call, there: float, reduction: Optional[Row]) -> Optional[List[int]]:
    """Input wait, compute, exposed communication and optimizer of one call, which they add up to; None if times disagree."""
    wait = _since(call, there) if there else 0
    if reduction is None:
        marks = [0, wait, call.duration_ns, call.duration_ns, call.duration_ns]
    else:
        marks = [0, wait, _since(call, reduction[0]), _since(call, reduction[1]), call.duration_ns]
    if marks != sorted(marks) or call.traced:
        return None
    return [end - start for start, end in zip(marks, marks[1:])]


def _several(batches: List[Rows], reductions: Rows) -> bool:
    """Whether a call did more than one step does: what comes between two reductions is an optimizer's and compute, by turns."""
    return len(reductions) > 1 or any(len(rows) > 1 for rows in batches)


def _exposed_alone(step: Held, batches: List[Rows], reductions: Rows, samples: int) -> Tuple[int, ...]:
    """The ring's numbers of a step with several reductions: times of which one was under way, and the wait for a single batch."""
    wait, exposed = UNSEEN, UNSEEN
    if step.reduced and not any(call.traced for call in step.calls):
        if [len(rows) for rows in batches] == [1] * len(batches):
            wait = max(step.numbers[5], 0) + sum(_since(call, rows[0][0]) for call, rows in zip(step.calls, batches))
        exposed = max(step.numbers[7], 0) + int(_covered_s(reductions) * 1e9)
    return (*step.numbers[:5], wait, UNSEEN, exposed, UNSEEN, samples or step.numbers[9], step.numbers[10])


def _covered_s(spans: Rows) -> float:
    """Seconds that at least one of the spans covers."""
    covered = until = 0.0
    for begun, ended in sorted(spans):
        covered += max(0.0, ended - max(begun, until))
        until = max(until, ended)
    return covered


def _since(call: Call, wall_s: float) -> int:
    return int((wall_s - call.wall_s) * 1e9)


def _unsplit(numbers: Tuple[int, ...], samples: int) -> Tuple[int, ...]:
    return numbers[:5] + (UNSEEN,) * 4 + (samples or numbers[9], numbers[10])


def _inner_steps(numbers: Tuple[int, ...], inner: int, rows: Rows) -> List[Tuple[int, ...]]:
    """A call that took several steps at once: each gets an equal share of the time, and no split."""
    first, generation, epoch, start, duration = numbers[:5]
    share = duration // inner
    steps: List[Tuple[int, ...]] = []
    for index in range(inner):
        length = share if index < inner - 1 else duration - share * (inner - 1)
        samples = (int(rows[index][1]) if len(rows) == inner else 0) or UNSEEN
        at = (first + index, generation, epoch, start + share * index, length)
        steps.append(at + (UNSEEN,) * 4 + (samples, 1))
    return steps


def wall_s() -> float:
    """Wall clock in seconds, the clock of `tf.timestamp`."""
    return time.time()
