"""Steps that come as a ring's table are told as the same steps as those that come as columns of integers."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distmon.agent.records import Worker
from distmon.agent.step_rows import MOST_STEPS_PER_EVENT, Row, joined_numbers, joined_numbers_python
from distmon.core.events import AnyEvent, StepsRecorded
from distmon.core.step_table import COLUMNS
from distmon.probe import ring
from distmon.probe.ring import RingReader, RingWriter
from distmon.wire.clock import SteadyClock

MS = 1_000_000
UNSEEN = ring.UNSEEN
PHASE = st.integers(0, 2000 * MS)
KNOWN = st.tuples(*[st.just(500 * MS)] * 4, st.just(32), st.just(1))
"""Four phases, samples, micro-batches: all known."""
ODD = st.tuples(
    *[st.sampled_from([UNSEEN, 0, 5 * MS]) | PHASE] * 4, st.sampled_from([UNSEEN, 0, 32, 2**31 - 1]), st.sampled_from([1, 1, 4])
)
GRAPH = st.tuples(st.just(UNSEEN), st.just(UNSEEN), PHASE, st.just(UNSEEN), st.just(8), st.just(2))
STEP = st.tuples(
    st.sampled_from([1, 1, 1, 1, 2]),  # what the step's number advances by
    st.sampled_from([0, 0, 0, 0, 1]),  # the epoch, likewise
    st.sampled_from([100 * MS] * 4 + [0, 2500 * MS, 5000 * MS]),
    st.shared(st.sampled_from([KNOWN, KNOWN, GRAPH, ODD]), key="kind").flatmap(lambda kind: kind),
)


def make_worker(header: ring.Header) -> Worker:
    worker = Worker("n", header, SteadyClock(lambda: 0, lambda: 10**12))
    worker.rank = 3
    return worker


def told(events: list[AnyEvent]) -> list[tuple[object, ...]]:
    """Step by step; an epoch by itself."""
    rows: list[tuple[object, ...]] = []
    for event in events:
        if not isinstance(event, StepsRecorded):
            rows.append((event,))
            continue
        for i, start_ns in enumerate(event.start_ns):
            columns = [getattr(event, name) or [None] * len(event.start_ns) for name in COLUMNS[:-1]]
            start = round((event.origin * 1e9 + start_ns) / 1e4)
            rows.append(
                (event.first_step + i, event.generation, event.epoch, start, *(c[i] for c in columns[:-1]), columns[-1][i] or 1)
            )
    return rows


@given(bursts=st.lists(st.lists(STEP, max_size=5), max_size=5), generation=st.integers(0, 3), first_epoch=st.integers(-1, 2))
@settings(max_examples=60, deadline=None)
def test_a_table_tells_the_same_steps(
    bursts: list[list[tuple[int, int, int, tuple[int, ...]]]],
    generation: int,
    first_epoch: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("rings")
    folder.chmod(0o700)
    writer = RingWriter.create(str(folder), capacity=32)
    readers = RingReader(writer.path), RingReader(writer.path)
    by_table, by_columns = make_worker(writer.header), make_worker(writer.header)
    events: tuple[list[AnyEvent], list[AnyEvent]] = [], []
    number, epoch, now_ns = 0, first_epoch, 0
    for burst in bursts:
        for gap, later, duration_ns, numbers in burst:
            number, epoch, now_ns = number + gap, epoch + later, now_ns + duration_ns
            writer.step(number, generation, epoch, now_ns - duration_ns, duration_ns, *numbers)
        table = readers[0].read_table(MOST_STEPS_PER_EVENT)
        if table is None:
            events[0].extend(item.event for item in by_table.take(readers[0].read_batches()))
        elif table.steps:
            events[0].extend(item.event for item in by_table.take_table(table))
            assert list(table.durations_ns()) == [duration_ns for _, _, duration_ns, _ in burst]
        events[1].extend(item.event for item in by_columns.take(readers[1].read_batches()))
        assert readers[0].position == readers[1].position
    events[0].extend(by_table.flush())
    events[1].extend(by_columns.flush())
    assert told(events[0]) == told(events[1])
    assert by_table.memory() == by_columns.memory()


def test_usual_steps_of_many_reads_are_one_row(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    writer = RingWriter.create(str(tmp_path), capacity=64)
    reader, worker = RingReader(writer.path), make_worker(writer.header)
    for number in range(12):
        writer.step(number, 0, -1, number * MS, MS, UNSEEN, 1, 2, 3, 32, 1)
        if number % 3 == 2:
            table = reader.read_table(MOST_STEPS_PER_EVENT)
            assert table is not None and table.steps == 3
            assert worker.take_table(table) == []
    (row,) = worker.flush_rows()
    assert isinstance(row, Row)
    expected = [number * MS for number in range(12)]
    assert row.columns == ("duration_ns", "compute_ns", "exposed_communication_ns", "optimizer_ns", "samples", "start_ns")
    assert memoryview(row.numbers).cast("I").tolist() == [*[MS] * 12, *[1] * 12, *[2] * 12, *[3] * 12, *[32] * 12, *expected]
    nothing = reader.read_table(MOST_STEPS_PER_EVENT)
    assert nothing is not None and nothing.steps == 0


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 8), st.integers(0, 2**31)), min_size=1, max_size=5))
def test_workers_are_joined_in_machine_code_as_in_python(sizes: list[tuple[int, int, int]]) -> None:
    rows = [(array("I", range(7, 7 + steps * columns)).tobytes(), steps, later) for steps, columns, later in sizes]
    assert joined_numbers(rows) == joined_numbers_python(rows)


def test_what_a_table_cannot_hold_is_left_to_the_long_way(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    writer = RingWriter.create(str(tmp_path), capacity=16)
    reader = RingReader(writer.path)
    writer.step(0, 0, -1, 0, MS, 1, 1, 1, 1, 32, 1)
    assert reader.read_table(0) is None
    writer.message({"type": "mark", "text": "here"})
    assert reader.read_table(9) is None
    assert len(reader.read_batches()) == 2
    for number in range(20):
        writer.step(number, 0, -1, number * MS, MS, 1, 1, 1, 1, 32, 1)
    assert reader.read_table(99) is None  # the writer has overtaken the reader
    assert len(reader.read()) + reader.lost == 20
    writer.step(20, 0, -1, 0, MS, 1, 1, 1, 1, 32, 1)
    writer.close()
    assert reader.read_table(9) is None  # so that the end is seen
    assert len(reader.read_batches()) == 1 and reader.drained


@given(junk=st.binary(min_size=1, max_size=300), at=st.integers(0, 1800), written=st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_damage_is_never_a_table(junk: bytes, at: int, written: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("rings")
    folder.chmod(0o700)
    writer = RingWriter.create(str(folder), capacity=16)
    for number in range(written):
        writer.step(number, 0, -1, number, 1, 1, 1, 1, 1, 1, 1)
    reader, other = RingReader(writer.path), RingReader(writer.path)
    with Path(writer.path).open("r+b") as file:
        file.seek(ring.HEADER_SIZE + at)
        file.write(junk)
        file.truncate(ring.HEADER_SIZE + 16 * ring.DEFAULT_RECORD_SIZE)
    table = reader.read_table(99)
    if table is not None:
        assert [*range(table.first_step, table.first_step + table.steps)] == [
            record.step for record in other.read() if isinstance(record, ring.Step)
        ]


def test_the_steps_read_without_machine_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    writer = RingWriter.create(str(tmp_path), capacity=16)
    writer.step(0, 0, -1, 0, MS, 1, 1, 1, 1, 32, 1)
    monkeypatch.setattr(ring, "native", None)
    assert RingReader(writer.path).read_table(99) is None
