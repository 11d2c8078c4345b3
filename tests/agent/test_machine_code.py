"""What the agent reads in machine code is what it reads in Python."""

from __future__ import annotations

import ctypes
import os
import re
import struct
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from distmon.agent.machine_code import native
from distmon.agent.sensors import base, cpu, network, processes
from distmon.agent.sensors.base import KernelFile, Roots
from distmon.agent.sensors.nvidia_fast import FAST, Questions
from distmon.agent.sensors.processes import ProcessSensor
from distmon.core.events import NetworkRate, ProcessReading

TICKS = st.integers(0, 10**6) | st.integers(0, 10**15)
JUNK = st.sampled_from(
    [b"cpu", b"cpu7", b"cpufoo 1 2 3 4", b"cpu1 1 2", b"cpu2  3 4 5 6 ", b"cpu3 1 2 3 4 x 6", b"page 1 2", b"", b"\x00"]
)
LINE = JUNK | st.builds(
    lambda core, columns: b"cpu%s %s" % (core, b" ".join(b"%d" % column for column in columns)),
    st.sampled_from([b"", b" ", b"0", b"1", b"2", b"17"]),
    st.lists(TICKS, min_size=3, max_size=11),
)
STAT = st.lists(LINE, min_size=1, max_size=6).map(lambda lines: b"\n".join([*lines, b"intr 5 cpu1 9 9 9 9", b"cpu1 8 8 8 8 8"]))


def test_it_is_built() -> None:
    assert native is not None, "agent/_native.c is not built: make clean test"


@given(st.lists(STAT, min_size=1, max_size=4))
@settings(max_examples=40)
@example([b"cpu 1 2 3 4\ncpu0 1 1 1 1", b"cpu 10 2 3 3\ncpu1 5 5 5 5"])
@example([b"cpu 0 0 0 0", b"cpu 12345 0 0 87655 0 0 0 0", b"cpu 12346 0 0 87655 0 0 0 0"])
def test_the_use_of_cores(texts: list[bytes]) -> None:
    before: bytes | cpu.Ticks = b""
    before_python: cpu.Ticks = {}
    for text in texts:
        found, expected = cpu.usage(text, before), cpu.usage_python(text, before_python)
        if not isinstance(found[0], bytes):  # numbers that no kernel counts to are left to Python
            assert re.search(rb"\d{14}", text)
            return
        assert found[1:] == expected[1:]
        before, before_python = found[0], expected[0]  # type: ignore[assignment]


@given(
    st.lists(
        st.sampled_from(
            [
                b" face |bytes",
                b"x:",
                b":1 2 3 4 5 6 7 8 9",
                b" eth0:1: 1 0 0 0 0 0 0 0 2 0",
                b"caf\xe9\xc3\xa9: 9 0 0 0 0 0 0 0 8",
            ]
        )
        | st.builds(
            lambda name, columns: name + b":" + b" ".join(columns),
            st.sampled_from([b"lo", b"  eth0", b"veth1 "]),
            st.lists(st.sampled_from([b"0", b"12", b"-1", b"1x", b" 7", b"9" * 18, b"9" * 20]), max_size=11),
        ),
        max_size=5,
    ).map(b"\n".join)
)
@settings(max_examples=40)
def test_the_traffic_of_interfaces(text: bytes) -> None:
    assert network.counts_of(text) == network.counts_python(text)


@given(
    st.lists(
        st.sampled_from([b"", b"0", b"12\n", b" 7 \n", b"-4", b"N/A", b"1 2", b"9" * 18, b"9" * 19, b"0" * 4099]), max_size=6
    )
)
@settings(max_examples=40)
def test_numbers_of_many_files(texts: list[bytes]) -> None:
    files = []
    try:
        for text in texts:
            files.append(KernelFile(Path("memory")))
            files[-1].fd = os.memfd_create("number")
            os.write(files[-1].fd, text)
        assert base.whole_numbers(files) == [base.whole_number(text) for text in texts]
    finally:
        for file in files:
            file.close()


def test_a_file_that_is_gone_is_opened_anew(tmp_path: Path) -> None:
    path = tmp_path / "counter"
    path.write_text("5\n")
    file, missing = KernelFile(path), KernelFile(tmp_path / "missing")
    assert base.whole_numbers([file, missing]) == [5, None]
    assert base.numbers_at_once([file, missing]) == [5, None]
    folder = os.open(tmp_path, os.O_RDONLY)
    os.dup2(folder, file.fd)  # reading it fails from now on
    os.close(folder)
    assert base.whole_numbers([file, missing]) == [None, None]
    assert base.whole_numbers([file, missing]) == [5, None]


def test_no_more_is_read_than_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "stat"
    path.write_bytes(b"cpu  1 2 3 4\nintr" + b" 0" * 50_000 + b"\nbtime 5\n")
    file = KernelFile(path)
    assert file.read() == path.read_bytes()
    assert file.read(until=b"\nintr") == path.read_bytes()[: 1 << 16]
    assert file.read(until=b"btime") == path.read_bytes()
    file.close()


TAIL = " 0 0" + " 18446744073709551615" * 28


@pytest.mark.parametrize("name", ["python", "a) R 1 2 (b", "", "\xe9 \n)"])
def test_a_process_with_any_name(tmp_path: Path, name: str) -> None:
    """Also its second reading, for which the file is open already."""
    columns = ["S", *["1"] * 10, "70", "8", "0", "0", "20", "0", "12", "0", "99", "18446744073709551615", "345"]
    line = f"77 ({name}) {' '.join(columns)}{TAIL}\n".encode("latin-1")
    (tmp_path / "77").mkdir()
    (tmp_path / "77/stat").write_bytes(line)
    (tmp_path / "77/schedstat").write_bytes(b"5000 900000000 12\n")
    assert processes.counts_of(line) == (78, 12, 345)
    sensor = ProcessSensor(Roots(proc=tmp_path))
    sensor.watch(77, 0)
    first, second = (sensor.read(now_ns).values["processes"] for now_ns in (10**9, 2 * 10**9))
    assert native is not None
    (process,) = sensor._processes.values()
    rows = [(process.file.fd, 77, 3, 71, 10**9, process.queue.fd, 850_000_000), (-1, 0, None, 0, 0, -1, -1)]
    reading = ProcessReading(
        pid=77, rank=3, cpu_percent=28.0, memory_bytes=345 * 4096, threads=12, run_queue_wait_percent=20.0
    )
    assert native.process_readings(ProcessReading, rows, 10**9 + 250_000_000, 100, 4096) == [(reading, 78, 900_000_000), None]
    assert (first[0].threads, second[0].threads, second[0].cpu_percent) == (12, 12, 0.0)
    assert (first[0].run_queue_wait_percent, second[0].run_queue_wait_percent) == (None, 0.0)


@given(st.binary(max_size=60), st.integers(0, 300))
@settings(max_examples=40)
def test_what_is_no_line_of_a_process_is_left_to_python(junk: bytes, at: int) -> None:
    assert native is not None
    good = f"77 (x) S {'1 ' * 11}70 8 0 0 20 0 12 0 99 10 345 0 0\n".encode()
    fd = os.memfd_create("stat")
    try:
        os.write(fd, good)
        os.pwrite(fd, junk, at)
        (found,) = native.process_readings(ProcessReading, [(fd, 77, None, 78, 1, -1, -1)], 2, 100, 1)
        text = os.pread(fd, 4096, 0)
    finally:
        os.close(fd)
    if found is not None:
        reading, ticks, _ = found
        assert (ticks, reading.threads, reading.memory_bytes) == processes.counts_of(text)


@given(st.integers(0, 10**12), st.integers(-5, 10**6), st.integers(1, 10**11))
@settings(max_examples=40)
def test_the_use_of_a_process_is_to_the_last_bit_as_python_rounds_it(before: int, ticks: int, elapsed_ns: int) -> None:
    fd = os.memfd_create("stat")
    try:
        os.write(fd, f"77 (x) S {'1 ' * 10}{max(before + ticks, 0)} 0 0 0 20 0 12 0 99 10 345 0 0\n".encode())
        sensor = ProcessSensor(Roots())
        sensor.watch(77, 0)
        (process,) = sensor._processes.values()
        process.file.fd, process.last_ticks, process.last_ns = fd, before, 5
        (reading,) = sensor.read(5 + elapsed_ns).values["processes"]
        process.last_ticks, process.last_ns = before, 5
        assert process.read(5 + elapsed_ns) == reading
    finally:
        os.close(fd)


@given(
    st.one_of(
        st.builds("{} {} 7\n".format, st.integers(0, 3), st.integers(-1, 10**12)),
        st.sampled_from(["", "\n", "0 0 0\n", "12", "12 ", "x 5 1\n", "12 x 1\n"]),
    ),
    st.integers(-1, 10**12),
    st.integers(1, 10**11),
)
@settings(max_examples=60)
def test_the_wait_for_a_core_is_as_python_reads_it(text: str, before: int, elapsed_ns: int) -> None:
    stat, schedstat = os.memfd_create("stat"), os.memfd_create("schedstat")
    try:
        os.write(stat, f"77 (x) S {'1 ' * 10}5 0 0 0 20 0 12 0 99 10 345 0 0\n".encode())
        os.write(schedstat, text.encode())
        sensor = ProcessSensor(Roots())
        sensor.watch(77, 0)
        (process,) = sensor._processes.values()
        process.file.fd, process.queue.fd = stat, schedstat
        process.last_ticks, process.last_wait_ns, process.last_ns = 5, before, 5
        (reading,) = sensor.read(5 + elapsed_ns).values["processes"]
        wait_ns = process.last_wait_ns
        process.last_ticks, process.last_wait_ns, process.last_ns = 5, before, 5
        assert (process.read(5 + elapsed_ns), process.last_wait_ns) == (reading, wait_ns)
        assert reading.run_queue_wait_percent is None or 0 <= reading.run_queue_wait_percent <= 100
    finally:
        os.close(stat)
        os.close(schedstat)


_PAIRS = st.tuples(st.integers(0, 10**7), st.sampled_from([0, 7, 10**18 - 1, 10**18, 10**25]))


@given(
    st.dictionaries(st.sampled_from(["lo", "eth0", "ib0", "caf\u00e9", "veth1"]), _PAIRS),
    st.dictionaries(st.sampled_from(["lo", "eth0", "ib0", "caf\u00e9", "veth2"]), _PAIRS),
    st.sampled_from([0.0, 0.999991, 1.0, 3.7]),
    st.frozensets(st.sampled_from(["eth0", "ib0", "away"])),
)
@settings(max_examples=60)
def test_the_rates_of_interfaces(
    after: dict[str, tuple[int, int]], before: dict[str, tuple[int, int]], interval_s: float, used: frozenset[str]
) -> None:
    assert network.rates_of(after, before, interval_s, used) == network.rates_python(after, before, interval_s, used)


def test_of_very_many_interfaces_those_that_carry_most() -> None:
    counts = {f"veth{i}": (i, 1) for i in range(1000)} | {"eth0": (0, 0), "eth1": (0, 0)}
    used = frozenset({"eth1"})
    assert native is not None
    rates = native.network_rates(NetworkRate, counts, counts, 1.0, used, 32)
    assert rates == network.rates_python(counts, counts, 1.0, used)
    assert rates is not None
    assert [rate.name for rate in rates[:3]] == ["eth1", "veth999", "veth998"]


def test_a_drivers_function_is_called_with_what_it_needs() -> None:
    seen: list[tuple[int, int | None, int]] = []

    def plain(handle: int, answer: Any) -> int:
        seen.append((handle, None, answer[0]))
        answer[1] = 2**63
        return 0

    def with_argument(handle: int, argument: int, answer: Any) -> int:
        seen.append((handle, argument, answer[0]))
        return 15

    assert native is not None
    numbers = ctypes.POINTER(ctypes.c_uint64)
    functions = (
        ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, numbers)(plain),
        ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, numbers)(with_argument),
    )
    addresses = [ctypes.cast(function, ctypes.c_void_p).value for function in functions]
    questions = struct.pack("@qiIqiI", addresses[0], -1, 7, addresses[1], 3, 0)
    answers = native.ask_driver(0x1234, questions)
    assert seen == [(0x1234, None, 7), (0x1234, 3, 0)]
    assert struct.unpack("@qQQ48xqQQ48x", answers) == (0, 7, 2**63, 15, 0, 0)


KEPT: list[object] = []
"""Functions that a thread may still be in when its test is over."""


def test_a_call_that_hangs_is_left_to_itself_and_the_rest_is_taken_over() -> None:
    released = threading.Event()
    asked: list[int] = []

    def answered(device: int, answer: Any) -> int:
        asked.append(device)
        if device == 2:
            released.wait(20.0)
        answer[0] = 100 + device
        return device

    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint64))(answered)
    question = struct.pack("@qiI", ctypes.cast(function, ctypes.c_void_p).value, -1, 0)
    assert native is not None
    caller = native.Caller()
    assert caller.wait(0.0) == [] and caller.at() == -1
    caller.ask([(device, question) for device in (1, 2, 3)])
    with pytest.raises(RuntimeError):
        caller.ask([])
    while caller.at() != 1:
        assert caller.wait(0.01) is None
    caller.keep(1)
    released.set()
    first, second, third = caller.wait(20.0) or (b"", b"", b"")
    assert [struct.unpack_from("@qQ", answers) for answers in (first, second, third)] == [(1, 101), (2, 102), (0, 0)]
    assert asked == [1, 2] and caller.at() == -1
    caller.ask([(3, question * 2)])
    (last,) = caller.wait(20.0) or (b"",)
    assert struct.unpack("@qQ56xqQ56x", last) == (3, 103, 3, 103)
    released.clear()
    KEPT.append(function)
    caller.ask([(2, question)])
    del caller  # while it hangs: its thread lets go of everything once it is back
    released.set()


def _no_driver() -> Any:
    """Finds every function of NVML, which nobody may call."""
    return SimpleNamespace(
        cast=lambda pointer, kind: SimpleNamespace(value=pointer),
        c_void_p=None,
        NVMLError=ValueError,
        _nvmlGetFunctionPointer=lambda name: 1,
    )


@given(
    st.lists(st.sampled_from([0, 0, 0, 0, 3, 15]), min_size=len(FAST), max_size=len(FAST)),
    st.lists(
        st.sampled_from([0, 1, 64, 1 << 31, (1 << 32) - 1, 1 << 53, (1 << 63) - 1, (1 << 64) - 1]),
        min_size=8 * len(FAST),
        max_size=8 * len(FAST),
    ),
)
@example([0] * len(FAST), [1] * (8 * len(FAST)))
@example([0] * len(FAST), [0] * (8 * len(FAST)))
@settings(max_examples=60)
def test_what_a_driver_told(codes: list[int], numbers: list[int]) -> None:
    questions = Questions(_no_driver(), 5, FAST)
    answers = b"".join(struct.pack("@q8Q", code, *numbers[8 * i : 8 * i + 8]) for i, code in enumerate(codes))
    refused = any(codes)
    assert native is not None
    found = native.values_told(answers, questions._places)
    if refused:
        assert found is None
    else:
        values, refusals = questions.told_python(answers)
        assert refusals == []
        assert questions.told(answers) == (values, [])
        assert found is None or [*map(repr, found.items())] == [*map(repr, values.items())]  # also their types


def test_a_healthy_driver_is_understood_in_machine_code() -> None:
    questions = Questions(_no_driver(), 5, FAST)
    answers = b"".join(struct.pack("@q16I", 0, *range(16)) for _ in FAST)
    answers = answers[:-72] + bytes(72)  # no reason to throttle
    assert native is not None
    assert native.values_told(answers, questions._places) == questions.told_python(answers)[0]
