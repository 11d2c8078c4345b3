"""A Horovod job that knows nothing of distmon, disturbs itself as told, and writes down what it did: the truth of a real trial.

    job.py CAUSE RANK DELAY_S WHEN STEPS LOG_DIR        WHEN: the steps, as 60-220,240-260

A step is 100 ms, most of it sleep, so that several ranks fit on two cores. For `cpu_hog`, a quarter of it is work, and the rank
has the first core to itself until a process that only spins shares it. For `crowded` most of it is work, and each rank keeps to a
core; what fills the cores is not of this job.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Set
from pathlib import Path

import horovod.torch as hvd
import torch
from torch import Tensor, nn

COMPUTE_S = 0.08
WORK_S = {"cpu_hog": 0.02, "crowded": 0.06}
"""Of it, where work is wanted."""
SPIN = "while True: pass"


def main() -> None:
    cause, rank, delay, when, steps, log_dir = sys.argv[1:]
    local = int(os.environ["HOROVOD_LOCAL_RANK"])
    if cause == "crowded":
        os.sched_setaffinity(0, {local})
    if cause == "cpu_hog":
        os.sched_setaffinity(0, {0} if local == int(rank) else set(range(1, os.cpu_count() or 1)) or {0})
    hvd.init()
    torch.set_num_threads(1)
    mine = hvd.rank() == int(rank)
    fault = Fault(cause if mine else "healthy", float(delay), steps_in(when), Path(log_dir))
    model = Slow(fault, WORK_S.get(cause, 0.0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    loader = torch.utils.data.DataLoader(Samples(fault, int(steps)), batch_size=8)
    for inputs, targets in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        fault.step += 1
    fault.close()


def steps_in(when: str) -> Set[int]:
    """The steps of ranges such as 60-220,240-260, their ends left out."""
    ranges = (part.split("-") for part in when.split(","))
    return {step for begin, end in ranges for step in range(int(begin), int(end))}


class Fault:
    """What one rank does to itself, and its log."""

    def __init__(self, cause: str, delay: float, when: Set[int], log_dir: Path) -> None:
        self.cause, self.delay, self.when, self.step = cause, delay, when, 0
        self.log = (log_dir / f"rank{hvd.rank()}.jsonl").open("w")
        self.wakers: list[subprocess.Popen[bytes]] = []
        self.hog: subprocess.Popen[bytes] | None = None
        self.scratch = tempfile.TemporaryFile()  # noqa: SIM115

    def here(self, *causes: str) -> bool:
        """Whether to act now; what is done is written down."""
        if self.cause not in causes or self.step not in self.when:
            return False
        self.log.write(json.dumps({"at": time.time(), "step": self.step, "cause": self.cause, "delay_s": self.delay}) + "\n")
        return True

    def on_input(self) -> None:
        if self.here("input"):
            time.sleep(self.delay)
        if self.here("disk"):
            begun = time.monotonic()
            while time.monotonic() - begun < self.delay:
                self.scratch.seek(0)
                self.scratch.write(os.urandom(1 << 16))
                os.fsync(self.scratch.fileno())

    def on_compute(self) -> None:
        if self.here("compute"):
            time.sleep(self.delay)
        if self.here("cpu_hog"):
            self.hog = self.hog or subprocess.Popen([sys.executable, "-S", "-c", SPIN])
            self.hog.send_signal(signal.SIGCONT)
        elif self.hog is not None:
            self.hog.send_signal(signal.SIGSTOP)
        if self.here("stopped"):
            waker = f"import os, time; time.sleep({self.delay}); os.kill({os.getpid()}, {signal.SIGCONT.value})"
            self.wakers.append(subprocess.Popen([sys.executable, "-S", "-c", waker]))
            os.kill(os.getpid(), signal.SIGSTOP)

    def close(self) -> None:
        self.log.close()
        if self.hog is not None:
            self.hog.kill()
            self.hog.wait()
        for waker in self.wakers:
            waker.wait()


class Samples(torch.utils.data.Dataset[tuple[Tensor, int]]):
    """Eight samples a step."""

    def __init__(self, fault: Fault, steps: int) -> None:
        self.fault, self.steps = fault, steps

    def __len__(self) -> int:
        return 8 * self.steps

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if index % 8 == 0:
            self.fault.on_input()
        return torch.full((16,), index % 10 / 10), index % 10


class Slow(nn.Module):
    """Sleeps, works, and then hardly computes."""

    def __init__(self, fault: Fault, work_s: float) -> None:
        super().__init__()
        self.fault, self.work_s, self.layer = fault, work_s, nn.Linear(16, 10)

    def forward(self, inputs: Tensor) -> Tensor:
        time.sleep(COMPUTE_S - self.work_s)
        begun = time.thread_time()
        while time.thread_time() - begun < self.work_s:
            pass
        self.fault.on_compute()
        outputs: Tensor = self.layer(inputs)
        return outputs


if __name__ == "__main__":
    main()
