"""An elastic training that takes its second slot away by itself: `elastic_script.py HOSTS_FILE`."""

import sys
import time
from pathlib import Path

import horovod.torch as hvd
import torch

hvd.init()
model = torch.nn.Linear(2, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters())
deadline = time.monotonic() + 30


@hvd.elastic.run  # type: ignore[untyped-decorator]
def train(state: "hvd.elastic.TorchState") -> None:
    while hvd.size() > 1 and time.monotonic() < deadline:
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        if hvd.rank() == 0:
            Path(sys.argv[1]).write_text("localhost:1\n")
        time.sleep(0.05)
        state.commit()


train(hvd.elastic.TorchState(model=model, optimizer=optimizer))
sys.stdout.write("alone\n" if hvd.size() == 1 else "still together\n")
