"""The ring file: how a training process hands its timings over without waiting for anybody.

One file per worker process, `<pid>-<start ticks>.ring`, in a private directory that the agent made. The trainer maps
it and stores fixed-size records; the agent copies them. Nobody locks, wakes or waits for anybody, and
records survive `kill -9` of either side. What the writer overtook is counted exactly, what is torn is never believed.

Layout: a header page (HEADER, then `head` = records ever written, then the closing time), then `capacity` slots of
`record_size` bytes: sequence number, check, kind, payload length, payload. The check of a step is the sum of its numbers
and its sequence number, which is quick; that of anything else is a crc32. A text longer than a slot takes several slots in order,
all but the last with the bit MORE in `kind`.

The trainer's Python may be old: standard library only, syntax of Python 3.6.
"""

import itertools
import json
import mmap
import os
import socket
import stat
import struct
import sys
import threading
import time
import zlib
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

try:
    if sys.version_info < (3, 9):
        # Older Pythons make types in another way.
        raise ImportError
    from . import _native

    native: Optional[Any] = _native
except ImportError:
    native = None

MAGIC = b"DMONRING"
LAYOUT_VERSION = 2
SUFFIX = ".ring"
HEADER_SIZE = 4096
DEFAULT_RECORDS = 16384
DEFAULT_RECORD_SIZE = 128
MESSAGE_LIMIT = 32768
"""Longest message or span in bytes; longer ones are refused by the writer."""

STEP = 1
SPAN = 2
MESSAGE = 3
MORE = 0x8000
UNSEEN = -1

_HEADER = struct.Struct("<8sHHIIIQQQ64s40s")
_HEAD_AT = 512
_ENDS = struct.Struct("@QQ")
# Native sizes and alignment, which pack twice as fast; both ends run on one machine.
_SLOT = struct.Struct("@QqHH")
_STEP_SLOT = struct.Struct("@QqHHqiiqqqqqqiH")
_STEP_SIZE = _STEP_SLOT.size - _SLOT.size
_SPAN = struct.Struct("@qq")
_MIN_RECORD_SIZE = _STEP_SLOT.size
_PLACE = struct.Struct("@6q")
_CURSOR = struct.Struct("@Q")

if hasattr(time, "monotonic_ns"):
    monotonic_ns = time.monotonic_ns
    wall_ns = time.time_ns
else:  # Python 3.6

    def monotonic_ns() -> int:
        """CLOCK_MONOTONIC in nanoseconds."""
        return int(time.monotonic() * 1e9)

    def wall_ns() -> int:
        """Wall clock in nanoseconds since 1970."""
        return int(time.time() * 1e9)


class RingError(Exception):
    """The ring cannot be made or read; the text is one line for people."""


class Header(NamedTuple):
    """Who writes the ring, and a pair of clock readings taken together when it was made."""

    version: int
    record_size: int
    capacity: int
    pid: int
    start_ticks: int
    """Start of the process in clock ticks since boot: with `pid` it names one process."""
    monotonic_ns: int
    wall_ns: int
    host: str
    boot_id: str


class Step(NamedTuple):
    """One optimizer step. Times are CLOCK_MONOTONIC nanoseconds; None is "could not be seen", never zero."""

    step: int
    """Counts from 0 since the last `init` of this worker, so it is the step within its generation."""
    generation: int
    epoch: int
    """-1 where no epoch is known."""
    start_ns: int
    duration_ns: int
    input_wait_ns: Optional[int]
    compute_ns: Optional[int]
    exposed_communication_ns: Optional[int]
    optimizer_ns: Optional[int]
    samples: Optional[int]
    micro_batches: int


class Steps(NamedTuple):
    """Steps in the order of their records, as columns with the names of Step's fields; UNSEEN for what could not be seen."""

    step: Tuple[int, ...]
    generation: Tuple[int, ...]
    epoch: Tuple[int, ...]
    start_ns: Tuple[int, ...]
    duration_ns: Tuple[int, ...]
    input_wait_ns: Tuple[int, ...]
    compute_ns: Tuple[int, ...]
    exposed_communication_ns: Tuple[int, ...]
    optimizer_ns: Tuple[int, ...]
    samples: Tuple[int, ...]
    micro_batches: Tuple[int, ...]

    def rows(self) -> List[Step]:
        """Each step by itself."""
        return [_step(numbers) for numbers in zip(*self)]


class Table(NamedTuple):
    """Steps that follow one another in one generation and epoch, packed: all their numbers are known and fit 32 bits."""

    first_step: int
    generation: int
    epoch: int
    start_ns: int
    """Of the first."""
    end_ns: int
    """Of the last."""
    columns: int
    """A bit for each of: duration, the four phases, samples, micro-batches, start. Those that are missing were never seen, or
    always one micro-batch; the first and the last are always there."""
    steps: int
    numbers: bytes
    """Unsigned 32-bit integers of this machine, column after column; starts count from that of the first."""

    def durations_ns(self) -> Sequence[int]:
        """Of each step."""
        return memoryview(self.numbers).cast("I")[: self.steps]


class NodeTable(NamedTuple):
    """Steps of several workers, as of Tables with the same generation, epoch and columns; lists are by worker."""

    generation: int
    epoch: int
    start_ns: int
    """Of the earliest: all starts count from it."""
    columns: int
    """As in a Table."""
    first_steps: List[int]
    steps: List[int]
    numbers: bytes
    """Those of each worker behind one another, as in a Table."""
    cursors: bytes
    """Where the next reading of each ring begins: unsigned 64-bit integers of this machine."""
    ends_ns: bytes
    """Of the last step of each: 64-bit integers of this machine."""

    def durations_ns(self) -> List[Sequence[int]]:
        """Of each step of each worker."""
        numbers, width = memoryview(self.numbers).cast("I"), bin(self.columns).count("1")
        begins = [width * begin for begin in itertools.accumulate([0, *self.steps[:-1]])]
        return [numbers[begin : begin + steps] for begin, steps in zip(begins, self.steps)]


class Span(NamedTuple):
    """A stretch of time that is no step: initialisation, rendezvous, evaluation, checkpoint and so on."""

    kind: str
    start_ns: int
    duration_ns: int
    name: str


class Message(NamedTuple):
    """What is said in words: a JSON object whose "type" tells what it holds (identity, metrics, model ...)."""

    fields: Dict[str, Any]


Record = Union[Step, Span, Message]
Batch = Union[Steps, Step, Span, Message]
StepSink = Callable[[int, int, int, int, int, int, int, int, int, int, int], None]
"""Takes the fields of a Step in their order, UNSEEN for what could not be seen."""


def boot_id() -> str:
    """The kernel's id of this boot, or an empty text where there is none."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def process_start_ticks(pid: int) -> int:
    """Start of process `pid` in clock ticks since boot. Raises OSError if there is no such process."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        line = file.read()
    return int(line[line.rindex(b")") + 2 :].split()[19])


class RingWriter:
    """The trainer's end. Made by `RingWriter.create`; every method is quick and never waits for the reader."""

    def __init__(self, path: str, memory: mmap.mmap, header: Header) -> None:
        self.path = path
        self.header = header
        self._memory = memory
        # Packing zeroes a place before it fills it; a store into this view is one write, which a reader sees or not.
        self._head = memoryview(memory)[_HEAD_AT : _HEAD_AT + 16].cast("Q")
        self.slots = _native_slots(memory, header)
        """The same records for machine code (`hot.py`), which then also counts them; None where there is none."""
        # One counter that is atomic under the GIL: a step needs no lock, whatever other threads write.
        self._next = self.slots.next if self.slots is not None else itertools.count().__next__
        # Re-entrant, because a signal handler of the user's may write while this thread is in here.
        self._lock = threading.RLock()
        self.step = _step_writer(memory, self._head, header, self._next)
        """Record one step."""

    @classmethod
    def create(
        cls, directory: str, capacity: int = DEFAULT_RECORDS, record_size: int = DEFAULT_RECORD_SIZE, host: str = ""
    ) -> "RingWriter":
        """Make this process's ring in `directory`, which must be private to this user. Raises RingError."""
        if record_size < _MIN_RECORD_SIZE or record_size > 4096 or capacity < 16 or capacity > 2**22:
            raise RingError(f"a ring of {capacity} records of {record_size} bytes is out of bounds")
        pid = os.getpid()
        ticks, host = process_start_ticks(pid), host or socket.gethostname()
        clocks = monotonic_ns(), wall_ns()
        header = Header(LAYOUT_VERSION, record_size, capacity, pid, ticks, *clocks, host, boot_id())
        directory_fd = _open_private_directory(directory)
        try:
            name, memory = _map_new_file(directory_fd, header)
        except OSError as error:
            raise RingError(f"cannot make a ring in {directory}: {error.strerror}") from None
        finally:
            os.close(directory_fd)
        return cls(os.path.join(directory, name), memory, header)

    def span(self, kind: str, start_ns: int, duration_ns: int, name: str = "") -> None:
        """Record a stretch of time that is no step."""
        self._chunks(SPAN, _SPAN.pack(start_ns, duration_ns) + f"{kind}\n{name}".encode("utf-8", "replace"))

    def message(self, fields: Dict[str, Any]) -> None:
        """Record a JSON object. Raises ValueError or TypeError if it is none, or too long."""
        self._chunks(MESSAGE, json.dumps(fields, separators=(",", ":")).encode())

    def close(self) -> None:
        """Say that nothing more comes. The file stays for the reader, who removes it."""
        with self._lock:
            self._head[1] = monotonic_ns()

    def _chunks(self, kind: int, payload: bytes) -> None:
        if len(payload) > MESSAGE_LIMIT:
            raise ValueError(f"a message of {len(payload)} bytes is longer than {MESSAGE_LIMIT}")
        room = self.header.record_size - _SLOT.size
        with self._lock:
            for at in range(0, len(payload), room):
                self._store(kind | MORE if at + room < len(payload) else kind, payload[at : at + room])

    def _store(self, kind: int, payload: bytes) -> None:
        sequence = self._next()
        slot = _SLOT.pack(sequence, zlib.crc32(payload, kind), kind, len(payload)) + payload
        offset = HEADER_SIZE + sequence % self.header.capacity * self.header.record_size
        self._memory[offset : offset + len(slot)] = slot
        self._head[0] = sequence + 1


def _native_slots(memory: mmap.mmap, header: Header) -> Optional["_native.Slots"]:
    if native is None or _STEP_SLOT.size != native.STEP_SLOT_SIZE:
        return None
    # Frameworks load it anyway; an agent, which reads only, never comes here.
    import ctypes

    view = (ctypes.c_char * len(memory)).from_buffer(memory)
    slots: _native.Slots = native.Slots(view, ctypes.addressof(view), HEADER_SIZE, _HEAD_AT, header.capacity, header.record_size)
    return slots


def _step_writer(memory: mmap.mmap, head: memoryview, header: Header, next_sequence: Callable[[], int]) -> StepSink:
    """The function that records a step. It runs on the training's thread at every step: all it needs is in its cells."""
    capacity, record_size = header.capacity, header.record_size
    pack_slot = _STEP_SLOT.pack_into

    def step(*numbers: int) -> None:
        sequence = next_sequence()
        offset = HEADER_SIZE + sequence % capacity * record_size
        try:
            pack_slot(memory, offset, sequence, sequence + sum(numbers), STEP, _STEP_SIZE, *numbers)
        except struct.error:
            # The place is taken, and the reader waits for it.
            slot = _out_of_range(sequence)
            memory[offset : offset + len(slot)] = slot
        head[0] = sequence + 1

    return step


def _out_of_range(sequence: int) -> bytes:
    """The slot that stands for a step which has a number that its record cannot hold."""
    fields = {"type": "unseen", "field": "step", "reason": "a number is out of range", "time_ns": monotonic_ns()}
    payload = json.dumps(fields, separators=(",", ":")).encode()
    return _SLOT.pack(sequence, zlib.crc32(payload, MESSAGE), MESSAGE, len(payload)) + payload


def _open_private_directory(directory: str) -> int:
    """Descriptor of a directory that only this user can enter. Raises RingError."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise RingError(f"cannot open the ring directory {directory}: {error.strerror}") from None
    found = os.fstat(descriptor)
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        os.close(descriptor)
        raise RingError(f"the ring directory {directory} is not private to this user (mode 0700)")
    return descriptor


def _map_new_file(directory_fd: int, header: Header) -> Tuple[str, mmap.mmap]:
    """Create, reserve, map and name the file; it gets its name only when its header is complete."""
    name = _free_name(directory_fd, f"{header.pid}-{header.start_ticks}")
    making = name + ".new"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(making, flags, 0o600, dir_fd=directory_fd)
    try:
        size = HEADER_SIZE + header.capacity * header.record_size
        # A hole in a full tmpfs would be a SIGBUS in the trainer later: reserve every page now.
        os.posix_fallocate(descriptor, 0, size)
        memory = mmap.mmap(descriptor, size)
        # Touch every page here, or each costs the training thread a page fault later.
        memory.write(bytes(size))
        host, boot = header.host.encode("utf-8", "replace")[:64], header.boot_id.encode("ascii", "replace")[:40]
        _HEADER.pack_into(memory, 0, MAGIC, header.version, HEADER_SIZE, *header[1:7], host, boot)
        os.rename(making, name, src_dir_fd=directory_fd, dst_dir_fd=directory_fd)
    except OSError:
        os.unlink(making, dir_fd=directory_fd)
        raise
    finally:
        os.close(descriptor)
    return name, memory


def _free_name(directory_fd: int, stem: str) -> str:
    """`<stem>.ring`, or with a number where it exists: a process that replaced itself by exec keeps pid and start."""
    for number in range(64):
        name = stem + (f".{number}" if number else "") + SUFFIX
        try:
            os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
        except FileNotFoundError:
            return name
    raise RingError("this process has made too many rings")


NOTHING_NEW = Table(0, 0, -1, 0, 0, 0, 0, b"")


class RingReader:
    """The agent's end: copies what is new since the last `read`, believes only whole records, counts the rest."""

    def __init__(self, path: str) -> None:
        """Open the ring at `path`. Raises RingError if it is no ring of this layout, or not this user's file."""
        self.path = path
        self.lost = 0
        """Records that the writer overtook before they were read."""
        self.torn = 0
        """Records left half-written, or that did not decode."""
        self.drained = False
        """The writer had closed the ring before the last read began, which then had all that there was."""
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise RingError(f"cannot open the ring {path}: {error.strerror}") from None
        try:
            self.header = _read_header(self._fd, path)
        except RingError:
            os.close(self._fd)
            raise
        self._rows = struct.Struct(f"{_STEP_SLOT.format}{self.header.record_size - _STEP_SLOT.size}x")
        capacity, size = self.header.capacity, self.header.record_size
        self._length = HEADER_SIZE + capacity * size
        self._memory = 0 if native is None else native.map_ring(self._fd, self._length, HEADER_SIZE)
        self._place = _PLACE.pack(self._fd, HEADER_SIZE, _HEAD_AT, capacity, size, self._memory)
        self._cursor = 0
        self._doubtful = -1
        self._parts: List[bytes] = []

    @property
    def closed_ns(self) -> Optional[int]:
        """When the writer said that nothing more comes (CLOCK_MONOTONIC), or None."""
        return self._ends()[1] or None

    def read(self) -> List[Record]:
        """All whole records since the last call, oldest first."""
        records: List[Record] = []
        for batch in self.read_batches():
            if isinstance(batch, Steps):
                records.extend(batch.rows())
            else:
                records.append(batch)
        return records

    def read_batches(self) -> List[Batch]:
        """The same, as one batch where they are steps and nothing else, which is far cheaper than step by step."""
        copied, safe = self._copy_new()
        if not copied:
            return []
        columns = _step_columns(copied, self._rows, self._cursor) if self._cursor >= safe else None
        if columns is None:
            return [*self._one_by_one(list(self._rows.iter_unpack(copied)), copied, safe)]
        self._cursor += len(columns[0])
        return [Steps._make(columns)]

    def read_table(self, most: int) -> Optional[Table]:
        """What is new, where it is at most so many steps that can be a table; None if `read_batches` has to look.

        A table without steps where nothing is new.
        """
        if native is None or _STEP_SLOT.size != native.STEP_SLOT_SIZE:
            return None
        found = native.read_table(self._place + _CURSOR.pack(self._cursor), most)
        if not found:
            return None if found is None else NOTHING_NEW
        table: Table = tuple.__new__(Table, found)
        self._cursor += table.steps
        return table

    @property
    def place(self) -> bytes:
        """What `read_tables` has to know of this ring."""
        return self._place

    def go_on_at(self, cursor: int) -> None:
        """What is before it was read by `read_tables`."""
        self._cursor = cursor

    def _one_by_one(self, rows: List[Tuple[int, ...]], copied: bytes, safe: int) -> List[Record]:
        size = self.header.record_size
        records: List[Record] = []
        for at, row in enumerate(rows):
            sequence, numbers = self._cursor, row[4:]
            if sequence < safe:
                # What was overtaken during the copy may be half of one lap and half of the next, whatever its check says.
                self._count_bad(overtaken=True)
            elif row[:4] == (sequence, sequence + sum(numbers), STEP, _STEP_SIZE):
                records.append(_step(numbers))
            else:
                payload = _whole_payload(copied[at * size : (at + 1) * size], sequence)
                if payload is None and self._doubtful != sequence:
                    # Stores may be seen out of order on ARM: give it until the next read before calling it torn.
                    self._doubtful = sequence
                    break
                if payload is None:
                    self._count_bad(overtaken=False)
                else:
                    records.extend(self._assemble(row[2], payload))
            self._cursor += 1
        return records

    @property
    def position(self) -> int:
        """The number of the first record of which nothing was given yet."""
        return self._cursor - len(self._parts)

    def resume(self, position: int) -> None:
        """Read on from where another reader was; what has gone meanwhile counts as lost."""
        self._cursor = min(max(position, 0), self._ends()[0])

    def close(self) -> None:
        """Let go of the file."""
        if self._memory and native is not None:
            native.unmap_ring(self._memory, self._length)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._memory, self._place = -1, 0, b""

    def _ends(self) -> Tuple[int, int]:
        """How many records were ever written, and when the writer closed the ring (0: it has not)."""
        data = os.pread(self._fd, _ENDS.size, _HEAD_AT)
        if len(data) < _ENDS.size:
            return 0, 0
        head, closed = _ENDS.unpack(data)
        return head, closed

    def _copy_new(self) -> Tuple[bytes, int]:
        """The slots from the cursor on, and the number of the first one that the writer cannot have touched meanwhile."""
        capacity = self.header.capacity
        head, closed = self._ends()
        if self._cursor < head - capacity:
            self._skip_to(head - capacity)
        copied = self._copy(self._cursor, head)
        if not copied and not closed:
            return b"", 0
        head_after = self._ends()[0]
        self.drained = closed > 0 and head_after == head
        # The slot of record `head` may already be in the writer's hands, and with it the one a lap before.
        return copied[: len(copied) - len(copied) % self.header.record_size], head_after - capacity + 1

    def _skip_to(self, oldest: int) -> None:
        self.lost += oldest - self._cursor + len(self._parts)
        self._parts = []
        self._cursor = oldest

    def _count_bad(self, overtaken: bool) -> None:
        """A record that cannot be believed, and what of a text came before it."""
        if overtaken:
            self.lost += 1 + len(self._parts)
        else:
            self.torn += 1
        self._parts = []

    def _copy(self, first: int, end: int) -> bytes:
        """Bytes of the slots [first, end), in order, out of the ring."""
        size, capacity = self.header.record_size, self.header.capacity
        if end <= first:
            return b""
        begin, stop = first % capacity, end % capacity
        if begin < stop:
            return os.pread(self._fd, (stop - begin) * size, HEADER_SIZE + begin * size)
        tail = os.pread(self._fd, (capacity - begin) * size, HEADER_SIZE + begin * size)
        return tail + os.pread(self._fd, stop * size, HEADER_SIZE)

    def _assemble(self, kind: int, payload: bytes) -> List[Record]:
        """The record that this payload ends; none while more of its text is to come, or when it does not decode."""
        if kind & MORE:
            self._parts.append(payload)
            return []
        if self._parts:
            payload = b"".join(self._parts) + payload
            self._parts = []
        try:
            return [_decode(kind, payload)]
        except (ValueError, struct.error, RecursionError):
            self.torn += 1
            return []


def read_tables(places: bytes, cursors: bytes, most: int) -> Optional[NodeTable]:
    """What is new in several rings: `places` of their readers behind one another, `cursors` as a NodeTable gives them.

    None if one of the rings has nothing, or something else than what a NodeTable of at most so many steps can hold.
    """
    if native is None or _STEP_SLOT.size != native.STEP_SLOT_SIZE:
        return None
    found = native.read_tables(places, cursors, most)
    if found is None:
        return None
    table: NodeTable = tuple.__new__(NodeTable, found)
    return table


def _read_header(descriptor: int, path: str) -> Header:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        raise RingError(f"{path} is not a ring of this user")
    data = os.pread(descriptor, _HEADER.size, 0)
    if len(data) < _HEADER.size or data[:8] != MAGIC:
        raise RingError(f"{path} is not a ring file")
    _, version, size, *numbers, host, boot = _HEADER.unpack(data)
    record_size, capacity = numbers[:2]
    if version != LAYOUT_VERSION or size != HEADER_SIZE:
        raise RingError(f"{path} has ring layout {version}; this distmon reads {LAYOUT_VERSION}")
    if record_size < _MIN_RECORD_SIZE or capacity < 1 or found.st_size != HEADER_SIZE + capacity * record_size:
        raise RingError(f"{path} is not as long as its header says")
    texts = (text.rstrip(b"\0").decode("utf-8", "replace") for text in (host, boot))
    return Header._make((version, *numbers, *texts))


def _step_columns(copied: bytes, slot: struct.Struct, first: int) -> Optional[Sequence[Tuple[int, ...]]]:
    """The numbers of whole steps, numbered from `first` on, by column; None if other records are among them."""
    if native is not None and _STEP_SLOT.size == native.STEP_SLOT_SIZE:
        found: Optional[Sequence[Tuple[int, ...]]] = native.step_columns(copied, slot.size, first)
        return found
    rows = list(slot.iter_unpack(copied))
    columns = tuple(zip(*rows))
    numbers, checks, kinds, lengths = columns[:4]
    count = len(rows)
    if numbers != tuple(range(first, first + count)) or kinds.count(STEP) != count or lengths.count(_STEP_SIZE) != count:
        return None
    # The check is the sum of the step's numbers and its sequence number: a row without its check adds up to it and what is fixed.
    if list(map(sum, rows)) != [2 * check + STEP + _STEP_SIZE for check in checks]:
        return None
    return columns[4:]


def _whole_payload(slot: bytes, sequence: int) -> Optional[bytes]:
    """Of a record that is no step, if it is whole and its number is `sequence`."""
    found, check, kind, length = _SLOT.unpack_from(slot)
    if found != sequence or kind == STEP or length > len(slot) - _SLOT.size:
        return None
    payload = slot[_SLOT.size : _SLOT.size + length]
    return payload if check == zlib.crc32(payload, kind) else None


def _step(numbers: Tuple[int, ...]) -> Step:
    if UNSEEN in numbers[5:10]:
        return Step._make(numbers[:5] + tuple(map(_seen, numbers[5:10])) + numbers[10:])
    return Step._make(numbers)


def _decode(kind: int, payload: bytes) -> Record:
    """The typed record of a whole payload. Raises ValueError or struct.error if it is none."""
    if kind == SPAN:
        start, duration = _SPAN.unpack_from(payload)
        name, _, rest = payload[_SPAN.size :].decode("utf-8", "replace").partition("\n")
        return Span(name, start, duration, rest)
    if kind == MESSAGE:
        fields = json.loads(payload.decode("utf-8", "replace"))
        if isinstance(fields, dict):
            return Message(fields)
    raise ValueError(f"record of unknown kind {kind}")


def _seen(value: int) -> Optional[int]:
    return None if value == UNSEEN else value
