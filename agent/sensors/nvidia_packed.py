"""A GPU's part of a sample as a program for machine code, which makes it of what the driver answers the next time.

Nearly always nothing but seven numbers and an age differ from the last sample.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

from distmon.agent.sensors.nvidia_fast import Questions
from distmon.core.events import GpuReading

_LITERAL, _VALUE, _AGE, _NOT_ALL_THE_TIME, _SETTLED = b"l", b"v", b"a", b"n", b"s"
_SINCE_LAST = "d"
"""Of a counter of thousandths."""
_MAP = 0xDE
_TAKEN_NS = struct.Struct("@q")
_DOUBTED = frozenset({"utilization_percent", "sm_active_percent"})
_encode = msgspec.msgpack.encode


def program_of(reading: GpuReading, questions: Questions, taken_ns: int) -> bytes | None:
    """What makes such a reading of answers to `questions`; None of one in which more than their numbers can change.

    Its slow values are of `taken_ns`. Whether answers fit it is looked at when it is used.
    """
    places = {place[0]: _place(*place) for place in questions.places}
    fields = msgspec.to_builtins(reading)
    varying = places.keys() - {"throttle"}
    if not varying <= fields.keys() or "throttle" in fields or "all" in reading.age_s or _DOUBTED & reading.notes.keys():
        return None
    # msgspec goes by how many fields there could be.
    parts = [_literal(struct.pack(">BH", _MAP, len(fields))), *_checks(reading, places)]
    for name, value in fields.items():
        if name == "age_s":
            parts.append(_literal(_encode(name) + _map(len(value))))
            parts += [_literal(_encode(field)) + _AGE for field in value]
        elif name in varying:
            parts += [_literal(_encode(name)), _VALUE + places[name]]
        else:
            parts.append(_literal(_encode(name) + _encode(value)))
    return _TAKEN_NS.pack(taken_ns) + b"".join(parts)


def read_at(program: bytes, taken_ns: int) -> bytes:
    """The same where the slow values, read anew, are what they were."""
    return _TAKEN_NS.pack(taken_ns) + program[_TAKEN_NS.size :]


def _checks(reading: GpuReading, places: dict[str, bytes]) -> Iterator[bytes]:
    """What more has to be as it was: no reason to throttle, and nothing that makes the use of the GPU doubtful (nvidia.py)."""
    use = places.get("utilization_percent")
    if "throttle" in places:
        yield _VALUE + places["throttle"]
    if use and reading.sm_active_percent == 0:
        yield _NOT_ALL_THE_TIME + use
    if use and "power_w" in places and "energy_j" in places:
        yield _SETTLED + use + places["power_w"] + places["energy_j"]


def _place(name: str, answer: int, offset: int, letter: str, make: str) -> bytes:
    return bytes([answer, offset, ord(letter), ord(_SINCE_LAST if name == "energy_j" else make)])


def _literal(text: bytes) -> bytes:
    return _LITERAL + struct.pack("@H", len(text)) + text


def _map(count: int) -> bytes:
    """The beginning of one that is a dictionary."""
    return bytes([0x80 | count]) if count < 16 else struct.pack(">BH", _MAP, count)
