"""The driver's pipes to distmon."""

import json
import os
import queue
import signal
from typing import Any

import pytest

from distmon.launcher.driver import channel
from distmon.launcher.driver.channel import EventWriter, read_line, watch_orders


def read_all(fd: int) -> list[dict[str, Any]]:
    with os.fdopen(fd, "rb") as pipe:
        return [json.loads(line) for line in pipe]


def test_events_arrive_in_order() -> None:
    read, write = os.pipe()
    writer = EventWriter(write)
    for number in range(100):
        writer.emit("notice", text=str(number))
    writer.close(5)
    os.close(write)
    assert [record["text"] for record in read_all(read)] == [str(number) for number in range(100)]


def test_output_that_a_stopped_reader_leaves_is_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ranks go on, and what happened to the job still arrives."""
    monkeypatch.setattr(channel, "OUTPUT_LIMIT", 200_000)
    monkeypatch.setattr(channel, "OUTPUT_PATIENCE_S", 0.05)
    read, write = os.pipe()
    writer = EventWriter(write)
    for number in range(1000):
        writer.emit_output(0, "localhost", 0, "stdout", [[f"{number:04d} " + "x" * 1000, "\n"]])
    writer.emit("worker_exited", exit_code=0)
    writer.close(0.01)
    records: list[dict[str, Any]] = []
    with os.fdopen(read, "rb") as pipe:
        while not any(record.get("dropped") for record in records):
            records.append(json.loads(pipe.readline()))
        writer.close(5)
    os.close(write)
    told = [record for record in records if record["event"] == "output"]
    kept = sum(len(record["pieces"]) for record in told)
    assert 100 < kept < 1000
    assert kept + sum(record["dropped"] for record in told) == 1000
    assert any(record["event"] == "worker_exited" for record in records)


def test_a_reader_that_is_gone_stops_nothing() -> None:
    read, write = os.pipe()
    os.close(read)
    writer = EventWriter(write)
    for _ in range(100):
        writer.emit_output(0, "localhost", 0, "stdout", [["x" * 100_000, "\n"]])
    writer.emit("ended")
    writer.close(5)
    os.close(write)


def test_names_that_are_no_utf8_are_shown_with_marks() -> None:
    read, write = os.pipe()
    writer = EventWriter(write)
    writer.emit("notice", text="caf\udce9")
    writer.close(5)
    os.close(write)
    assert read_all(read)[0]["text"] == "caf?"


def test_orders_and_the_end_of_the_pipe_are_obeyed() -> None:
    read, write = os.pipe()
    os.write(write, b"the spec\nstop 15\nsignal 3 10\nkill 2\n")
    assert read_line(read) == b"the spec\n"
    orders: queue.Queue[tuple[str, list[int]]] = queue.Queue()
    watch_orders(read, lambda word, numbers: orders.put((word, numbers)))
    assert [orders.get(timeout=5) for _ in range(3)] == [("stop", [15]), ("signal", [3, 10]), ("kill", [2])]
    os.close(write)
    assert orders.get(timeout=5) == ("stop", [signal.SIGTERM])
