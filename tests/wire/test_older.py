"""Agent and viewer one minor version apart: steps come too, once, in order, and what is lost is told."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from distmon.agent.together import together
from distmon.core.batches import told_by
from distmon.core.events import AnyEvent, GapFound, MarkSet, NodeStepsRecorded, StepsRecorded
from distmon.wire.publisher import Publisher
from distmon.wire.subscription import Subscription

WORKERS = 8
LIMIT_S = 30.0


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/run/a.sock"


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch) -> None:
    """Viewers that are made now are of format 1.2."""
    monkeypatch.setattr("distmon.wire.subscription.FORMAT_MINOR", 2)


def second(number: int) -> list[StepsRecorded | NodeStepsRecorded]:
    """What the workers of a node did in a second: two steps each."""
    told = [
        StepsRecorded(
            at=1e9 + number,
            node="n",
            worker=f"w{rank}",
            rank=rank,
            generation=0,
            first_step=2 * number,
            origin=1e9 + number,
            start_ns=[0, 1000],
            duration_ns=[1000, 2000 + rank],
            input_wait_ns=[1, 2],
            compute_ns=[3, 4],
            exposed_communication_ns=[5, 6],
            optimizer_ns=[7, 8],
            samples=[32, 32],
        )
        for rank in range(WORKERS)
    ]
    return list(together([[one] for one in told]))


def publish(publisher: Publisher, first: int, end: int) -> None:
    for number in range(first, end):
        for event in second(number):
            publisher.publish("ranks", event)
        publisher.publish("ranks", MarkSet(at=1e9 + number, text=str(number)))


def received(publisher: Publisher, viewer: Subscription, last: int) -> list[AnyEvent]:
    events: list[AnyEvent] = []
    until = time.monotonic() + LIMIT_S
    while not any(isinstance(event, MarkSet) and event.text == str(last) for event in events):
        assert time.monotonic() < until, events[-3:]
        publisher.serve(0.01)
        events += viewer.poll(0.01)
    return events


def steps(events: list[AnyEvent]) -> dict[int, list[int]]:
    """Rank -> the first steps of what was told of it."""
    found: dict[int, list[int]] = {rank: [] for rank in range(WORKERS)}
    for event in events:
        for rank, _, batch in told_by(event):
            found[rank].append(batch.first_step)
    return found


@pytest.fixture
def publisher(address: str) -> Iterator[Publisher]:
    with closing(Publisher("n", "b", [address])) as made:
        yield made


@pytest.mark.usefixtures("older")
def test_an_older_viewer_has_every_step_once_whenever_it_comes(publisher: Publisher, address: str) -> None:
    publish(publisher, 0, 100)
    with closing(Subscription([address], since_start=True)) as viewer:
        events = received(publisher, viewer, 99)
        publish(publisher, 100, 130)
        events += received(publisher, viewer, 129)
        assert viewer.bad_frames.total() == 0
        position = viewer.position()
    publish(publisher, 130, 140)
    with closing(Subscription([address], resume=position)) as viewer:
        events += received(publisher, viewer, 139)
    assert not [event for event in events if isinstance(event, NodeStepsRecorded | GapFound)]
    assert steps(events) == {rank: [2 * number for number in range(140)] for rank in range(WORKERS)}


def test_a_viewer_of_this_version_gets_a_node_in_one_event(publisher: Publisher, address: str) -> None:
    publish(publisher, 0, 20)
    with closing(Subscription([address])) as viewer:
        events = received(publisher, viewer, 19)
    assert sum(isinstance(event, NodeStepsRecorded) for event in events) > 15
    assert steps(events) == {rank: [2 * number for number in range(20)] for rank in range(WORKERS)}


@pytest.mark.usefixtures("older")
@pytest.mark.parametrize("missed", [1, 3, 40])
def test_an_older_viewer_is_told_of_all_that_it_missed(address: str, missed: int) -> None:
    """Also of what the numbers that are moved back would hide."""
    with closing(Publisher("n", "b", [address], limit_bytes=20_000)) as publisher:
        publish(publisher, 0, 10)
        with closing(Subscription([address])) as viewer:
            before = received(publisher, viewer, 9)
            publish(publisher, 10, 10 + missed)
            held = publisher.held_bytes
            publisher._streams["n/b/ranks"]._limit_bytes = 0
            publish(publisher, 10 + missed, 11 + missed)
            publisher.commit()
            publisher._streams["n/b/ranks"]._limit_bytes = held
            publish(publisher, 11 + missed, 12 + missed)
            after = received(publisher, viewer, 11 + missed)
    assert steps(before)[0] == [2 * number for number in range(10)]
    assert steps(after)[WORKERS - 1] == [2 * (11 + missed)]
    assert sum(event.lost_records for event in after if isinstance(event, GapFound)) == 2 * (missed + 1)
