"""Elastic training with PyTorch and Horovod on scikit-learn's digits: ranks may come and go while it runs.

horovodrun -np 2 --min-np 1 --max-np 4 --host-discovery-script ./hosts.sh --network-interface lo python examples/torch_elastic.py
"""

import argparse
import os
import time

import horovod.torch as hvd
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

TRAINED_IMAGES = 1536


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15, help="stop after the epoch in which this time has passed")
    parser.add_argument("--batch-size", type=int, default=32, help="per rank")
    parser.add_argument("--batches-per-commit", type=int, default=4, help="batches that a failure may undo")
    parser.add_argument("--width", type=int, default=32, help="channels of the first layer")
    return parser.parse_args()


def digits() -> tuple[TensorDataset, Tensor, Tensor]:
    """The training set, and images and labels held back for evaluation."""
    bunch = load_digits()
    images = torch.tensor(bunch.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(bunch.target)
    training = TensorDataset(images[:TRAINED_IMAGES], labels[:TRAINED_IMAGES])
    return training, images[TRAINED_IMAGES:], labels[TRAINED_IMAGES:]


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


def train_epoch(state: "hvd.elastic.TorchState", loader: "DataLoader[tuple[Tensor, ...]]", batches_per_commit: int) -> None:
    """What is left of the epoch."""
    state.model.train()
    for batch, (images, labels) in enumerate(loader):
        state.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(state.model(images), labels)
        loss.backward()
        state.optimizer.step()
        state.sampler.record_batch(batch, loader.batch_size)
        state.loss = loss.item()
        if (batch + 1) % batches_per_commit == 0:
            state.commit()


def evaluate(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Share of the images that this rank's copy classifies right."""
    model.eval()
    with torch.no_grad():
        return (model(images).argmax(dim=1) == labels).float().mean().item()


def main() -> None:
    """Start Horovod and train for a while."""
    options = arguments()
    hvd.init()
    torch.manual_seed(1)
    # One thread per rank and core: more only make ranks on one machine wait for each other.
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // hvd.local_size()))
    training, images, labels = digits()
    model = network(options.width)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    sampler = hvd.elastic.ElasticSampler(training)
    state = hvd.elastic.TorchState(
        model=model, optimizer=optimizer, sampler=sampler, epoch=0, loss=0.0, started=time.time(), over=False
    )
    # A change that only removes ranks skips the synchronisation in which the others would get their new shares.
    state.register_reset_callbacks([state.sampler.reset])

    @hvd.elastic.run
    def train(state: "hvd.elastic.TorchState") -> None:
        while not state.over:
            loader = DataLoader(training, batch_size=options.batch_size, sampler=state.sampler)
            train_epoch(state, loader, options.batches_per_commit)
            if hvd.rank() == 0:
                accuracy = evaluate(model, images, labels)
                print(f"epoch {state.epoch + 1}: {hvd.size()} ranks, loss {state.loss:.4f}, accuracy {accuracy:.4f}", flush=True)
            # Rank 0's clock decides for all: ranks that stopped in different epochs would wait for one another.
            over = time.time() - state.started >= options.seconds
            state.over = hvd.broadcast_object(over, root_rank=0, name="over")
            state.epoch += 1
            state.sampler.set_epoch(state.epoch)
            state.commit()

    train(state)


if __name__ == "__main__":
    main()
