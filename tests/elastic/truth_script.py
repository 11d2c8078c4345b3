"""An elastic training that keeps a log of its own clock: `truth_script.py FOLDER SECONDS STEP_S`.

It ends after SECONDS, or once there is a file FOLDER/over. It knows nothing of distmon. Each process writes CLOCK_MONOTONIC at
everything that happens to it, as JSON lines.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

FOLDER, SECONDS, STEP_S = Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
STEPS_PER_COMMIT = 5
LOG = (FOLDER / f"{os.getpid()}.log").open("a", buffering=1)


def note(what: str, at: float | None = None) -> None:
    slot = f"{os.environ['HOROVOD_HOSTNAME']}:{os.environ['HOROVOD_LOCAL_RANK']}"
    LOG.write(json.dumps({"what": what, "at": time.monotonic() if at is None else at, "slot": slot}) + "\n")


def process_start() -> float:
    """Of this process, on CLOCK_MONOTONIC."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return time.monotonic() - uptime + ticks / os.sysconf("SC_CLK_TCK")


note("process", process_start())
import horovod.torch as hvd  # noqa: E402
import horovod.torch.elastic as elastic  # noqa: E402
import torch  # noqa: E402


def noted(name: str, function: Any) -> Any:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        note(name + "_begin")
        result = function(*args, **kwargs)
        note(name + "_end")
        return result

    return wrapper


elastic.shutdown = noted("shutdown", elastic.shutdown)
elastic.init = noted("init", elastic.init)
noted("init", hvd.init)()
torch.set_num_threads(1)
model = torch.nn.Linear(2, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters())
data = torch.utils.data.TensorDataset(torch.ones(100_000, 2))


class State(elastic.TorchState):  # type: ignore[misc]
    def sync(self) -> None:
        noted("sync", super().sync)()

    def save(self) -> None:
        super().save()
        note("commit")


@elastic.run  # type: ignore[untyped-decorator]
def train(state: Any) -> None:
    try:
        for steps, (batch,) in enumerate(torch.utils.data.DataLoader(data, batch_size=8), 1):
            if steps == 1:
                note("training")
            time.sleep(STEP_S)
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
            note("step")
            if steps % STEPS_PER_COMMIT == 0:
                enough = time.time() - state.started > SECONDS or (FOLDER / "over").exists()
                over = hvd.broadcast_object(enough, name="over")
                state.commit()
                if over:
                    return
    except Exception as error:
        note(type(error).__name__)
        raise


train(State(model=model, optimizer=optimizer, started=time.time()))
