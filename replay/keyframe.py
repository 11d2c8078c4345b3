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
from distmon.core.batches import Batch
from distmon.core.state import SessionState
from distmon.core.step_table import known_columns
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
    return pack(state_bytes(state))


def decode_state(packed: bytes, base: bytes = b"") -> SessionState:
    """`base` is what the state was packed against, unpacked. Raises BadKeyframe."""
    try:
        return _with_known_columns(_decoder.decode(unpack(packed, base)))
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
        raise BadKeyframe(str(error)) from None


def state_bytes(state: SessionState) -> bytes:
    """The state, not compressed."""
    return _encoder.encode(state)


def pack(content: bytes) -> bytes:
    """Compressed by itself."""
    packed: bytes = zstd().ZstdCompressor(level=1, write_checksum=True).compress(content)
    return packed


def unpack(packed: bytes, base: bytes = b"") -> bytes:
    """The reverse of `pack`, or of `Base.pack` where `base` is the content of that one. Raises BadKeyframe."""
    try:
        # What the frame says of its size is taken as memory before the checksum is looked at.
        if zstd().frame_content_size(packed) > SIZE_LIMIT:
            raise BadKeyframe("it says that it is larger than a state may be")
        known = _dictionary(base) if base else None
        content: bytes = (
            zstd().ZstdDecompressor(dict_data=known).decompress(packed, max_output_size=SIZE_LIMIT, allow_extra_data=False)
        )
        return content
    except (zstd().ZstdError, ValueError) as error:
        raise BadKeyframe(str(error)) from None


class Base:
    """A state against which later ones are packed: most of a state is what it was a minute ago, which then takes no room."""

    def __init__(self, content: bytes) -> None:
        """Takes 5 ms for each MB."""
        # The tables of zstd's usual levels reach back over half a megabyte only.
        reach, table = (len(content) * 2).bit_length(), max((len(content) // 4).bit_length(), 12)
        how = zstd().ZstdCompressionParameters.from_level(1, window_log=max(reach, 12), hash_log=table, write_checksum=True)
        known = _dictionary(content)
        known.precompute_compress(compression_params=how)
        self._compressor = zstd().ZstdCompressor(compression_params=how, dict_data=known)

    def pack(self, content: bytes) -> bytes:
        """What in `content` differs, compressed."""
        packed: bytes = self._compressor.compress(content)
        return packed


def _dictionary(content: bytes) -> Any:
    return zstd().ZstdCompressionDict(content, dict_type=zstd().DICT_TYPE_RAWCONTENT)


_new: Any = tuple.__new__
"""Of a named tuple its own way takes three times as long, and a large state has a hundred thousand."""


def _with_known_columns(state: SessionState) -> SessionState:
    """Usual columns are told by their identity: without it a state that was read would be slower than the live one it is of."""
    for generation in state.generations.values():
        for steps in generation.ranks.values():
            steps.first_batches = list(map(_known, steps.first_batches))
            steps.batches = list(map(_known, steps.batches))
    return state


def _known(batch: Batch) -> Batch:
    known: Batch = _new(Batch, (*batch[:4], known_columns(batch.columns), batch.numbers))
    return known


def _encode_other(value: object) -> object:
    if isinstance(value, deque):
        return [value.maxlen, list(value)]
    if isinstance(value, array):
        return [value.typecode, value.tobytes()]
    raise NotImplementedError(f"no encoding for {type(value)}")


def _decode_other(wanted: type, value: Any) -> Any:
    if wanted is array:  # nearly all that comes here
        code, content = value
        if code not in "qdI":
            raise ValueError(f"array of {code!r}")
        return array(code, content)
    origin, arguments = get_origin(wanted) or wanted, get_args(wanted)
    if origin is Counter:
        return Counter(_convert_to(_generic(dict, arguments[0], float | int), value))
    if origin is deque:
        limit, items = value
        return deque(_convert_to(_generic(list, arguments[0]), items), maxlen=limit)
    raise NotImplementedError(f"no decoding for {wanted}")


def _generic(container: Any, *of: Any) -> Any:
    return container[of]


def _convert_to(wanted: Any, value: Any) -> Any:
    return msgspec.convert(value, wanted, strict=False, dec_hook=_decode_other)


_encoder = msgspec.msgpack.Encoder(enc_hook=_encode_other)
_decoder: msgspec.msgpack.Decoder[SessionState] = msgspec.msgpack.Decoder(SessionState, dec_hook=_decode_other)
