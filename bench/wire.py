"""What the wire costs per step record, both sides: events in columns by cursor and credit, beside one message per record."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import zmq
from figures import figure

from distmon.agent.journal import Journal
from distmon.agent.together import together
from distmon.core.events import AnyEvent, NodeSampled, StepsRecorded
from distmon.core.fold import apply
from distmon.core.state import SessionState
from distmon.wire.backlog import Part
from distmon.wire.gate import Gate
from distmon.wire.keys import FixedList, KeyPair, ViewerKeys, make_pair, public_of
from distmon.wire.publisher import Publisher
from distmon.wire.sockets import make_room
from distmon.wire.subscription import Subscription

WORKERS = 8
STEPS = 10
ROUNDS = 1000
RUNS = 5

NODES = 1000
FEEDERS = 4
WARM_UP_S = 6.0
WINDOW_S = 15.0


def second_of_steps(worker: int, first_step: int, node: str = "node") -> StepsRecorded:
    """What one worker hands over in a second."""
    start = list(range(0, STEPS * 100_000_000, 100_000_000))
    return StepsRecorded(
        at=1.7e9 + first_step / 10,
        node=node,
        worker=f"{node}/{worker}",
        rank=worker,
        generation=0,
        first_step=first_step,
        origin=1.7e9 + first_step / 10,
        start_ns=start,
        duration_ns=[100_000_000 + worker] * STEPS,
        input_wait_ns=[1_000_000] * STEPS,
        compute_ns=[60_000_000] * STEPS,
        exposed_communication_ns=[30_000_000] * STEPS,
        optimizer_ns=[5_000_000] * STEPS,
        samples=[32] * STEPS,
    )


def ours() -> float:
    """CPU microseconds per record, publisher, subscription and their I/O threads together."""
    with tempfile.TemporaryDirectory() as folder:
        address = f"ipc://{folder}/a.sock"
        publisher, viewer = Publisher("node", "boot", [address]), Subscription([address])
        seconds = ([[second_of_steps(worker, turn * STEPS)] for worker in range(WORKERS)] for turn in range(ROUNDS))
        rounds = [list(together(flushes)) for flushes in seconds]
        exchange(publisher, viewer, rounds[0])
        begun = time.process_time()
        for events in rounds[1:]:
            exchange(publisher, viewer, events)
        spent = time.process_time() - begun
        viewer.close()
        publisher.close()
    return spent * 1e6 / ((ROUNDS - 1) * WORKERS * STEPS)


def exchange(publisher: Publisher, viewer: Subscription, events: Sequence[AnyEvent]) -> None:
    for event in events:
        publisher.publish("ranks", event)
    received = 0
    while received < len(events):
        publisher.serve(0)
        received += len(viewer.poll(0.01))


def one_message_per_record() -> float:
    """The same numbers, one msgpack map and one ZeroMQ message each."""
    record = {"worker": "node/0", "rank": 0, "step": 1, "start_ns": 1, "duration_ns": 100_000_000, "input_wait_ns": 1_000_000}
    record |= {"compute_ns": 60_000_000, "exposed_communication_ns": 30_000_000, "optimizer_ns": 5_000_000, "samples": 32}
    with tempfile.TemporaryDirectory() as folder:
        context = zmq.Context()
        pull, push = context.socket(zmq.PULL), context.socket(zmq.PUSH)
        pull.bind(f"ipc://{folder}/peer.sock")
        push.connect(f"ipc://{folder}/peer.sock")
        count = (ROUNDS - 1) * WORKERS * STEPS
        begun = time.process_time()
        for _ in range(count // STEPS):
            for _ in range(STEPS):
                push.send(msgspec.msgpack.encode(record))
            for _ in range(STEPS):
                msgspec.msgpack.decode(pull.recv())
        spent = time.process_time() - begun
        context.destroy(linger=0)
    return spent * 1e6 / count


def medians(*measures: Callable[[], float]) -> list[float]:
    """Median of each, measured in turn."""
    runs = [[measure() for measure in measures] for _ in range(RUNS)]
    return [statistics.median(column) for column in zip(*runs, strict=True)]


def feed(folder: str, first: int, count: int, secret: str, viewer: str) -> None:
    """Agents' publishing code for `count` nodes, each with a sample and eight ranks' steps a second, as long as the bench runs.

    They listen on TCP with CURVE, each under the same key. Their addresses are left in the folder.
    """
    parent = os.getppid()
    make_room(8 * count)
    gate = Gate(KeyPair(public_of(secret), secret), FixedList([viewer]))
    numbers = range(first, first + count)
    agents = [Publisher(f"n{n}", "boot", ["tcp://127.0.0.1:*"], gate=gate) for n in numbers]
    listening = Path(folder) / f"{first}.new"
    listening.write_text("\n".join(address for agent in agents for address in agent.addresses))
    listening.rename(listening.with_suffix(".addresses"))
    begun = time.monotonic()
    for turn in itertools.count():
        if os.getppid() != parent:
            return
        for index, (number, agent) in enumerate(zip(numbers, agents, strict=True)):
            wait = begun + turn + index / count - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            agent.publish("node", NodeSampled(at=time.time(), node=agent.node, interval_s=1.0, cpu_percent=50.0))
            ranks = range(number * WORKERS, (number + 1) * WORKERS)
            for event in together([[second_of_steps(rank, turn * STEPS, agent.node)] for rank in ranks]):
                agent.publish("ranks", event)
            agent.serve(0)


class Followed(NamedTuple):
    wire_percent: float
    """Of one core, as all below."""
    whole_percent: float
    records: int
    """A second."""
    messages: int
    resident_mb: float
    first_heard_s: float
    """Until all agents had been heard."""
    lag_s: float
    """Of samples, from their making until they were folded; the 99th percentile."""


def follow_nodes(*, summed: bool = False) -> Followed:
    """A viewer of NODES agents, which asks for each step or for sums."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        agent, own = make_pair(), make_pair()
        share, feeders = NODES // FEEDERS, []
        for first in range(0, NODES, share):
            command = [sys.executable, __file__, folder, str(first), str(share), agent.secret, own.public]
            process = subprocess.Popen(command)
            feeders.append(process)
            stack.callback(process.wait)
            stack.callback(process.kill)
        while len(found := sorted(Path(folder).glob("*.addresses"))) < FEEDERS:
            assert all(process.poll() is None for process in feeders), "an agents' process died"
            time.sleep(0.1)
        addresses = [address for path in found for address in path.read_text().split()]
        begun = time.monotonic()
        viewer = Subscription(addresses, keys=ViewerKeys(own, dict.fromkeys(addresses, agent.public)), summed=summed)
        stack.callback(viewer.close)
        state = SessionState()
        while any(status.heard is None for status in viewer.status()):
            take(viewer, state, 0.2)
        first_heard_s = time.monotonic() - begun
        take(viewer, state, WARM_UP_S)
        # As the screen does it: the state lives as long as the session, and has no cycles.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 1_000)
        received, told = sum(status.frames for status in viewer.status()), steps_of(state)
        begun, cpu = time.monotonic(), time.process_time()
        fold_s, lags = take(viewer, state, WINDOW_S)
        wall, spent = time.monotonic() - begun, time.process_time() - cpu
        records = steps_of(state) - told
        messages = sum(status.frames for status in viewer.status()) - received
        resident_mb = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6
        wire, whole = 100 * (spent - fold_s) / wall, 100 * spent / wall
        lag_s = sorted(lags)[int(0.99 * len(lags))]
        return Followed(wire, whole, round(records / wall), round(messages / wall), resident_mb, first_heard_s, lag_s)


def journal_open_s() -> float:
    """CPU seconds until a journal of a gigabyte can be used, median of five."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        event = os.urandom(12_000)
        journal = Journal(path, "b", "m", 2 << 30, 1e9)
        for seq in range(1, (1 << 30) // len(event)):
            journal.write([Part("n/b/ranks", seq, [event])], b"mark", 1.0)
        journal.close()
        seconds = []
        for _ in range(5):
            begun = time.process_time()
            journal = Journal(path, "b", "m", 2 << 30, 1e9)
            seconds.append(time.process_time() - begun)
            assert journal.held_bytes > 1e9
            assert journal.read("n/b/ranks", 1, 1)[0].seq == 1
            journal.close()
        return statistics.median(seconds)


def steps_of(state: SessionState) -> int:
    """All that its ranks have told."""
    return sum(rank.sums[0] for generation in state.generations.values() for rank in generation.ranks.values())


def take(viewer: Subscription, state: SessionState, seconds: float) -> tuple[float, list[float]]:
    """Receives and folds for a while; gives the CPU time of the fold, and how old samples were."""
    end = time.monotonic() + seconds
    fold_s = 0.0
    lags: list[float] = []
    while time.monotonic() < end:
        events = viewer.poll(0.05)
        begun = time.thread_time()
        for event in events:
            apply(state, event)
        fold_s += time.thread_time() - begun
        now = time.time()
        lags += [now - event.at for event in events if isinstance(event, NodeSampled)]
        time.sleep(0.05)
    return fold_s, lags


def main() -> None:
    own, peer = medians(ours, one_message_per_record)
    how = f"{WORKERS} workers x {STEPS} steps a batch, {ROUNDS} batches, CPU time of both sides and I/O threads, median of {RUNS}"
    figure("wire_cpu_us_per_record", own, "us", how, peer="one msgpack message per record, PUSH/PULL", peer_value=peer)
    found = follow_nodes()
    size = f"{NODES} agents' publishing code in {FEEDERS} processes, {WORKERS} ranks x {STEPS} steps/s each, CURVE over loopback"
    how = f"{size}, {found.records} records/s in {found.messages} messages/s arrived"
    figure("viewer_core_percent_1000_nodes", found.whole_percent, "%", f"wire and fold; {how}, CPU time over {WINDOW_S:.0f} s")
    figure("viewer_wire_core_percent_1000_nodes", found.wire_percent, "%", f"wire alone, with its I/O thread; {how}")
    figure("wire_curve_cpu_us_per_message", found.wire_percent * 1e4 / found.messages, "us", f"receiving side; {how}")
    figure("viewer_rss_mb_1000_nodes", found.resident_mb, "MB", f"at the end; {how}")
    figure("viewer_lag_p99_s_1000_nodes", found.lag_s, "s", f"from the making of a sample until it was folded; {how}")
    figure("viewer_all_heard_s_1000_nodes", found.first_heard_s, "s", f"until the last agent was heard; {size}")
    sums = follow_nodes(summed=True)
    how = f"wire and fold, of sums per second in place of steps; {size}, {sums.messages} messages/s arrived"
    figure("viewer_core_percent_1000_nodes_summed", sums.whole_percent, "%", f"{how}; wire alone {sums.wire_percent:.1f} %")
    figure("journal_open_s_1gb", journal_open_s(), "s", "CPU time to open an agent's journal of 1 GiB, median of 5")


if __name__ == "__main__":
    if len(sys.argv) == 6:
        feed(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5])
    else:
        main()
