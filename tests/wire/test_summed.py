"""A viewer that asks for sums gets them under the same numbers; of the node in focus it gets each step."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

from distmon.agent.together import together
from distmon.core.codec import encode_msgpack
from distmon.core.events import AnyEvent, GapFound, MarkSet, NodeStepsRecorded, NodeStepsSummed, StepsRecorded
from distmon.core.step_sums import summed
from distmon.wire.publisher import Publisher
from distmon.wire.subscription import Subscription

LIMIT_S = 30.0


def publish(publisher: Publisher, number: int) -> None:
    told = [
        StepsRecorded(
            at=time.time(),
            node=publisher.node,
            worker=f"w{rank}",
            rank=rank,
            generation=0,
            first_step=10 * number,
            origin=1e9 + number,
            start_ns=list(range(0, 10**9, 10**8)),
            duration_ns=[10**8 + rank] * 10,
        )
        for rank in range(8)
    ]
    for event in together([[one] for one in told]):
        publisher.publish("ranks", event)
    publisher.publish("ranks", MarkSet(at=time.time(), text=str(number)))


def until(viewer: Subscription, publishers: list[Publisher], done: Callable[[list[AnyEvent]], bool]) -> list[AnyEvent]:
    events: list[AnyEvent] = []
    limit = time.monotonic() + LIMIT_S
    while not done(events):
        assert time.monotonic() < limit, events[-3:]
        for publisher in publishers:
            publisher.serve(0.005)
        events += viewer.poll(0.005)
    return events


def marks(events: list[AnyEvent], text: str) -> int:
    return sum(isinstance(event, MarkSet) and event.text == text for event in events)


def test_sums_come_in_place_of_steps_but_of_the_node_in_focus(tmp_path: Path) -> None:
    addresses = [f"ipc://{tmp_path}/{name}.sock" for name in "ab"]
    with ExitStack() as stack:
        publishers = [stack.enter_context(closing(Publisher(name, "1", [at]))) for name, at in zip("ab", addresses, strict=True)]
        viewer = stack.enter_context(closing(Subscription(addresses, summed=True)))
        full = stack.enter_context(closing(Subscription(addresses)))
        for number in range(20, 40):
            for publisher in publishers:
                publish(publisher, number)
        events = until(viewer, publishers, lambda found: marks(found, "39") == 2)
        sums = [event for event in events if isinstance(event, NodeStepsSummed)]
        assert len(sums) >= 38 and not [event for event in events if isinstance(event, NodeStepsRecorded | GapFound)]
        assert sums[-1].sums["duration_ns"] == [10 * (10**8 + rank) for rank in range(8)]

        viewer.focus("a")
        text = 40

        def in_full(found: list[AnyEvent]) -> bool:
            nonlocal text
            for publisher in publishers:
                publish(publisher, text)
            text += 1
            return any(isinstance(event, NodeStepsRecorded) for event in found)

        events = until(viewer, publishers, in_full)
        assert {event.node for event in events if isinstance(event, NodeStepsRecorded)} == {"a"}
        events += until(viewer, publishers, lambda found: marks(found, str(text - 1)) == 2)
        numbers = [(event.stream, event.seq) for event in events if event.stream]
        assert len(set(numbers)) == len(numbers) and not [event for event in events if isinstance(event, GapFound)]

        other = until(full, publishers, lambda found: marks(found, str(text - 1)) == 2)
        assert not [event for event in other if isinstance(event, NodeStepsSummed)]


def test_sums_take_a_fraction_of_the_bytes(tmp_path: Path) -> None:
    """Of ten steps of eight ranks a second, which is what a slow link has to carry."""
    some: list[int | None] = [10**7 + step for step in range(10)]
    told = [
        StepsRecorded(
            at=1e9,
            node="n",
            worker=f"n:{rank}:{10**6 + rank}",
            rank=rank,
            generation=0,
            first_step=990,
            origin=1e9,
            start_ns=list(range(0, 10**9, 10**8)),
            duration_ns=[10**8] * 10,
            input_wait_ns=some,
            compute_ns=some,
            exposed_communication_ns=some,
            optimizer_ns=some,
            samples=some,
        )
        for rank in range(8)
    ]
    [event] = together([[one] for one in told])
    sums = summed(event)
    assert sums is not None
    assert len(encode_msgpack(sums)) < 0.45 * len(encode_msgpack(event))
