"""Ops in a TensorFlow graph that note when the batch was there, and when gradients were ready and reduced.

Python sees a training function only when it is traced: so the trace gets these ops, and Python takes what they noted about
once a second. They are kernels of `_graph_clocks.c` where that was built and TensorFlow has an interface for it, else
TensorFlow's own clock and a queue.

The order of the ops is the point. Control dependencies on the outputs of Horovod's own nested function are dropped when
TensorFlow inlines it, so they hang on identities of ours where a function made the gradient.
"""

from typing import Any, Callable, List, Optional, Sequence, Tuple

try:
    from . import _graph_clocks

    kernels: Optional[Any] = _graph_clocks
except ImportError:
    kernels = None

Row = Tuple[float, float]
"""Wall clock seconds when a batch was there, and its samples (0: not counted); or when gradients were ready and reduced."""
Rows = List[Row]

NOTHING = (0, 0)
"""The half of a row of the queue that is not written."""


class QueueClocks:
    """TensorFlow's own clock, and a queue on the CPU for what it reads.

    A queue takes one op to write to. It has no bound, for one that is full would hold the training.
    """

    def __init__(self, tensorflow: Any) -> None:
        self._tf = tensorflow
        self._queue: Any = None

    def note_batch(self, tensors: Sequence[Any]) -> None:
        """Add ops that note when `tensors` are there, and how many samples they hold, to the graph of `tensors`."""
        with tensors[0].graph.as_default():
            self._write(self._batch(tensors), NOTHING)

    def note_reduction(
        self, gradients: Sequence[Any], reduce: Callable[[List[Any]], Sequence[Any]], batch: Sequence[Any]
    ) -> List[Any]:
        """Reduce `gradients` by `reduce`, with ops around it that note the time before and after.

        Notes `batch` too, if it is in the same graph: one write for both. Else it is empty.
        """
        row = self._batch(batch) if batch else NOTHING
        before = after_all(self._tf, gradients, self._tf.timestamp)
        reduced = list(reduce(list(gradients)))
        after = after_all(self._tf, reduced, self._tf.timestamp)
        self._write(row, [before, after])
        return held_until(self._tf, reduced, after)

    def read(self) -> Tuple[Rows, Rows]:
        """Batches and reductions that were noted since the last time, oldest first."""
        count = 0 if self._queue is None else int(self._queue.size())
        if not count:
            return [], []
        there, samples, before, after = (column.numpy().tolist() for column in self._queue.dequeue_many(count))
        return [row for row in zip(there, samples) if row[0]], [row for row in zip(before, after) if row[1]]

    def _batch(self, tensors: Sequence[Any]) -> List[Any]:
        tf = self._tf
        with tf.control_dependencies(list(tensors)), tf.device("/cpu:0"):
            now = tf.timestamp()
            hold_consumers(tensors, now.op)
            first = first_with_samples(tensors)
            return [now, 0 if first is None else tf.shape(first)[0]]

    def _write(self, batch: Sequence[Any], reduction: Sequence[Any]) -> None:
        """An op that adds a row to the queue; a `tf.function` runs it without being asked, for it has an effect."""
        tf = self._tf
        with tf.device("/cpu:0"):
            if self._queue is None:
                types = [tf.float64, tf.int32, tf.float64, tf.float64]
                with tf.init_scope():
                    self._queue = tf.queue.FIFOQueue(-1, types, [[]] * len(types), name="distmon_times")
            self._queue.enqueue([*batch, *reduction])


class KernelClocks:
    """Kernels of our own, which keep what they read: a third of the cost, for TensorFlow makes no tensors for them."""

    def __init__(self, tensorflow: Any, kernels: Any) -> None:
        self._tf = tensorflow
        self._places = 0
        self.read: Callable[[], Tuple[Rows, Rows]] = kernels.read

    def note_batch(self, tensors: Sequence[Any]) -> None:
        """As `QueueClocks.note_batch`."""
        tf = self._tf
        first = first_with_samples(tensors)
        with tensors[0].graph.as_default(), tf.control_dependencies(list(tensors)), tf.device("/cpu:0"):
            if first is None:
                first = tf.constant(0)
            kind = tf.compat.v1.AttrValue(type=first.dtype.as_datatype_enum)
            there = self._op("DistmonBatchThere", [first], T=kind)
        hold_consumers(tensors, there)

    def note_reduction(
        self, gradients: Sequence[Any], reduce: Callable[[List[Any]], Sequence[Any]], batch: Sequence[Any]
    ) -> List[Any]:
        """As `QueueClocks.note_reduction`."""
        if batch:
            self.note_batch(batch)
        place = self._tf.compat.v1.AttrValue(i=self._places)
        self._places += 1
        after_all(self._tf, gradients, lambda: self._op("DistmonGradientsReady", [], place=place))
        reduced = list(reduce(list(gradients)))
        after = after_all(self._tf, reduced, lambda: self._op("DistmonGradientsReduced", [], place=place))
        return held_until(self._tf, reduced, after)

    def _op(self, name: str, inputs: List[Any], **attributes: Any) -> Any:
        return self._tf.compat.v1.get_default_graph().create_op(name, inputs, [], attrs=attributes)


def clocks_of(tensorflow: Any) -> Any:
    """The clocks for the graphs of this process.

    A kernel of ours takes the batch itself, which would be copied for it from a GPU.
    """
    if kernels is not None and not tensorflow.config.list_physical_devices("GPU") and kernels.add_ops():
        return KernelClocks(tensorflow, kernels)
    return QueueClocks(tensorflow)


def first_with_samples(tensors: Sequence[Any]) -> Optional[Any]:
    """The tensor whose first dimension is the batch's samples, if there is one."""
    return next((tensor for tensor in tensors if tensor.shape.rank != 0), None)


def hold_consumers(tensors: Sequence[Any], clock: Any) -> None:
    """What uses the batch waits for the clock: else the forward pass may run before it is read."""
    for consumer in {consumer for tensor in tensors for consumer in tensor.consumers()}:
        if consumer is not clock:
            consumer._add_control_input(clock)


def after_all(tensorflow: Any, gradients: Sequence[Any], clock: Callable[[], Any]) -> Any:
    """A clock that is read when all `gradients` are there.

    It stands beside the way that they take, so that each is still used as soon as it is there.
    """
    tf = tensorflow
    dense = [getattr(gradient, "values", gradient) for gradient in gradients if gradient is not None]
    with tf.control_dependencies([_anchor(tf, tensor) for tensor in dense]), tf.device("/cpu:0"):
        return clock()


def held_until(tensorflow: Any, reduced: List[Any], clock: Any) -> List[Any]:
    """The gradients, of which one waits for the clock: else it may be read late."""
    tf = tensorflow
    first = next(index for index, gradient in enumerate(reduced) if gradient is not None)
    with tf.control_dependencies([clock]):
        reduced[first] = _identity(tf, reduced[first])
    return reduced


def _anchor(tf: Any, tensor: Any) -> Any:
    """What a control dependency on `tensor` can hang on: a function's result is nothing but data once it is inlined."""
    made_by_function = any(attribute.type in ("func", "list(func)") for attribute in tensor.op.op_def.attr)
    return tf.identity(tensor) if made_by_function else tensor


def _identity(tf: Any, gradient: Any) -> Any:
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(tf.identity(gradient.values), gradient.indices, gradient.dense_shape)
    return tf.identity(gradient)
