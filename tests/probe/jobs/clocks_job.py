"""One graph with clocks of the named kind, called with batches of known sizes; prints what its clocks noted, and the results."""

import json
import sys
import time

import tensorflow as tf

from distmon.probe import graph_clocks

REDUCTION_S = 0.02


def reduced_slowly(gradients: list) -> list:
    """Takes REDUCTION_S, in a function of its own as Horovod's is."""

    @tf.function
    def wait(*gradients: tf.Tensor) -> list:
        def sleep(first: tf.Tensor) -> tf.Tensor:
            time.sleep(REDUCTION_S)
            return first

        first = tf.py_function(sleep, [gradients[0]], tf.float32)
        first.set_shape(gradients[0].shape)
        return [first * 2, *(gradient * 2 for gradient in gradients[1:])]

    return list(wait(*gradients))


def main(kind: str) -> None:
    """Trains nothing: the names and sizes are those of a step."""
    clocks = graph_clocks.QueueClocks(tf) if kind == "queue" else graph_clocks.clocks_of(tf)

    @tf.function
    def step(*batch: tf.Tensor) -> tf.Tensor:
        numbers = [tf.cast(tf.size(tensor), tf.float32) for tensor in batch]
        reduced = clocks.note_reduction([*numbers, None], lambda some: [*reduced_slowly(some[:-1]), None], list(batch))
        return tf.add_n(reduced[:-1])

    @tf.function
    def nested(batch: tf.Tensor) -> tf.Tensor:
        doubled = batch * 2
        clocks.note_batch([batch])
        return doubled

    begun = time.time()
    results = [float(step(tf.zeros((size, 3)), tf.zeros((size,)))) for size in (8, 8, 5)]
    results.append(float(step(tf.constant(["a", "b", "c"]))))
    results.append(float(step(tf.constant(1.0))))
    nested(tf.zeros((4, 2)))
    ended = time.time()
    rows = clocks.read()
    assert clocks.read() == ([], [])
    noted = {"kind": type(clocks).__name__, "results": results, "begun": begun, "ended": ended, "rows": rows}
    sys.stdout.write(json.dumps(noted))


if __name__ == "__main__":
    main(sys.argv[1])
