"""Train a small convolutional network on scikit-learn's digits with Keras (model.fit) and Horovod."""

import argparse
import os
import tempfile
from pathlib import Path

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

TRAINED_IMAGES = 1536


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32, help="per rank")
    parser.add_argument("--width", type=int, default=32, help="channels of the first layer")
    parser.add_argument("--checkpoint-dir", type=Path, help="default: a temporary folder, removed at the end")
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


def run(options: argparse.Namespace, folder: Path) -> None:
    """Train; evaluate and keep a checkpoint after each epoch."""
    bunch = load_digits()
    images = (bunch.images[..., np.newaxis] / 16).astype("float32")
    labels = bunch.target
    # Every rank has as many batches: one that had more would wait for the others for ever.
    shard = slice(hvd.rank(), TRAINED_IMAGES - TRAINED_IMAGES % hvd.size(), hvd.size())
    training = tf.data.Dataset.from_tensor_slices((images[shard], labels[shard]))
    training = training.shuffle(TRAINED_IMAGES, seed=1).batch(options.batch_size)
    held_back = tf.data.Dataset.from_tensor_slices((images[TRAINED_IMAGES:], labels[TRAINED_IMAGES:]))
    model = network(options.width)
    optimizer = tf.keras.optimizers.Adam(0.001 * hvd.size())
    model.compile(
        optimizer=hvd.DistributedOptimizer(optimizer),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
    if hvd.rank() == 0:
        callbacks.append(tf.keras.callbacks.ModelCheckpoint(str(folder / "digits.keras")))
    model.fit(
        training,
        epochs=options.epochs,
        validation_data=held_back.batch(options.batch_size),
        callbacks=callbacks,
        verbose=2 if hvd.rank() == 0 else 0,
    )


def main() -> None:
    """Start Horovod and train."""
    options = arguments()
    hvd.init()
    tf.keras.utils.set_random_seed(1)
    # One thread per rank and core: more only make ranks on one machine wait for each other.
    threads = max(1, len(os.sched_getaffinity(0)) // hvd.local_size())
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    with tempfile.TemporaryDirectory(prefix="digits-") as scratch:
        run(options, options.checkpoint_dir or Path(scratch))


if __name__ == "__main__":
    main()
