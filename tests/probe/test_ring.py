"""The ring file: round trip, overtaking, damage, kill -9, fork, and refusal of what is not ours."""

import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distmon.probe import ring
from distmon.probe.ring import Message, RingError, RingReader, RingWriter, Span, Step

STEP = Step(7, 2, -1, 123_456_789, 50_000_000, 1, 2, None, 4, 32, 2)


@pytest.fixture
def directory(tmp_path: Path) -> str:
    """A private ring directory."""
    rings = tmp_path / "rings"
    rings.mkdir(mode=0o700)
    return str(rings)


def _numbers(step: Step) -> tuple[int, ...]:
    return tuple(ring.UNSEEN if value is None else value for value in step)


def _write_steps(writer: RingWriter, first: int, end: int) -> None:
    for index in range(first, end):
        writer.step(*_numbers(STEP._replace(step=index)))


def _steps(reader: RingReader) -> list[int]:
    return [record.step for record in reader.read() if isinstance(record, Step)]


def test_records_come_back_as_they_were_written(directory: str) -> None:
    writer = RingWriter.create(directory, capacity=64)
    reader = RingReader(writer.path)
    text = {"type": "mark", "text": "ä" * 400}
    writer.step(*_numbers(STEP))
    writer.message(text)
    writer.span("evaluation", 5, 6, "validation\nof epoch 1")
    assert reader.read() == [STEP, Message(text), Span("evaluation", 5, 6, "validation\nof epoch 1")]
    assert reader.read() == []
    assert (reader.lost, reader.torn, reader.closed_ns) == (0, 0, None)
    writer.close()
    assert reader.closed_ns is not None


def test_header_names_the_process(directory: str) -> None:
    writer = RingWriter.create(directory, host="node1")
    header = RingReader(writer.path).header
    assert header == writer.header
    assert header.pid == os.getpid()
    assert header.host == "node1"
    assert Path(writer.path).name == f"{os.getpid()}-{ring.process_start_ticks(os.getpid())}.ring"
    assert Path(writer.path).stat().st_mode & 0o777 == 0o600
    assert list(Path(directory).iterdir()) == [Path(writer.path)]


def test_a_second_ring_of_the_same_process_has_its_own_name(directory: str) -> None:
    paths = {RingWriter.create(directory, capacity=16).path for _ in range(3)}
    assert len(paths) == 3


@settings(max_examples=60, deadline=None)
@given(bursts=st.lists(st.integers(0, 70), max_size=12))
def test_overtaken_records_are_counted_exactly(bursts: list[int], tmp_path_factory: pytest.TempPathFactory) -> None:
    rings = tmp_path_factory.mktemp("rings")
    rings.chmod(0o700)
    writer = RingWriter.create(str(rings), capacity=32)
    reader = RingReader(writer.path)
    written = read = 0
    for burst in bursts:
        _write_steps(writer, written, written + burst)
        written += burst
        got = _steps(reader)
        assert got == list(range(written - len(got), written))
        read += len(got)
    assert read + reader.lost == written
    assert reader.torn == 0


def test_a_text_cut_by_overtaking_is_dropped_whole(directory: str) -> None:
    writer = RingWriter.create(directory, capacity=16)
    reader = RingReader(writer.path)
    writer.message({"type": "mark", "text": "x" * 900})
    _write_steps(writer, 0, 10)
    records = reader.read()
    assert [record.step for record in records if isinstance(record, Step)] == list(range(10))
    assert len(records) == 10
    assert reader.lost > 0


def test_a_damaged_record_is_believed_never_and_waited_for_once(directory: str) -> None:
    writer = RingWriter.create(directory, capacity=64)
    _write_steps(writer, 0, 5)
    with Path(writer.path).open("r+b") as file:
        file.seek(ring.HEADER_SIZE + 2 * ring.DEFAULT_RECORD_SIZE + 40)
        file.write(b"\xff\xfe\xfd")
    reader = RingReader(writer.path)
    assert _steps(reader) == [0, 1]
    assert _steps(reader) == [3, 4]
    assert (reader.torn, reader.lost) == (1, 0)


@settings(max_examples=200, deadline=None)
@given(junk=st.binary(min_size=1, max_size=600), at=st.integers(ring.HEADER_SIZE, ring.HEADER_SIZE + 2000))
def test_any_bytes_in_the_slots_are_survived(junk: bytes, at: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    rings = tmp_path_factory.mktemp("rings")
    rings.chmod(0o700)
    writer = RingWriter.create(str(rings), capacity=64)
    _write_steps(writer, 0, 40)
    with Path(writer.path).open("r+b") as file:
        file.seek(at)
        file.write(junk)
    reader = RingReader(writer.path)
    got = [step for _ in range(60) for step in _steps(reader)]
    assert len(got) + reader.torn == 40
    assert got == sorted(set(got))


@given(
    st.lists(st.tuples(*[st.integers(-(2**31), 2**31 - 1)] * 3, *[st.integers(-(2**40), 2**40)] * 6), min_size=1, max_size=5),
    st.integers(0, 2**40),
    st.none() | st.tuples(st.integers(0, 639), st.integers(1, 255)),
)
def test_machine_code_reads_what_python_reads(steps: list[tuple[int, ...]], first: int, damage: tuple[int, int] | None) -> None:
    slot = ring._STEP_SLOT
    rows = struct.Struct(f"{slot.format}{128 - slot.size}x")
    copied = bytearray()
    for at, numbers in enumerate(steps):
        generation, epoch, samples, step, *times = numbers
        numbers = (step, generation, epoch, step + 1, *times, samples, 3)
        copied += rows.pack(first + at, first + at + sum(numbers), ring.STEP, ring._STEP_SIZE, *numbers)
    if damage is not None:
        copied[damage[0] % len(copied)] ^= damage[1]
    found = ring._step_columns(bytes(copied), rows, first)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ring, "native", None)
        assert ring._step_columns(bytes(copied), rows, first) == found
    assert damage is not None or found is not None


def test_too_long_a_message_is_refused_by_the_writer(directory: str) -> None:
    writer = RingWriter.create(directory)
    with pytest.raises(ValueError, match="longer than"):
        writer.message({"text": "x" * ring.MESSAGE_LIMIT})


def test_steps_written_before_kill_9_are_all_there(directory: str) -> None:
    code = (
        "import os, sys\nfrom distmon.probe.ring import RingWriter\n"
        "writer = RingWriter.create(sys.argv[1], capacity=4096)\n"
        "for i in range(2000): writer.step(i, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, directory], check=False)
    assert done.returncode == -signal.SIGKILL
    (path,) = Path(directory).iterdir()
    assert _steps(RingReader(str(path))) == list(range(2000))


def test_reading_while_writing_never_yields_a_wrong_record(directory: str) -> None:
    code = (
        "import sys\nfrom distmon.probe.ring import RingWriter\n"
        "writer = RingWriter.create(sys.argv[1], capacity=64)\nprint('ready', flush=True)\nsys.stdin.readline()\n"
        "for i in range(60000): writer.step(i, 0, 0, i, i, i, i, i, i, 1, 1)\n"
        "writer.close()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, directory], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        (path,) = Path(directory).iterdir()
        reader = RingReader(str(path))
        process.stdin.write("\n")
        process.stdin.flush()
        seen: list[Step] = []
        while reader.closed_ns is None:
            seen += [record for record in reader.read() if isinstance(record, Step)]
        seen += [record for record in reader.read() if isinstance(record, Step)]
    assert all(step.start_ns == step.duration_ns == step.optimizer_ns == step.step for step in seen)
    assert [step.step for step in seen] == sorted({step.step for step in seen})
    assert len(seen) + reader.lost + reader.torn == 60_000
    assert reader.torn == 0


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a ring file"),
        (b"x" * 5000, "not a ring file"),
        (ring.MAGIC + b"\x09" + b"\0" * 5000, "ring layout 9"),
    ],
)
def test_what_is_no_ring_is_refused_with_one_line(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "a.ring"
    path.write_bytes(content)
    with pytest.raises(RingError, match=reason) as caught:
        RingReader(str(path))
    assert "\n" not in str(caught.value)


def test_a_shortened_ring_is_refused(directory: str) -> None:
    writer = RingWriter.create(directory, capacity=64)
    os.truncate(writer.path, 5000)
    with pytest.raises(RingError, match="not as long"):
        RingReader(writer.path)


def _tables(readers: list[RingReader]) -> "ring.NodeTable | None":
    cursors = b"".join(reader._cursor.to_bytes(8, sys.byteorder) for reader in readers)
    return ring.read_tables(b"".join(reader.place for reader in readers), cursors, 10_000)


@pytest.mark.parametrize("left", [0, 100, 4096, 4096 + 128 * 70])
def test_a_ring_that_is_cut_while_it_is_read_ends_nothing(directory: str, left: int) -> None:
    """What is mapped and no longer there is told by a signal, SIGBUS."""
    whole, cut = (RingWriter.create(directory, capacity=256) for _ in range(2))
    readers = [RingReader(writer.path) for writer in (whole, cut)]
    assert all(reader._memory for reader in readers)
    for writer in (whole, cut):
        _write_steps(writer, 0, 90)
    found = _tables(readers)
    assert found is not None and found.steps == [90, 90]
    os.truncate(cut.path, left)
    assert _tables(readers) is None and readers[1].read_table(10_000) in (None, ring.NOTHING_NEW)
    assert _tables(readers[:1]) is not None
    assert len(readers[1].read()) < 90


def test_the_signal_of_others_ends_the_process_as_ever(directory: str) -> None:
    program = (
        "import ctypes, mmap, os, sys\n"
        "from distmon.probe.ring import RingReader, RingWriter\n"
        "reader = RingReader(RingWriter.create(sys.argv[1]).path)\n"
        "file = os.memfd_create('gone')\n"
        "os.ftruncate(file, 4096)\n"
        "memory = mmap.mmap(file, 4096)\n"
        "os.ftruncate(file, 0)\n"
        "print('before', flush=True)\n"
        "memory[0]\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, directory], capture_output=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (-signal.SIGBUS, b"before\n")


def test_what_was_read_long_ago_is_no_part_of_the_readers_memory(directory: str) -> None:
    writer = RingWriter.create(directory)
    reader = RingReader(writer.path)
    for first in range(0, 32_768, 512):
        _write_steps(writer, first, first + 512)
        table = reader.read_table(10_000)
        assert table is not None and (table.first_step, table.steps) == (first, 512)
    lines = Path("/proc/self/smaps").read_text().splitlines()
    shared = [i for i, line in enumerate(lines) if line.startswith(f"{reader._memory:x}-")]
    resident_kb = int(next(line for line in lines[shared[0] :] if line.startswith("Rss:")).split()[1])
    assert resident_kb <= 256 < reader.header.capacity * reader.header.record_size / 1024


def test_links_and_open_directories_are_refused(directory: str, tmp_path: Path) -> None:
    writer = RingWriter.create(directory, capacity=16)
    link = tmp_path / "link.ring"
    link.symlink_to(writer.path)
    with pytest.raises(RingError):
        RingReader(str(link))
    (tmp_path / "linked").symlink_to(directory)
    with pytest.raises(RingError):
        RingWriter.create(str(tmp_path / "linked"))
    Path(directory).chmod(0o755)
    with pytest.raises(RingError, match="not private"):
        RingWriter.create(directory)


def test_the_ring_is_standard_library_only() -> None:
    code = (
        "import sys, runpy\nbefore = set(sys.modules)\nrunpy.run_path(sys.argv[1])\n"
        "print([n for n in set(sys.modules) - before if n.split('.')[0] not in sys.stdlib_module_names])\n"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code, ring.__file__], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"
