"""A PyTorch job that knows nothing of distmon: every way to train that the hooks must tell apart, one generation each."""

import hashlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

STEPS, BATCH = 12, 8


class Digits(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Samples made from their index; on rank 1 the first of each batch takes `delay` seconds."""

    def __init__(self, delay: float) -> None:
        self.delay = delay

    def __len__(self) -> int:
        return STEPS * BATCH

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if hvd.rank() == 1 and index % BATCH == 0:
            time.sleep(self.delay)
        generator = torch.Generator().manual_seed(index * 2 + hvd.rank())
        return torch.randn(32, generator=generator), torch.tensor(index % 10)


def model_and_optimizer(**options: int) -> tuple[nn.Module, Any]:
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), **options)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    return model, optimizer


def loss_of(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def plain(delay: float, epochs: int, workers: int = 0) -> nn.Module:
    model, optimizer = model_and_optimizer()
    loader = DataLoader(Digits(delay), batch_size=BATCH, num_workers=workers)
    held_out = DataLoader(TensorDataset(torch.randn(40, 32), torch.zeros(40, dtype=torch.long)), batch_size=10)
    for epoch in range(epochs):
        model.train()
        for batch in loader:
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            losses = []
            for batch in held_out:
                time.sleep(0.01)
                losses.append(loss_of(model, batch))
        hvd.allreduce(torch.stack(losses).mean(), name=f"loss.{epoch}")
        if hvd.rank() == 0:
            torch.save(model.state_dict(), Path(sys.argv[1]) / "checkpoint.pt")
    return model


def by_hand() -> nn.Module:
    """No wrapped optimizer, no loader: gradients averaged by hand."""
    model = nn.Linear(32, 10)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(STEPS):
        loss = loss_of(model, (torch.randn(BATCH, 32), torch.zeros(BATCH, dtype=torch.long)))
        optimizer.zero_grad()
        loss.backward()
        if hvd.rank() == 1:
            time.sleep(0.02)
        for name, parameter in model.named_parameters():
            parameter.grad = hvd.allreduce(parameter.grad, name=name)
        optimizer.step()
    return model


def accumulated_and_clipped() -> nn.Module:
    """Two batches a step, gradients clipped between waiting and stepping."""
    model, optimizer = model_and_optimizer(backward_passes_per_step=2)
    batches: Iterator[tuple[torch.Tensor, torch.Tensor]] = iter(DataLoader(Digits(0), batch_size=BATCH))
    for _ in range(STEPS // 2):
        optimizer.zero_grad()
        for _ in range(2):
            loss_of(model, next(batches)).backward()
        optimizer.synchronize()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with optimizer.skip_synchronize():
            optimizer.step()
    return model


def sparse() -> nn.Module:
    """An embedding with sparse gradients, which Horovod gathers."""
    model = nn.EmbeddingBag(50, 4, sparse=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    for step in range(STEPS):
        optimizer.zero_grad()
        model(torch.arange(8).reshape(2, 4) + step).sum().backward()
        optimizer.step()
    return model


def digest(model: nn.Module) -> str:
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()


def main() -> None:
    torch.set_num_threads(1)
    for generation, train in enumerate(
        (by_hand, lambda: plain(0.03, 2), lambda: plain(0.0, 2, workers=1), accumulated_and_clipped, sparse)
    ):
        hvd.init()
        torch.manual_seed(generation)
        sys.stdout.write(f"weights {generation} {digest(train())}\n")
        hvd.shutdown()


if __name__ == "__main__":
    main()
