"""Times from inside a TensorFlow graph: small ops note when the batch was there, and when gradients were reduced.

Python sees a training function only when it is traced. So the trace gets ops that write clock readings into a
queue on the CPU; Python empties it about once a second (which costs as much as a tenth of a small step) and splits the
calls of that second. Until then the steps are held back here. A queue takes one op to write to; it has no bound, for one
that is full would hold the training: `unread` sees to it that nobody forgets to empty it.

The order of the ops is the point. Control dependencies on the outputs of Horovod's own nested function are dropped when
TensorFlow inlines it, so the clock ops hang on identities of ours where a function made the gradient.
"""

import time
from threading import Lock
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

from .hot import HELD
from .ring import UNSEEN, monotonic_ns
from .steps import StepTimer

PERIOD_NS = 1_000_000_000
NOTHING = (0, 0)
"""The half of a row that is not written."""
LOST = "the clock readings in the graph did not come back in order"


class Call(NamedTuple):
    """One call of a training function."""

    wall_s: float
    """Wall clock at its start, the clock that the graph reads; 0 if the call traced the graph before it ran it."""
    duration_ns: int
    rows: int
    """Batches that it took."""


class Held(NamedTuple):
    """A step that waits for its times: the ring's numbers, and its calls (one, or one per micro-batch)."""

    numbers: Tuple[int, ...]
    calls: List[Call]
    reduced: bool
    """The graph notes the reduction."""


class GraphTimes:
    """The queue, the ops that write to it, and the steps that wait for what is in it."""

    def __init__(self, tensorflow: Any, timer: StepTimer) -> None:
        self._tf = tensorflow
        self._timer = timer
        self._queue: Any = None
        self._unread = 0
        self._emptying = Lock()
        self._held: List[Held] = []
        self.calls: List[Tuple[int, ...]] = []
        """Calls after those that `_held` holds, each a step of its own: the ring's numbers as counted, the wall clock at the
        call's start, its duration (`hot.timed_calls` adds to this very list)."""
        timer.flush_at = monotonic_ns() + PERIOD_NS

    # Into the graph

    def note_batch(self, tensors: Sequence[Any]) -> None:
        """Add ops that note when `tensors` are there, and how many samples they hold, to the graph of `tensors`."""
        with tensors[0].graph.as_default():
            self._write(self._batch_row(tensors), NOTHING)

    def _batch_row(self, tensors: Sequence[Any]) -> List[Any]:
        tf = self._tf
        with tf.control_dependencies(list(tensors)), tf.device("/cpu:0"):
            now = tf.timestamp()
            # What uses the batch waits for the clock: else the forward pass may run before it is read.
            for consumer in {consumer for tensor in tensors for consumer in tensor.consumers()}:
                consumer._add_control_input(now.op)
            first = next((tensor for tensor in tensors if tensor.shape.rank != 0), None)
            return [now, 0 if first is None else tf.shape(first)[0]]

    def note_reduction(
        self, gradients: Sequence[Any], reduce: Callable[[List[Any]], Sequence[Any]], batch: Sequence[Any]
    ) -> List[Any]:
        """Reduce `gradients` by `reduce`, with ops around it that note the time before and after.

        Notes `batch` too, if it is in the same graph: one write for both. Else it is empty.
        """
        tf = self._tf
        row = self._batch_row(batch) if batch else NOTHING
        # Beside the way that the gradients take, so that each is still reduced as soon as it is there.
        with tf.control_dependencies([self._anchor(gradient) for gradient in _dense(gradients)]), tf.device("/cpu:0"):
            before = tf.timestamp()
        reduced = list(reduce(list(gradients)))
        with tf.control_dependencies([self._anchor(gradient) for gradient in _dense(reduced)]), tf.device("/cpu:0"):
            after = tf.timestamp()
        self._write(row, [before, after])
        # One gradient waits for the clock: else it may be read late.
        first = next(index for index, gradient in enumerate(reduced) if gradient is not None)
        with tf.control_dependencies([after]):
            reduced[first] = self._identity(reduced[first])
        return reduced

    def _anchor(self, tensor: Any) -> Any:
        """What a control dependency on `tensor` can hang on: a function's result is nothing but data once it is inlined."""
        made_by_function = any(attribute.type in ("func", "list(func)") for attribute in tensor.op.op_def.attr)
        return self._tf.identity(tensor) if made_by_function else tensor

    def _identity(self, gradient: Any) -> Any:
        tf = self._tf
        if isinstance(gradient, tf.IndexedSlices):
            return tf.IndexedSlices(tf.identity(gradient.values), gradient.indices, gradient.dense_shape)
        return tf.identity(gradient)

    def _write(self, batch: Sequence[Any], reduction: Sequence[Any]) -> None:
        """An op that adds a row to the queue; a `tf.function` runs it without being asked, for it has an effect."""
        tf = self._tf
        with tf.device("/cpu:0"):
            if self._queue is None:
                types = [tf.float64, tf.int32, tf.float64, tf.float64]
                with tf.init_scope():
                    self._queue = tf.queue.FIFOQueue(-1, types, [[]] * len(types), name="distmon_times")
            self._queue.enqueue([*batch, *reduction])

    # Out of the graph

    def hold(self, numbers: Tuple[int, ...], calls: List[Call], reduced: bool) -> None:
        """Keep a step until its times are read, which happens here when it is time."""
        self._held += [self._as_held(row) for row in self.calls]
        self.calls.clear()
        self._held.append(Held(numbers, calls, reduced))
        if len(self._held) >= HELD or monotonic_ns() > self._timer.flush_at:
            self.flush()

    def _as_held(self, row: Tuple[int, ...]) -> Held:
        numbers = (*row[:5], *self._timer.seen_of(row[5:9], row[9], 1))
        return Held(numbers, [Call(row[11] / 1e9, row[12], 1)], True)

    def flush(self) -> None:
        """Read the times back and write the steps that waited for them."""
        held, self._held = self._held, []
        plain, self.calls[:] = self.calls[:], []
        self._timer.flush_at = monotonic_ns() + PERIOD_NS
        if not held and not plain:
            return
        batches, reductions = self._empty()
        if batches and len(batches) != len(plain) + sum(call.rows for step in held for call in step.calls):
            self._timer.unseen("samples", LOST)
            batches = []
        if reductions and len(reductions) != len(plain) + sum(step.reduced * step.calls[-1].rows for step in held):
            self._timer.unseen("exposed_communication", LOST)
            reductions = []
        there, reduced = iter(batches), iter(reductions)
        write = self._timer.ring.step
        for step in held:
            rows = [[next(there, NOTHING) for _ in range(call.rows)] for call in step.calls]
            reduction = [next(reduced) for _ in range(step.calls[-1].rows)] if reductions and step.reduced else []
            for numbers in finish(step, rows, reduction):
                write(*numbers)
        for row in plain:
            batch, between = next(there, NOTHING), next(reduced, NOTHING)
            numbers = finish_plain(row, batch, between)
            write(*(numbers or finish(self._as_held(row), [[batch]], [between] if reductions else [])[0]))

    def unread(self) -> None:
        """A call wrote rows that belong to no step of ours."""
        self._unread += 1
        if self._unread >= HELD:
            self._empty()

    def _empty(self) -> Tuple[List[Tuple[float, float]], List[Tuple[float, float]]]:
        """What was written since the last time: batches (when, samples) and reductions (from, to), oldest first."""
        # Two threads that empty one queue would wait for each other's rows.
        if not self._emptying.acquire(blocking=False):
            return [], []
        try:
            self._unread = 0
            count = 0 if self._queue is None else int(self._queue.size())
            if not count:
                return [], []
            there, samples, before, after = (column.numpy().tolist() for column in self._queue.dequeue_many(count))
        finally:
            self._emptying.release()
        return [row for row in zip(there, samples) if row[0]], [row for row in zip(before, after) if row[1]]


def finish_plain(row: Tuple[int, ...], batch: Tuple[float, float], reduction: Tuple[float, float]) -> Tuple[int, ...]:
    """The ring's numbers of one of `GraphTimes.calls`, if all of its times are there and in order; else empty."""
    wall, duration = row[11] / 1e9, row[12]
    wait = int((batch[0] - wall) * 1e9)
    before, after = int((reduction[0] - wall) * 1e9), int((reduction[1] - wall) * 1e9)
    if not (batch[1] and 0 <= wait <= before <= after <= duration):
        return ()
    counted = (row[5] + wait, row[6] + before - wait, row[7] + after - before, row[8] + duration - after)
    return (*row[:5], *counted, int(batch[1]), 1)


def finish(step: Held, batches: List[List[Tuple[float, float]]], reductions: List[Tuple[float, float]]) -> List[Tuple[int, ...]]:
    """The ring's numbers of a held step: one step, or the inner steps of a call that took several at once."""
    inner = step.calls[-1].rows
    if inner > 1:
        return _inner_steps(step.numbers, inner, batches[-1])
    split = [0, 0, 0, 0]
    seen = [step.numbers[5] != UNSEEN] + [bool(reductions)] * 3
    samples = sum(int(rows[0][1]) for rows in batches)
    for call, rows in zip(step.calls, batches):
        there = rows[0][0]
        reduction = reductions[0] if reductions and call is step.calls[-1] else None
        parts = split_call(call, there, reduction)
        if parts is None:
            return [_unsplit(step.numbers, samples)]
        split = [total + part for total, part in zip(split, parts)]
        seen[0] = seen[0] or there > 0
    values = [(max(number, 0) + part if known else UNSEEN) for number, part, known in zip(step.numbers[5:9], split, seen)]
    return [step.numbers[:5] + tuple(values) + (samples or step.numbers[9], step.numbers[10])]


def split_call(call: Call, there: float, reduction: Optional[Tuple[float, float]]) -> Optional[List[int]]:
    """Input wait, compute, exposed communication and optimizer of one call, which they add up to; None if times disagree."""
    wait = _since(call, there) if there else 0
    if reduction is None:
        marks = [0, wait, call.duration_ns, call.duration_ns, call.duration_ns]
    else:
        marks = [0, wait, _since(call, reduction[0]), _since(call, reduction[1]), call.duration_ns]
    if marks != sorted(marks) or not call.wall_s:
        return None
    return [end - start for start, end in zip(marks, marks[1:])]


def _since(call: Call, wall_s: float) -> int:
    return int((wall_s - call.wall_s) * 1e9)


def _unsplit(numbers: Tuple[int, ...], samples: int) -> Tuple[int, ...]:
    return numbers[:5] + (UNSEEN,) * 4 + (samples or numbers[9], numbers[10])


def _inner_steps(numbers: Tuple[int, ...], inner: int, rows: List[Tuple[float, float]]) -> List[Tuple[int, ...]]:
    """A call that took several steps at once: each gets an equal share of the time, and no split."""
    first, generation, epoch, start, duration = numbers[:5]
    share = duration // inner
    steps: List[Tuple[int, ...]] = []
    for index in range(inner):
        length = share if index < inner - 1 else duration - share * (inner - 1)
        samples = int(rows[index][1]) or UNSEEN
        at = (first + index, generation, epoch, start + share * index, length)
        steps.append(at + (UNSEEN,) * 4 + (samples, 1))
    return steps


def _dense(gradients: Sequence[Any]) -> List[Any]:
    """The tensors that hold the values."""
    return [getattr(gradient, "values", gradient) for gradient in gradients if gradient is not None]


def wall_s() -> float:
    """Wall clock in seconds, the clock of `tf.timestamp`."""
    return time.time()
