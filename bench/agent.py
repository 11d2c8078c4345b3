"""What an agent costs: at 1 Hz with eight ranks of ten steps a second and a viewer, beside a plain psutil loop."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from figures import figure

from distmon.core.events import NodeSampled
from distmon.wire.subscription import Subscription

RANKS = 8
STEPS_PER_S = 10
WARM_UP_S = 5.0
WINDOW_S = 30.0
STARTS = 5

RANK = """
import sys, time
from distmon.probe.ring import RingWriter, monotonic_ns
folder, rank, size, rate = sys.argv[1], *map(int, sys.argv[2:])
ring = RingWriter.create(folder)
ring.message({"type": "identity", "rank": rank, "size": size, "local_rank": rank, "local_size": size, "generation": 0})
step = 0
while True:
    ring.step((step, 0, 0, monotonic_ns(), 100_000_000, 1_000_000, 60_000_000, 30_000_000, 5_000_000, 32, 1))
    step += 1
    time.sleep(1 / rate)
"""
PSUTIL = """
import time, psutil
while True:
    psutil.cpu_percent(), psutil.cpu_percent(percpu=True), psutil.virtual_memory(), psutil.swap_memory()
    psutil.net_io_counters(pernic=True), psutil.disk_io_counters(perdisk=True), psutil.getloadavg()
    time.sleep(1)
"""


def cpu_s(pid: int) -> float:
    """CPU time of a process, from its own clock (nanoseconds, where /proc has ticks)."""
    return time.clock_gettime((~pid << 3) | 2)


def resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def start_agent(stack: ExitStack, folder: Path) -> tuple[int, Subscription]:
    """An agent whose first sample has arrived, and who follows it."""
    address = f"ipc://{folder}/agent.sock"
    command = [sys.executable, "-m", "distmon.agent.main", "--listen", address, "--rings", str(folder / "rings")]
    agent = run(stack, command)
    subscription = Subscription([address])
    stack.callback(subscription.close)
    while not any(isinstance(event, NodeSampled) for event in subscription.poll(0.05)):
        pass
    return agent, subscription


def run(stack: ExitStack, command: list[str]) -> int:
    process = subprocess.Popen(command)
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process.pid


def private_folder(stack: ExitStack) -> Path:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    (folder / "rings").mkdir(mode=0o700)
    return folder


def first_sample_cpu_s() -> float:
    with ExitStack() as stack:
        agent, _ = start_agent(stack, private_folder(stack))
        return cpu_s(agent)


def steady() -> tuple[float, float, float]:
    """Core percent of the agent and of the psutil loop over the same window, and the agent's MB at its end."""
    with ExitStack() as stack:
        folder = private_folder(stack)
        agent, subscription = start_agent(stack, folder)
        peer = run(stack, [sys.executable, "-c", PSUTIL])
        for rank in range(RANKS):
            run(stack, [sys.executable, "-c", RANK, str(folder / "rings"), str(rank), str(RANKS), str(STEPS_PER_S)])
        follow(subscription, WARM_UP_S)
        before = cpu_s(agent), cpu_s(peer), time.monotonic()
        follow(subscription, WINDOW_S)
        after = cpu_s(agent), cpu_s(peer), time.monotonic()
        own, other = (100 * (after[i] - before[i]) / (after[2] - before[2]) for i in (0, 1))
        return own, other, resident_mb(agent)


def follow(subscription: Subscription, seconds: float) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        subscription.poll(min(left, 0.25))


def main() -> None:
    own, peer, megabytes = steady()
    setting = f"1 Hz, {RANKS} ranks x {STEPS_PER_S} steps/s, one viewer, {os.cpu_count()} cores, {WINDOW_S:.0f} s"
    how = f"{setting}; both processes' CPU clocks over the same window"
    figure("agent_core_percent", own, "%", how, peer="psutil loop without ranks or network", peer_value=peer)
    figure("agent_rss_mb", megabytes, "MB", f"{setting}; VmRSS at its end")
    starts = statistics.median(first_sample_cpu_s() for _ in range(STARTS))
    figure("agent_first_sample_cpu_s", starts, "s", f"start of the process to its first sample at a viewer, median of {STARTS}")


if __name__ == "__main__":
    main()
