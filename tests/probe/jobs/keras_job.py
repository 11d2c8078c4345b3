"""A TensorFlow job that knows nothing of distmon: every way to train that the hooks must tell apart, one generation each."""

import hashlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import horovod.tensorflow as hvd_tf
import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

STEPS, BATCH = 12, 8


def generate(delay: float, batches: int = STEPS) -> Iterator[tuple[Any, Any]]:
    """Batches made from their index; on rank 1 each takes `delay` seconds."""
    random = np.random.RandomState(hvd.rank())
    for _ in range(batches):
        if hvd.rank() == 1:
            time.sleep(delay)
        yield random.randn(BATCH, 32).astype("float32"), random.randint(0, 10, BATCH)


def uncounted(delay: float, batches: int = STEPS) -> tf.data.Dataset:
    """Those batches, of which nobody can tell how many they are. Nothing is fetched ahead."""
    signature = (tf.TensorSpec((None, 32), tf.float32), tf.TensorSpec((None,), tf.int64))
    dataset = tf.data.Dataset.from_generator(lambda: generate(delay, batches), output_signature=signature)
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    return dataset.with_options(options)


def samples(delay: float) -> tf.data.Dataset:
    """STEPS batches."""
    return uncounted(delay).apply(tf.data.experimental.assert_cardinality(STEPS))


def own_loader(delay: float) -> Iterator[tuple[Any, Any]]:
    """The same without tf.data."""
    return ((tf.constant(batch), tf.constant(labels)) for batch, labels in generate(delay))


def model() -> tf.keras.Model:
    layers = tf.keras.layers
    return tf.keras.Sequential([layers.Dense(64, activation="relu", input_shape=(32,)), layers.Dropout(0.1), layers.Dense(10)])


def loss(labels: Any, predictions: Any) -> Any:
    return tf.reduce_mean(tf.keras.losses.sparse_categorical_crossentropy(labels, predictions, from_logits=True))


def fit(delay: float, passes: int = 1, steps_per_execution: int = 1, evaluate: bool = False) -> tf.keras.Model:
    network = model()
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.05), backward_passes_per_step=passes)
    network.compile(optimizer, loss=loss, steps_per_execution=steps_per_execution)
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    held_out = None
    if evaluate:
        held_out = samples(0.0)
        if hvd.rank() == 0:
            path = Path(sys.argv[1]) / "checkpoint.weights.h5"
            callbacks.append(tf.keras.callbacks.ModelCheckpoint(str(path), save_weights_only=True))
    network.fit(samples(delay), epochs=2, callbacks=callbacks, verbose=0, validation_data=held_out)
    return network


def gather_to_the_end_of_the_data() -> tf.keras.Model:
    """Four batches make a step, and an epoch has 14: Horovod counts the end of the data, which comes once, as a pass."""
    network = model()
    network.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.05), backward_passes_per_step=4), loss=loss)
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    network.fit(uncounted(0.0, batches=14), epochs=3, callbacks=callbacks, verbose=0)
    return network


def tape(compiled: bool, delay: float, loader: Callable[[float], Iterable[Any]] = samples) -> tf.keras.Model:
    """A loop of one's own, with an evaluation after each epoch."""
    network = model()
    optimizer = tf.keras.optimizers.SGD(0.05)

    def train_step(batch: Any, labels: Any) -> None:
        with tf.GradientTape() as gradients:
            value = loss(labels, network(batch, training=True))
        gradients = hvd_tf.DistributedGradientTape(gradients)
        variables = network.trainable_variables
        optimizer.apply_gradients(zip(gradients.gradient(value, variables), variables, strict=True))

    step = tf.function(train_step) if compiled else train_step
    first = True
    for _ in range(2):
        for batch, labels in loader(delay):
            step(batch, labels)
            if first:
                hvd_tf.broadcast_variables(network.variables, root_rank=0)
                first = False
        for batch, _ in samples(0.0):
            network(batch)
            time.sleep(0.005)
    return network


def digest(network: tf.keras.Model) -> str:
    return hashlib.sha256(b"".join(weights.tobytes() for weights in network.get_weights())).hexdigest()


def main() -> None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    ways = (
        lambda: fit(0.03, evaluate=True),
        lambda: fit(0.0),
        lambda: fit(0.0, passes=2),
        lambda: fit(0.0, steps_per_execution=5),
        lambda: tape(compiled=True, delay=0.03),
        lambda: tape(compiled=False, delay=0.03),
    )
    ways_to_load = (gather_to_the_end_of_the_data, lambda: tape(compiled=True, delay=0.03, loader=own_loader))
    for generation, train in enumerate(ways_to_load if "ways_to_load" in sys.argv else ways):
        hvd.init()
        tf.keras.utils.set_random_seed(generation)
        sys.stdout.write(f"weights {generation} {digest(train())}\n")
        hvd.shutdown()


if __name__ == "__main__":
    main()
