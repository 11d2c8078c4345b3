"""What the wire costs per step record, both sides: events in columns by cursor and credit, beside one message per record."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable

import msgspec
import zmq
from figures import figure

from distmon.core.events import StepsRecorded
from distmon.wire.publisher import Publisher
from distmon.wire.subscription import Subscription

WORKERS = 8
STEPS = 10
ROUNDS = 1000
RUNS = 5


def second_of_steps(worker: int, first_step: int) -> StepsRecorded:
    """What one worker hands over in a second."""
    start = list(range(0, STEPS * 100_000_000, 100_000_000))
    return StepsRecorded(
        at=1.7e9 + first_step / 10,
        node="node",
        worker=f"node/{worker}",
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


def main() -> None:
    own, peer = medians(ours, one_message_per_record)
    how = f"{WORKERS} workers x {STEPS} steps a batch, {ROUNDS} batches, CPU time of both sides and I/O threads, median of {RUNS}"
    figure("wire_cpu_us_per_record", own, "us", how, peer="one msgpack message per record, PUSH/PULL", peer_value=peer)


if __name__ == "__main__":
    main()
