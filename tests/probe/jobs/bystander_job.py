"""A job with children of every kind: loader processes, a spawned Python, a shell command; and an end as it is told."""

import os
import signal
import subprocess
import sys
import threading

import horovod.torch as hvd
import torch
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    hvd.init()
    data = TensorDataset(torch.arange(16.0).reshape(16, 1))
    for context in ("fork", "spawn"):
        for _ in DataLoader(data, batch_size=4, num_workers=2, multiprocessing_context=context):
            pass
    child = "import torch, horovod.torch, sys; sys.stdout.write('child\\n')"
    subprocess.run([sys.executable, "-c", child], check=True)
    subprocess.run(["sh", "-c", "echo shell"], check=True)
    pid = os.fork()
    if pid == 0:
        torch.ones(1, requires_grad=True).sum().backward()
        os._exit(0)
    os.waitpid(pid, 0)
    sys.stdout.write(f"threads {threading.active_count()} handlers {signal.getsignal(signal.SIGTERM)}\n")
    sys.stdout.flush()
    if sys.argv[2] == "exit":
        raise SystemExit(7)
    if sys.argv[2] == "kill":
        os.kill(os.getpid(), signal.SIGTERM)
    raise ValueError("on purpose")


if __name__ == "__main__":
    main()
