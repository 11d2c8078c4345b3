"""Train a small network on scikit-learn's digits with PyTorch's own DistributedDataParallel, for torchrun."""

import argparse
import os

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

TRAINED_IMAGES = 1536


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32, help="per rank")
    return parser.parse_args()


def network() -> nn.Module:
    """Two hidden layers."""
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10))


def run(options: argparse.Namespace) -> None:
    """Train, and tell the share of all images that rank 0 classifies right after each epoch."""
    bunch = load_digits()
    images = torch.tensor(bunch.data, dtype=torch.float32) / 16
    labels = torch.tensor(bunch.target)
    training = TensorDataset(images[:TRAINED_IMAGES], labels[:TRAINED_IMAGES])
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(training)
    loader = DataLoader(training, batch_size=options.batch_size, sampler=sampler)
    model = DistributedDataParallel(network())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001 * dist.get_world_size())
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        model.train()
        loss = torch.zeros(())
        for batch, wanted in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(batch), wanted)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = (model(images[TRAINED_IMAGES:]).argmax(dim=1) == labels[TRAINED_IMAGES:]).double().mean().item()
        if dist.get_rank() == 0:
            print(f"epoch {epoch + 1}/{options.epochs}: loss {loss.item():.4f}, accuracy {right:.4f}", flush=True)


def main() -> None:
    """Join the other ranks and train."""
    options = arguments()
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // dist.get_world_size()))
    run(options)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
