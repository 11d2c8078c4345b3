"""Writing a session file: append only, a JSON line per event, on disk within a second of `flush` being due."""

from __future__ import annotations

import fcntl
import math
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NamedTuple

from distmon.core.codec import encode_json
from distmon.core.errors import DistmonError
from distmon.core.events import AnyEvent, SessionStarted
from distmon.core.fold import apply
from distmon.core.state import SessionState
from distmon.replay.index import Index, IndexWriter, index_path
from distmon.replay.lines import START, Position, after, is_packed, zstd

FLUSH_S = 1.0
FRAME_BYTES = 1 << 20
"""A compressed recording starts a frame of its own after this many bytes, so that a reader can start there."""
FOLDED_PARTIES = 256
"""With more ranks and nodes than this the recorder folds no states: a viewer gives it its own, or the index gets them later."""


class StatePlace(NamedTuple):
    """Where a state is wanted: that of the first `events` events, before `position`; the latest of them is of `at`."""

    events: int
    position: Position
    at: float


class Recorder:
    """Records events in the order given. The first event of a new file is its SessionStarted.

    A write that fails (disk full) ends the recording, never the job: `failed` then says so in one line.
    """

    def __init__(self, path: Path, *, append: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises DistmonError when the file cannot be made, or is there already and `append` is not set."""
        self.path = path
        self.failed = ""
        self.events = 0
        self._clock = clock
        self._file = _open_for_writing(path, append=append)
        _lock(self._file)
        self._continues = append and os.fstat(self._file.fileno()).st_size > 0
        self._sink = _Packed(self._file) if is_packed(path) else _Plain(self._file)
        self._lines: list[bytes] = []
        self._flushed = -math.inf
        self._index: IndexWriter | None = None
        self._index_file: IO[bytes] | None = None
        self._position = START
        self._state: SessionState | None = SessionState()
        self.index: Index | None = None
        """Of what is recorded, for a viewer in this process; None where the recording goes on with an older one."""
        self.wanted: StatePlace | None = None
        """The state that a viewer may give, where the recorder folds none itself."""
        if self._continues:
            _drop_index(path)
            self._sink.start_on_a_new_line(_last_byte(path))

    def write(self, event: AnyEvent) -> None:
        """Adds an event, and writes out what is waiting once a second."""
        if self.failed:
            return
        line = encode_json(event)
        if not self.events and not self._continues:
            if not isinstance(event, SessionStarted):
                raise ValueError("a recording begins with its SessionStarted")
            self._start_index(line)
        self.events += 1
        self._lines.append(line)
        self._pass_to_index(event, len(line) + 1)
        if self._clock() - self._flushed >= FLUSH_S:
            self.flush()

    def _pass_to_index(self, event: AnyEvent, size: int) -> None:
        if not self._index:
            return
        try:
            if self._state and self._index.wants_keyframe:
                self._index.keep(self._state, self._position, self._index.now)
            elif not self._state and self.wanted is None and self._index.wants_lent_keyframe:
                self.wanted = StatePlace(self.events - 1, self._position, self._index.now)
            self._index.pass_event(event, self._position, size)
        except OSError:
            self._index = None  # unfinished, so that a reader makes it again
        self._position = after(self._position, size)
        if self._state:
            apply(self._state, event)
            if len(self._state.ranks) + len(self._state.nodes) > FOLDED_PARTIES:
                self._state = None

    def give(self, state: SessionState | None) -> None:
        """The state that was wanted, or None where the viewer has passed the place by. May be called in another thread."""
        wanted, index = self.wanted, self._index
        if wanted is not None and state is not None and index is not None:
            with suppress(OSError, ValueError):  # the index has come to an end meanwhile
                index.keep(state, wanted.position, wanted.at)
        self.wanted = None

    def flush(self) -> None:
        """Writes out what is waiting."""
        self._flushed = self._clock()
        if not self._lines or self.failed:
            return
        self._lines.append(b"")
        content = b"\n".join(self._lines)
        self._lines.clear()
        try:
            new_frame = self._sink.write(content)
        except OSError as error:
            self._fail(error)
            return
        if new_frame is not None:
            self._position = Position(new_frame, 0, self._position.line)
        if self.index is not None and self._index is not None:
            self.index.readable_to = self._index.now

    def sync(self) -> None:
        """Waits until what was flushed is on the disk; may run in another thread than the rest."""
        if self.failed or self._file.closed:
            return
        try:
            os.fdatasync(self._file.fileno())
        except ValueError:
            return  # closed meanwhile, which syncs
        except OSError as error:
            self._fail(error)

    def close(self) -> None:
        """Writes everything out, to the disk, and finishes the index."""
        if self._file.closed:
            return
        self.flush()
        try:
            self._sink.end()
            os.fsync(self._file.fileno())
            if self._index and not self.failed:
                self._index.finish(os.fstat(self._file.fileno()), self._state)
        except OSError as error:
            self._fail(error)
        if self.index is not None:
            self.index.grows = False
        self._file.close()
        if self._index_file:
            self._index_file.close()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _start_index(self, first_line: bytes) -> None:
        target = index_path(self.path)
        try:
            target.unlink(missing_ok=True)
            self._index_file = _create(target)
        except OSError:
            return  # a reader makes the index when it first needs it
        self._index = IndexWriter(self._index_file, first_line)
        self.index = Index(target.open("rb"), self._index)

    def _fail(self, error: OSError) -> None:
        self.failed = f"{self.path}: recording stopped: {os.strerror(error.errno or 0)}"
        self._index = None


class _Plain:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def start_on_a_new_line(self, last_byte: bytes) -> None:
        if last_byte != b"\n":
            self._file.write(b"\n")

    def write(self, content: bytes) -> int | None:
        """Writes whole lines. Returns where the next line's frame begins, if that changed."""
        _write_all(self._file, content)
        return None

    def end(self) -> None:
        """Nothing is held back."""


class _Packed:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._packer: Any = None
        self._held = 0

    def start_on_a_new_line(self, last_byte: bytes) -> None:
        """What went before may be torn within a line: the new frame begins with a line end."""
        self.write(b"\n")

    def write(self, content: bytes) -> int | None:
        if self._packer is None:
            self._packer = zstd().ZstdCompressor(level=3, write_checksum=True).compressobj()
        packed = self._packer.compress(content) + self._packer.flush(zstd().COMPRESSOBJ_FLUSH_BLOCK)
        _write_all(self._file, packed)
        self._held += len(content)
        if self._held < FRAME_BYTES:
            return None
        self.end()
        return os.fstat(self._file.fileno()).st_size

    def end(self) -> None:
        """Ends the frame."""
        if self._packer is not None:
            _write_all(self._file, self._packer.flush())
            self._packer, self._held = None, 0


def _write_all(file: IO[bytes], content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[file.write(view) :]


def _open_for_writing(path: Path, *, append: bool) -> IO[bytes]:
    if is_packed(path):
        zstd()
    elif not path.name.endswith(".jsonl"):
        raise DistmonError(f"{path}: the name of a recording ends in .jsonl or .jsonl.zst")
    try:
        return _create(path)
    except FileExistsError:
        if not append:
            raise DistmonError(f"{path} is there already; give the recording another name") from None
    except OSError as error:
        raise DistmonError(f"{path} cannot be written: {os.strerror(error.errno or 0)}") from None
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        what = "it is a symbolic link" if path.is_symlink() else os.strerror(error.errno or 0)
        raise DistmonError(f"{path} cannot be written: {what}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DistmonError(f"{path} cannot be written: it is not a regular file")
    return os.fdopen(descriptor, "ab", buffering=0)


def _create(path: Path) -> IO[bytes]:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o600), "ab", buffering=0)


def _lock(file: IO[bytes]) -> None:
    """Readers see by the lock that the recording goes on; it goes with the process. A file system without locks has none."""
    with suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_being_written(path: Path) -> bool:
    """Whether a recorder has the file open now."""
    with suppress(OSError), path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _last_byte(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1)


def _drop_index(path: Path) -> None:
    """The recording grows past its index, which no longer fits."""
    try:
        index_path(path).unlink(missing_ok=True)
    except OSError:
        return  # it does not fit by its size, so that a reader passes over it
