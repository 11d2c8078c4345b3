"""A rank without a framework: notes its processes, then waits for the order that its test gives.

`python rank_program.py FOLDER`: writes FOLDER/pids-RANK once it and its helper run, and obeys FOLDER/order-RANK: end, raise, eat.
"""

import os
import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    """Wait for an order; without one, for ever."""
    folder, rank = Path(sys.argv[1]), os.environ["HOROVOD_RANK"]
    helper = subprocess.Popen(["setsid", "sleep", "1000"])
    noted = folder / f"pids-{rank}.new"
    noted.write_text(f"{os.getpid()} {helper.pid}")
    noted.rename(folder / f"pids-{rank}")
    print(f"rank {rank} is ready on {os.uname().nodename}", flush=True)  # noqa: T201
    order = folder / f"order-{rank}"
    while not order.exists():
        time.sleep(0.05)
    obey(order.read_text())
    helper.kill()


def obey(order: str) -> None:
    """End, raise an exception, or take memory until there is none."""
    if order == "raise":
        raise ValueError("the labels do not fit the images")
    taken = []
    while order == "eat":
        taken.append(bytearray(os.urandom(1 << 20)))


if __name__ == "__main__":
    main()
