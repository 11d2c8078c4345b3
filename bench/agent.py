"""What an agent costs at 1 Hz on a node with 64 cores and 16 ranks (a tree of files), beside other monitors on this machine.

Peers that are not installed are left out, and named with the line that installs them.
"""

from __future__ import annotations

import os
import pty
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import termios
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from figures import figure
from host_tree import HostTree
from memory import kept_in_use

from distmon.core.events import NodeSampled
from distmon.wire.subscription import Subscription

sys.path.append(str(Path(__file__).parents[1]))
from tests.stubs.nvml.scenario import Scenario, build

RANKS = 16
STEPS_PER_S = 10
OTHERS = 300
WARM_UP_S = 12.0
WINDOWS = 6
WINDOW_S = 10.0
STARTS = 5
GPUS = 8

AGENT = """
import sys
from pathlib import Path
from distmon.agent.journal import Journal
from distmon.agent.loop import Agent
from distmon.agent.main import spare_collector
from distmon.agent.sensors.base import Roots
tree = Path(sys.argv[3])
journal = Journal(Path(sys.argv[4]), "bench", "bench", 64 << 20, 3600.0)
agent = Agent([sys.argv[1]], [sys.argv[2]], 1.0, 1.0, Roots(tree / "proc", tree / "sys"), journal=journal)
spare_collector()
agent.run()
"""
RANK = """
import sys, time
from distmon.probe.ring import RingWriter, monotonic_ns
folder, rank, size, rate = sys.argv[1], *map(int, sys.argv[2:])
ring = RingWriter.create(folder)
ring.message({"type": "identity", "rank": rank, "size": size, "local_rank": rank, "local_size": size, "generation": 0})
step = 0
while True:
    ring.step(step, 0, 0, monotonic_ns(), 100_000_000, 1_000_000, 60_000_000, 30_000_000, 5_000_000, 32, 1)
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
APT_LINE = "apt-get install prometheus-node-exporter sysstat glances btop"
PEERS = {
    "node_exporter": "prometheus-node-exporter scraped once a second",
    "sadc": "sadc -S XALL",
    "glances": "glances -q --export csv",
    "btop": "btop",
    "psutil": "psutil loop without processes",
}
SADC = "/usr/lib/sysstat/sadc"
EXPORTER_PORT = 19_177


def cpu_s(pid: int) -> float:
    """CPU time of a process, from its own clock (nanoseconds, where /proc has ticks)."""
    return time.clock_gettime((~pid << 3) | 2)


def resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def lives(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


class Node:
    """An agent on a tree of files, and a viewer that follows it."""

    def __init__(self, stack: ExitStack, rings: Path, ranks: list[int], others: int) -> None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm")))
        self.tree = HostTree(folder, ranks, others)
        stack.callback(self.tree.close)
        address = f"ipc://{folder}/agent.sock"
        journal = stack.enter_context(tempfile.TemporaryDirectory())
        command = [sys.executable, "-c", AGENT, address, str(rings), str(folder), journal]
        self.pid = run(stack, command, stub_gpus(folder))
        self.viewer = Subscription([address])
        stack.callback(self.viewer.close)
        self.last: NodeSampled | None = None
        self.first_sample_cpu_s = 0.0
        while self.last is None:
            self.follow()
        self.first_sample_cpu_s = cpu_s(self.pid)

    def follow(self) -> None:
        for event in self.viewer.poll(0.05):
            self.last = event if isinstance(event, NodeSampled) else self.last


def run(stack: ExitStack, command: list[str], environment: dict[str, str] | None = None) -> int:
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, stdout=quiet, stderr=quiet, env={**os.environ, **(environment or {})})
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process.pid


def stub_gpus(folder: Path) -> dict[str, str]:
    """Environment in which NVML's calls are answered by the tests' stub of it; empty where it cannot be built."""
    if not shutil.which("cc"):
        return {}
    library = build(folder / "nvml")
    scenario = Scenario(folder / "gpus")
    for gpu in range(GPUS):
        scenario.add_gpu(gpu)
    return {"LD_LIBRARY_PATH": str(library.parent), "DISTMON_STUB_NVML": str(scenario.path)}


def start_ranks(stack: ExitStack, rings: Path) -> list[int]:
    command = [sys.executable, "-c", RANK, str(rings)]
    return [run(stack, [*command, str(rank), str(RANKS), str(STEPS_PER_S)]) for rank in range(RANKS)]


def start_sleepers(stack: ExitStack) -> None:
    """The other processes of this machine, which the peers read."""
    shell = subprocess.Popen(["sh", "-c", f"for i in $(seq {OTHERS}); do sleep 3600 & done; wait"], start_new_session=True)
    stack.callback(shell.wait)
    stack.callback(os.killpg, shell.pid, signal.SIGKILL)


def start_peers(stack: ExitStack) -> dict[str, int]:
    """Those of PEERS that are installed, with their pid; all read this machine once a second."""
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    peers: dict[str, int] = {}
    if exporter := shutil.which("prometheus-node-exporter"):
        address = f"127.0.0.1:{EXPORTER_PORT}"
        peers["node_exporter"] = run(stack, [exporter, f"--web.listen-address={address}"])
    if Path(SADC).exists():
        peers["sadc"] = run(stack, [SADC, "-S", "XALL", "1", f"{folder}/sadc.data"])
    if glances := shutil.which("glances"):
        command = [glances, "-q", "-t", "1", "--export", "csv", "--export-csv-file", f"{folder}/glances.csv"]
        peers["glances"] = run(stack, command)
    if btop := shutil.which("btop"):
        peers["btop"] = start_btop(stack, btop, Path(folder))
    peers["psutil"] = run(stack, [sys.executable, "-c", PSUTIL])
    return peers


def start_btop(stack: ExitStack, btop: str, folder: Path) -> int:
    """It draws on a terminal of its own, which is read and thrown away."""
    (folder / "btop").mkdir()
    (folder / "btop/btop.conf").write_text("update_ms = 1000\n")
    terminal, its_end = pty.openpty()
    termios.tcsetwinsize(its_end, (50, 160))
    environment = {**os.environ, "XDG_CONFIG_HOME": str(folder), "TERM": "xterm-256color"}
    command = [btop, "--utf-force"]
    process = subprocess.Popen(command, stdin=its_end, stdout=its_end, stderr=its_end, env=environment, start_new_session=True)
    os.close(its_end)
    stack.callback(process.wait)
    stack.callback(process.kill)
    threading.Thread(target=drain, args=(terminal,), daemon=True).start()
    return process.pid


def drain(terminal: int) -> None:
    while True:
        try:
            if not os.read(terminal, 1 << 16):
                return
        except OSError:  # the other end is closed
            return


def scrape() -> None:
    urllib.request.urlopen(f"http://127.0.0.1:{EXPORTER_PORT}/metrics", timeout=5).read()


def pass_time(seconds: float, nodes: list[Node], each_second: Callable[[], None]) -> None:
    """The nodes' counters move, and viewers follow."""
    end = time.monotonic() + seconds
    next_second = time.monotonic()
    while time.monotonic() < end:
        if time.monotonic() >= next_second:
            next_second += 1
            for node in nodes:
                node.tree.move()
            each_second()
        for node in nodes:
            node.follow()


def core_percents(pids: dict[str, int], nodes: list[Node], each_second: Callable[[], None]) -> dict[str, float]:
    """Median over windows of each process's CPU time, as a share of one core; all run in the same windows."""
    percents: dict[str, list[float]] = {name: [] for name in pids}
    for _ in range(WINDOWS):
        before = {name: (time.monotonic(), cpu_s(pid)) for name, pid in pids.items()}
        pass_time(WINDOW_S, nodes, each_second)
        for name, pid in pids.items():
            started, used = before[name]
            percents[name].append(100 * (cpu_s(pid) - used) / (time.monotonic() - started))
    return {name: statistics.median(values) for name, values in percents.items()}


def measure_steady() -> None:
    with ExitStack() as stack:
        memory = stack.enter_context(kept_in_use())
        start_sleepers(stack)
        rings = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm")))
        ranks = start_ranks(stack, rings)
        few, many = (Node(stack, rings, ranks, others) for others in (OTHERS, 10 * OTHERS))
        peers = start_peers(stack)
        each_second = scrape if "node_exporter" in peers else lambda: None
        pass_time(WARM_UP_S, [few, many], lambda: None)
        peers = {name: pid for name, pid in peers.items() if lives(pid)}
        if absent := [name for name in PEERS if name not in peers]:
            sys.stderr.write(f"left out, because not installed or ended: {', '.join(absent)}; {APT_LINE}\n")
        percents = core_percents({"few": few.pid, "many": many.pid, **peers}, [few, many], each_second)
        megabytes = {name: resident_mb(pid) for name, pid in {"few": few.pid, **peers}.items()}
        assert few.last is not None
        gpus = len(few.last.gpus)
    size = f"64 cores, {RANKS} ranks x {STEPS_PER_S} steps/s, {OTHERS} other processes, {gpus} GPUs"
    setting = f"1 Hz, a tree of files of {size}; its journal on disk; one viewer"
    windows = f"median of {WINDOWS} windows of {WINDOW_S:.0f} s, the same for all"
    how = f"{setting}; each process's CPU clock, {windows}; peers read this machine; {memory}"
    for i, peer in enumerate(peers):
        beside = f"_beside_{peer}" if i else ""
        said = PEERS[peer]
        figure(f"agent_core_percent{beside}", percents["few"], "%", how, peer=said, peer_value=percents[peer])
        figure(f"agent_rss_mb{beside}", megabytes["few"], "MB", f"{setting}; VmRSS", peer=said, peer_value=megabytes[peer])
    more = f"{how}, with ten times the other processes; peer: the agent with {OTHERS}"
    figure("agent_core_percent_3000_others", percents["many"], "%", more, peer="agent", peer_value=percents["few"])


def first_sample_cpu_s() -> float:
    with ExitStack() as stack:
        rings = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm")))
        node = Node(stack, rings, [], OTHERS)
        return node.first_sample_cpu_s


def main() -> None:
    measure_steady()
    starts = statistics.median(first_sample_cpu_s() for _ in range(STARTS))
    how = f"start of the process on that tree to its first sample at a viewer, median of {STARTS}"
    figure("agent_first_sample_cpu_s", starts, "s", how)


if __name__ == "__main__":
    main()
