"""Ring records as events."""

from __future__ import annotations

import math
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distmon.agent.records import MOST_HELD, Worker, kept
from distmon.core.codec import decode_batch, encode_msgpack, join_batch
from distmon.core.events import (
    AnyEvent,
    EpochStarted,
    GapFound,
    MarkSet,
    MetricsLogged,
    ModelDescribed,
    PhaseUnseen,
    ProgressDeclared,
    SpanRecorded,
    StepsRecorded,
    WorkerIdentified,
)
from distmon.probe.ring import Batch, Header, Message, Span, Step, Steps
from distmon.wire.clock import SteadyClock

SECOND = 10**9
IDENTITY: dict[str, Any] = {
    "type": "identity",
    "rank": 1,
    "size": 2,
    "local_rank": 1,
    "local_size": 2,
    "generation": 0,
    "frameworks": {"torch": "2.13.0"},
    "horovod": "0.28.1",
    "script": "/job/train.py",
    "visible_devices": {"CUDA_VISIBLE_DEVICES": "3"},
    "time_ns": 2 * SECOND,
    "a field of a later version": 1,
}
HEADER = Header(1, 128, 1024, 77, 4242, SECOND, 0, "node1", "boot")


def clock() -> SteadyClock:
    """Epoch second 1000 is monotonic 0."""
    return SteadyClock(lambda: 5 * SECOND, lambda: 1005 * SECOND)


def worker(assumed_rank: int | None = None) -> Worker:
    return Worker("n", HEADER, clock(), assumed_rank)


def step(number: int, *, generation: int = 0, epoch: int = -1, **other: Any) -> Step:
    fields: dict[str, Any] = dict.fromkeys(
        ("input_wait_ns", "compute_ns", "exposed_communication_ns", "optimizer_ns", "samples"), None
    )
    fields.update(other)
    return Step(
        step=number,
        generation=generation,
        epoch=epoch,
        start_ns=(3 + number) * SECOND,
        duration_ns=SECOND,
        **{"micro_batches": 1, **fields},
    )


def events(worker: Worker, *records: Batch) -> list[AnyEvent]:
    return [item.event for item in worker.take(list(records)) + kept(worker.flush())]


def test_what_came_before_the_identity_waits_for_it_and_carries_its_rank() -> None:
    one = worker()
    assert events(one, Span("rendezvous", SECOND, SECOND // 2, "")) == []
    identified, span = events(one, Message(IDENTITY))
    assert identified == WorkerIdentified(
        at=1002.0,
        worker="n/77-4242",
        node="n",
        host="node1",
        pid=77,
        rank=1,
        size=2,
        local_rank=1,
        framework="torch",
        framework_version="2.13.0",
        horovod_version="0.28.1",
        script="/job/train.py",
        visible_devices="3",
    )
    assert span == SpanRecorded(
        at=1001.5, node="n", worker="n/77-4242", rank=1, span="rendezvous", started=1001.0, duration_s=0.5
    )
    assert one.local_job


def test_steps_become_columns_and_a_phase_never_seen_is_none() -> None:
    first = step(0, input_wait_ns=5, samples=32, micro_batches=2)
    second = step(1, samples=None)
    _, recorded = events(worker(), Message(IDENTITY), first, second)
    assert recorded == StepsRecorded(
        at=1005.0,
        node="n",
        worker="n/77-4242",
        rank=1,
        generation=0,
        first_step=0,
        origin=1003.0,
        start_ns=[0, SECOND],
        duration_ns=[SECOND, SECOND],
        input_wait_ns=[5, None],
        samples=[32, None],
        micro_batches=[2, 1],
    )


@pytest.mark.parametrize(
    ("after", "why"),
    [(step(2), "a step is missing"), (step(1, generation=1), "generation"), (step(1, epoch=4), "epoch")],
    ids=["gap", "generation", "epoch"],
)
def test_an_event_ends_where_its_steps_do_not_follow(after: Step, why: str) -> None:
    found = events(worker(), Message(IDENTITY), step(0), after, after._replace(step=after.step + 1))
    runs = [(event.first_step, len(event.duration_ns)) for event in found if isinstance(event, StepsRecorded)]
    assert runs == [(0, 1), (after.step, 2)]


def test_a_batch_of_steps_makes_the_events_that_its_steps_make_one_by_one() -> None:
    steps = [step(0), step(1, epoch=3), step(2, epoch=3, samples=32), step(4, epoch=4, micro_batches=2), step(5, epoch=4)]
    raw = [tuple(-1 if number is None else number for number in one) for one in steps]
    batch = Steps(*(tuple(column) for column in zip(*raw, strict=True)))
    assert batch.rows() == steps
    together, apart = worker(), worker()
    assert events(together, Message(IDENTITY), batch) == events(apart, Message(IDENTITY), *steps)


def test_no_steps_make_no_event() -> None:
    assert worker().flush() == []


def test_a_new_identity_comes_after_the_steps_of_the_old_one() -> None:
    again = Message({**IDENTITY, "rank": 0, "generation": 1})
    found = events(worker(), Message(IDENTITY), step(0), again, step(0, generation=1))
    assert [(type(event), event.rank) for event in found if isinstance(event, StepsRecorded | WorkerIdentified)] == [
        (WorkerIdentified, 1),
        (StepsRecorded, 1),
        (WorkerIdentified, 0),
        (StepsRecorded, 0),
    ]


def test_messages_become_their_events() -> None:
    said: list[dict[str, Any]] = [
        {"type": "metrics", "values": {"loss": 0.5}, "step": 7, "epoch": 1},
        {"type": "model", "parameters": 10, "gradient_bytes": 40, "tensors": 2, "optimizer": "SGD"},
        {"type": "progress", "epoch": 0, "epochs": 3, "steps_per_epoch": 20},
        {"type": "unseen", "field": "compute", "reason": "compiled"},
        {"type": "mark", "text": "now", "step": 3},
        {"type": "phase", "phase": "initialisation"},
    ]
    found = events(worker(), Message(IDENTITY), *(Message({**fields, "time_ns": SECOND}) for fields in said))[1:]
    common: dict[str, Any] = {"at": 1001.0, "worker": "n/77-4242", "rank": 1}
    assert found == [
        MetricsLogged(**common, values={"loss": 0.5}, step=7, epoch=1),
        ModelDescribed(**common, parameters=10, gradient_bytes=40, tensors=2, optimizer="SGD"),
        EpochStarted(**common, epoch=0),
        ProgressDeclared(**common, epochs=3, steps_per_epoch=20),
        PhaseUnseen(**common, field="compute", reason="compiled"),
        MarkSet(at=1001.0, rank=1, text="now", step=3),
    ]


def test_a_loss_that_is_no_number_is_told_and_the_other_metrics_stay() -> None:
    said = Message({"type": "metrics", "values": {"loss": math.nan, "lr": 0.1}, "step": 7, "epoch": -1, "time_ns": SECOND})
    common: dict[str, Any] = {"at": 1001.0, "worker": "n/77-4242", "rank": 1}
    assert events(worker(), Message(IDENTITY), said)[1:] == [
        PhaseUnseen(**common, field="metric loss", reason="its value is nan"),
        MetricsLogged(**common, values={"lr": 0.1}, step=7),
    ]


def test_a_path_that_is_not_utf_8_can_be_sent() -> None:
    (identified,) = events(worker(), Message({**IDENTITY, "script": os.fsdecode(b"/job/\xff.py")}))
    assert isinstance(identified, WorkerIdentified)
    assert identified.script == "/job/?.py"
    encode_msgpack(identified)


_anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(alphabet=st.characters(), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
_names = ("rank", "size", "values", "step", "epoch", "field", "reason", "text", "parameters", "time_ns", "frameworks", "script")


@given(
    st.sampled_from(["identity", "metrics", "model", "progress", "unseen", "mark", "epoch", "phase", "other"]),
    st.dictionaries(st.sampled_from(_names), _anything, max_size=6),
)
def test_whatever_a_message_holds_its_events_can_be_sent(kind: str, fields: dict[str, Any]) -> None:
    one = worker(assumed_rank=0)
    said = events(one, Message(IDENTITY), Message({**fields, "type": kind}), step(0))
    assert decode_batch(join_batch([encode_msgpack(event) for event in said])) == (said, [])


def test_a_launcher_that_says_only_the_rank() -> None:
    one = worker()
    (identified,) = events(one, Message({"type": "identity", "rank": 4}))
    assert isinstance(identified, WorkerIdentified)
    assert (identified.rank, identified.size) == (4, 0)
    assert not one.local_job


def test_an_epoch_starts_once_whoever_says_it() -> None:
    said = Message({"type": "progress", "epoch": 1, "time_ns": SECOND})
    found = events(worker(), Message(IDENTITY), said, step(0, epoch=1), step(1, epoch=2), step(2, epoch=2))
    assert [event.epoch for event in found if isinstance(event, EpochStarted)] == [1, 2]


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "metrics", "values": "none"},
        {"type": "metrics"},
        {"type": "of a later version"},
        {"type": ["metrics"]},
        {},
        {"type": "identity", "rank": "first"},
        {"type": "metrics", "values": {}, "time_ns": "noon", "step": 1.5},
    ],
)
def test_a_message_that_is_not_understood_is_counted_and_nothing_more(fields: dict[str, Any]) -> None:
    one = worker()
    assert len(events(one, Message(IDENTITY), Message(fields), step(0))) == 2
    assert one.unreadable == 1


def test_a_worker_whose_identity_was_lost_has_the_rank_that_its_launcher_gave() -> None:
    one = worker(assumed_rank=3)
    found = events(one, *(step(number) for number in range(MOST_HELD)))
    assert [event.rank for event in found if isinstance(event, StepsRecorded)] == [3]


def test_records_of_a_worker_that_nobody_knows_are_a_gap() -> None:
    one = worker()
    assert one.take([step(0), step(1)]) == []
    (kept,) = one.finish()
    assert isinstance(kept.event, GapFound)
    assert kept.event.lost_records == 2
