"""Ops in a TensorFlow graph that note when the batch was there, and when gradients were ready and reduced.

Python sees a training function only when it is traced: so the trace gets these ops, kernels of `_graph_clocks.c`, and Python
takes what they noted about once a second. That file has no TensorFlow of its own; where it was not built, or the training's
TensorFlow has no interface for it, graphs have no clocks.

What waits for what is the point. An edge from a new op to one that was there before could close a circle with edges that
TensorFlow adds itself, so none is ever made: what uses a batch gets identities of it, which wait for a clock once it is
known that the graph trains. Control dependencies on a function's outputs or arguments are dropped when TensorFlow inlines it:
the clocks hang on identities of ours there.
"""

from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

try:
    from . import _graph_clocks

    kernels: Optional[Any] = _graph_clocks
except ImportError:
    kernels = None

Row = Tuple[float, float]
"""Wall clock seconds when a batch was there, and its samples (0: not counted); or when gradients were ready and reduced."""
Rows = List[Row]

NO_KERNELS = "no clock in the graph: distmon was installed without a compiler, or this TensorFlow takes no kernels"


class Taken(NamedTuple):
    """A batch that a graph took from its iterator."""

    items: List[Any]
    """As the iterator gave them: tensors, ragged and sparse ones."""
    tensors: List[Any]
    """What they consist of."""
    used: List[Any]
    """Identities of `tensors`, which is what the script got; empty where it got the tensors themselves."""


class GraphClocks:
    """Adds clocks to graphs, and gives what they noted."""

    def __init__(self, tensorflow: Any) -> None:
        self._tf = tensorflow
        self._places = 0

    def possible(self) -> bool:
        """Whether this process can have clocks in its graphs."""
        return kernels is not None and bool(kernels.add_ops())

    def take(self, batch: Any, hold: bool) -> Tuple[Taken, Any]:
        """A batch that a graph has just taken, and what the script is to have in its place: with `hold` its identities."""
        tf = self._tf
        items = [item for item in tf.nest.flatten(batch) if tf.is_tensor(item)]
        tensors = [tensor for tensor in tf.nest.flatten(items, expand_composites=True) if _is_symbolic(tensor)]
        if not hold:
            return Taken(items, tensors, []), batch
        used = {id(tensor): tf.identity(tensor) for tensor in tensors}
        given = tf.nest.map_structure(lambda tensor: used.get(id(tensor), tensor), batch, expand_composites=True)
        return Taken(items, tensors, list(used.values())), given

    def note_batch(self, taken: Taken) -> None:
        """Add a clock that notes when a batch is there, and how many samples it holds, to the graph that took it."""
        tf = self._tf
        graph = taken.tensors[0].graph
        with graph.as_default(), tf.control_dependencies(taken.tensors), tf.device("/cpu:0"):
            there = self._op("DistmonBatchThere", [self._samples(taken)])
        # Else the forward pass may run before the clock is read.
        for tensor in taken.used:
            tensor.op._add_control_input(there)
        if not taken.used:
            graph.control_outputs.append(there)

    def ready(self, gradients: Sequence[Any]) -> Any:
        """A clock that is read when all `gradients` are there; None if there are none.

        It stands beside the way that they take, so that each is still reduced as soon as it is there.
        """
        anchors = self._anchors(gradients)
        if not anchors:
            return None
        self._places += 1
        with self._tf.control_dependencies(anchors), self._tf.device("/cpu:0"):
            return self._op("DistmonGradientsReady", [], place=self._tf.compat.v1.AttrValue(i=self._places))

    def reduced(self, ready: Any, gradients: Sequence[Any]) -> List[Any]:
        """Add the clock that is read when all are reduced; returns the gradients, of which one waits for it, lest it be late."""
        tf, found = self._tf, list(gradients)
        place = tf.compat.v1.AttrValue(i=ready.get_attr("place"))
        with tf.control_dependencies([*self._anchors(found), ready]), tf.device("/cpu:0"):
            done = self._op("DistmonGradientsReduced", [], place=place)
        first = next(index for index, gradient in enumerate(found) if _is_symbolic(_values(gradient)))
        with tf.control_dependencies([done]):
            found[first] = self._identity(found[first])
        return found

    def read(self) -> Tuple[Rows, Rows]:
        """Batches and reductions that were noted since the last time, oldest first."""
        rows: Tuple[Rows, Rows] = kernels.read() if kernels is not None else ([], [])
        return rows

    def _op(self, name: str, inputs: List[Any], **attributes: Any) -> Any:
        return self._tf.compat.v1.get_default_graph().create_op(name, inputs, [], attrs=attributes)

    def _samples(self, taken: Taken) -> Any:
        """A vector that begins with the samples of a batch: its first dimension, or 0 where it has none."""
        tf = self._tf
        for item in taken.items:
            if isinstance(item, tf.RaggedTensor):
                return tf.reshape(tf.cast(item.nrows(), tf.int32), [1])
            if isinstance(item, tf.SparseTensor):
                return tf.cast(item.dense_shape, tf.int32)
            if isinstance(item, tf.Tensor) and item.shape.rank != 0:
                return tf.shape(item)
        return tf.constant([0])

    def _anchors(self, gradients: Sequence[Any]) -> List[Any]:
        """What control dependencies on gradients can hang on, also where a function's results and arguments are inlined."""
        tensors = [_values(gradient) for gradient in gradients if _is_symbolic(_values(gradient))]
        here = self._tf.compat.v1.get_default_graph()
        return [tensor if tensor.graph is here and _stays(tensor.op) else self._tf.identity(tensor) for tensor in tensors]

    def _identity(self, gradient: Any) -> Any:
        tf = self._tf
        if isinstance(gradient, tf.IndexedSlices):
            return tf.IndexedSlices(tf.identity(gradient.values), gradient.indices, gradient.dense_shape)
        return tf.identity(gradient)


def _values(gradient: Any) -> Any:
    """The tensor that holds a gradient's values; None if there is no gradient."""
    return getattr(gradient, "values", gradient)


def _is_symbolic(tensor: Any) -> bool:
    """Whether a tensor belongs to a graph: one that was made eagerly, a constant, does not."""
    return hasattr(tensor, "graph")


def _stays(op: Any) -> bool:
    """Whether an op is still there once functions are inlined: it calls none and is no argument."""
    return op.type != "Placeholder" and not any(attribute.type in ("func", "list(func)") for attribute in op.op_def.attr)
