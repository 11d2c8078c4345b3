"""What runs at every step, with the numbers that it counts: in machine code where that was built, else in Python.

A step's cost is mostly that of code and data which the training has driven out of the processor's caches since the last
one. `_native.c` needs far less of both. What is here does the same, written out rather than called, and serves where the
machine that distmon was installed on had no compiler, or is of another kind than this one.
"""

import time
from threading import get_ident
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple

from . import ring
from .ring import monotonic_ns

if TYPE_CHECKING:
    from .steps import StepTimer

Function = Callable[..., Any]

INPUT_WAIT, COMPUTE, EXPOSED, OPTIMIZER = PHASES = range(4)
GRAPH = 4

NO_GRAPH, PLAIN, TRACING = range(3)
"""Of the call of a `tf.function` that runs now: none, one that is a step and nothing else, one to be watched."""

HELD = 256
"""Calls held back at most. Each writes one row, or as many as it has inner steps."""


class PlainCounters:
    """What was counted of the running step, and how to go on. Times are CLOCK_MONOTONIC nanoseconds."""

    __slots__ = (
        "attention",
        "backwards",
        "batch_size",
        "batches",
        "compute",
        "cut",
        "epoch",
        "exposed",
        "feeding",
        "flush_at",
        "full_batches",
        "generation",
        "gpu",
        "graph",
        "in_graph",
        "in_step",
        "manual",
        "mark",
        "optimizer",
        "samples",
        "seen_all",
        "slots",
        "start",
        "step",
        "thread",
        "wait",
    )

    thread: int
    """The one that is timed; 0 while nothing is, so that one comparison switches every hook off."""
    feeding: int
    """The id of the iterator that gave the last batch, if it is known to train; else 0."""
    full_batches: int
    """The batches that come next have `batch_size` samples each: so many need not be looked at."""
    batch_size: int
    graph: int
    """The id of the `tf.function` of which each call is a step, if there is one; else 0."""
    in_graph: int
    flush_at: int
    """When calls that are held back are to be written."""
    step: int
    generation: int
    epoch: int
    start: int
    mark: int
    """The end of what was counted last."""
    cut: int
    """Time since `start` that is no part of the step."""
    wait: int
    compute: int
    exposed: int
    optimizer: int
    samples: int
    batches: int
    backwards: int
    attention: bool
    """The next step needs more than its numbers written."""
    in_step: bool
    """An optimizer step has begun and not ended."""
    manual: bool
    """The script says itself where its steps end."""
    seen_all: bool
    """Hooks see every phase, and samples."""
    gpu: Optional[Any]
    """Times the same phases on the GPU's clock (`cuda_events.py`), where training runs on one."""
    slots: Optional[Any]


def plain_batches(timer: "StepTimer", count_samples: Callable[[Any], int], original: Function) -> Function:
    def __next__(self: Any) -> Any:
        if timer.thread != get_ident():
            return original(self)
        timer.mark = monotonic_ns()
        if id(self) != timer.feeding:
            timer.batch_wanted(id(self))
        try:
            batch = original(self)
        except BaseException:
            timer.batches_ended(id(self))
            raise
        now = monotonic_ns()
        timer.wait += now - timer.mark
        timer.mark = now
        timer.batches += 1
        if timer.full_batches > 0:
            timer.full_batches -= 1
            timer.samples += timer.batch_size
        else:
            timer.samples += count_samples(batch)
        if timer.gpu is not None:
            timer.gpu.mark(INPUT_WAIT)
        return batch

    return __next__


def plain_backward(timer: "StepTimer", original: Function) -> Function:
    def backward(*args: Any, **kwargs: Any) -> Any:
        if timer.thread != get_ident():
            return original(*args, **kwargs)
        result = original(*args, **kwargs)
        now = monotonic_ns()
        timer.compute += now - timer.mark
        timer.mark = now
        timer.backwards += 1
        if timer.attention:
            timer.training_begins()
        if timer.gpu is not None:
            timer.gpu.mark(COMPUTE)
        return result

    return backward


def plain_synchronize(
    timer: "StepTimer", functions: Dict[str, Any], name: str, unhooked: Function, original: Function
) -> Function:
    hooked = functions[name]

    def synchronize(self: Any) -> Any:
        if timer.thread != get_ident():
            return original(self)
        if not timer.in_step:
            timer.mark = monotonic_ns()
        # The optimizer waits once per tensor: time the whole, and let the single waits go past the hook.
        functions[name] = unhooked
        try:
            result = original(self)
        finally:
            functions[name] = hooked
        now = monotonic_ns()
        timer.exposed += now - timer.mark
        timer.mark = now
        if timer.gpu is not None:
            timer.gpu.mark(EXPOSED)
        return result

    return synchronize


def plain_step(timer: "StepTimer", original: Function) -> Function:
    def step(self: Any, closure: Any = None) -> Any:
        if timer.thread != get_ident():
            return original(self, closure)
        timer.mark = monotonic_ns()
        timer.in_step = True
        try:
            result = original(self, closure)
        finally:
            timer.in_step = False
        now = monotonic_ns()
        timer.optimizer += now - timer.mark
        timer.mark = now
        if not timer.manual:
            timer.end_step(now)
        return result

    return step


def plain_calls(
    timer: "StepTimer",
    original: Function,
    watched: Function,
    calls: List[Tuple[int, ...]],
    due: Callable[[], None],
    traced: Callable[[int, int, int, bool], None],
) -> Function:
    def __call__(function: Any, *args: Any, **kwargs: Any) -> Any:
        if timer.thread != get_ident() or timer.graph != id(function) or timer.attention or timer.in_graph or timer.manual:
            return watched(function, *args, **kwargs)
        timer.in_graph = PLAIN
        done = False
        start, wall = monotonic_ns(), time.time_ns()
        try:
            result = original(function, *args, **kwargs)
            done = True
        finally:
            end = monotonic_ns()
            plain, timer.in_graph = timer.in_graph == PLAIN, NO_GRAPH
            if not plain:
                traced(start, wall, end, done)
        if plain:
            duration = end - timer.start - timer.cut
            counted = (timer.wait, timer.compute, timer.exposed, timer.optimizer, timer.samples, timer.batches)
            at = (timer.step, timer.generation, timer.epoch, end - duration, duration)
            calls.append((*at, *counted, wall, end - start))
            timer.mark = end
            timer.begin_step(end)
            if end > timer.flush_at or len(calls) >= HELD:
                due()
        return result

    return __call__


if TYPE_CHECKING or ring.native is None:
    Counters = PlainCounters
    timed_batches = plain_batches
    timed_backward = plain_backward
    timed_synchronize = plain_synchronize
    timed_step = plain_step
    timed_calls = plain_calls
else:
    Counters = ring.native.Counters
    TimedCall = ring.native.TimedCall

    def timed_batches(timer: "StepTimer", count_samples: Callable[[Any], int], original: Function) -> Function:
        """`__next__` of a data loader's iterator, timed."""
        return TimedCall(INPUT_WAIT, timer, original, count_samples)

    def timed_backward(timer: "StepTimer", original: Function) -> Function:
        """`torch.autograd.backward`, timed."""
        return TimedCall(COMPUTE, timer, original)

    def timed_synchronize(
        timer: "StepTimer", functions: Dict[str, Any], name: str, unhooked: Function, original: Function
    ) -> Function:
        """`synchronize` of an optimizer, timed; in it, `functions[name]` is `unhooked`."""
        return TimedCall(EXPOSED, timer, original, None, functions, name, unhooked)

    def timed_step(timer: "StepTimer", original: Function) -> Function:
        """`step` of an optimizer, timed; it ends the training step."""
        return TimedCall(OPTIMIZER, timer, original)

    def timed_calls(
        timer: "StepTimer",
        original: Function,
        watched: Function,
        calls: List[Tuple[int, ...]],
        due: Callable[[], None],
        traced: Callable[[int, int, int, bool], None],
    ) -> Function:
        """`__call__` of a `tf.function`, timed: one that is a step and nothing else is added to `calls`.

        Others are `watched`, and one that turned out to be no such call is told to `traced` (start, wall clock, end, whether
        it returned). `due` is called when it is time to write what is in `calls`.
        """
        return TimedCall(GRAPH, timer, original, watched, calls, due, traced)
