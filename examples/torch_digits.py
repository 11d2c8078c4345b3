"""Train a small convolutional network on scikit-learn's digits with PyTorch and Horovod."""

import argparse
import os
import tempfile
import time
from pathlib import Path

import horovod.torch as hvd
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

TRAINED_IMAGES = 1536


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32, help="per rank")
    parser.add_argument("--width", type=int, default=32, help="channels of the first layer")
    parser.add_argument("--seconds", type=float, help="stop after the epoch in which this time has passed")
    parser.add_argument("--checkpoint-dir", type=Path, help="default: a temporary folder, removed at the end")
    return parser.parse_args()


def digits() -> tuple[TensorDataset, TensorDataset]:
    """The 1797 images of 8x8 pixels, as a training and an evaluation set."""
    bunch = load_digits()
    images = torch.tensor(bunch.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(bunch.target)
    training = TensorDataset(images[:TRAINED_IMAGES], labels[:TRAINED_IMAGES])
    return training, TensorDataset(images[TRAINED_IMAGES:], labels[TRAINED_IMAGES:])


def network(width: int) -> nn.Module:
    """Three convolutions and a classifier."""
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(2 * width, 4 * width, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, 10),
    )


def train(model: nn.Module, optimizer: torch.optim.Optimizer, loader: "DataLoader[tuple[Tensor, ...]]") -> float:
    """One epoch; the loss of its last batch."""
    model.train()
    loss = torch.zeros(())
    for images, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    return loss.item()


def evaluate(model: nn.Module, loader: "DataLoader[tuple[Tensor, ...]]") -> float:
    """Share of images that all ranks together classified right."""
    model.eval()
    right = total = 0.0
    with torch.no_grad():
        for images, labels in loader:
            right += (model(images).argmax(dim=1) == labels).sum().item()
            total += len(labels)
    counts = hvd.allreduce(torch.tensor([right, total]), name="accuracy", op=hvd.Sum)
    return (counts[0] / counts[1]).item()


def run(options: argparse.Namespace, folder: Path) -> None:
    """Train, evaluate after each epoch and keep a checkpoint of each."""
    training, held_back = digits()
    sampler: DistributedSampler[tuple[Tensor, ...]] = DistributedSampler(training, hvd.size(), hvd.rank())
    loader = DataLoader(training, batch_size=options.batch_size, sampler=sampler)
    share: DistributedSampler[tuple[Tensor, ...]] = DistributedSampler(held_back, hvd.size(), hvd.rank())
    evaluation = DataLoader(held_back, batch_size=options.batch_size, sampler=share)
    model = network(options.width)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001 * hvd.size())
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    started = time.monotonic()
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        loss = train(model, optimizer, loader)
        accuracy = evaluate(model, evaluation)
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}/{options.epochs}: loss {loss:.4f}, accuracy {accuracy:.4f}", flush=True)
            torch.save(model.state_dict(), folder / "digits.pt")
        # Rank 0's clock decides for all: ranks that stopped in different epochs would wait for one another.
        over = options.seconds is not None and time.monotonic() - started >= options.seconds
        if hvd.broadcast_object(over, root_rank=0, name="over"):
            break


def main() -> None:
    """Start Horovod and train."""
    options = arguments()
    hvd.init()
    torch.manual_seed(1)
    # One thread per rank and core: more only make ranks on one machine wait for each other.
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // hvd.local_size()))
    with tempfile.TemporaryDirectory(prefix="digits-") as scratch:
        run(options, options.checkpoint_dir or Path(scratch))


if __name__ == "__main__":
    main()
