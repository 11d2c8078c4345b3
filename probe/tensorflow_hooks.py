"""TensorFlow: training functions, the reduction of gradients in a graph or eagerly, eager batches and optimizer steps."""

import sys
import weakref
from contextlib import contextmanager
from threading import get_ident
from types import ModuleType
from typing import Any, Callable, Iterator, List, Optional

from .graph_clocks import NO_KERNELS, Taken
from .graph_times import Call, GraphTimes, wall_s
from .hot import NO_GRAPH, PLAIN, TRACING, timed_calls
from .patching import Function, cut, wrap
from .ring import UNSEEN, monotonic_ns
from .steps import COMPUTE, EXPOSED, OPTIMIZER, SPLIT, UNCOUNTABLE, StepTimer
from .worker import Worker, watch

NEVER_REDUCED = (
    "Horovod counted the end of the data as a pass, and so beyond backward_passes_per_step: "
    "it neither reduces nor applies gradients any more"
)

TRACED_ALONE = "a graph that reduces gradients was traced without a call (to save it, say): calls of it alone are not seen"


def install(worker: Worker) -> None:
    """Hook TensorFlow where the script uses it through Horovod."""
    watch.add("horovod.tensorflow", lambda module: worker.timer.attempt("tensorflow", lambda: _install(worker, module)))


def _install(worker: Worker, module: ModuleType) -> None:
    hooks = TensorFlowHooks(worker.timer, sys.modules["tensorflow"])
    worker.flushers.append(hooks.times.flush)
    worker.tensorflow = hooks
    for feature, hook in (
        ("exposed_communication", hooks.hook_reduction),
        ("sync", hooks.hook_broadcast),
        ("step", hooks.hook_functions),
        ("input_wait", hooks.hook_iterators),
    ):
        worker.timer.attempt(feature, lambda hook=hook: hook(module))  # type: ignore[misc]


class Outermost:
    """A call of a `tf.function` from Python, and what its trace showed."""

    def __init__(self, function: Any) -> None:
        self.stack: List[Any] = [function]
        self.trains = False
        self.batch: Optional[Taken] = None
        """What the graph took from its iterator, if no clock is there for it yet."""

    def batch_to_note(self) -> Optional[Taken]:
        """The batch, the first time that it is asked for."""
        batch, self.batch = self.batch, None
        return batch


class TensorFlowHooks:
    """What the hooks of TensorFlow know together."""

    def __init__(self, timer: StepTimer, tensorflow: Any) -> None:
        self.timer = timer
        self.tf = tensorflow
        self.times = GraphTimes(tensorflow, timer)
        self.steps_in_call = 1
        """Steps that Keras takes in one call of the training function (`steps_per_execution`)."""
        self._last_reduced = False
        self._training: Any = weakref.WeakSet()
        self._reduced: Any = weakref.WeakSet()
        self._call: Optional[Outermost] = None
        self._calls: List[Call] = []
        """Those of the step that runs."""
        self._empty_passes = 0
        """Passes that Horovod counted for it beside `_calls`."""
        self._counter: Any = None
        self._plain: Callable[[], Any] = lambda: None
        """The function of which each call is a step."""
        self._seeds_apart = hasattr(sys.modules.get("tensorflow.python.framework.random_seed"), "_graph_to_seed_dict")
        self._busy = False
        """An eager reduction or optimizer step runs; functions called by it are its own."""

    # The reduction of gradients

    def hook_reduction(self, module: Any) -> None:
        """Every way to reduce gradients gets its function from one place."""

        def make(original: Function) -> Function:
            def _make_allreduce_grads_fn(*args: Any, **kwargs: Any) -> Function:
                reduce = original(*args, **kwargs)

                def allreduce_grads(grads: Any, vars: Any = None, use_generic_names: bool = False) -> Any:
                    return self._reduce(lambda some: reduce(some, vars, use_generic_names), grads)

                return allreduce_grads

            return _make_allreduce_grads_fn

        def make_tape(original: Function) -> Function:
            def DistributedGradientTape(*args: Any, **kwargs: Any) -> Any:
                if self.timer.passes_per_step != 1:
                    self.gathers(None)
                self.ask_again()
                return original(*args, **kwargs)

            return DistributedGradientTape

        wrap(module, "_make_allreduce_grads_fn", make)
        wrap(module, "DistributedGradientTape", make_tape)
        self.timer.sees(COMPUTE, EXPOSED)

    def _reduce(self, reduce: Callable[[Any], Any], grads: Any) -> Any:
        timer = self.timer
        if timer.thread != get_ident():
            return reduce(grads)
        if self.tf.executing_eagerly():
            timer.backward_ends()
            self._busy = True
            try:
                reduced = reduce(grads)
            finally:
                self._busy = False
            timer.communication_ends()
            return reduced
        call = self._running()
        if call is None:
            timer.unseen("step", TRACED_ALONE)
            return reduce(grads)
        call.trains = True
        self._training.add(call.stack[0])
        reason = self._why_not()
        if reason:
            timer.unsplit(reason)
            return reduce(grads)
        self._reduced.add(call.stack[0])
        return self._clocked(call, reduce, grads)

    def _clocked(self, call: Outermost, reduce: Callable[[Any], Any], grads: Any) -> Any:
        """Reduce with clocks around it. One that fails leaves what is reduced as it was."""
        clocks, ready = self.times.clocks, None
        result: Any = None

        def before() -> None:
            nonlocal ready
            batch = call.batch_to_note()
            if batch is not None:
                clocks.note_batch(batch)
            ready = clocks.ready(grads)

        def after() -> None:
            nonlocal result
            result = clocks.reduced(ready, result)

        self.timer.attempt("exposed_communication", before)
        result = reduce(grads)
        if ready is not None:
            self.timer.attempt("exposed_communication", after)
        return result

    def _why_not(self) -> str:
        """Why no clock can be put into the graph that is being traced; empty if it can."""
        tf, call = self.tf, self._call
        if call is not None and any(getattr(function, "_jit_compile", False) for function in call.stack):
            return "compiled: no clock inside XLA"
        if tf.config.optimizer.get_jit():
            return "compiled: XLA is on for all graphs"
        if tf.distribute.has_strategy():
            return "tf.distribute strategy"
        if self._on_gpu():
            return "TensorFlow on a GPU: the clock would run ahead of the kernels"
        return "" if self.times.clocks.possible() else NO_KERNELS

    def _on_gpu(self) -> bool:
        return bool(self.tf.config.get_visible_devices("GPU"))

    # Calls of functions

    def hook_functions(self, _: Any) -> None:
        """A call of a `tf.function` that reduces gradients is a step, and so is an eager `apply_gradients`."""
        timer, times = self.timer, self.times

        def make(original: Function) -> Function:
            def watched(function: Any, *args: Any, **kwargs: Any) -> Any:
                return self._watched(original, function, args, kwargs)

            return timed_calls(timer, original, watched, times.calls, lambda: timer.attempt("step", times.flush), self._traced)

        wrap(type(self.tf.function(lambda: None)), "__call__", make)

    def _watched(self, original: Function, function: Any, args: Any, kwargs: Any) -> Any:
        """A call that may be more than a step, or none."""
        if self.timer.thread != get_ident() or self._busy:
            if function in self._reduced:
                self.times.unread()
            return original(function, *args, **kwargs)
        if self._running() is not None:
            return self._nested(original, function, args, kwargs)
        if function in self._training:
            return self._train(original, function, args, kwargs)
        return self._watch(original, function, args, kwargs)

    def _running(self) -> Optional[Outermost]:
        """The call that runs; something happens in it, so that it is more than a plain step."""
        if self.timer.in_graph == PLAIN:
            self.timer.in_graph = TRACING
            self._call = Outermost(self._plain())
        return self._call

    def _traced(self, start: int, wall: int, end: int, returned: bool) -> None:
        """A call that looked like a plain step was more."""
        call, self._call = self._call, None
        if call is not None and returned:
            self._called(call.stack[0], Call(wall / 1e9, end - start, 1, call.trains))

    def _nested(self, original: Function, function: Any, args: Any, kwargs: Any) -> Any:
        """A function called while another is traced."""
        call = self._call
        assert call is not None
        call.stack.append(function)
        if getattr(function, "_jit_compile", False):
            batch = call.batch_to_note()
            if batch is not None and self.times.clocks.possible():
                self.timer.attempt("samples", lambda: self.times.clocks.note_batch(batch))
        try:
            return original(function, *args, **kwargs)
        finally:
            call.stack.pop()

    def _watch(self, original: Function, function: Any, args: Any, kwargs: Any) -> Any:
        """A function that has not trained yet: if it turns out to, while it is traced, this was its first step."""
        start = monotonic_ns()
        with self._called_as(function) as call:
            result = original(function, *args, **kwargs)
        if call.trains:
            self.timer.training_begins()
            duration = monotonic_ns() - start
            self._called(function, Call(wall_s() - duration / 1e9, duration, 1, traced=True))
        return result

    def _train(self, original: Function, function: Any, args: Any, kwargs: Any) -> Any:
        start = monotonic_ns()
        self.timer.training_begins()
        try:
            with self._called_as(function) as call:
                wall = wall_s()
                result = original(function, *args, **kwargs)
        except BaseException:
            self.timer.attempt("step", self.count_passes)
            raise
        self._called(function, Call(wall, monotonic_ns() - start, 1, call.trains))
        return result

    @contextmanager
    def _called_as(self, function: Any) -> Iterator[Outermost]:
        self._call, self.timer.in_graph = Outermost(function), TRACING
        try:
            yield self._call
        finally:
            self._call, self.timer.in_graph = None, NO_GRAPH

    def _called(self, function: Any, call: Call) -> None:
        """A training function returned: a step, a micro-batch, or several steps at once (then Keras says how many)."""
        end = self.timer.graph_ends(call.duration_ns)
        self._calls.append(call)
        if call.traced:
            self.timer.unsplit("the step also traced its graph")
        self._last_reduced = function in self._reduced
        passes = self.timer.passes_per_step
        if self.steps_in_call == 1 and len(self._calls) + self._empty_passes >= passes:
            self._step(self._last_reduced, end)
            if not call.traced and self._last_reduced and passes == 1 and self.timer.graph != id(function):
                self._plain_from_now(function)

    def gathers(self, helper: Any) -> None:
        """Gradients are gathered by `helper` of Horovod's, or not at all if it is None."""
        self.timer.passes_per_step = int(getattr(helper, "backward_passes_per_step", 1))
        self._counter = getattr(helper, "counter", None)
        self.timer.attempt("step", self.count_passes)

    def count_passes(self) -> None:
        """Take over how many passes Horovod has counted since it reduced last.

        A call that fails may have been counted too: the one that finds the end of the data always is. A new optimizer counts
        from 0, whatever an earlier one had gathered.
        """
        passes = 0 if self._counter is None else int(self._counter)
        if passes >= self.timer.passes_per_step:
            for field in SPLIT[1:]:
                self.timer.unseen(field, NEVER_REDUCED)
            self._reduced.clear()
            passes = len(self._calls)
        del self._calls[: max(0, len(self._calls) - passes)]
        self._empty_passes = passes - len(self._calls)

    def _plain_from_now(self, function: Any) -> None:
        """Each call of `function` is a step, as far as can be told."""
        self.timer.graph = id(function)
        # Another function may come to have the same id.
        self._plain = weakref.ref(function, lambda _: self.ask_again())

    def ask_again(self) -> None:
        """It is no longer known of which function each call is a step."""
        self.timer.graph = 0

    def _step(self, reduced: bool, end: int) -> None:
        calls, self._calls, self._empty_passes = self._calls, [], 0
        if self.timer.manual:
            self.times.unread()
        else:
            self.timer.end_step(
                end,
                lambda *numbers: self.timer.attempt("step", lambda: self.times.hold((*numbers[:10], len(calls)), calls, reduced)),
            )

    def steps_taken(self, count: int) -> None:
        """Keras took `count` steps in the call that has just ended."""
        if self._calls and self.timer.thread == get_ident():
            last = self._calls[-1]
            self._calls = [last._replace(rows=count)]
            self.timer.unsplit("several steps in one call (steps_per_execution)")
            self._step(self._last_reduced, monotonic_ns())
            self.timer.step += count - 1

    # Iterators, eager optimizer steps

    def hook_iterators(self, _: Any) -> None:
        """Batches asked for eagerly are waited for here; in a graph, remember where the batch is."""
        iterator_ops = sys.modules["tensorflow.python.data.ops.iterator_ops"]
        wrap(iterator_ops.OwnedIterator, "__next__", self._timed_next)
        wrap(sys.modules["tensorflow.python.data.ops.dataset_ops"].DatasetV2, "__iter__", self._timed_iter)

    def _timed_iter(self, original: Function) -> Function:
        timer, tf = self.timer, self.tf

        def __iter__(dataset: Any) -> Any:
            if timer.thread != get_ident() or self._running() or not tf.executing_eagerly():
                return original(dataset)
            timer.iterator_wanted()
            iterator = original(dataset)
            length = int(dataset.cardinality())
            timer.iterator_made(id(iterator), length if length >= 0 else UNSEEN)
            return iterator

        return __iter__

    def _timed_next(self, original: Function) -> Function:
        timer, tf = self.timer, self.tf

        def __next__(iterator: Any) -> Any:
            if timer.thread != get_ident():
                return original(iterator)
            if not tf.executing_eagerly():
                batch = original(iterator)
                call = self._running()
                return batch if call is None else self._taken(call, batch)
            timer.batch_wanted(id(iterator))
            try:
                batch = original(iterator)
            except BaseException:
                timer.batches_ended(id(iterator))
                raise
            timer.batch_came(self._count(batch))
            return batch

        return __next__

    def _taken(self, call: Outermost, batch: Any) -> Any:
        """A graph took a batch: remember it, and give the script what can be made to wait for a clock.

        Not where there is a GPU, to which it would be copied for it, nor in a TensorFlow that seeds random ops by how many ops
        came before them.
        """
        given, hold = batch, self._seeds_apart and not self._on_gpu()

        def take() -> None:
            nonlocal given
            taken, given = self.times.clocks.take(batch, hold)
            call.batch = taken if taken.tensors else None

        self.timer.attempt("input_wait", take)
        return given

    def _count(self, batch: Any) -> int:
        tensors = self.tf.nest.flatten(batch)
        shape = getattr(tensors[0], "shape", None) if tensors else None
        return int(shape[0]) if shape else UNCOUNTABLE

    def hook_optimizer(self, module: Any, name: str) -> None:
        """Class `module.name` applies gradients eagerly: that ends a step."""
        timer, tf = self.timer, self.tf

        def make(original: Function) -> Function:
            def apply_gradients(*args: Any, **kwargs: Any) -> Any:
                if timer.thread != get_ident() or self._busy or self._running() or not tf.executing_eagerly():
                    return original(*args, **kwargs)
                timer.optimizer_begins()
                self._busy = True
                try:
                    result = original(*args, **kwargs)
                except BaseException:
                    timer.optimizer_fails()
                    raise
                finally:
                    self._busy = False
                timer.optimizer_ends()
                return result

            return apply_gradients

        wrap(getattr(module, name), "apply_gradients", make)
        timer.sees(OPTIMIZER)

    def hook_broadcast(self, module: Any) -> None:
        """Variables are broadcast once, after the first batch or before: no part of a step."""
        wrap(module, "broadcast_variables", lambda original: cut(self.timer, "sync", "broadcast_variables", original))
