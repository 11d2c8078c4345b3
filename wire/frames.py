"""What one message on the wire looks like, both ways, and the decoders that refuse everything else with a reason.

Agent to viewer: a header and a body of events (`core.codec`), or a list of headers and as many bodies for a viewer that says it
understands several. Viewer to agent: one frame, a request. Headers and
requests are msgpack maps whose field `v` is the wire's version; it changes when an older peer could misread the rest, while
fields that an older peer may ignore are just added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from distmon.core.codec import BadEvent, decode_batch
from distmon.core.events import AnyEvent

WIRE_VERSION = 1
MAX_HEADER_BYTES = 1024
MAX_BODIES = 4
"""In one message, of different streams."""
MAX_BODY_BYTES = 1 << 20
"""A frame's body ends at the first event that reaches this size; a single event beyond it is not sent."""
MAX_REQUEST_BYTES = 64 * 1024
MAX_MESSAGE_BYTES = 2 << 20
"""ZeroMQ itself cuts a connection that sends more, before the memory for it is taken."""

_Name = Annotated[str, Meta(max_length=300)]
_Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
_Nanoseconds = _Count
"""Since the epoch, on the sender's steady clock."""


class Header(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Events `seq` … `seq + count - 1` of one stream of one run of an agent."""

    v: int
    node: _Name
    boot: _Name
    """Names this run of the agent: sequence numbers start anew with each."""
    stream: _Name
    """Unique among all agents and their runs: node/boot/name."""
    seq: Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]
    count: _Count
    history: bool = False
    """Sent ahead of the rest because later events need it; what lies between it and the next frame is gone."""
    clock: tuple[_Nanoseconds, _Nanoseconds, _Nanoseconds] | None = None
    """Answers `Request.sent_ns`: that value, when the request was read here, and when this frame left."""


class Request(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a viewer says: at first contact, then once a second, and whenever it has room again.

    `session` names a run of requests. A new one, or one that the agent does not know, starts sending at `cursors`; within a
    session only `received` counts, which is the viewer's credit.
    """

    v: int
    session: _Name
    cursors: Annotated[dict[_Name, _Count], Meta(max_length=64)] = {}
    """Stream -> the first sequence number wanted. Streams not named start with the oldest event held, or as `history_s` says."""
    history_s: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    """Of streams not named, only what was published in the last seconds."""
    stored: Annotated[dict[_Name, _Count], Meta(max_length=64)] = {}
    """Stream -> the first number that is not yet on the disk of this viewer, from a viewer that records."""
    sent_ns: _Nanoseconds | None = None
    """When this request left, for the difference of the clocks."""
    received: _Count = 0
    """Frames received in this session."""
    window: Annotated[int, Meta(ge=1, le=256)] = 32
    """Frames that may be under way at once."""
    bodies: Annotated[int, Meta(ge=1, le=1000)] = 1
    """So many may come in one message: what each costs both sides is mostly not for its bytes."""
    summed: bool = False
    """Steps may come as sums per event (`NodeStepsSummed`)."""
    minor: _Count = 2
    """Of the format of events that the viewer knows. Those before 3 do not say it; `wire.older` has what they are sent."""


class BadFrame(Exception):
    """A message that is not ours: `reason` is a word to count it by."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


class _Version(Struct):
    v: int


_encoder = msgspec.msgpack.Encoder()
_version_decoder = msgspec.msgpack.Decoder(_Version)
_versions_decoder = msgspec.msgpack.Decoder(Annotated[list[_Version], Meta(min_length=2, max_length=MAX_BODIES)])
_header_decoder = msgspec.msgpack.Decoder(Header)
_headers_decoder = msgspec.msgpack.Decoder(list[Header])
_request_decoder = msgspec.msgpack.Decoder(Request)
_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def encode_header(*headers: Header) -> bytes:
    """One alone is not a list: older viewers know no other form."""
    return _encoder.encode(headers[0] if len(headers) == 1 else headers)


def encode_request(request: Request) -> bytes:
    return _encoder.encode(request)


def decode_headers(frames: Sequence[bytes]) -> list[Header]:
    """A header for each further frame of an agent's message. Raises BadFrame for anything that is not one of this version."""
    bodies = len(frames) - 1
    if not 1 <= bodies <= MAX_BODIES:
        raise BadFrame("frames", f"{len(frames)} instead of 2 to {1 + MAX_BODIES}")
    if len(frames[0]) > bodies * MAX_HEADER_BYTES or sum(map(len, frames[1:])) > MAX_MESSAGE_BYTES:
        raise BadFrame("size", f"{' + '.join(str(len(frame)) for frame in frames)} bytes")
    try:
        headers = [_header_decoder.decode(frames[0])] if bodies == 1 else _headers_decoder.decode(frames[0])
    except _DECODE_ERRORS as error:
        _check_version(frames[0], "header", several=bodies > 1)
        raise BadFrame("header", str(error)) from None
    for header in headers:
        _expect_version(header.v)
    if len(headers) != bodies:
        raise BadFrame("frames", f"{bodies} bodies for {len(headers)} headers")
    return headers


def decode_body(header: Header, body: bytes) -> tuple[list[AnyEvent], list[BadEvent]]:
    """The events under a header, and what in them could not be read. Raises BadFrame if the body is not what it announces."""
    try:
        events, bad = decode_batch(body)
    except BadEvent as error:
        raise BadFrame("body", str(error)) from None
    if len(events) + len(bad) != header.count:
        raise BadFrame("count", f"{len(events) + len(bad)} events instead of {header.count}")
    return events, bad


def decode_request(frames: Sequence[bytes]) -> Request:
    """A viewer's request. Raises BadFrame for anything else."""
    if len(frames) != 1:
        raise BadFrame("frames", f"{len(frames)} instead of 1")
    if len(frames[0]) > MAX_REQUEST_BYTES:
        raise BadFrame("size", f"{len(frames[0])} bytes")
    try:
        request = _request_decoder.decode(frames[0])
    except _DECODE_ERRORS as error:
        _check_version(frames[0], "request")
        raise BadFrame("request", str(error)) from None
    _expect_version(request.v)
    return request


def _check_version(data: bytes, otherwise: str, *, several: bool = False) -> None:
    """Of what could not be read: it may be of a version that reads differently."""
    try:
        found = _versions_decoder.decode(data) if several else [_version_decoder.decode(data)]
    except _DECODE_ERRORS as error:
        raise BadFrame(otherwise, str(error)) from None
    for version in found:
        _expect_version(version.v)


def _expect_version(found: int) -> None:
    if found != WIRE_VERSION:
        raise BadFrame("version", f"{found}, this side speaks {WIRE_VERSION}")
