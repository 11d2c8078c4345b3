"""Which of torch's loaders say beforehand how many samples their batches have."""

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make test sets it up")
from torch.utils import data  # noqa: E402

from distmon.probe.steps import NO_FULL_BATCHES, FullBatches  # noqa: E402
from distmon.probe.torch_hooks import full_batches  # noqa: E402

TEN = data.TensorDataset(torch.zeros(10, 3), torch.zeros(10))


class Fetched(data.TensorDataset):
    """Makes whole batches itself."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices[:1]]


class Streamed(data.IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield torch.zeros(3)


class Liar(data.SequentialSampler):
    def __len__(self) -> int:
        return 1000


@pytest.mark.parametrize(
    ("loader", "expected"),
    [
        (data.DataLoader(TEN, batch_size=4), FullBatches(4, 2)),
        (data.DataLoader(TEN, batch_size=5, shuffle=True, drop_last=True), FullBatches(5, 2)),
        (data.DataLoader(TEN, batch_size=2, sampler=data.DistributedSampler(TEN, 3, 0)), FullBatches(2, 2)),
        (data.DataLoader(TEN, batch_size=16), FullBatches(16, 0)),
        (data.DataLoader(TEN, batch_size=4, collate_fn=len), NO_FULL_BATCHES),
        (data.DataLoader(TEN, batch_size=None), NO_FULL_BATCHES),
        (data.DataLoader(TEN, batch_sampler=[[0, 1], [2]]), NO_FULL_BATCHES),
        (data.DataLoader(TEN, batch_size=4, sampler=Liar(TEN)), NO_FULL_BATCHES),
        (data.DataLoader(Fetched(torch.zeros(10, 3)), batch_size=4), NO_FULL_BATCHES),
        (data.DataLoader(Streamed(), batch_size=4), NO_FULL_BATCHES),
    ],
)
def test_only_what_torch_itself_puts_together_is_known(loader: Any, expected: FullBatches) -> None:
    assert full_batches(loader) == expected
    if expected.batches:
        assert [len(batch[0]) for batch in list(loader)[: expected.batches]] == [expected.size] * expected.batches
