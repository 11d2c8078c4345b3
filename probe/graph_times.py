"""Times from inside a TensorFlow graph: small ops note when the batch was there, and when gradients were reduced.

Python sees a training function only when it is traced. So the trace gets ops that write clock readings into two ring
variables on the CPU; Python reads them back about once a second (a read costs as much as a tenth of a small step) and
splits the calls of that second. Until then the steps are held back here.

The order of the ops is the point. Control dependencies on the outputs of Horovod's own nested function are dropped when
TensorFlow inlines it, so the clock ops hang on identities of ours: one beside the gradients before, one for each gradient after.
"""

import time
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

from .ring import UNSEEN, monotonic_ns
from .steps import StepTimer

ROWS = 1024
HELD = 256
"""Calls held back at most. Each writes one row, or as many as it has inner steps."""
PERIOD_NS = 1_000_000_000
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
    """The ring variables, the ops that write them, and the steps that wait for them."""

    def __init__(self, tensorflow: Any, timer: StepTimer) -> None:
        self._tf = tensorflow
        self._timer = timer
        self._batches: Any = None
        self._reductions: Any = None
        self._batches_read = 0
        self._reductions_read = 0
        self._held: List[Held] = []
        self._flushed_ns = monotonic_ns()

    # Into the graph

    def note_batch(self, tensors: Sequence[Any]) -> None:
        """Add ops that note when `tensors` are there, and how many samples they hold, to the graph of `tensors`."""
        tf = self._tf
        self._make_variables()
        with tf.control_dependencies(list(tensors)), tf.device("/cpu:0"):
            now = tf.timestamp()
            # What uses the batch waits for the clock: else the forward pass may run before it is read.
            for consumer in {consumer for tensor in tensors for consumer in tensor.consumers()}:
                consumer._add_control_input(now.op)
            first = next((tensor for tensor in tensors if tensor.shape.rank != 0), None)
            samples = tf.constant(0.0, tf.float64) if first is None else tf.cast(tf.shape(first)[0], tf.float64)
            self._write(self._batches, [now, samples])

    def note_reduction(self, gradients: Sequence[Any], reduce: Callable[[List[Any]], Sequence[Any]]) -> List[Any]:
        """Reduce `gradients` by `reduce`, with ops around it that note the time before and after."""
        tf = self._tf
        self._make_variables()
        # One op beside the way that the gradients take, so that each is still reduced as soon as it is there.
        with tf.control_dependencies(tf.identity_n(_dense(gradients))), tf.device("/cpu:0"):
            before = tf.timestamp()
        reduced = [self._identity(gradient) for gradient in reduce(list(gradients))]
        with tf.control_dependencies(_dense(reduced)), tf.device("/cpu:0"):
            after = tf.timestamp()
            written = self._write(self._reductions, [before, after])
        # One gradient waits for the clock to be noted: else nothing needs the note, and it may come late or never.
        first = next(index for index, gradient in enumerate(reduced) if gradient is not None)
        with tf.control_dependencies([written]):
            reduced[first] = self._identity(reduced[first])
        return reduced

    def _identity(self, gradient: Any) -> Any:
        tf = self._tf
        if isinstance(gradient, tf.IndexedSlices):
            return tf.IndexedSlices(tf.identity(gradient.values), gradient.indices, gradient.dense_shape)
        return None if gradient is None else tf.identity(gradient)

    def _make_variables(self) -> None:
        if self._batches is not None:
            return
        tf = self._tf
        with tf.init_scope(), tf.device("/cpu:0"):
            self._batches, self._reductions = (
                (
                    tf.Variable(tf.zeros([ROWS, 2], tf.float64), trainable=False, name="distmon_times"),
                    tf.Variable(tf.constant(0, tf.int64), trainable=False, name="distmon_count"),
                )
                for _ in range(2)
            )

    def _write(self, ring: Any, row: Sequence[Any]) -> Any:
        """Ops that put `row` into the next place of `ring`; returns the last of them."""
        tf = self._tf
        rows, count = ring
        place = tf.math.floormod(count.assign_add(1, read_value=True) - 1, ROWS)
        return tf.raw_ops.ResourceScatterUpdate(resource=rows.handle, indices=place, updates=tf.stack(row))

    # Out of the graph

    def hold(self, numbers: Tuple[int, ...], calls: List[Call], reduced: bool) -> None:
        """Keep a step until its times are read, which happens here when it is time."""
        self._held.append(Held(numbers, calls, reduced))
        if len(self._held) >= HELD or monotonic_ns() - self._flushed_ns > PERIOD_NS:
            self.flush()

    def flush(self) -> None:
        """Read the times back and write the steps that waited for them."""
        held, self._held = self._held, []
        self._flushed_ns = monotonic_ns()
        if not held:
            return
        wanted = sum(call.rows for step in held for call in step.calls)
        batches, self._batches_read = self._read(self._batches, self._batches_read)
        reductions, self._reductions_read = self._read(self._reductions, self._reductions_read)
        if batches and len(batches) != wanted:
            self._timer.unseen("samples", LOST)
            batches = []
        if reductions and len(reductions) != sum(step.reduced * step.calls[-1].rows for step in held):
            self._timer.unseen("exposed_communication", LOST)
            reductions = []
        write = self._timer.ring.step
        for step in held:
            rows = [[batches.pop(0) if batches else (0.0, 0.0) for _ in range(call.rows)] for call in step.calls]
            reduction = [reductions.pop(0) for _ in range(step.calls[-1].rows)] if reductions and step.reduced else []
            for numbers in finish(step, rows, reduction):
                write(*numbers)

    def _read(self, ring: Any, read: int) -> Tuple[List[Tuple[float, float]], int]:
        """New rows of `ring` after the first `read`, oldest first, and how many there are now in all."""
        if ring is None:
            return [], read
        count = int(ring[1].numpy())
        if count == read or count - read > ROWS:
            return [], count
        rows = ring[0].numpy().tolist()
        return [(rows[at % ROWS][0], rows[at % ROWS][1]) for at in range(read, count)], count


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
