"""Elastic training with Keras (model.fit) and Horovod on scikit-learn's digits: ranks may come and go while it runs.

horovodrun -np 2 --min-np 1 --max-np 4 --host-discovery-script ./hosts.sh --network-interface lo python examples/keras_elastic.py
"""

import argparse
import os
import time
from typing import Any

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

TRAINED_IMAGES = 1536


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15, help="stop after the epoch in which this time has passed")
    parser.add_argument("--epochs", type=int, default=200, help="stop after so many at the latest")
    parser.add_argument("--batch-size", type=int, default=32, help="per rank")
    parser.add_argument("--batches-per-commit", type=int, default=4, help="batches that a failure may undo")
    parser.add_argument("--width", type=int, default=32, help="channels of the first layer")
    return parser.parse_args()


def network(width: int) -> tf.keras.Model:
    """Three convolutions and a classifier."""
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Input((8, 8, 1)),
            layers.Conv2D(width, 3, padding="same", activation="relu"),
            layers.Conv2D(2 * width, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(4 * width, 3, padding="same", activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10),
        ]
    )


class StopWhenOver(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Ends the training of all ranks after the same epoch: rank 0's clock decides."""

    def __init__(self, state: Any, seconds: float) -> None:
        super().__init__()
        self.state = state
        self.seconds = seconds

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Ask rank 0 whether time is over."""
        over = time.time() - self.state.started >= self.seconds
        self.model.stop_training = bool(hvd.broadcast(int(over), root_rank=0, name="over"))


def training_set(batch_size: int) -> tf.data.Dataset:
    """This rank's share of the images. Every rank has as many batches: one with more would wait for the others for ever."""
    bunch = load_digits()
    shard = slice(hvd.rank(), TRAINED_IMAGES - TRAINED_IMAGES % hvd.size(), hvd.size())
    images = (bunch.images[shard, ..., np.newaxis] / 16).astype("float32")
    dataset = tf.data.Dataset.from_tensor_slices((images, bunch.target[shard]))
    return dataset.shuffle(TRAINED_IMAGES, seed=1).batch(batch_size, drop_remainder=True)


def main() -> None:
    """Start Horovod and train for a while."""
    options = arguments()
    hvd.init()
    tf.keras.utils.set_random_seed(1)
    # One thread per rank and core: more only make ranks on one machine wait for each other.
    threads = max(1, len(os.sched_getaffinity(0)) // hvd.local_size())
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    model = network(options.width)
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.001))
    model.compile(optimizer=optimizer, loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    optimizer.build(model.trainable_variables)
    state = hvd.elastic.KerasState(model, batch=0, epoch=0, started=time.time())

    @hvd.elastic.run
    def train(state: Any) -> None:
        model.fit(
            training_set(options.batch_size),
            epochs=options.epochs - state.epoch,
            callbacks=[
                hvd.callbacks.MetricAverageCallback(),
                hvd.elastic.UpdateEpochStateCallback(state),
                StopWhenOver(state, options.seconds),
                hvd.elastic.CommitStateCallback(state, batches_per_commit=options.batches_per_commit),
            ],
            verbose=2 if hvd.rank() == 0 else 0,
        )

    train(state)


if __name__ == "__main__":
    main()
