"""What the agent reads in machine code is what it reads in Python."""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from distmon.agent.machine_code import native
from distmon.agent.sensors import base, cpu, processes
from distmon.agent.sensors.base import KernelFile, Roots
from distmon.agent.sensors.disks import DiskSensor
from distmon.agent.sensors.frequency import FrequencySensor
from distmon.agent.sensors.infiniband import InfinibandSensor
from distmon.agent.sensors.memory import MemorySensor
from distmon.agent.sensors.network import NetworkSensor
from distmon.agent.sensors.nvidia import _doubts
from distmon.agent.sensors.nvidia_fast import FAST, Questions
from distmon.agent.sensors.nvidia_packed import program_of
from distmon.agent.sensors.power import RaplSensor
from distmon.agent.sensors.processes import ProcessSensor
from distmon.agent.sensors.temperatures import TemperatureSensor
from distmon.core.events import GpuReading, NetworkRate, ProcessReading

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
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


encode = msgspec.msgpack.encode


@contextmanager
def new_folder() -> Iterator[Path]:
    """Sensors keep their files open as long as an agent lives; those in the folder are closed here."""
    with TemporaryDirectory() as name:
        yield Path(name)
        for descriptor in list(Path("/proc/self/fd").iterdir()):
            if name in os.path.realpath(descriptor):
                os.close(int(descriptor.name))


class Twins:
    """A file of the kernel and two sensors on it: what one packs in machine code has to be what the other makes in Python."""

    def __init__(self, make: Callable[[Roots], Any], path: str, folder: Path) -> None:
        self._path = folder / path
        self._path.parent.mkdir(parents=True)
        self.sensors = [make(Roots(folder / "proc", folder / "sys")) for _ in range(2)]
        self._now_ns = 0

    def read(self, text: bytes, after_ns: int = 10**9) -> bool:
        """Whether machine code made it."""
        self._path.write_bytes(text)
        self._now_ns += after_ns
        packed, plain = (ask(self._now_ns) for ask in (self.sensors[0].packed, self.sensors[1].read))
        for name, value in plain.values.items():
            assert encode(packed.values[name]) == encode(value), name
        assert packed.unavailable == plain.unavailable
        return any(isinstance(value, msgspec.Raw) for value in packed.values.values())


@given(st.lists(STAT, min_size=1, max_size=4))
@settings(max_examples=60)
@example([b"cpu 1 2 3 4\ncpu0 1 1 1 1", b"cpu 10 2 3 3\ncpu1 5 5 5 5"])
@example([b"cpu 0 0 0 0", b"cpu 12345 0 0 87655 0 0 0 0", b"cpu 12346 0 0 87655 0 0 0 0"])
def test_the_use_of_cores(texts: list[bytes]) -> None:
    with new_folder() as folder:
        twins = Twins(cpu.CpuSensor, "proc/stat", folder)
        for text in texts:
            twins.read(text)


def test_the_use_of_cores_is_made_in_machine_code(tmp_path: Path) -> None:
    twins = Twins(cpu.CpuSensor, "proc/stat", tmp_path)
    lines = [b"cpu%s %d 0 0 900 0 0 0 0 0 0\n" % (core, 7 * i) for i, core in enumerate([b" ", b"0", b"2", b"3"])]
    many = b"intr 5" + b" 0" * 50_000 + b"\n"
    assert [twins.read(b"".join(lines) + many), twins.read(b"".join(lines[::-1]) + many)] == [False, True]


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
def test_lines_of_interfaces(text: bytes) -> None:
    with new_folder() as folder:
        twins = Twins(NetworkSensor, "proc/net/dev", folder)
        for _ in range(2):
            twins.read(text)


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
    sensor.watch(77, 3)
    first, second = sensor.packed(10**9), sensor.packed(2 * 10**9)
    assert not isinstance(first.values["processes"], msgspec.Raw)
    (reading,) = msgspec.msgpack.decode(second.values["processes"], type=list[ProcessReading])
    assert reading == ProcessReading(
        pid=77, rank=3, cpu_percent=0.0, memory_bytes=345 * PAGE_BYTES, threads=12, run_queue_wait_percent=0.0
    )
    (tmp_path / "77/schedstat").write_bytes(b"5000 950000000 12\n")
    (plain,) = sensor.read(2 * 10**9 + 250_000_000).values["processes"]
    assert plain.run_queue_wait_percent == 20.0


class TwinProcesses:
    """One process at its last reading, for two sensors."""

    def __init__(self, stat: bytes, schedstat: bytes, ticks: int, wait_ns: int) -> None:
        self._files = [os.memfd_create("stat"), os.memfd_create("schedstat")]
        os.write(self._files[0], stat)
        os.write(self._files[1], schedstat)
        self.sensors = [ProcessSensor(Roots()) for _ in range(2)]
        for sensor in self.sensors:
            sensor.watch(77, None)
            (process,) = sensor._processes.values()
            process.file.fd, process.queue.fd = self._files
            process.last_ticks, process.last_wait_ns, process.last_ns = ticks, wait_ns, 5

    def __enter__(self) -> TwinProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        for sensor in self.sensors:
            for process in sensor._processes.values():
                process.file.fd = process.queue.fd = -1
        for descriptor in self._files:
            os.close(descriptor)

    def read(self, now_ns: int) -> list[ProcessReading]:
        packed, plain = self.sensors[0].packed(now_ns), self.sensors[1].read(now_ns)
        assert encode(packed.values) == encode(plain.values)
        assert packed.unavailable == plain.unavailable
        self.sensors[0]._settle()
        (one,), (other,) = (sensor._processes.values() or [None] for sensor in self.sensors)
        if one is not None and other is not None:
            assert one.row() == other.row()
        return plain.values["processes"]  # type: ignore[no-any-return]


@given(st.binary(max_size=60), st.integers(0, 300))
@settings(max_examples=60)
def test_what_is_no_line_of_a_process_is_left_to_python(junk: bytes, at: int) -> None:
    good = f"77 (x) S {'1 ' * 11}70 8 0 0 20 0 12 0 99 10 345 0 0\n".encode()
    with TwinProcesses(good[:at] + junk + good[at + len(junk) :], b"5 6 7", 78, 6) as twins:
        twins.read(10**9)


@given(st.integers(0, 10**12), st.integers(-5, 10**6), st.integers(1, 10**11))
@settings(max_examples=40)
def test_the_use_of_a_process_is_to_the_last_bit_as_python_rounds_it(before: int, ticks: int, elapsed_ns: int) -> None:
    line = f"77 (x) S {'1 ' * 10}{max(before + ticks, 0)} 0 0 0 20 0 12 0 99 10 345 0 0\n"
    with TwinProcesses(line.encode(), b"", before, -1) as twins:
        twins.read(5 + elapsed_ns)


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
    line = f"77 (x) S {'1 ' * 10}5 0 0 0 20 0 12 0 99 10 345 0 0\n"
    with TwinProcesses(line.encode(), text.encode(), 5, before) as twins:
        (reading,) = twins.read(5 + elapsed_ns)
    assert reading.run_queue_wait_percent is None or 0 <= reading.run_queue_wait_percent <= 100


_PAIRS = st.tuples(st.integers(0, 10**7), st.sampled_from([0, 7, 10**18 - 1, 10**18, 10**25]))


def _dev(counts: dict[str, tuple[int, int]]) -> bytes:
    lines = [f"  {name}: {received} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0" for name, (received, sent) in counts.items()]
    return "\n".join(["Inter-|", " face |bytes", *lines, ""]).encode()


@given(
    st.dictionaries(st.sampled_from(["lo", "eth0", "ib0", "caf\u00e9", "veth1", "a:b"]), _PAIRS),
    st.dictionaries(st.sampled_from(["lo", "eth0", "ib0", "caf\u00e9", "veth2", "eth"]), _PAIRS),
    st.sampled_from([0, 999_991_000, 10**9, 3_700_000_000]),
    st.frozensets(st.sampled_from(["eth0", "ib0", "away"])),
)
@settings(max_examples=60)
def test_the_rates_of_interfaces(
    before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]], interval_ns: int, used: frozenset[str]
) -> None:
    with new_folder() as folder:
        twins = Twins(NetworkSensor, "proc/net/dev", folder)
        for sensor in twins.sensors:
            sensor.used_by_training = used
        twins.read(_dev(before))
        twins.read(_dev(after), interval_ns)


def test_of_very_many_interfaces_those_that_carry_most(tmp_path: Path) -> None:
    """More than a page of the kernel's."""
    counts = {f"veth{i}": (i, 1) for i in range(300)} | {"eth0": (0, 0), "eth1": (0, 0)}
    twins = Twins(NetworkSensor, "proc/net/dev", tmp_path)
    for sensor in twins.sensors:
        sensor.used_by_training = frozenset({"eth1"})
    assert [twins.read(_dev(counts)) for _ in range(3)] == [False, True, True]
    packed = twins.sensors[0].packed(10**10).values["networks"]
    names = [rate.name for rate in msgspec.msgpack.decode(packed, type=list[NetworkRate])]
    assert names[:3] == ["eth1", "veth299", "veth298"] and len(names) == 32


_SECTORS = st.sampled_from(["0", "7", "88", "123456", "9" * 17, "9" * 18, "9" * 20, "x"])


@given(
    st.lists(
        st.lists(
            st.builds(
                "259 0 {} 1 0 {} 0 1 0 {} 0 0 {} 0 0".format, st.sampled_from(["sda", "sda1", "sdb", "dm-0"]), *[_SECTORS] * 3
            )
            | st.sampled_from(["", "259 0 sdb 1 2 3", "8 0 sdb"]),
            max_size=4,
        ),
        min_size=2,
        max_size=3,
    ),
    st.sampled_from([0, 10**9, 2_000_000_001]),
)
@settings(max_examples=60)
def test_the_rates_of_disks(texts: list[list[str]], interval_ns: int) -> None:
    with new_folder() as folder:
        for name in ("sda", "sdb", "loop0"):
            (folder / "sys/block" / name).mkdir(parents=True)
        twins = Twins(DiskSensor, "proc/diskstats", folder)
        for text in texts:
            twins.read("\n".join(text).encode(), interval_ns)


@given(
    st.lists(
        st.sampled_from(["MemTotal:", "MemAvailable:", "SwapTotal:", "SwapFree:", "Dirty:"]).flatmap(
            lambda name: st.sampled_from([f"{name} 12 kB", f"{name}   900000000000 kB", f"{name} -4 kB", f"{name} x", name])
        ),
        max_size=7,
    )
)
@settings(max_examples=60)
@example(["MemTotal: 100 kB", "MemAvailable: 30 kB", "SwapTotal: 5 kB", "SwapFree: 5 kB"])
def test_memory_and_swap(lines: list[str]) -> None:
    with new_folder() as folder:
        twins = Twins(MemorySensor, "proc/meminfo", folder)
        for _ in range(2):
            twins.read("\n".join(lines).encode())


COUNTS = st.sampled_from(["", "0", "7", "123456789", str(2**32 - 1), str(2**33), "9" * 20, "N/A"])


@given(st.lists(COUNTS, min_size=2, max_size=4))
@settings(max_examples=60)
@example(["5", "123456789", "123456799"])
def test_ports(counts: list[str]) -> None:
    with new_folder() as folder:
        counter = "sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data"
        twins = Twins(InfinibandSensor, counter, folder)
        (folder / counter).with_name("port_xmit_data").write_text("17\n")
        for count in counts:
            twins.read(count.encode())


THOUSANDTHS = st.sampled_from(["", "0", "41500", "-3000", "-256000", "2450001", "9" * 20, "N/A", " 7 "])


@given(st.lists(THOUSANDTHS, min_size=2, max_size=4))
@settings(max_examples=40)
@example(["41500", "41501"])
def test_clocks_and_temperatures(texts: list[str]) -> None:
    for make, path in (
        (FrequencySensor, "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq"),
        (TemperatureSensor, "sys/class/hwmon/hwmon0/temp1_input"),
    ):
        with new_folder() as folder:
            twins = Twins(make, path, folder)
            made = [twins.read(text.encode()) for text in texts]
            if texts == ["41500", "41501"]:
                assert made == [False, True]


@given(
    st.lists(
        st.tuples(st.sampled_from(["0", "7", "150000000", "150123457", "262143328850", "-1", ""]), st.integers(0, 10**11)),
        min_size=2,
        max_size=4,
    ),
    st.sampled_from(["262143328850", ""]),
    st.sampled_from(["package-0", "psys"]),
)
@settings(max_examples=60)
@example([("0", 10**9), ("150000000", 10**9), ("150123457", 10**9)], "262143328850", "package-0")
def test_rails(counts: list[tuple[str, int]], most: str, name: str) -> None:
    with new_folder() as folder:
        zone = "sys/class/powercap/intel-rapl:0"
        twins = Twins(RaplSensor, f"{zone}/energy_uj", folder)
        (folder / zone / "max_energy_range_uj").write_text(most)
        (folder / zone / "name").write_text(name)
        for count, after_ns in counts:
            twins.read(count.encode(), after_ns)


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
    found = native.values_told(answers, questions.places)
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
    assert native.values_told(answers, questions.places) == questions.told_python(answers)[0]


NUMBERS = st.sampled_from([0, 1, 2, 100, 250_000, 1 << 31, (1 << 32) - 1, 1 << 53, (1 << 63) - 1, (1 << 64) - 1])


@given(
    st.lists(NUMBERS | st.integers(0, 10**6), min_size=8 * len(FAST), max_size=8 * len(FAST)),
    st.lists(NUMBERS | st.integers(0, 10**6), min_size=8 * len(FAST), max_size=8 * len(FAST)),
    st.lists(st.sampled_from([0] * 30 + [3, 15]), min_size=len(FAST), max_size=len(FAST)),
    st.sampled_from([None, 0.0, 50.0]),
    st.integers(0, 5 * 10**9),
)
@settings(max_examples=150)
@example([7] * (8 * len(FAST)), [9] * (8 * len(FAST)), [0] * len(FAST), None, 1_234_567_890)
def test_what_a_driver_told_becomes_a_sample(
    before: list[int], after: list[int], codes: list[int], sm_active: float | None, age_ns: int
) -> None:
    """All of it as Python makes it of the same answers, or nothing."""
    answers, refusals = before, [0] * len(FAST)

    def plain(place: int) -> Any:
        def call(device: int, answer: Any) -> int:
            ctypes.memmove(answer, struct.pack("@8Q", *answers[8 * place : 8 * place + 8]), 64)
            return refusals[place]

        return ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(call)

    functions = [plain(place) for place in range(len(FAST))]
    asked = b"".join(struct.pack("@qiI", ctypes.cast(function, ctypes.c_void_p).value, -1, 0) for function in functions)
    questions = Questions(_no_driver(), 5, FAST)
    assert native is not None
    caller = native.Caller()
    caller.ask([(5, asked)])
    (heard,) = caller.wait(20.0) or [b""]
    known, energy_before = questions.told_python(heard)[0], before[8 * [call.fields for call in FAST].index(["energy_j"])]
    fixed = GpuReading(index=1, uuid="G", memory_clock_mhz=5.0, unavailable={"fan_percent": "no"}, sm_active_percent=sm_active)
    shown = msgspec.structs.replace(fixed, **known | {"energy_j": 1.0, "throttle": []}, age_s={"memory_clock_mhz": 1.0})
    program = program_of(shown, questions, 10**12 - age_ns)
    assert program is not None
    answers, refusals = after, codes
    caller.again()
    packed = caller.packed(20.0, [program], 10**12)
    (told,) = caller.heard() if packed is not None else caller.wait(20.0) or [b""]
    values, refused = questions.told_python(told)
    assert bool(refused) <= (packed is None)
    if packed is None:
        return
    values["energy_j"] = (values["energy_j"] - energy_before) / 1000
    expected = msgspec.structs.replace(fixed, **values, age_s={"memory_clock_mhz": round(age_ns / 1e9, 3)})
    assert packed == encode([expected]) and values["energy_j"] >= 0
    assert _doubts(values | {"sm_active_percent": sm_active}, told_energy_mj(told)) == {} or not values["utilization_percent"]


def told_energy_mj(answers: bytes) -> int:
    place = [call.fields for call in FAST].index(["energy_j"])
    (number,) = struct.unpack_from("@Q", answers, 72 * place + 8)
    return int(number)


@given(st.binary(max_size=40))
@settings(max_examples=200)
@example(b"\0" * 8 + b"l\xff\xff")
@example(b"\0" * 8 + b"v\xff\xff\xff\xff")
def test_what_is_no_program_breaks_nothing(program: bytes) -> None:
    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(lambda device, answer: 0)
    assert native is not None
    caller = native.Caller()
    caller.ask([(5, struct.pack("@qiI", ctypes.cast(function, ctypes.c_void_p).value, -1, 0))])
    with suppress(ValueError):
        caller.packed(20.0, [program], 10**12)
    assert caller.wait(20.0) is not None


@given(st.binary(max_size=400))
@settings(max_examples=200)
@example(b"\0" * 56)
def test_rows_that_are_none_break_nothing(rows: bytes) -> None:
    assert native is not None
    with suppress(ValueError):
        native.process_readings(rows, 10**12, 100, 4096)
    with suppress(ValueError):
        native.port_rates(rows, [(b"", b"")] * (len(rows) // 32), 1.0)
    with suppress(ValueError):
        native.rail_readings(rows, [(b"", b"")] * (len(rows) // 40), 10**12, 2000)
    native.core_usage(-1, rows)
    native.network_rates(-1, rows, 1.0, rows, 32)
