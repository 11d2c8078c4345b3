"""A state to bytes and back, so that a seek need not fold from the start. Data only: reading one runs nothing that it holds."""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter, deque
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

import distmon.core.fold
from distmon.core.state import SessionState
from distmon.replay.lines import zstd

SIZE_LIMIT = 1 << 30


class BadKeyframe(Exception):
    """Bytes that are no state of this version."""


@cache
def fold_fingerprint() -> str:
    """Names the fold that made a state: a state kept by another version of the fold is of no use to this one."""
    digest = hashlib.sha256()
    for source in sorted(Path(distmon.core.fold.__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:32]


def encode_state(state: SessionState) -> bytes:
    """The state, compressed."""
    packed: bytes = zstd().ZstdCompressor(level=1, write_checksum=True).compress(_encoder.encode(state))
    return packed


def decode_state(packed: bytes) -> SessionState:
    """Raises BadKeyframe."""
    try:
        # What the frame says of its size is taken as memory before the checksum is looked at.
        if zstd().frame_content_size(packed) > SIZE_LIMIT:
            raise BadKeyframe("it says that it is larger than a state may be")
        content = zstd().ZstdDecompressor().decompress(packed, max_output_size=SIZE_LIMIT, allow_extra_data=False)
        return _decoder.decode(content)
    except (zstd().ZstdError, msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
        raise BadKeyframe(str(error)) from None


def _encode_other(value: object) -> object:
    if isinstance(value, deque):
        return [value.maxlen, list(value)]
    if isinstance(value, array):
        return [value.typecode, value.tobytes()]
    raise NotImplementedError(f"no encoding for {type(value)}")


def _decode_other(wanted: type, value: Any) -> Any:
    origin, arguments = get_origin(wanted) or wanted, get_args(wanted)
    if origin is Counter:
        return Counter(_convert_to(_generic(dict, arguments[0], float | int), value))
    if origin is deque:
        limit, items = value
        return deque(_convert_to(_generic(list, arguments[0]), items), maxlen=limit)
    if origin is array:
        code, content = value
        if code not in "qdI":
            raise ValueError(f"array of {code!r}")
        return array(code, content)
    raise NotImplementedError(f"no decoding for {wanted}")


def _generic(container: Any, *of: Any) -> Any:
    return container[of]


def _convert_to(wanted: Any, value: Any) -> Any:
    return msgspec.convert(value, wanted, strict=False, dec_hook=_decode_other)


_encoder = msgspec.msgpack.Encoder(enc_hook=_encode_other)
_decoder: msgspec.msgpack.Decoder[SessionState] = msgspec.msgpack.Decoder(SessionState, dec_hook=_decode_other)
