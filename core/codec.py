"""Events to bytes and back: msgpack for the wire, JSON for session files, one schema for both."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from distmon.core import step_table
from distmon.core.events import AnyEvent
from distmon.core.step_table import StepTable


def _encoded(form: Callable[[StepTable], object]) -> Callable[[Any], object]:
    def encode(value: Any) -> object:
        if isinstance(value, StepTable):
            return form(value)
        raise NotImplementedError(f"no encoding for {type(value)}")

    return encode


def _decoded(form: Callable[[Any], StepTable]) -> Callable[[type, Any], StepTable]:
    def decode(wanted: type, value: Any) -> StepTable:
        return form(value)

    return decode


_pack, _unpack = _encoded(step_table.packed), _decoded(step_table.unpacked)
_json_encoder = msgspec.json.Encoder(enc_hook=_encoded(step_table.listed))
_msgpack_encoder = msgspec.msgpack.Encoder(enc_hook=_pack)
_msgpack_batch_decoder = msgspec.msgpack.Decoder(list[msgspec.Raw])
_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


@cache
def _json_decoder() -> msgspec.json.Decoder[AnyEvent]:
    """Like all decoders of every kind of event made when first used, in milliseconds: an agent only encodes."""
    return msgspec.json.Decoder(AnyEvent, dec_hook=_decoded(step_table.unlisted))


@cache
def _msgpack_events_decoder() -> msgspec.msgpack.Decoder[list[AnyEvent]]:
    return msgspec.msgpack.Decoder(list[AnyEvent], dec_hook=_unpack)


@cache
def _msgpack_decoder() -> msgspec.msgpack.Decoder[AnyEvent]:
    return msgspec.msgpack.Decoder(AnyEvent, dec_hook=_unpack)


class _Tag(msgspec.Struct):
    kind: str
    stream: str = ""
    seq: int = 0


_json_tag = msgspec.json.Decoder(_Tag)
_msgpack_tag = msgspec.msgpack.Decoder(_Tag)
KNOWN_KINDS = frozenset(str(member.__struct_config__.tag) for member in AnyEvent.__args__)


class BadEvent(Exception):
    """Bytes that are no event of this format."""


class UnknownKind(BadEvent):
    """An event of a kind that this version does not know; to be skipped and counted."""

    def __init__(self, kind: str, stream: str = "", seq: int = 0) -> None:
        super().__init__(f"unknown kind of event {kind!r}")
        self.kind, self.stream, self.seq = kind, stream, seq


def encode_json(event: AnyEvent) -> bytes:
    """One line of a session file, without the line end."""
    return _json_encoder.encode(event)


def decode_json(line: bytes) -> AnyEvent:
    """Raises UnknownKind for a well-formed event of a later version, BadEvent for anything else."""
    try:
        return _json_decoder().decode(line)
    except _DECODE_ERRORS as error:
        raise _classify(_json_tag, line, error) from None


def encode_batch(events: list[AnyEvent]) -> bytes:
    """The body of a wire frame."""
    return _msgpack_encoder.encode(events)


def encode_msgpack(event: AnyEvent) -> bytes:
    """One event, to be joined with others into a wire frame's body."""
    return _msgpack_encoder.encode(event)


def join_batch(encoded: list[bytes]) -> bytes:
    """The body of a wire frame, from events that `encode_msgpack` made; decodes as what `encode_batch` gives."""
    return b"\xdd" + len(encoded).to_bytes(4, "big") + b"".join(encoded)


def decode_batch(body: bytes) -> tuple[list[AnyEvent], list[BadEvent]]:
    """The events of a wire frame, and what in it could not be read. Raises BadEvent if the frame itself is no batch."""
    try:
        return _msgpack_events_decoder().decode(body), []
    except _DECODE_ERRORS:
        return _decode_one_by_one(body)


def _decode_one_by_one(body: bytes) -> tuple[list[AnyEvent], list[BadEvent]]:
    try:
        raws = _msgpack_batch_decoder.decode(body)
    except _DECODE_ERRORS as error:
        raise BadEvent(str(error)) from None
    events: list[AnyEvent] = []
    bad: list[BadEvent] = []
    for raw in raws:
        try:
            events.append(_msgpack_decoder().decode(raw))
        except _DECODE_ERRORS as error:
            bad.append(_classify(_msgpack_tag, raw, error))
    return events, bad


def _classify(
    tag_decoder: msgspec.json.Decoder[_Tag] | msgspec.msgpack.Decoder[_Tag], data: bytes | msgspec.Raw, error: Exception
) -> BadEvent:
    try:
        tag = tag_decoder.decode(data)
    except _DECODE_ERRORS:
        return BadEvent(str(error))
    return BadEvent(str(error)) if tag.kind in KNOWN_KINDS else UnknownKind(tag.kind, tag.stream, tag.seq)
