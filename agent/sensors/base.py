"""What a sensor is, and how files of the kernel are read again and again."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import msgspec
from msgspec import Struct

from distmon.agent.machine_code import native

NIL = b"\xc0"
"""None in msgpack."""
_READ_BYTES = 1 << 16
_PAGE_BYTES = 4096


class Notice(NamedTuple):
    """Something that a sensor has to say once, in a line."""

    severity: Literal["info", "warning", "error"]
    text: str


class Reading(Struct, frozen=True):
    """A sensor's part of a NodeSampled: fields with their values, and fields without one with the reason."""

    values: dict[str, Any]
    unavailable: dict[str, str]
    notices: tuple[Notice, ...] = ()
    age_s: dict[str, float] | None = None
    """Field name -> seconds since it was read, where the sensor gives it again."""


class Sensor(Protocol):
    """One source. `read` may raise OSError or ValueError: then its fields are absent with that as the reason.

    One may have a method `packed(now_ns) -> Reading`, which is as `read` for a sample that is sent on: its values may be ready
    msgpack (`msgspec.Raw`) of what `read` gives.
    One that blocks at times only may have a method `may_block() -> bool` that says whether the next read can, and a method
    `begin(now_ns)`, which is called some time before that read where it cannot.
    One of which a later reading will hold more (a better source has to start, rates need two readings) may have
    `settled() -> bool`: False while that can still come.
    """

    fields: tuple[str, ...]
    """Of NodeSampled, that this sensor answers for."""

    def read(self, now_ns: int) -> Reading:
        """The values now (`now_ns`: CLOCK_MONOTONIC). Rates are since the last read."""


class Roots(NamedTuple):
    """Where the kernel's trees are; tests give trees of files."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")


REAL_ROOTS = Roots()


class KernelFile:
    """A file under /proc or /sys, opened once and read from its start each time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fd = -1
        """Its descriptor, for machine code that reads many files in one call; -1 while it is not open."""

    def read(self, until: bytes = b"") -> bytes:
        """The whole text, or what has `until` in it. Raises OSError."""
        if self.fd < 0:
            self.fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            data = os.pread(self.fd, _READ_BYTES, 0)
            return data if len(data) < _PAGE_BYTES or (until and until in data) else self._with_rest(data)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _with_rest(self, data: bytes) -> bytes:
        parts = [data]
        offset = len(data)
        while data:
            data = os.pread(self.fd, _READ_BYTES, offset)
            parts.append(data)
            offset += len(data)
        return b"".join(parts)


def read_bytes(path: str | Path) -> bytes:
    """A whole file of the kernel that is read seldom. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        data = os.read(fd, _READ_BYTES)
        while data and (more := os.read(fd, _READ_BYTES)):
            data += more
        return data
    finally:
        os.close(fd)


def read_text(path: Path) -> str:
    """The same as text without white space around it; empty where it cannot be read."""
    try:
        return read_bytes(path).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def as_row(numbers: Sequence[int | None]) -> bytes:
    """64-bit integers, as machine code keeps what it read; empty where one is missing or does not fit."""
    known = [number for number in numbers if number is not None and number < 1 << 63]
    return array("q", known).tobytes() if len(known) == len(numbers) else b""


def packed_map(count: int) -> bytes:
    """The beginning of a map of less than 16 in msgpack."""
    return bytes([0x80 | count])


def packed_parts(*values: object) -> bytes:
    """Each in msgpack, behind one another."""
    return b"".join(map(msgspec.msgpack.encode, values))


def as_lines(names: Iterable[str]) -> bytes:
    """As machine code looks for one: each between two ends of lines."""
    return "\n".join(["", *names, ""]).encode("utf-8", "replace")


def whole_number(text: bytes) -> int | None:
    """None for anything but digits: empty files, remarks such as "N/A", negative numbers."""
    text = text.strip()
    return int(text) if text.isdigit() else None


def numbers_at_once(files: Sequence[KernelFile]) -> list[int | None]:
    """What `whole_number` says of each, as far as that can be told in one call; None for one that has to be read by itself."""
    return [None] * len(files) if native is None else native.whole_numbers([file.fd for file in files])


def whole_numbers(files: Sequence[KernelFile]) -> list[int | None]:
    """The same for each; None also for what cannot be read."""
    numbers = numbers_at_once(files)
    if None in numbers:
        return [_number_in(file) if number is None else number for file, number in zip(files, numbers, strict=True)]
    return numbers


def _number_in(file: KernelFile) -> int | None:
    try:
        return whole_number(file.read())
    except OSError:
        return None


def why(error: Exception) -> str:
    """One line for people from what a sensor raised."""
    if isinstance(error, PermissionError):
        return f"not readable: {error.filename or 'no permission'}"
    if isinstance(error, OSError):
        return f"{error.strerror or error}: {error.filename}" if error.filename else str(error.strerror or error)
    return str(error) or type(error).__name__


def rate(before: int | None, after: int, interval_s: float) -> float | None:
    """Per second, of a counter; None for the first reading and after the counter was reset."""
    if before is None or after < before or interval_s <= 0:
        return None
    return (after - before) / interval_s
