"""What the wire costs per step record, both sides: events in columns by cursor and credit, beside one message per record."""

from __future__ import annotations

import contextlib
import itertools
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import msgspec
import zmq
from figures import figure

from distmon.core.events import NodeSampled, StepsRecorded
from distmon.core.fold import apply
from distmon.core.state import SessionState
from distmon.wire.context import make_context
from distmon.wire.publisher import Publisher
from distmon.wire.sockets import make_room
from distmon.wire.subscription import Subscription

WORKERS = 8
STEPS = 10
ROUNDS = 1000
RUNS = 5

NODES = 1000
FEEDERS = 2
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
        rounds = [[second_of_steps(worker, turn * STEPS) for worker in range(WORKERS)] for turn in range(ROUNDS)]
        exchange(publisher, viewer, rounds[0])
        begun = time.process_time()
        for events in rounds[1:]:
            exchange(publisher, viewer, events)
        spent = time.process_time() - begun
        viewer.close()
        publisher.close()
    return spent * 1e6 / ((ROUNDS - 1) * WORKERS * STEPS)


def exchange(publisher: Publisher, viewer: Subscription, events: list[StepsRecorded]) -> None:
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


def feed(folder: str, first: int, count: int) -> None:
    """Agents' publishing code for `count` nodes, each with a sample and eight ranks' steps every second, until killed."""
    make_room(8 * count)
    context = make_context()
    numbers = range(first, first + count)
    agents = [Publisher(f"n{n}", "boot", [f"ipc://{folder}/{n}.sock"], context=context) for n in numbers]
    begun = time.monotonic()
    for turn in itertools.count():
        for index, (number, agent) in enumerate(zip(numbers, agents, strict=True)):
            wait = begun + turn + index / count - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            agent.publish("node", NodeSampled(at=1.7e9 + turn, node=agent.node, interval_s=1.0, cpu_percent=50.0))
            for worker in range(WORKERS):
                event = second_of_steps(worker, turn * STEPS, agent.node)
                agent.publish("ranks", msgspec.structs.replace(event, rank=number * WORKERS + worker))
            agent.serve(0)


def follow_nodes() -> tuple[float, float, int]:
    """Core percent of wire alone, of wire and fold, and the records that came in a second, with NODES agents."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        share = NODES // FEEDERS
        for first in range(0, NODES, share):
            process = subprocess.Popen([sys.executable, __file__, folder, str(first), str(share)])
            stack.callback(process.wait)
            stack.callback(process.kill)
        viewer = Subscription(f"ipc://{folder}/{n}.sock" for n in range(NODES))
        stack.callback(viewer.close)
        state = SessionState()
        take(viewer, state, WARM_UP_S)
        while any(status.heard is None for status in viewer.status()):
            take(viewer, state, 1.0)
        begun, cpu = time.monotonic(), time.process_time()
        fold_s, records = take(viewer, state, WINDOW_S)
        wall, spent = time.monotonic() - begun, time.process_time() - cpu
        return 100 * (spent - fold_s) / wall, 100 * spent / wall, round(records / wall)


def take(viewer: Subscription, state: SessionState, seconds: float) -> tuple[float, int]:
    """Receives and folds for a while; gives the CPU time of the fold and the number of step records."""
    end = time.monotonic() + seconds
    fold_s, records = 0.0, 0
    while time.monotonic() < end:
        events = viewer.poll(0.05)
        begun = time.thread_time()
        for event in events:
            apply(state, event)
            if isinstance(event, StepsRecorded):
                records += len(event.duration_ns)
        fold_s += time.thread_time() - begun
        time.sleep(0.05)
    return fold_s, records


def main() -> None:
    own, peer = medians(ours, one_message_per_record)
    how = f"{WORKERS} workers x {STEPS} steps a batch, {ROUNDS} batches, CPU time of both sides and I/O threads, median of {RUNS}"
    figure("wire_cpu_us_per_record", own, "us", how, peer="one msgpack message per record, PUSH/PULL", peer_value=peer)
    wire, whole, records = follow_nodes()
    size = f"{NODES} agents' publishing code in {FEEDERS} processes, {WORKERS} ranks x {STEPS} steps/s each"
    how = f"{size}, {records} records/s arrived"
    figure("viewer_core_percent_1000_nodes", whole, "%", f"wire and fold, no keys; {how}, CPU time over {WINDOW_S:.0f} s")
    figure("viewer_wire_core_percent_1000_nodes", wire, "%", f"wire alone; {how}")


if __name__ == "__main__":
    if len(sys.argv) == 4:
        feed(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
