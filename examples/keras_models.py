"""Train one of Keras's known image networks, from random weights, with Keras (model.fit) and Horovod.

The images are made up, or CIFAR-10 in the binary version that its authors publish; nothing is downloaded.
"""

import argparse
import os
import sys
from pathlib import Path

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

CLASSES = 10
CIFAR_SIDE = 32
CIFAR_RECORD_BYTES = 1 + 3 * CIFAR_SIDE * CIFAR_SIDE
# Inception's stem halves the image too often for 32 pixels.
IMAGE_SIDE = {"ResNet50": 32, "MobileNetV2": 32, "VGG19": 32, "InceptionV3": 75}


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=IMAGE_SIDE, default="MobileNetV2")
    parser.add_argument("--data", default="synthetic", help="synthetic, or a folder with CIFAR-10's data_batch_*.bin")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=8, help="steps of an epoch")
    parser.add_argument("--batch-size", type=int, default=8, help="per rank")
    return parser.parse_args()


def synthetic(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Noise with random labels, in CIFAR-10's shape."""
    random = np.random.default_rng(1)
    images = random.integers(0, 256, (count, CIFAR_SIDE, CIFAR_SIDE, 3), dtype=np.uint8)
    return images, random.integers(0, CLASSES, count, dtype=np.uint8)


def cifar10(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of CIFAR-10's binary version: a label byte, then 1024 bytes each of red, green and blue."""
    files = sorted(folder.glob("data_batch_*.bin"))
    if not files:
        sys.exit(f"{folder} has no data_batch_*.bin: unpack the binary version of CIFAR-10 there")
    records = []
    for file in files:
        content = np.fromfile(file, dtype=np.uint8)
        if content.size == 0 or content.size % CIFAR_RECORD_BYTES:
            sys.exit(f"{file} is not CIFAR-10's binary version: its size is no multiple of {CIFAR_RECORD_BYTES}")
        records.append(content.reshape(-1, CIFAR_RECORD_BYTES))
    table = np.concatenate(records)
    images = table[:, 1:].reshape(-1, 3, CIFAR_SIDE, CIFAR_SIDE).transpose(0, 2, 3, 1)
    return images, table[:, 0]


def batches(images: np.ndarray, labels: np.ndarray, side: int, batch_size: int) -> tf.data.Dataset:
    """This rank's share of the images, scaled to the network's input, in an endless row of batches."""

    def scaled(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.image.resize(tf.cast(image, tf.float32) / 255, (side, side)), label

    share = tf.data.Dataset.from_tensor_slices((images, labels)).shard(hvd.size(), hvd.rank())
    return share.repeat().map(scaled).batch(batch_size).prefetch(1)


def run(options: argparse.Namespace) -> None:
    """Train."""
    count = options.batch_size * options.steps * hvd.size()
    images, labels = synthetic(count) if options.data == "synthetic" else cifar10(Path(options.data))
    side = IMAGE_SIDE[options.model]
    network = getattr(tf.keras.applications, options.model)
    model = network(weights=None, input_shape=(side, side, 3), classes=CLASSES)
    optimizer = tf.keras.optimizers.SGD(0.01 * hvd.size(), momentum=0.9)
    model.compile(
        optimizer=hvd.DistributedOptimizer(optimizer), loss="sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    model.fit(
        batches(images, labels, side, options.batch_size),
        epochs=options.epochs,
        steps_per_epoch=options.steps,
        callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()],
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
    run(options)


if __name__ == "__main__":
    main()
