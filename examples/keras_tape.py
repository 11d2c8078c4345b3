"""Train on scikit-learn's digits with a loop of one's own: a tf.function around Horovod's DistributedGradientTape."""

import argparse
import os

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

TRAINED_IMAGES = 1536


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32, help="per rank")
    parser.add_argument("--width", type=int, default=128, help="units of the hidden layers")
    return parser.parse_args()


def network(width: int) -> tf.keras.Model:
    """Two hidden layers and a classifier."""
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Input((64,)),
            layers.Dense(width, activation="relu"),
            layers.Dense(width, activation="relu"),
            layers.Dense(10),
        ]
    )


def run(options: argparse.Namespace) -> None:
    """Train, and evaluate after each epoch."""
    bunch = load_digits()
    images, labels = (bunch.data / 16).astype("float32"), bunch.target.astype("int32")
    # Every rank has as many batches: one that had more would wait for the others for ever.
    shard = slice(hvd.rank(), TRAINED_IMAGES - TRAINED_IMAGES % hvd.size(), hvd.size())
    batches = tf.data.Dataset.from_tensor_slices((images[shard], labels[shard]))
    batches = batches.shuffle(TRAINED_IMAGES, seed=1).batch(options.batch_size)
    model = network(options.width)
    optimizer = tf.keras.optimizers.SGD(0.02 * hvd.size(), momentum=0.9)
    cross_entropy = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def train_step(inputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = cross_entropy(targets, model(inputs, training=True))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    step = 0
    for epoch in range(options.epochs):
        for inputs, targets in batches:
            loss = train_step(inputs, targets)
            if step == 0:
                # After the first step, because it is the one that makes the optimizer's variables.
                hvd.broadcast_variables(model.variables, root_rank=0)
                hvd.broadcast_variables(optimizer.variables, root_rank=0)
            step += 1
        if hvd.rank() == 0:
            answers = model(images[TRAINED_IMAGES:]).numpy().argmax(axis=1)
            accuracy = np.mean(answers == labels[TRAINED_IMAGES:])
            print(f"epoch {epoch + 1}/{options.epochs}: loss {loss:.4f}, accuracy {accuracy:.4f}", flush=True)


def main() -> None:
    """Start Horovod and train."""
    options = arguments()
    hvd.init()
    tf.keras.utils.set_random_seed(1)
    # One thread per rank and core: more only make ranks on one machine wait for each other.
    threads = max(1, len(os.sched_getaffinity(0)) // hvd.local_size())
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    run(options)


if __name__ == "__main__":
    main()
