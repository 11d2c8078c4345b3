"""Graphs that are no plain step: CALLS calls of each case, after one that traces it."""

import hashlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import horovod.tensorflow as hvd_tf
import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

CALLS, BATCH, DELAY_S = 8, 8, 0.03
CASES: list[Callable[[], list[Any]]] = []
Case = Callable[[], list[Any]]


def case(function: Case) -> Case:
    CASES.append(function)
    return function


def numbers() -> Any:
    return np.random.RandomState(hvd.rank()).randn(BATCH * (CALLS + 1), 16).astype("float32")


def batches(make: Callable[[int], Any], signature: Any, delay_s: float = DELAY_S) -> Iterator[Any]:
    """Those that `make` makes of their index, each `delay_s` late."""

    def generate() -> Iterator[Any]:
        for index in range(2 * (CALLS + 1)):
            time.sleep(delay_s)
            yield make(index)

    dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    return iter(dataset.with_options(options))


def slowly(value: Any) -> Any:
    """The value, after DELAY_S in an op of the graph."""

    def wait(tensor: Any) -> Any:
        time.sleep(DELAY_S)
        return tensor

    slow = tf.py_function(wait, [value], value.dtype)
    slow.set_shape(value.shape)
    return slow


def network() -> tf.keras.Model:
    return tf.keras.Sequential([tf.keras.layers.Dense(8, activation="relu", input_shape=(16,)), tf.keras.layers.Dense(1)])


def trained(model: tf.keras.Model, value: Callable[[], Any], optimizer: Any) -> None:
    """One update of `model`."""
    with tf.GradientTape() as tape:
        loss = value()
    gradients = hvd_tf.DistributedGradientTape(tape).gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))


@case
def forward_with_effects() -> list[Any]:
    """TensorFlow puts all ops that have an effect and no resource in one row."""
    model = network()

    @tf.function
    def random_row(row: Any) -> Any:
        return row + tf.random.stateless_normal([16], (1, 2)) + 0 * tf.random.normal([16])

    def loss(labels: Any, predictions: Any) -> Any:
        tf.print(predictions, output_stream="file:///dev/null")
        tf.debugging.assert_less(tf.abs(predictions), 1e9)
        labels = labels + 0 * tf.numpy_function(np.mean, [predictions], tf.float32)
        return tf.reduce_mean((predictions - labels) ** 2)

    class Augmented(tf.keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def call(self, batch: Any) -> Any:
            return self.inner(tf.map_fn(random_row, batch))

    whole = Augmented()
    whole.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01)), loss=loss)
    data = numbers()
    whole.fit(data, data[:, :1], batch_size=BATCH, shuffle=False, verbose=0)
    return model.get_weights()


@case
def nothing_to_reduce() -> list[Any]:
    model, optimizer = network(), tf.keras.optimizers.SGD(0.01)

    @tf.function
    def step(batch: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(batch) ** 2)
        local = hvd_tf.PartialDistributedGradientTape(tape, local_layers=model.layers)
        gradients = local.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    for batch in tf.data.Dataset.from_tensor_slices(numbers()).batch(BATCH):
        step(batch)
    return model.get_weights()


@case
def gradient_that_is_a_constant() -> list[Any]:
    weight, constant = tf.Variable(1.0), tf.constant(0.5)

    @tf.custom_gradient
    def doubled(value: Any) -> Any:
        return value * 2, lambda _: constant

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            loss = doubled(weight)
        (gradient,) = hvd_tf.DistributedGradientTape(tape).gradient(loss, [weight], use_generic_names=True)
        weight.assign_sub(gradient * 0.1)

    for _ in range(CALLS + 1):
        step()
    return [weight.numpy()]


@case
def two_reductions() -> list[Any]:
    """The second forward pass comes after the first reduction, and takes DELAY_S."""
    first, second = network(), network()
    optimizers = tf.keras.optimizers.SGD(0.01), tf.keras.optimizers.SGD(0.01)

    @tf.function
    def step(iterator: Any) -> None:
        batch = next(iterator)
        trained(first, lambda: tf.reduce_mean(first(batch) ** 2), optimizers[0])
        with tf.control_dependencies([variable.read_value() for variable in first.trainable_variables]):
            later = slowly(tf.identity(batch))
        trained(second, lambda: tf.reduce_mean(second(later) ** 2), optimizers[1])

    iterator = iter(tf.data.Dataset.from_tensor_slices(numbers()).batch(BATCH))
    for _ in range(CALLS + 1):
        step(iterator)
    return first.get_weights() + second.get_weights()


@case
def two_batches() -> list[Any]:
    model, optimizer = network(), tf.keras.optimizers.SGD(0.01)

    @tf.function
    def steps(iterator: Any) -> None:
        for _ in range(2):
            batch = next(iterator)
            trained(model, lambda batch=batch: tf.reduce_mean(model(batch) ** 2), optimizer)  # type: ignore[misc]

    iterator = batches(lambda _: numbers()[:BATCH], tf.TensorSpec((None, 16)), 0.0)
    for _ in range(CALLS + 1):
        steps(iterator)
    return model.get_weights()


@case
def ragged_and_late() -> list[Any]:
    weight, optimizer = tf.Variable(1.0), tf.keras.optimizers.SGD(0.01)

    @tf.function
    def step(iterator: Any) -> None:
        batch = next(iterator)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.reduce_mean(batch, 1) * weight - 2) ** 2)
        gradients = hvd_tf.DistributedGradientTape(tape).gradient(loss, [weight])
        optimizer.apply_gradients(zip(gradients, [weight], strict=True))

    rows = tf.ragged.constant([[float(index)] * (1 + index % 3) for index in range(BATCH)])
    iterator = batches(lambda _: rows, tf.RaggedTensorSpec((None, None), tf.float32))
    for _ in range(CALLS + 1):
        step(iterator)
    return [weight.numpy()]


@case
def nested_and_late() -> list[Any]:
    model, optimizer = network(), tf.keras.optimizers.SGD(0.01)

    @tf.function
    def inner(batch: Any) -> None:
        trained(model, lambda: tf.reduce_mean(model(batch) ** 2), optimizer)

    @tf.function
    def outer(iterator: Any) -> None:
        inner(next(iterator) * 2.0)

    iterator = batches(lambda _: numbers()[:BATCH], tf.TensorSpec((None, 16)))
    for _ in range(CALLS + 1):
        outer(iterator)
    return model.get_weights()


@case
def every_other_call() -> list[Any]:
    """A branch reduces gradients that the graph around it made, in DELAY_S."""
    model, optimizer = network(), tf.keras.optimizers.SGD(0.01)

    @tf.function
    def step(iterator: Any, number: Any) -> None:
        batch = next(iterator)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(slowly(batch)) ** 2)
        variables = model.trainable_variables
        gradients = tape.gradient(loss, variables)
        if number % 2 == 0:
            reduced = hvd_tf.DistributedGradientTape(tape)._allreduce_grads(gradients, variables)
            optimizer.apply_gradients(zip(reduced, variables, strict=True))

    iterator = batches(lambda _: numbers()[:BATCH], tf.TensorSpec((None, 16)), 0.0)
    for number in range(CALLS + 1):
        step(iterator, tf.constant(number))
    return model.get_weights()


def main() -> None:
    hvd.init()
    for function in CASES:
        tf.keras.utils.set_random_seed(1)
        weights = b"".join(np.asarray(array).tobytes() for array in function())
        sys.stdout.write(f"{hvd.rank()} {function.__name__} {hashlib.sha256(weights).hexdigest()}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
