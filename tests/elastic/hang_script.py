"""A training in which rank 1 stays away from the others: `hang_script.py PAUSE_S...`, a pause of rank 1 after each 30 steps.

A pause with the letter s behind it is one in which rank 1 skips the collective: it goes to a barrier instead.
"""

import sys
import time

import horovod.torch as hvd
import torch

STEPS = 30
hvd.init()
torch.set_num_threads(1)
model = torch.nn.Linear(2, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters())


def look_something_up(seconds: float) -> None:
    time.sleep(seconds)


def train(steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        time.sleep(0.02)
        model(torch.ones(4, 2)).sum().backward()
        optimizer.step()


for pause in sys.argv[1:]:
    train(STEPS)
    if hvd.rank() == 1 and pause.endswith("s"):
        hvd.allreduce(torch.ones(1), name="skipped")
    elif hvd.rank() == 1:
        look_something_up(float(pause))
train(STEPS)
