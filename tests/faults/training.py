"""A rank of a real PyTorch training that logs each of its steps itself: `python training.py RINGS LOG RANK STEP_S`.

DistributedDataParallel over Gloo, the ranks started as torchrun starts them, the probe loaded as `distmon run` has it loaded.
The probe's steps end somewhere within `optimizer.step()`. So a line of the log is the number of a step, and the least and the
most that it can have taken by the rank's own clock: from the end of one call to the begin of the next, and from begin to end.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    """Trains until a rank is told to end; all end after the same step."""
    log_path, step_s = sys.argv[2], float(sys.argv[4])
    ending = torch.zeros(1)
    signal.signal(signal.SIGTERM, lambda number, frame: ending.fill_(1))
    distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = DataLoader(TensorDataset(torch.randn(8000, 64), torch.randint(10, (8000,))), batch_size=8)
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    step, begun, ended = 0, 0, 0
    while True:
        for images, labels in batches:
            time.sleep(step_s / 2)
            optimizer.zero_grad()
            loss: Any = torch.nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            called = time.monotonic_ns()
            optimizer.step()
            back = time.monotonic_ns()
            most = back - begun if begun else 1 << 62
            os.write(log, b"%d %d %d\n" % (step, called - ended if ended else 0, most))
            step, begun, ended = step + 1, called, back
            any_ending = ending.clone()
            distributed.all_reduce(any_ending)
            if any_ending.item():
                distributed.destroy_process_group()
                return


if __name__ == "__main__":
    main()
